#include "cell/server/region/checkpointer.h"

#include <algorithm>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "pilaf/hash_walk.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;  // Bytes of a checkpoint that are written at once.
constexpr int kLeavesPerStep = 8;
constexpr uint32_t kHashBytesPerStep = 8192;  // Bytes of slots or buckets.

}  // namespace

void Checkpointer::Step() {
  if (!logs_->on() || scheduler_->stopping()) return;
  HeldRegion* long_log = nullptr;
  regions_->ForEach([&](HeldRegion* region) {
    if (region->log == nullptr || !region->claimable() || !region->log->status().ok()) return;
    const uint64_t longest = std::max(options_.log_bytes_min, 2 * region->store->data_bytes());
    if (region->log_bytes_since_checkpoint() > longest) long_log = region;
  });
  if (long_log != nullptr) scheduler_->Spawn(AutoCheckpoint(RegionClaim(long_log, ClaimPurpose::kCheckpoint)));
}

Task<bool> Checkpointer::AutoCheckpoint(RegionClaim claim) {
  const uint32_t region = claim.region()->region();
  const absl::Status status = co_await TryCheckpoint(claim.region());
  claim.Release();
  if (!status.ok() && !scheduler_->stopping()) {
    spdlog::warn("could not write a checkpoint of region {}: {}", region, std::string(status.message()));
  }
  co_return status.ok();
}

Task<absl::Status> Checkpointer::Checkpoint(uint32_t region) {
  HeldRegion* const held = regions_->Find(region);
  if (held == nullptr || held->log == nullptr) {
    co_return absl::FailedPreconditionError(fmt::format("region {} is not held by this worker, or has no log", region));
  }
  if (held->claimed()) co_return absl::FailedPreconditionError(fmt::format("region {} is busy", region));
  const RegionClaim claim(held, ClaimPurpose::kCheckpoint);
  co_return co_await TryCheckpoint(held);
}

Task<absl::Status> Checkpointer::CheckpointAll(Made* made) {
  if (!logs_->on()) co_return absl::FailedPreconditionError("this cluster keeps no logs (--durability none)");
  std::vector<uint32_t> regions;
  regions_->ForEach([&regions](HeldRegion* region) { regions.push_back(region->region()); });
  const uint64_t before = counters_.checkpoint_bytes;
  for (const uint32_t region : regions) {
    HeldRegion* held = regions_->Find(region);
    while (held != nullptr && held->claimed() && !scheduler_->stopping()) {
      co_await regions_->unclaimed()->Wait(scheduler_);
      held = regions_->Find(region);
    }
    if (held == nullptr) continue;  // Its new owner has it.
    const absl::Status status = co_await Checkpoint(region);
    if (!status.ok()) co_return status;
    ++made->regions;
  }
  made->bytes = counters_.checkpoint_bytes - before;
  co_return absl::OkStatus();
}

struct Checkpointer::Draft {
  HeldRegion* held;
  std::unique_ptr<LogWriter> writer;
  std::string chunk;
  uint64_t records;

  void Add(RecordKind kind, std::string_view key, std::string_view value) {
    AppendRecord(NextContext(), kind, key, value, {}, &chunk);
  }
  void AddPair(const LoggedPair& pair) { AppendPut(NextContext(), pair, &chunk); }
  RecordContext NextContext() { return {held->region(), held->log->epoch(), ++records, 0}; }
};

Task<absl::Status> Checkpointer::Write(Draft* draft) {
  counters_.checkpoint_bytes += draft->chunk.size();
  const RunInPool::Work write = [draft] { return draft->writer->Append(draft->chunk); };
  const absl::Status status = co_await logs_->RunOnDisk(write);
  draft->chunk.clear();
  co_return status;
}

Task<absl::Status> Checkpointer::AddMeganode(Draft* draft) {
  const Meganode& tree = *draft->held->tree;
  std::string next = tree.range().low;
  std::string key;
  for (int leaves = 1;; ++leaves) {
    const absl::StatusOr<NodeView> leaf = tree.VerifiedLeafOf(next);
    if (!leaf.ok()) co_return leaf.status();
    for (int i = std::max(0, leaf->LowerBound(next)); i < leaf->count(); ++i) {
      leaf->CopyKey(i, &key);
      if (leaf->holds_pairs()) {
        const LeafPair pair = leaf->pair(i);
        const absl::StatusOr<std::string_view> value = tree.VerifiedValueOf(key, pair);
        if (!value.ok()) co_return value.status();
        draft->AddPair({key, *value, pair.expiry, pair.stamp});
      } else {
        const Pointer child = leaf->inner_slot(i).child();
        draft->Add(RecordKind::kRoute, key, std::string_view(reinterpret_cast<const char*>(&child), sizeof(child)));
      }
    }
    const bool end = !leaf->has_high() || !tree.Covers(leaf->high_key());
    if (!end) next = leaf->high_key();
    absl::Status status;
    if (end || draft->chunk.size() >= kChunkBytes) {
      status = co_await Write(draft);
    } else if (leaves % kLeavesPerStep == 0) {
      co_await scheduler_->Yield();
    }
    if (!status.ok()) co_return status;
    if (scheduler_->stopping() || draft->held->lost())
      co_return absl::CancelledError("the server is shutting down, or has lost the region");
    if (end) co_return absl::OkStatus();
  }
}

Task<absl::Status> Checkpointer::AddTable(Draft* draft) {
  HashTable* const table = draft->held->hash;
  HashWalk walk(table);
  const uint32_t units = std::max<uint32_t>(1, kHashBytesPerStep / table->geometry().unit_bytes());
  const HashTable::Visit visit = [draft](const HashPair& pair) { draft->AddPair({pair.key, pair.value, pair.expiry}); };
  for (;;) {
    const absl::StatusOr<bool> step = walk.Step(units, visit);
    if (!step.ok()) co_return step.status();
    const bool end = *step;
    absl::Status status;
    if (end || draft->chunk.size() >= kChunkBytes) {
      status = co_await Write(draft);
    } else {
      co_await scheduler_->Yield();
    }
    if (!status.ok()) co_return status;
    if (scheduler_->stopping() || draft->held->lost())
      co_return absl::CancelledError("the server is shutting down, or has lost the region");
    if (end) co_return absl::OkStatus();
  }
}

// REQUIRES: the region is claimed, so that it stays here, and whole.
Task<absl::Status> Checkpointer::TryCheckpoint(HeldRegion* held) {
  const std::shared_ptr<RegionLog> log = held->log;
  const uint32_t region = log->region();
  held->NoteCheckpoint();  // If it fails, the next attempt follows when the log has grown as much again.

  // Begin a new segment, so that the old ones can be removed. All earlier records must be on disk, and in the tree.
  const uint64_t sequence = log->BeginRoll();
  while (log->status().ok() &&
         (log->durable() + 1 < sequence || (!held->pending.empty() && held->pending.front().sequence < sequence))) {
    held->RequestFlush();
    co_await held->changed.Wait(scheduler_);
  }
  if (!log->status().ok()) co_return log->status();
  std::unique_ptr<LogWriter> segment;
  absl::Status status = co_await logs_->Open(region, log->epoch(), sequence, &segment);
  if (!status.ok()) {
    held->FailLog(status);  // It cannot continue in the old segment, because the sequence belongs to another one.
    co_return status;
  }
  log->EndRoll(std::move(segment));
  // Those that are in earlier segments go with them. The checkpoint is complete when these are on disk.
  const uint64_t before = log->bytes();
  if (!Mutated(Mutant::kOutcomesTrimmed)) held->LogOutcomes();
  held->NoteLoggedAgain(log->bytes() - before);

  std::unique_ptr<LogWriter> writer;
  const RunInPool::Work begin = [this, region, epoch = log->epoch(), sequence, &writer]() -> absl::Status {
    absl::StatusOr<std::unique_ptr<LogWriter>> begun = logs_->store()->BeginCheckpoint(region, epoch, sequence);
    if (!begun.ok()) return begun.status();
    writer = *std::move(begun);
    return absl::OkStatus();
  };
  status = co_await logs_->RunOnDisk(begin);
  if (status.ok()) status = co_await WriteCheckpoint(held, log, sequence, std::move(writer));
  if (status.ok()) {
    ++counters_.checkpoints;
    co_return status;
  }
  if (absl::IsDataLoss(status) && log->status().ok()) ++counters_.damaged;
  // Remove what there is of it, because it would take room until the next one. There may be nothing.
  const RunInPool::Work discard = [this, region, epoch = log->epoch(), sequence] {
    return logs_->store()->DiscardCheckpoint(region, epoch, sequence);
  };
  (void)co_await logs_->RunOnDisk(discard);
  co_return status;
}

Task<absl::Status> Checkpointer::WriteCheckpoint(HeldRegion* held, std::shared_ptr<RegionLog> log, uint64_t sequence,
                                                 std::unique_ptr<LogWriter> writer) {
  const uint32_t region = log->region();
  absl::Status status;
  Draft draft{held, std::move(writer), {}, 0};
  const HeldRegion::RangeRecord range = held->range_record();
  draft.Add(RecordKind::kBegin, "", BeginValue(region));
  draft.Add(range.kind, range.key, range.value);
  if (held->has_pairs()) draft.Add(RecordKind::kStampBound, "", EncodeStampBound(held->stamp_bound()));
  if (held->tree != nullptr) {
    status = co_await AddMeganode(&draft);
  } else {
    status = co_await AddTable(&draft);
  }
  if (!status.ok()) co_return status;
  // Later records that it includes must be on disk as well.
  const CheckpointEnd end{draft.records, log->appended()};
  while (log->status().ok() && log->durable() < end.log_sequence) {
    held->RequestFlush();
    co_await held->changed.Wait(scheduler_);
  }
  if (!log->status().ok()) co_return log->status();
  draft.Add(RecordKind::kEnd, "", std::string_view(reinterpret_cast<const char*>(&end), sizeof(end)));
  const RunInPool::Work commit = [this, region, epoch = log->epoch(), sequence, &draft]() -> absl::Status {
    RETURN_IF_ERROR(draft.writer->Append(draft.chunk));
    if (!Mutated(Mutant::kCheckpointUnsynced)) RETURN_IF_ERROR(draft.writer->Sync());
    RETURN_IF_ERROR(logs_->store()->CommitCheckpoint(region, epoch, sequence));
    return logs_->store()->Trim(region, epoch, sequence);
  };
  co_return co_await logs_->RunOnDisk(commit);
}

}  // namespace cell

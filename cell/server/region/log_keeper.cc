#include "cell/server/region/log_keeper.h"

#include <algorithm>

#include "cell/base/mutant.h"
#include "cell/io/net/descriptors.h"
#include "pilaf/hash_walk.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;  // Bytes of a checkpoint that are written at once.
constexpr int kLeavesPerTurn = 8;
constexpr uint32_t kHashBytesPerTurn = 8192;  // Bytes of slots or buckets.
constexpr int64_t kClaimedPauseNs = 1'000'000;

}  // namespace

Task<absl::Status> LogKeeper::Open(uint32_t region, uint64_t epoch, uint64_t sequence,
                                   std::unique_ptr<LogWriter>* writer) {
  const Offload::Work open = [this, region, epoch, sequence, writer]() -> absl::Status {
    absl::StatusOr<std::unique_ptr<LogWriter>> opened = store_->Open(region, static_cast<uint32_t>(epoch), sequence);
    if (!opened.ok()) return opened.status();
    *writer = *std::move(opened);
    return absl::OkStatus();
  };
  bool said = false;
  for (;;) {
    absl::Status status = co_await Do(open);
    // This is not an error of the disk: connections have taken all descriptors, and some will become free.
    const bool again = IsOutOfDescriptors(status) && !Mutated(Mutant::kDescriptorsFailLogs);
    if (!again || turns_->stopping()) co_return status;
    if (!std::exchange(said, true)) {
      spdlog::error("the log of region {} waits for a descriptor: {}", region, std::string(status.message()));
    }
    co_await turns_->Sleep(options_.descriptor_pause_ns);
  }
}

Task<absl::Status> LogKeeper::Create(uint32_t region) {
  if (!on()) co_return absl::OkStatus();
  std::unique_ptr<LogWriter> writer;
  bool there = false;
  const Offload::Work look = [this, region, &there]() -> absl::Status {
    ASSIGN_OR_RETURN(there, store_->Has(region));
    return absl::OkStatus();
  };
  absl::Status status = co_await Do(look);
  if (status.ok() && there) {
    found_anothers_ = true;
    status = absl::AlreadyExistsError(
        fmt::format("there is a log of a region {} already: the region table is older than the logs", region));
  }
  if (status.ok()) status = co_await Open(region, 1, 1, &writer);
  if (!status.ok()) co_return status;
  HeldRegion* const held = regions_->Find(region);
  held->SetLog(std::make_shared<RegionLog>(region, 1, 1, std::move(writer)), log_first());
  const HeldRegion::RangeRecord range = held->range_record();
  held->log->Append(range.kind, range.key, range.value);
  co_return co_await Flushed(region);
}

Task<absl::Status> LogKeeper::Continue(uint32_t region, uint64_t epoch) {
  if (!on()) co_return absl::OkStatus();
  const uint64_t sequence = regions_->Find(region)->memory->header().log_sequence + 1;
  std::unique_ptr<LogWriter> writer;
  const absl::Status status = co_await Open(region, epoch, sequence, &writer);
  HeldRegion* const held = regions_->Find(region);
  if (held == nullptr) co_return absl::AbortedError("the region is another worker's");
  auto log = std::make_shared<RegionLog>(region, static_cast<uint32_t>(epoch), sequence, std::move(writer));
  if (!status.ok()) {
    spdlog::error("region {} cannot be written any more: {}", region, std::string(status.message()));
    log->Fail(status);
  }
  held->SetLog(std::move(log), log_first());
  held->log_bytes_at_checkpoint = 0;
  co_return status;
}

Task<absl::Status> LogKeeper::Flushed(uint32_t region) {
  for (;;) {
    HeldRegion* const held = regions_->Find(region);
    if (held == nullptr) co_return absl::AbortedError("the region is not here any more");
    if (held->log == nullptr) co_return absl::OkStatus();
    if (!held->log->status().ok()) co_return held->log->status();
    if (held->log->durable() == held->log->appended()) co_return absl::OkStatus();
    held->flush_now = true;
    co_await held->changed.Wait(turns_);
  }
}

Task<absl::Status> LogKeeper::Settled(uint32_t region) {
  absl::Status status = co_await Flushed(region);
  for (;;) {
    HeldRegion* const held = regions_->Find(region);
    if (held == nullptr || held->pending.empty() || !status.ok()) co_return status;
    co_await held->changed.Wait(turns_);
  }
}

void LogKeeper::BeginFlush(HeldRegion* region) {
  struct Job {
    std::shared_ptr<RegionLog> log;
    RegionLog::Flush flush;
    int64_t begun_ns;
    absl::Status status;
  };
  region->flush_begun_ns = fabric_->NowNs();
  region->flush_now = false;  // A coroutine that waits for a later flush asks again.
  auto job = std::make_shared<Job>(Job{region->log, region->log->BeginFlush(), region->flush_begun_ns, {}});
  disk_->Run([job] { job->status = job->flush.Write(); },
             [this, job] {
               job->log->EndFlush(std::move(job->flush), job->status);
               ++counters_.flushes;
               const auto took_ns = static_cast<uint64_t>(fabric_->NowNs() - job->begun_ns);
               counters_.longest_flush_ns = std::max(counters_.longest_flush_ns, took_ns);
               HeldRegion* const held = regions_->Find(job->log->region());
               if (held != nullptr) held->changed.Notify();
               if (job->status.ok()) return;
               ++counters_.failed;
               spdlog::error(
                   "the log of region {} has failed, and nothing that is written to the region is "
                   "acknowledged until its disk answers again: {}",
                   job->log->region(), std::string(job->status.message()));
             });
}

void LogKeeper::Look(HeldRegion* region, int64_t now_ns) {
  RegionLog* const log = region->log.get();
  if (log == nullptr) return;
  if (!log->dirty()) {
    region->dirty_since_ns = region->flush_begun_ns = 0;
    region->late = region->flush_now = false;
    MarkIfIdle(region, now_ns);
    return;
  }
  region->idle_since_ns = 0;
  if (!log->flushing() && region->flush_begun_ns != 0) {  // A flush has ended. What is left came during it.
    region->dirty_since_ns = region->flush_begun_ns;
    region->flush_begun_ns = 0;
  }
  if (region->dirty_since_ns == 0) region->dirty_since_ns = now_ns;
  const int64_t due_ns = region->dirty_since_ns + (log_first() || region->flush_now ? 0 : options_.bound_ns / 2);
  region->late = log->waiting_bytes() > options_.waiting_bytes_max ||
                 (!log_first() && now_ns - region->dirty_since_ns > options_.bound_ns);
  if (log->flushing()) return;
  if (log->can_flush() && (now_ns >= due_ns || region->late)) {
    BeginFlush(region);
  } else {
    next_ns_ = std::min(next_ns_, due_ns);
  }
}

// Appends a marker to an idle log. Not while the region is frozen: the number of its last record is passed to the
// migration's target, so nothing may be appended then.
void LogKeeper::MarkIfIdle(HeldRegion* region, int64_t now_ns) {
  if (!region->log->unmarked() || !region->writable()) return;
  if (region->idle_since_ns == 0) region->idle_since_ns = now_ns;
  const int64_t due_ns = region->idle_since_ns + (finishing_ ? 0 : options_.mark_after_ns);
  next_ns_ = std::min(next_ns_, due_ns);
  if (now_ns < due_ns) return;
  region->log->Mark();
  ++counters_.markers;
}

void LogKeeper::Step() {
  if (!on()) return;
  const int64_t now_ns = fabric_->NowNs();
  next_ns_ = INT64_MAX;
  HeldRegion* long_log = nullptr;
  regions_->ForEach([&](HeldRegion* region) {
    Look(region, now_ns);
    if (region->log == nullptr || !region->claimable() || !region->log->status().ok()) return;
    const uint64_t since = region->log->bytes() - region->log_bytes_at_checkpoint;
    if (since > std::max(options_.checkpoint_bytes_min, 2 * region->store->data_bytes())) long_log = region;
  });
  if (long_log != nullptr && !turns_->stopping()) {
    turns_->Begin(AutoCheckpoint(RegionClaim(long_log, ClaimPurpose::kCheckpoint)));
  }
}

absl::Status LogKeeper::Finish() {
  if (!on()) return absl::OkStatus();
  finishing_ = true;
  int64_t ended_ns = fabric_->NowNs();
  for (bool more = true; more || !disk_->idle();) {
    if (fabric_->NowNs() - ended_ns > options_.finish_patience_ns) return Unfinished();
    Step();
    more = false;
    regions_->ForEach([&](HeldRegion* region) {
      region->flush_now = true;
      more |= region->log != nullptr && region->log->dirty();
    });
    if (Poll() > 0) {
      ended_ns = fabric_->NowNs();
    } else {
      fabric_->Wait(fabric_->NowNs() + 100'000);
    }
  }
  return NoteEnds();
}

absl::Status LogKeeper::NoteEnds() {
  regions_->ForEach([this](HeldRegion* region) {
    const RegionLog* const log = region->log.get();
    if (log == nullptr || !log->status().ok() || log->durable() != log->appended()) return;
    const auto noted = std::make_shared<absl::Status>();
    disk_->Run([this, noted, id = log->region(), epoch = log->epoch(),
                sequence = log->appended()] { *noted = store_->NoteEnd(id, epoch, sequence); },
               [noted, id = log->region()] {
                 if (noted->ok()) return;
                 spdlog::warn("the end of region {}'s log is not noted: {}", id, std::string(noted->message()));
               });
  });
  int64_t ended_ns = fabric_->NowNs();
  while (!disk_->idle()) {
    if (Poll() > 0) {
      ended_ns = fabric_->NowNs();
    } else if (fabric_->NowNs() - ended_ns > options_.finish_patience_ns) {
      return Unfinished();
    } else {
      fabric_->Wait(fabric_->NowNs() + 100'000);
    }
  }
  return absl::OkStatus();
}

absl::Status LogKeeper::Unfinished() const {
  std::string behind;
  regions_->ForEach([&](const HeldRegion* region) {  // With sync, none of it was acknowledged.
    if (log_first() || region->log == nullptr || !region->log->unwritten()) return;
    behind += fmt::format("{}{}", behind.empty() ? "" : ", ", region->region());
  });
  return absl::DeadlineExceededError(
      fmt::format("the disk of the logs does not answer; {}",
                  behind.empty() ? "all that was acknowledged is on it"
                                 : fmt::format("what was acknowledged last may not be on it, of these regions: {}", behind)));
}

Task<bool> LogKeeper::AutoCheckpoint(RegionClaim claim) {
  const uint32_t region = claim.region()->region();
  const absl::Status status = co_await TryCheckpoint(claim.region());
  claim.Release();
  if (!status.ok() && !turns_->stopping()) {
    spdlog::warn("no checkpoint of region {}: {}", region, std::string(status.message()));
  }
  co_return status.ok();
}

Task<absl::Status> LogKeeper::Checkpoint(uint32_t region) {
  HeldRegion* const held = regions_->Find(region);
  if (held == nullptr || held->log == nullptr) {
    co_return absl::FailedPreconditionError(fmt::format("region {} is not here, or has no log", region));
  }
  if (held->claimed()) co_return absl::FailedPreconditionError(fmt::format("region {} is busy", region));
  const RegionClaim claim(held, ClaimPurpose::kCheckpoint);
  co_return co_await TryCheckpoint(held);
}

Task<absl::Status> LogKeeper::CheckpointAll(Made* made) {
  if (!on()) co_return absl::FailedPreconditionError("this cluster keeps no logs (--durability none)");
  std::vector<uint32_t> regions;
  regions_->ForEach([&regions](HeldRegion* region) { regions.push_back(region->region()); });
  const uint64_t before = counters_.checkpoint_bytes;
  for (const uint32_t region : regions) {
    HeldRegion* held = regions_->Find(region);
    while (held != nullptr && held->claimed() && !turns_->stopping()) {
      co_await turns_->Sleep(kClaimedPauseNs);  // Do not wait for its event, because a claim may outlast the worker's
                                                // end.
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

struct LogKeeper::Draft {
  HeldRegion* held;
  std::unique_ptr<LogWriter> writer;
  std::string chunk;
  uint64_t records;

  void Add(RecordKind kind, std::string_view key, std::string_view value) {
    AppendRecord({held->region(), held->log->epoch(), ++records, 0}, kind, key, value, {}, &chunk);
  }
};

Task<absl::Status> LogKeeper::Write(Draft* draft) {
  counters_.checkpoint_bytes += draft->chunk.size();
  const Offload::Work write = [draft] { return draft->writer->Append(draft->chunk); };
  const absl::Status status = co_await Do(write);
  draft->chunk.clear();
  co_return status;
}

Task<absl::Status> LogKeeper::AddMeganode(Draft* draft) {
  const Meganode& tree = *draft->held->tree;
  std::string next = tree.range().low;
  std::string key;
  for (int leaves = 1;; ++leaves) {
    const absl::StatusOr<NodeView> leaf = tree.LeafOf(next);
    if (!leaf.ok()) co_return leaf.status();
    for (int i = std::max(0, leaf->LowerBound(next)); i < leaf->count(); ++i) {
      if (leaf->holds_pairs()) {
        const LeafSlot slot = leaf->leaf_slot(i);
        const std::string_view pair = AsText(ConstBytes(tree.Extent(slot.extent), slot.extent_bytes));
        const size_t key_bytes = leaf->key_bytes(i);
        draft->Add(RecordKind::kPut, pair.substr(0, key_bytes), pair.substr(key_bytes));
      } else {
        leaf->CopyKey(i, &key);
        const Pointer child = leaf->inner_slot(i).child();
        draft->Add(RecordKind::kRoute, key, std::string_view(reinterpret_cast<const char*>(&child), sizeof(child)));
      }
    }
    const bool end = !leaf->has_high() || !tree.Covers(leaf->high_key());
    if (!end) next = leaf->high_key();
    absl::Status status;
    if (end || draft->chunk.size() >= kChunkBytes) {
      status = co_await Write(draft);
    } else if (leaves % kLeavesPerTurn == 0) {
      co_await turns_->Next();
    }
    if (!status.ok()) co_return status;
    if (turns_->stopping() || draft->held->lost()) co_return absl::CancelledError("it was given up");
    if (end) co_return absl::OkStatus();
  }
}

Task<absl::Status> LogKeeper::AddTable(Draft* draft) {
  HashTable* const table = draft->held->hash;
  HashWalk walk(table);
  const uint32_t units = std::max<uint32_t>(1, kHashBytesPerTurn / table->place().unit_bytes());
  const HashTable::Visit visit = [draft](std::string_view key, std::string_view value) {
    draft->Add(RecordKind::kPut, key, value);
  };
  for (;;) {
    const bool end = walk.Step(units, visit);
    absl::Status status;
    if (end || draft->chunk.size() >= kChunkBytes) {
      status = co_await Write(draft);
    } else {
      co_await turns_->Next();
    }
    if (!status.ok()) co_return status;
    if (turns_->stopping() || draft->held->lost()) co_return absl::CancelledError("it was given up");
    if (end) co_return absl::OkStatus();
  }
}

// REQUIRES: the region is claimed, so that it stays here, and whole.
Task<absl::Status> LogKeeper::TryCheckpoint(HeldRegion* held) {
  const std::shared_ptr<RegionLog> log = held->log;
  const uint32_t region = log->region();
  held->log_bytes_at_checkpoint = log->bytes();  // If it fails, the next attempt follows when the log has grown as much
                                                 // again.

  // Begin a new segment, so that the old ones can be removed. All earlier records must be on disk, and in the tree.
  const uint64_t sequence = log->BeginRoll();
  while (log->status().ok() &&
         (log->durable() + 1 < sequence || (!held->pending.empty() && held->pending.front().sequence < sequence))) {
    held->flush_now = true;
    co_await held->changed.Wait(turns_);
  }
  if (!log->status().ok()) co_return log->status();
  std::unique_ptr<LogWriter> segment;
  absl::Status status = co_await Open(region, log->epoch(), sequence, &segment);
  if (!status.ok()) {
    held->FailLog(status);  // It cannot continue in the old segment, because the sequence belongs to another one.
    co_return status;
  }
  log->EndRoll(std::move(segment));

  std::unique_ptr<LogWriter> writer;
  const Offload::Work begin = [this, region, epoch = log->epoch(), sequence, &writer]() -> absl::Status {
    absl::StatusOr<std::unique_ptr<LogWriter>> begun = store_->BeginCheckpoint(region, epoch, sequence);
    if (!begun.ok()) return begun.status();
    writer = *std::move(begun);
    return absl::OkStatus();
  };
  status = co_await Do(begin);
  if (status.ok()) status = co_await WriteCheckpoint(held, log, sequence, std::move(writer));
  if (status.ok()) {
    ++counters_.checkpoints;
    co_return status;
  }
  // Remove what there is of it, because it would take room until the next one. There may be nothing.
  const Offload::Work abandon = [this, region, epoch = log->epoch(), sequence] {
    return store_->AbandonCheckpoint(region, epoch, sequence);
  };
  (void)co_await Do(abandon);
  co_return status;
}

Task<absl::Status> LogKeeper::WriteCheckpoint(HeldRegion* held, std::shared_ptr<RegionLog> log, uint64_t sequence,
                                              std::unique_ptr<LogWriter> writer) {
  const uint32_t region = log->region();
  absl::Status status;
  Draft draft{held, std::move(writer), {}, 0};
  const HeldRegion::RangeRecord range = held->range_record();
  draft.Add(RecordKind::kBegin, "", BeginValue(region));
  draft.Add(range.kind, range.key, range.value);
  if (held->tree != nullptr) {
    status = co_await AddMeganode(&draft);
  } else {
    status = co_await AddTable(&draft);
  }
  if (!status.ok()) co_return status;
  // Later records that it includes must be on disk as well.
  const CheckpointEnd end{draft.records, log->appended()};
  while (log->status().ok() && log->durable() < end.log_sequence) {
    held->flush_now = true;
    co_await held->changed.Wait(turns_);
  }
  if (!log->status().ok()) co_return log->status();
  draft.Add(RecordKind::kEnd, "", std::string_view(reinterpret_cast<const char*>(&end), sizeof(end)));
  const Offload::Work commit = [this, region, epoch = log->epoch(), sequence, &draft]() -> absl::Status {
    RETURN_IF_ERROR(draft.writer->Append(draft.chunk));
    if (!Mutated(Mutant::kCheckpointUnsynced)) RETURN_IF_ERROR(draft.writer->Sync());
    RETURN_IF_ERROR(store_->CommitCheckpoint(region, epoch, sequence));
    return store_->Trim(region, epoch, sequence);
  };
  co_return co_await Do(commit);
}

}  // namespace cell

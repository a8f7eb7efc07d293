#include "cell/server/region/log_flusher.h"

#include <algorithm>

#include "cell/base/mutant.h"
#include "cell/io/net/descriptors.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int64_t kSettlePauseNs = 50'000;
constexpr int64_t kSettleNsMax = 100'000'000;

}  // namespace

Task<absl::Status> LogFlusher::Open(uint32_t region, uint64_t epoch, uint64_t sequence,
                                    std::unique_ptr<LogWriter>* writer) {
  const RunInPool::Work open = [this, region, epoch, sequence, writer]() -> absl::Status {
    absl::StatusOr<std::unique_ptr<LogWriter>> opened = store_->Open(region, static_cast<uint32_t>(epoch), sequence);
    if (!opened.ok()) return opened.status();
    *writer = *std::move(opened);
    return absl::OkStatus();
  };
  bool said = false;
  for (;;) {
    absl::Status status = co_await RunOnDisk(open);
    // This is not an error of the disk: connections have taken all descriptors, and some will become free.
    const bool again = IsOutOfDescriptors(status) && !Mutated(Mutant::kDescriptorsFailLogs);
    if (!again || scheduler_->stopping()) co_return status;
    if (!std::exchange(said, true)) {
      spdlog::error("the log of region {} cannot be opened until a file descriptor is free: {}", region,
                    std::string(status.message()));
    }
    co_await scheduler_->Sleep(options_.descriptor_pause_ns);
  }
}

Task<absl::Status> LogFlusher::Create(uint32_t region) {
  if (!on()) co_return absl::OkStatus();
  const auto epoch = static_cast<uint32_t>(regions_->Find(region)->epoch());
  std::unique_ptr<LogWriter> writer;
  bool there = false;
  const RunInPool::Work clear = [this, region, epoch, &there]() -> absl::Status {
    ASSIGN_OR_RETURN(const uint32_t last_epoch, store_->LastEpoch(region));
    there = last_epoch >= epoch;
    if (there || last_epoch == 0) return absl::OkStatus();
    RETURN_IF_ERROR(store_->Fence(region, epoch));  // Nothing can be added to what is removed.
    return store_->Remove(region, epoch - 1);
  };
  absl::Status status = co_await RunOnDisk(clear);
  if (status.ok() && there) {
    found_anothers_ = true;
    status = absl::AlreadyExistsError(
        fmt::format("a log of region {} already exists: the region table is older than the logs", region));
  }
  if (status.ok()) status = co_await Open(region, epoch, 1, &writer);
  if (!status.ok()) co_return status;
  HeldRegion* const held = regions_->Find(region);
  held->SetLog(std::make_shared<RegionLog>(region, epoch, 1, std::move(writer)), log_first());
  held->store->set_stamp_bound(held->store->header().last_stamp);  // None is on disk.
  const HeldRegion::RangeRecord range = held->range_record();
  held->log->Append(range.kind, range.key, range.value);
  co_return co_await Flushed(region);
}

Task<absl::Status> LogFlusher::Continue(uint32_t region, uint64_t epoch) {
  if (!on()) co_return absl::OkStatus();
  const uint64_t sequence = regions_->Find(region)->memory->header().log_sequence + 1;
  std::unique_ptr<LogWriter> writer;
  const absl::Status status = co_await Open(region, epoch, sequence, &writer);
  HeldRegion* const held = regions_->Find(region);
  if (held == nullptr) co_return absl::AbortedError("the region is no longer served here");
  auto log = std::make_shared<RegionLog>(region, static_cast<uint32_t>(epoch), sequence, std::move(writer));
  if (!status.ok()) {
    spdlog::error("region {} can no longer be written: {}", region, std::string(status.message()));
    log->Fail(status);
  }
  held->SetLog(std::move(log), log_first());
  co_return status;
}

Task<absl::Status> LogFlusher::Flushed(uint32_t region) {
  for (bool first = true;; first = false) {
    HeldRegion* const held = regions_->Find(region);
    if (held == nullptr) co_return absl::AbortedError("this worker no longer holds the region");
    if (held->log == nullptr) co_return absl::OkStatus();
    if (first) BoundStamps(held);
    if (!held->log->status().ok()) co_return held->log->status();
    if (held->log->durable() == held->log->appended()) co_return absl::OkStatus();
    held->RequestFlush();
    co_await held->changed.Wait(scheduler_);
  }
}

Task<absl::Status> LogFlusher::Settled(uint32_t region) {
  absl::Status status;
  if (on()) status = co_await Flushed(region);
  int64_t waited_ns = 0;
  while (!scheduler_->stopping()) {
    HeldRegion* const held = regions_->Find(region);
    if (held == nullptr || !status.ok() || (held->pending.empty() && held->transactions.empty())) co_return status;
    if (held->lost()) co_return absl::AbortedError("this worker no longer has the region");
    if (held->log != nullptr && !held->log->status().ok()) co_return held->log->status();
    // The end of a transaction may be decided elsewhere, by a server that is away, and this worker may stop before.
    if (held->pending.empty()) {
      waited_ns += kSettlePauseNs;
      if (waited_ns > kSettleNsMax) {
        held->EndParts(fabric_->NowNs());
        co_return absl::UnavailableError(fmt::format("transactions of region {} have not ended yet", region));
      }
      co_await scheduler_->Sleep(kSettlePauseNs);
    } else {
      co_await held->changed.Wait(scheduler_);
    }
  }
  co_return absl::CancelledError("this server is shutting down");
}

Task<bool> LogFlusher::RemoveLog(uint32_t region, uint64_t last_epoch) {
  if (!on()) co_return true;
  const RunInPool::Work remove = [this, region, last_epoch] {
    return store_->Remove(region, static_cast<uint32_t>(last_epoch));
  };
  const absl::Status removed = co_await RunOnDisk(remove);
  if (!removed.ok()) spdlog::warn("cannot remove the log of region {}: {}", region, std::string(removed.message()));
  co_return removed.ok();
}

void LogFlusher::BoundStamps(HeldRegion* region) {
  if (!region->has_pairs()) return;
  HeldRegion::FlushState& flush = region->flush_;
  const std::optional<uint64_t> next = region->store->NextStampBound(flush.stamp_bound);
  if (!next.has_value()) return;
  flush.stamp_bound = *next;
  flush.stamp_bound_at = region->log->Append(RecordKind::kStampBound, "", EncodeStampBound(*next));
}

void LogFlusher::BeginFlush(HeldRegion* region) {
  BoundStamps(region);
  struct Job {
    std::shared_ptr<RegionLog> log;
    RegionLog::Flush flush;
    int64_t begun_ns;
    absl::Status status;
  };
  region->flush_.flush_begun_ns = fabric_->NowNs();
  region->flush_.requested = false;
  auto job = std::make_shared<Job>(Job{region->log, region->log->BeginFlush(), region->flush_.flush_begun_ns, {}});
  disk_->Run([job] { job->status = job->flush.Write(); },
             [this, job] {
               counters_.flushed_bytes += job->flush.bytes();
               const uint64_t records = job->log->appended() - job->log->durable();
               job->log->EndFlush(std::move(job->flush), job->status);
               HeldRegion* const held = regions_->Find(job->log->region());
               NoteFlush(held, records, fabric_->NowNs() - job->begun_ns);
               if (held != nullptr && held->log == job->log) NoteStampBound(held);
               if (held != nullptr) held->changed.Notify();
               if (job->status.ok()) return;
               ++counters_.failed;
               const std::string why(job->status.message());
               if (absl::IsAborted(job->status)) {
                 spdlog::warn("the log of region {} accepts no more writes from this worker: {}", job->log->region(),
                              why);
               } else {
                 spdlog::error(
                     "the log of region {} has failed, and no write to the region is acknowledged until the "
                     "log can be written again: {}",
                     job->log->region(), why);
               }
             });
}

void LogFlusher::NoteFlush(HeldRegion* region, uint64_t records, int64_t took_ns) {
  ++counters_.flushes;
  counters_.flushing_ns += static_cast<uint64_t>(took_ns);
  counters_.longest_flush_ns = std::max(counters_.longest_flush_ns, static_cast<uint64_t>(took_ns));
  if (region == nullptr) return;
  const int64_t gather_ns = std::min(took_ns * options_.gather_percent / 100, options_.gather_max_ns);
  region->flush_.gather_until_ns = fabric_->NowNs() + gather_ns;
  region->flush_.gather_records = records;
}

void LogFlusher::NoteStampBound(HeldRegion* region) {
  HeldRegion::FlushState& flush = region->flush_;
  if (flush.stamp_bound_at == 0 || flush.stamp_bound_at > region->log->durable()) return;
  region->store->set_stamp_bound(flush.stamp_bound);
  flush.stamp_bound_at = 0;
}

int64_t LogFlusher::DueNs(const HeldRegion& region) const {
  const HeldRegion::FlushState& flush = region.flush_;
  if (flush.requested) return flush.dirty_since_ns;
  if (!log_first()) return flush.dirty_since_ns + options_.bound_ns / 2;
  const bool gathered = region.log->appended() - region.log->durable() >= flush.gather_records;
  return gathered ? flush.dirty_since_ns : std::max(flush.dirty_since_ns, flush.gather_until_ns);
}

void LogFlusher::Look(HeldRegion* region, int64_t now_ns) {
  RegionLog* const log = region->log.get();
  if (log == nullptr) return;
  HeldRegion::FlushState& flush = region->flush_;
  // The target of a migration was told the number of a frozen region's last record.
  const bool may_append = !log->dirty() && region->writable();
  if (may_append && region->store->WantsStamps()) BoundStamps(region);
  if (!log->dirty()) {
    flush.dirty_since_ns = flush.flush_begun_ns = 0;
    flush.late_at_ns = INT64_MAX;
    flush.much_waits = flush.requested = false;
    MarkIfIdle(region, now_ns);
    return;
  }
  flush.idle_since_ns = 0;
  flush.waiting_bytes_max = options_.waiting_bytes_max;
  if (!log->flushing() && flush.flush_begun_ns != 0) {  // A flush has ended. What is left came during it.
    flush.dirty_since_ns = flush.flush_begun_ns;
    flush.flush_begun_ns = 0;
  }
  if (flush.dirty_since_ns == 0) flush.dirty_since_ns = now_ns;
  const int64_t due_ns = DueNs(*region);
  flush.much_waits = log->waiting_bytes() > options_.waiting_bytes_max;
  flush.late_at_ns = log_first() ? INT64_MAX : flush.dirty_since_ns + options_.bound_ns;
  // The end of a flush, or of opening a segment, makes the worker look again. Until then there is no time to wait for.
  if (!log->can_flush()) return;
  if (now_ns >= due_ns || flush.much_waits) {
    BeginFlush(region);
  } else {
    next_ns_ = std::min(next_ns_, due_ns);
  }
}

// Appends a marker to an idle log. Not while the region is frozen: the number of its last record is passed to the
// migration's target, so nothing may be appended then.
void LogFlusher::MarkIfIdle(HeldRegion* region, int64_t now_ns) {
  if (!region->log->unmarked() || !region->writable()) return;
  int64_t& idle_since_ns = region->flush_.idle_since_ns;
  if (idle_since_ns == 0) idle_since_ns = now_ns;
  const int64_t due_ns = idle_since_ns + (finishing_ ? 0 : options_.mark_after_ns);
  next_ns_ = std::min(next_ns_, due_ns);
  if (now_ns < due_ns) return;
  region->log->Mark();
  ++counters_.markers;
}

void LogFlusher::Step() {
  if (!on()) return;
  const int64_t now_ns = fabric_->NowNs();
  next_ns_ = INT64_MAX;
  regions_->ForEach([&](HeldRegion* region) { Look(region, now_ns); });
}

absl::Status LogFlusher::Finish() {
  if (!on()) return absl::OkStatus();
  finishing_ = true;
  int64_t ended_ns = fabric_->NowNs();
  for (bool more = true; more || !disk_->idle();) {
    if (fabric_->NowNs() - ended_ns > options_.finish_patience_ns) return Unfinished();
    Step();
    more = false;
    regions_->ForEach([&](HeldRegion* region) {
      region->RequestFlush();
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

absl::Status LogFlusher::NoteEnds() {
  regions_->ForEach([this](HeldRegion* region) {
    const RegionLog* const log = region->log.get();
    if (log == nullptr || !log->status().ok() || log->durable() != log->appended()) return;
    const auto noted = std::make_shared<absl::Status>();
    disk_->Run([this, noted, id = log->region(), epoch = log->epoch(),
                sequence = log->appended()] { *noted = store_->NoteEnd(id, epoch, sequence); },
               [noted, id = log->region()] {
                 if (noted->ok()) return;
                 spdlog::warn("could not record the end of the log of region {}: {}", id,
                              std::string(noted->message()));
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

absl::Status LogFlusher::Unfinished() const {
  std::string behind;
  regions_->ForEach([&](const HeldRegion* region) {  // With sync, none of it was acknowledged.
    if (log_first() || region->log == nullptr || !region->log->unwritten()) return;
    behind += fmt::format("{}{}", behind.empty() ? "" : ", ", region->region());
  });
  return absl::DeadlineExceededError(fmt::format(
      "the disk of the logs does not answer; {}",
      behind.empty() ? "all acknowledged writes are on it"
                     : fmt::format("the last acknowledged writes of these regions may not be on it: {}", behind)));
}

}  // namespace cell

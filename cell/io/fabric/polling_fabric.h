// PollingFabric: what the fabrics of real processes share. Their regions' memory, their clock, and how they wait.
//
// Waiting. Spin for a bounded time, then sleep until a descriptor is readable. Several fabrics can wait as one
// (multi_fabric.h), so the parts of waiting are a fabric's own, and the order of them is here, once.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "cell/io/fabric/fabric.h"
#include "cell/io/memory/region_pool.h"
#include "cell/io/net/fd.h"

namespace cell {

enum class Polling {
  kAdaptive,  // Spin for a bounded time, then sleep.
  kBusy,      // Never sleep: for pinned cores.
};

class PollingFabric : public Fabric {
 public:
  PollingFabric(Polling polling, std::shared_ptr<RegionPool> pool);

  absl::StatusOr<RegionMemory*> CreateRegion(uint32_t region, uint64_t bytes) override {
    return pool_->Create(region, bytes);
  }
  absl::StatusOr<RegionMemory*> CreateStagedRegion(uint32_t region, uint64_t bytes) override {
    return pool_->CreateStaged(region, bytes);
  }
  void PublishRegion(uint32_t region) override { pool_->Publish(region); }
  void DropRegion(uint32_t region) override { pool_->Drop(region); }
  absl::StatusOr<bool> PrepareRegion(uint64_t bytes, uint64_t slice) override { return pool_->Prepare(bytes, slice); }
  size_t free_regions() const override { return pool_->free_regions(); }
  const std::shared_ptr<RegionPool>& pool() const { return pool_; }

  void Wait(int64_t until_ns) final;
  void Wake() final;
  int64_t NowNs() const final;

  // ---- Wait's parts, in its order.

  // Sends what was asked for and is not on its way yet.
  virtual void Flush() = 0;
  // Whether Poll would find something. Cheap: it is asked while spinning.
  virtual bool HasWork() const = 0;
  // From now until EndSleep, new work makes wait_fd() readable. True: there is work already.
  virtual bool BeginSleep() = 0;
  virtual int wait_fd() const = 0;
  virtual void EndSleep() = 0;
  // What is done at every wait's end: deadlines, sockets.
  virtual void AfterWait() = 0;
  // No deadline of what is in flight is before it. INT64_MAX: nothing has one.
  virtual int64_t NextDeadlineNs() const { return next_deadline_ns_; }

 protected:
  // Completions whose end is known already are told from Poll, as all are.
  void TellLater(Completion* completion, absl::Status status) { to_tell_.push_back({completion, std::move(status)}); }
  bool HasToTell() const { return !to_tell_.empty(); }
  // Tells them, and those that come of it. The number of them.
  size_t TellNow();

  // What has just been asked for, or is still in flight, has this deadline.
  void NoteDeadline(int64_t deadline_ns) { next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns); }
  // Whether some deadline may be over. Then the caller ends what is past its own, and notes the deadlines of the rest.
  bool TakeDeadline(int64_t now_ns) {
    if (now_ns < next_deadline_ns_) return false;
    next_deadline_ns_ = INT64_MAX;
    return true;
  }

 private:
  struct ToTell {
    Completion* completion;
    absl::Status status;
  };

  const Polling polling_;
  const Fd wake_;  // An eventfd.
  std::atomic<bool> woken_ = false;
  const std::shared_ptr<RegionPool> pool_;
  std::vector<ToTell> to_tell_;
  int64_t next_deadline_ns_ = INT64_MAX;
};

}  // namespace cell

// PollingFabric implements what the fabrics of real processes share: the memory of their regions, their clock, and how
// they wait.
//
// Waiting spins for a bounded time, and then sleeps until a descriptor is readable. Several fabrics can wait as one
// (multi_fabric.h). Each fabric therefore implements the steps of waiting, and their order is defined only here.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "cell/io/fabric/fabric.h"
#include "cell/io/memory/region_pool.h"
#include "cell/io/net/fd.h"
#include "cell/region/region_memory.h"

namespace cell {

enum class Polling {
  kAdaptive,  // Spins for a bounded time, then sleeps.
  kBusy,      // Never sleeps: for pinned cores.
};

class PollingFabric : public Fabric {
 public:
  PollingFabric(Polling polling, std::shared_ptr<RegionPool> pool);
  // Uses the regions of `pool`, or of a pool of its own if it is null: in huge pages if `huge_pages`.
  PollingFabric(Polling polling, std::shared_ptr<RegionPool> pool, bool huge_pages);

  absl::StatusOr<RegionMemory*> CreateRegion(uint32_t region, uint64_t bytes) override {
    return pool_->Create(region, bytes);
  }
  absl::StatusOr<RegionMemory*> CreateStagedRegion(uint32_t region, uint64_t bytes) override {
    return pool_->CreateStaged(region, bytes);
  }
  void PublishRegion(uint32_t region) override { pool_->Publish(region); }
  void DropRegion(uint32_t region) override { pool_->Drop(region); }
  absl::StatusOr<bool> PrepareRegion(uint64_t bytes, uint64_t slice) override { return pool_->Prepare(bytes, slice); }
  void SetReaders(Readers readers) override { pool_->SetReaders(std::move(readers)); }
  size_t free_regions() const override { return pool_->free_regions(); }
  const std::shared_ptr<RegionPool>& pool() const { return pool_; }
  // Returns whether the constructor got the descriptors that it needs. Otherwise the fabric must not be used.
  bool valid() const { return wake_.valid() && wait_fd() >= 0; }

  void Wait(int64_t until_ns) final;
  void Wake() final;
  int WaitFd() final;
  int64_t BeginWait(int64_t until_ns) final;
  void EndWait() final;
  int64_t NowNs() const final;
  uint64_t UniqueNumber() final;

  // ---- The steps of a wait, in order.

  // Sends requests that are not on their way yet.
  virtual void Flush() = 0;
  // Returns whether Poll would find something. Must be cheap, because it is called while spinning.
  virtual bool HasWork() const = 0;
  // Makes new work set wait_fd() readable, until EndSleep. Returns true if there is work already.
  virtual bool BeginSleep() = 0;
  virtual int wait_fd() const = 0;
  virtual void EndSleep() = 0;
  // Runs at the end of every wait: deadlines, sockets.
  virtual void AfterWait() = 0;
  // Returns a lower bound of all deadlines, or INT64_MAX if there are none.
  virtual int64_t NextDeadlineNs() const { return next_deadline_ns_; }

 protected:
  // Queues a completion whose result is known already. It is called from Poll, like all completions.
  void TellLater(Completion* completion, absl::Status status) { to_tell_.push_back({completion, std::move(status)}); }
  // Returns the callback by which ClientConnection queues completions.
  auto tell_later() {
    return [this](Completion* completion, absl::Status status) { TellLater(completion, std::move(status)); };
  }
  bool HasToTell() const { return !to_tell_.empty(); }
  // Calls the queued completions, and those that they queue. Returns their number.
  size_t TellNow();

  // Records the deadline of a new request, or of one that is still in flight.
  void NoteDeadline(int64_t deadline_ns) { next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns); }
  // Returns whether a deadline may have passed. If so, the caller ends the requests that are past theirs, and records
  // the deadlines of the others.
  bool TakeDeadline(int64_t now_ns) {
    if (now_ns < next_deadline_ns_) return false;
    next_deadline_ns_ = INT64_MAX;
    return true;
  }
  // Returns whether a millisecond has passed since this last returned true. Poll uses it to check deadlines once a
  // millisecond.
  bool MillisecondPassed() {
    constexpr int64_t kMillisecondNs = 1'000'000;
    const int64_t now = NowNs();
    if (now - last_millisecond_ns_ < kMillisecondNs) return false;
    last_millisecond_ns_ = now;
    return true;
  }

 private:
  struct ToTell {
    Completion* completion;
    absl::Status status;
  };

  // Returns whether Wake was called since this last returned true.
  bool TakeWake();

  const Polling polling_;
  const Fd wake_;  // An eventfd.
  Fd either_;      // An epoll descriptor over wait_fd() and wake_, once WaitFd was called.
  std::atomic<bool> woken_ = false;
  const std::shared_ptr<RegionPool> pool_;
  std::vector<ToTell> to_tell_;
  int64_t next_deadline_ns_ = INT64_MAX;
  int64_t last_millisecond_ns_ = 0;
};

}  // namespace cell

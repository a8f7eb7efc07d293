// Worker: one thread's part of a server. One fabric endpoint, the regions that it holds, the service that answers
// requests on them, the steward that looks after them, and the mover that gives and takes them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cell/server/steward.h"

namespace cell {

class Worker {
 public:
  struct Options {
    RequestService::Options service;
    StewardOptions steward;
    size_t regions_max = 16;
    int64_t silence_ns = 1'000'000'000;  // Of another worker in a move, after which it is given up.
    Points points;
  };

  Worker(std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership, const Options& options)
      : points_(options.points),
        fabric_(std::move(fabric)),
        membership_(std::move(membership)),
        turns_(fabric_.get()),
        regions_(fabric_.get(), membership_->state().shape, options.regions_max),
        service_(fabric_.get(), &regions_, options.service),
        peers_(fabric_.get(), membership_.get()),
        mover_(fabric_.get(), membership_.get(), &regions_, &service_, &peers_, &turns_, &points_, options.steward.self,
               options.silence_ns),
        steward_(fabric_.get(), membership_.get(), &regions_, &service_, &peers_, &mover_, &turns_, &points_,
                 options.steward) {
    service_.set_mover(&mover_);
    service_.set_membership(membership_.get());
  }

  // Serves at `address` from now on, whenever Poll is called.
  absl::Status Start(const std::string& address) {
    RETURN_IF_ERROR(steward_.Start());
    return fabric_->Listen(address, &service_);
  }

  // From any thread: `work` is done on the worker's, by its next Poll.
  void Post(std::function<void(Worker*)> work) {
    const std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(work));
    has_posted_.store(true, std::memory_order_release);
  }

  // Does what can be done now. The number of things done.
  size_t Poll() {
    if (has_posted_.load(std::memory_order_acquire)) DoPosted();
    peers_.Step();
    const size_t done = fabric_->Poll() + membership_->Poll() + turns_.Step() + service_.RetryHeld();
    mover_.Step();
    steward_.Step();
    return done;
  }
  void Wait(int64_t until_ns) {
    const bool now = membership_->pending() || service_.retry_due();
    fabric_->Wait(now ? 0 : std::min(until_ns, turns_.NextNs()));
  }
  // Ends what is going on, as far as it can be ended. Then only the destructor.
  void Stop() {
    turns_.Stop();
    while (!turns_.idle()) {
      if (Poll() == 0) fabric_->Wait(fabric_->NowNs() + 1'000'000);
    }
  }

  Fabric* fabric() { return fabric_.get(); }
  const Membership* membership() const { return membership_.get(); }
  Regions* regions() { return &regions_; }
  RequestService* service() { return &service_; }
  Steward* steward() { return &steward_; }
  Mover* mover() { return &mover_; }
  Turns* turns() { return &turns_; }
  Points* points() { return &points_; }

 private:
  void DoPosted() {
    std::vector<std::function<void(Worker*)>> now;
    {
      const std::lock_guard lock(posted_mutex_);
      now.swap(posted_);
      has_posted_ = false;
    }
    for (const auto& work : now) work(this);
  }

  std::mutex posted_mutex_;
  std::vector<std::function<void(Worker*)>> posted_;
  std::atomic<bool> has_posted_ = false;

  Points points_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Membership> membership_;
  Turns turns_;
  Regions regions_;
  RequestService service_;
  Peers peers_;
  Mover mover_;
  Steward steward_;
};

}  // namespace cell

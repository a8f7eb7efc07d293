// SimThreadPool simulates a thread pool: work runs at a moment of virtual time that a seed chooses, and its completion
// runs at a later one. With steps, each call of a SimFiles in the work has a moment of its own.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "cell/base/random.h"
#include "cell/base/thread_checker.h"
#include "cell/io/exec/thread_pool.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/io/sim/sim_fiber.h"

namespace cell {

class SimThreadPool : public ThreadPool {
 public:
  // `network` must outlive this. Work takes up to twice `mean_ns`: half of it before the work runs and half after. With
  // `in_steps` it takes up to `mean_ns` more for each call of a file system that it makes.
  SimThreadPool(SimNetwork* network, uint64_t seed, int64_t mean_ns, bool in_steps = false)
      : network_(network), random_(seed), mean_ns_(mean_ns), in_steps_(in_steps) {}
  ~SimThreadPool() override { *alive_ = false; }

  void Run(Work work, Work done) override {
    ++running_;
    After([this, work = std::move(work), done = std::move(done)]() mutable {
      if (in_steps_) return Go(std::make_shared<SimFiber>(std::move(work)), std::move(done));
      {
        const ThreadScope elsewhere(ThreadScope::Which::kOther);
        work();
      }
      After([this, done = std::move(done)]() mutable { done_.push_back(std::move(done)); });
    });
  }
  size_t Poll() override {
    std::vector<Work> now;
    now.swap(done_);
    running_ -= now.size();
    for (const Work& done : now) done();
    return now.size();
  }
  bool idle() const override { return running_ == 0; }

  // Simulates a crash: no work and no completion runs any more.
  void Crash() { crashed_ = true; }
  // Stops the threads, or lets them continue where they were.
  void SetPaused(bool paused) {
    paused_ = paused;
    if (paused) return;
    for (Work& step : std::exchange(stopped_, {})) After(std::move(step));
  }
  // Sets how long work takes from now on.
  void set_mean_ns(int64_t mean_ns) { mean_ns_ = mean_ns; }

 private:
  void Go(std::shared_ptr<SimFiber> fiber, Work done) {
    {
      const ThreadScope elsewhere(ThreadScope::Which::kOther);  // A different thread each time, because work keeps
                                                                // nothing that belongs to a thread.
      fiber->Resume();
    }
    if (fiber->ended()) return After([this, done = std::move(done)]() mutable { done_.push_back(std::move(done)); });
    const int slowness = fiber->slowness();
    After([this, fiber = std::move(fiber), done = std::move(done)]() mutable { Go(std::move(fiber), std::move(done)); },
          slowness);
  }
  void After(Work step, int slowness = 1) {
    network_->At(network_->now_ns() + slowness * Pause(), [this, alive = alive_, step = std::move(step)]() mutable {
      if (!*alive || crashed_) return;
      if (paused_) {
        stopped_.push_back(std::move(step));
      } else {
        step();
      }
    });
  }
  int64_t Pause() { return static_cast<int64_t>(random_.Below(static_cast<uint64_t>(mean_ns_) + 1)); }

  SimNetwork* const network_;
  Random random_;
  int64_t mean_ns_;
  const bool in_steps_;
  bool crashed_ = false;
  bool paused_ = false;
  std::vector<Work> stopped_;
  size_t running_ = 0;
  std::vector<Work> done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cell

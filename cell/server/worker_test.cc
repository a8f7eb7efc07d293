#include "cell/server/worker.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "cell/cluster/memory_membership.h"
#include "cell/io/fabric/shm/shm_fabric.h"

namespace cell {
namespace {

// Longer than any wait that a signal ends.
constexpr int64_t kLongNs = 20'000'000'000;

// Wakes its owner when a test wants, as a membership does whose answers come from other threads.
class WakingMembership : public MemoryMembership {
 public:
  using MemoryMembership::MemoryMembership;
  bool SetWake(std::function<void()> to) override {
    wake = std::move(to);
    return true;
  }
  std::function<void()> wake;
};

// A worker that has nothing to do, in a thread of its own.
class WorkerWaitTest : public testing::Test {
 protected:
  WorkerWaitTest() {
    ClusterState state;
    state.shape = {512, 32 << 10, 64 << 10};
    auto membership = std::make_unique<WakingMembership>(std::make_shared<MemoryCluster>(state));
    membership_ = membership.get();
    Worker::Options options;
    options.self = {"server-0", 0};
    worker_ = std::make_unique<Worker>(std::make_unique<ShmFabric>(ShmFabricOptions{.huge_pages = false}),
                                       std::move(membership), options);
  }

  // Waits, and calls `signal` in this thread meanwhile, or before. Returns whether that ended the wait.
  template <typename Signal>
  bool Ends(Signal signal) {
    const int64_t until_ns = worker_->fabric()->NowNs() + kLongNs;
    const std::future<void> waited = std::async(std::launch::async, [&] { worker_->Wait(until_ns); });
    signal();
    waited.wait();
    return worker_->fabric()->NowNs() < until_ns;
  }

  WakingMembership* membership_;  // The worker's.
  std::unique_ptr<Worker> worker_;
};

TEST_F(WorkerWaitTest, PostedWorkEndsIt) {
  EXPECT_TRUE(Ends([this] { worker_->Post([](Worker*) {}); }));
}

TEST_F(WorkerWaitTest, AnAnswerOfTheMembershipEndsIt) {
  membership_->Refresh([](const absl::Status&) {});
  ASSERT_TRUE(membership_->pending());
  EXPECT_TRUE(Ends([this] { membership_->wake(); }));
}

}  // namespace
}  // namespace cell

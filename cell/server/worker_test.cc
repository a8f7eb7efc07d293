#include "cell/server/worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "cell/base/bytes.h"
#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/layout/wire.h"
#include "cell/server/region/regions.h"

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

  // Waits, and calls `signal` in this thread meanwhile. Returns whether that ended the wait.
  template <typename Signal>
  bool Ends(Signal signal) {
    const int64_t until_ns = worker_->fabric()->NowNs() + kLongNs;
    const std::future<void> waited = std::async(std::launch::async, [&] { worker_->Wait(until_ns); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // By then it sleeps; before, it spins.
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

// ---- In virtual time.

std::shared_ptr<MemoryCluster> OneServer() {
  ClusterState state;
  state.shape = {512, 32 << 10, 64 << 10};
  state.servers = {{"server-0", {{"server-0", 8}}, ""}};
  return std::make_shared<MemoryCluster>(state);
}
Worker::Options OneServersOptions() {
  Worker::Options options;
  options.self = {"server-0", 0};
  options.balance.enabled = false;
  return options;
}

TEST(WorkerWait, EndsSoonIfTheMembershipHasToAnswerAndWakesNobody) {
  SimNetwork network{{}};
  auto owned = std::make_unique<MemoryMembership>(OneServer());
  MemoryMembership* const membership = owned.get();
  Worker worker(network.NewEndpoint(), std::move(owned), OneServersOptions());
  CELL_CHECK(worker.Start("server-0").ok());
  const int64_t until_ns = network.now_ns() + kLongNs;
  membership->Refresh([](const absl::Status&) {});
  worker.Wait(until_ns);
  EXPECT_LT(network.now_ns(), until_ns);
  worker.Poll();
  EXPECT_FALSE(membership->pending());
  worker.Wait(until_ns);
  EXPECT_EQ(network.now_ns(), until_ns);
  EXPECT_TRUE(worker.Stop().ok());
}

// A worker, and a client whose put it holds because the region is frozen.
class HeldWriteTest : public testing::Test {
 protected:
  HeldWriteTest() {
    CELL_CHECK(worker_.Start("server-0").ok());
    region_ = worker_.regions()->all()[0];
    region_->ChangeState(RegionState::kFrozen);
    const ConnectionId connection = *ConnectTo(client_.get(), "server-0");
    const std::string_view key = "key", value = "value";
    const std::string put = MakePutRequest(RootOf(region_->region()), {}, Crc64(value, Crc64(key)), key,
                                           static_cast<uint32_t>(value.size()), 0);
    client_->Call(connection, AsBytes(put), AsBytes(value), kReplyBytesMin, INT64_MAX, &answered_);
    for (int i = 0; i < 10'000 && Held() == 0; ++i) Turn();
    CELL_CHECK_EQ(Held(), size_t{1});
    while (worker_.Poll() > 0) {
    }
    EXPECT_FALSE(answered_.done());
  }
  ~HeldWriteTest() override { EXPECT_TRUE(worker_.Stop().ok()); }

  size_t Held() { return worker_.service()->writes()->held().size(); }
  void Turn() {
    network_.Step();
    worker_.Poll();
    client_->Poll();
  }

  SimNetwork network_{{}};
  Worker worker_{network_.NewEndpoint(), std::make_unique<MemoryMembership>(OneServer()), OneServersOptions()};
  Waiter answered_;
  std::unique_ptr<SimFabric> client_ = network_.NewEndpoint();
  HeldRegion* region_;
};

TEST_F(HeldWriteTest, LetsTheWorkerSleepAndIsRetriedNevertheless) {
  const int64_t before_ns = network_.now_ns();
  worker_.Wait(before_ns + kLongNs);
  EXPECT_GT(network_.now_ns(), before_ns);
  EXPECT_LE(network_.now_ns(), before_ns + 200'000);
  worker_.Poll();
  EXPECT_EQ(Held(), 1u);
  region_->Unfreeze();  // The worker is not told.
  worker_.Wait(before_ns + kLongNs);
  worker_.Poll();
  EXPECT_EQ(Held(), 0u);
  EXPECT_LE(network_.now_ns(), before_ns + 500'000);
  for (int i = 0; i < 10'000 && !answered_.done(); ++i) Turn();
  EXPECT_TRUE(answered_.done());
}

TEST_F(HeldWriteTest, IsRetriedAtOnceWhenTheWorkerHasDoneSomething) {
  worker_.Poll();
  region_->Unfreeze();
  worker_.Post([](Worker*) {});
  worker_.Poll();  // Before the next retry that is due by time.
  EXPECT_EQ(Held(), 0u);
  for (int i = 0; i < 10'000 && !answered_.done(); ++i) Turn();
  EXPECT_TRUE(answered_.done());
}

}  // namespace
}  // namespace cell

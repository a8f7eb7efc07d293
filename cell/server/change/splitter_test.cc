// Tests a worker's splits of meganodes and of parts of tables.
#include "cell/server/change/splitter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/io/sim/sim_files.h"
#include "cell/io/sim/sim_thread_pool.h"
#include "cell/log/directory_log_store.h"
#include "cell/server/worker.h"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 32 << 10, 64 << 10};

class SplitterTest : public ::testing::Test {
 protected:
  SplitterTest() {
    ClusterState state;
    state.shape = kShape;
    state.durability = Durability::kSync;
    state.servers = {{"own", {{"own", 8}}, ""}};
    auto membership = std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(state));
    membership_ = membership.get();
    Worker::Options options;
    options.self = {"own", 0};
    options.balance.enabled = false;
    options.split.pace.copied = 1'000'000;  // All of a region in one step.
    options.logs.durability = Durability::kSync;
    Worker::Logs logs{std::make_shared<DirectoryLogStore>(host_.get(), "log"),
                      std::make_unique<SimThreadPool>(&network_, 1, 1'000),
                      std::make_unique<SimThreadPool>(&network_, 2, 1'000)};
    worker_.emplace(network_.NewEndpoint(), std::move(membership), std::move(logs), options);
    CELL_CHECK(worker_->Start("own").ok());
  }
  ~SplitterTest() override { EXPECT_TRUE(worker_->Stop().ok()); }

  void Turn() {
    if (worker_->Poll() > 0) return;
    network_.At(network_.now_ns() + 100, [] {});  // Time passes when nothing happens.
    network_.Step();
  }
  absl::Status Run(Task<absl::Status> task) {
    std::optional<absl::Status> status;
    const auto run = [&]() -> Task<bool> {
      status = co_await std::move(task);
      co_return true;
    };
    worker_->scheduler()->Spawn(run());
    for (int i = 0; i < 100'000 && !status.has_value(); ++i) Turn();
    return status.value_or(absl::DeadlineExceededError("it has not ended"));
  }
  void Fill(uint32_t region) {
    for (int i = 0; i < 100; ++i) {
      const std::string key = fmt::format("key{:03}", i), value = "value";
      ASSERT_TRUE(worker_->regions()->Find(region)->store->Put(key, value, Crc64(value, Crc64(key))).ok());
    }
  }
  uint32_t MakeTable() {
    EXPECT_TRUE(Run(worker_->tables()->Create("table", 0, 1)).ok());
    return membership_->state().table.tables.at("table").parts.begin()->second;
  }
  // Waits until no split is in progress.
  void AwaitIdle() {
    for (int i = 0; i < 100'000 && !worker_->scheduler()->idle(); ++i) Turn();
    ASSERT_TRUE(worker_->scheduler()->idle());
  }
  // Counts all keys of all regions, each as often as scans of the regions would see it.
  size_t KeysHeld() {
    size_t keys = 0;
    worker_->regions()->ForEach([&keys](const HeldRegion* region) {
      if (region->hash != nullptr || region->tree->tier() == 0) keys += region->store->keys();
    });
    return keys;
  }
  // The session is lost when everything has been copied and nothing is cut. The region may have another owner at any
  // time after that.
  void LoseItWhileItIsSplit(uint32_t region, std::string_view made, std::string_view copied) {
    bool lost = false, went_on = false;
    worker_->sync_points()->on_reach = [&](std::string_view point) {
      if (point == made) membership_->Rejoin();  // The worker checks its session after this step of the copy.
      if (point == copied) lost = worker_->regions()->Find(region)->lost();
      went_on |= point.find("cut") != std::string_view::npos;
    };
    EXPECT_EQ(Run(worker_->splitter()->Split(region)).code(), absl::StatusCode::kAborted);
    EXPECT_TRUE(lost);
    EXPECT_FALSE(went_on);
    const HeldRegion* const held = worker_->regions()->Find(region);
    EXPECT_TRUE(held == nullptr || held->lost());
    worker_->sync_points()->on_reach = nullptr;
  }

  SimDisk disk_{1};
  const std::unique_ptr<SimFiles> host_ = disk_.NewHost();
  SimNetwork network_{SimOptions{}};
  MemoryMembership* membership_;
  std::optional<Worker> worker_;
};

TEST_F(SplitterTest, AMeganodeIsSplitInOrder) {
  const uint32_t region = membership_->state().table.root;
  Fill(region);
  std::vector<std::string> reached;
  worker_->sync_points()->on_reach = [&](std::string_view point) { reached.emplace_back(point); };
  ASSERT_TRUE(Run(worker_->splitter()->Split(region)).ok());
  AwaitIdle();
  EXPECT_EQ(reached,
            (std::vector<std::string>{"split: region made", "split: copied", "split: cut logged", "split: cut",
                                      "split: joined", "split: cleaned", "split: root made", "split: route added"}));
  EXPECT_EQ(worker_->splitter()->meganodes().splits, 1u);
  EXPECT_EQ(worker_->splitter()->parts().splits, 0u);
  EXPECT_EQ(worker_->regions()->size(), 3u);  // Includes the new root.
  EXPECT_EQ(KeysHeld(), 100u);
  worker_->regions()->ForEach([](const HeldRegion* held) {
    EXPECT_EQ(held->state(), RegionState::kServing);
    EXPECT_FALSE(held->claimed());
  });
  worker_->sync_points()->on_reach = nullptr;
}

TEST_F(SplitterTest, APartOfATableIsSplitInOrder) {
  const uint32_t region = MakeTable();
  Fill(region);
  std::vector<std::string> reached;
  worker_->sync_points()->on_reach = [&](std::string_view point) { reached.emplace_back(point); };
  ASSERT_TRUE(Run(worker_->splitter()->Split(region)).ok());
  AwaitIdle();
  EXPECT_EQ(reached,
            (std::vector<std::string>{"table split: region made", "table split: copied", "table split: cut logged",
                                      "table split: cut", "table split: joined", "table split: cleaned"}));
  EXPECT_EQ(worker_->splitter()->parts().splits, 1u);
  EXPECT_EQ(membership_->state().table.tables.at("table").parts.size(), 2u);
  EXPECT_EQ(KeysHeld(), 100u);
  worker_->sync_points()->on_reach = nullptr;
}

TEST_F(SplitterTest, WhoFindsARegionFullBeginsASplit) {
  const uint32_t root = membership_->state().table.root;
  HeldRegion* const region = worker_->regions()->Find(root);
  Fill(root);
  EXPECT_TRUE(worker_->splitter()->MakeRoom(region));
  EXPECT_TRUE(region->claimed());
  EXPECT_TRUE(worker_->splitter()->MakeRoom(region));  // It is being split.
  AwaitIdle();
  EXPECT_EQ(worker_->splitter()->meganodes().splits, 1u);
}

// A region of one leaf cannot be split. This must not be tried for each write that finds it full.
TEST_F(SplitterTest, ASplitThatFailedIsNotTriedAgainAtOnce) {
  HeldRegion* const region = worker_->regions()->Find(membership_->state().table.root);
  EXPECT_TRUE(worker_->splitter()->MakeRoom(region));
  AwaitIdle();
  EXPECT_EQ(worker_->splitter()->meganodes().failed, 1u);
  EXPECT_FALSE(worker_->splitter()->MakeRoom(region));
  EXPECT_FALSE(region->claimed());
  const int64_t failed_ns = network_.now_ns();
  network_.At(failed_ns + 1'100'000'000, [] {});
  while (network_.now_ns() < failed_ns + 1'100'000'000) network_.Step();
  EXPECT_TRUE(worker_->splitter()->MakeRoom(region));
  AwaitIdle();
}

// A check counts what splits have left behind, so it is freed before.
TEST_F(SplitterTest, WhatSplitsHaveLeftIsFreedForACheck) {
  const uint32_t root = membership_->state().table.root;
  Fill(root);
  const HeldRegion* const region = worker_->regions()->Find(root);
  double after_cut = 0, freed = 0;
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    if (point != "split: cut") return;
    after_cut = region->store->fill();
    worker_->splitter()->FreeAll();
    freed = region->store->fill();
  };
  ASSERT_TRUE(Run(worker_->splitter()->Split(root)).ok());
  EXPECT_LT(freed, after_cut);
  EXPECT_EQ(region->store->fill(), freed);
  worker_->sync_points()->on_reach = nullptr;
}

TEST_F(SplitterTest, AMeganodeThatIsLostMeanwhileIsNotReadAgain) {
  const uint32_t region = membership_->state().table.root;
  Fill(region);
  LoseItWhileItIsSplit(region, "split: region made", "split: copied");
}

TEST_F(SplitterTest, APartOfATableThatIsLostMeanwhileIsNotReadAgain) {
  const uint32_t region = MakeTable();
  Fill(region);
  LoseItWhileItIsSplit(region, "table split: region made", "table split: copied");
}

}  // namespace
}  // namespace cell

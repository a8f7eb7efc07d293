// Tests a worker's splits of meganodes and of parts of tables.
#include "cell/server/change/splitter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
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
  // `copied` is how many entries one step copies. By default all of a region is copied in one step.
  explicit SplitterTest(size_t copied = 1'000'000) {
    ClusterState state;
    state.shape = kShape;
    state.durability = Durability::kSync;
    state.servers = {{"own", {{"own", 8}}, ""}};
    auto membership = std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(state));
    membership_ = membership.get();
    Worker::Options options;
    options.self = {"own", 0};
    options.balance.enabled = false;
    options.split.pace.copied = copied;
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
  void PassTime(int64_t ns) {
    const int64_t until_ns = network_.now_ns() + ns;
    network_.At(until_ns, [] {});
    while (network_.now_ns() < until_ns) network_.Step();
  }
  HeldRegion* root() { return worker_->regions()->Find(membership_->state().table.root); }
  // Returns the region that a split of `lower` has made, or null.
  HeldRegion* UpperOf(const HeldRegion* lower) {
    HeldRegion* upper = nullptr;
    worker_->regions()->ForEach([&](HeldRegion* held) {
      if (held->region() > lower->region()) upper = held;
    });
    return upper;
  }
  static absl::Status Put(HeldRegion* region, const std::string& key, const std::string& value) {
    return region->store->Put(key, value, Crc64(value, Crc64(key))).status();
  }
  void Fill(uint32_t region, const std::string& value = "value") {
    HeldRegion* const held = worker_->regions()->Find(region);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(Put(held, fmt::format("key{:03}", i), value).ok());
  }
  // Fills a region so much that it is to be split.
  void FillUp(HeldRegion* region) {
    Fill(region->region(), std::string(520, 'x'));
    ASSERT_GT(region->store->fill(), SplitterOptions().split_at);
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
    uint64_t keys = 0;
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

// The split key is a border of leaves. Deletes come before the copy does, and would merge the leaves there.
TEST_F(SplitterTest, DeletesWhileTheNewRegionIsMadeLeaveTheBorderOfTheSplit) {
  const uint32_t region = membership_->state().table.root;
  Fill(region);
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    if (point != "split: region made") return;
    for (int i = 0; i < 100; ++i) {
      if (i % 25 == 0) continue;
      ASSERT_TRUE(*worker_->regions()->Find(region)->store->Delete(fmt::format("key{:03}", i)));
    }
  };
  ASSERT_TRUE(Run(worker_->splitter()->Split(region)).ok());
  AwaitIdle();
  EXPECT_EQ(KeysHeld(), 4u);
}

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
  PassTime(1'100'000'000);
  EXPECT_TRUE(worker_->splitter()->MakeRoom(region));
  AwaitIdle();
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

// ---- What keeps a split from beginning.

// The region table is changed, but the answer is lost, and so the change is tried again. It must not add a second
// region.
TEST_F(SplitterTest, ARegionIsMadeOnceThoughTheAnswerIsLost) {
  for (int i = 0; i < 6; ++i) {
    std::optional<absl::Status> made;
    const auto make = [&]() -> Task<bool> {
      made = co_await worker_->tables()->Create(fmt::format("table-{}", i), 0, 1);
      co_return true;
    };
    membership_->set_unreachable(true);
    worker_->scheduler()->Spawn(make());
    for (int turn = 0; turn < 100'000; ++turn) Turn();
    membership_->set_unreachable(false);
    for (int turn = 0; turn < 1'000'000 && !made.has_value(); ++turn) Turn();
    ASSERT_TRUE(made.has_value()) << i;
    ASSERT_TRUE(made->ok()) << *made;
  }
  EXPECT_EQ(membership_->state().table.regions.size(), worker_->regions()->size());
}

TEST_F(SplitterTest, ARegionThatIsClaimedIsNotSplit) {
  FillUp(root());
  RegionClaim claim(root(), ClaimPurpose::kMigrate);
  PassTime(10'000'000);
  worker_->splitter()->Step();
  const absl::Status status = Run(worker_->splitter()->Split(root()->region()));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "region 1 is being split or migrated");
  EXPECT_EQ(worker_->splitter()->meganodes().splits, 0u);
  EXPECT_EQ(worker_->regions()->size(), 1u);
  claim.Release();
  PassTime(10'000'000);
  worker_->splitter()->Step();
  EXPECT_TRUE(root()->ClaimedFor(ClaimPurpose::kSplit));
  AwaitIdle();
  EXPECT_EQ(worker_->splitter()->meganodes().splits, 1u);
}

// A worker that is idle wakes now and then, and looks for what to split before it looks for what to remove. The part of
// a table that was dropped must not be claimed each time, in vain.
TEST_F(SplitterTest, WhatIsGoneIsNotSplit) {
  const uint32_t part = MakeTable();
  HeldRegion* const held = worker_->regions()->Find(part);
  FillUp(held);
  RegionClaim claim(held, ClaimPurpose::kCheckpoint);
  ASSERT_TRUE(Run(worker_->ChangeTable([](RegionTable* table) { return table->DropTable("table"); })).ok());
  PassTime(10'000'000);
  claim.Release();
  worker_->splitter()->Step();
  EXPECT_FALSE(held->claimed());
  for (int i = 0; i < 10'000 && worker_->regions()->Find(part) != nullptr; ++i) Turn();
  EXPECT_EQ(worker_->regions()->Find(part), nullptr);
}

// The new region's log could not be written either, and the region will be replayed.
TEST_F(SplitterTest, ARegionWhoseLogHasFailedIsNotSplitByItself) {
  FillUp(root());
  root()->FailLog(absl::UnavailableError("the disk is full"));
  PassTime(10'000'000);
  worker_->splitter()->Step();
  EXPECT_FALSE(root()->claimed());
}

// ---- The order of what is on disk, of meganodes and of parts of tables.

class SplitOrderTest : public SplitterTest, public ::testing::WithParamInterface<bool> {
 protected:
  SplitOrderTest() : lower_(worker_->regions()->Find(GetParam() ? MakeTable() : root()->region())) {
    Fill(lower_->region());
  }
  ~SplitOrderTest() override { worker_->sync_points()->on_reach = nullptr; }

  absl::Status Split() { return Run(worker_->splitter()->Split(lower_->region())); }
  // Calls `check` when a split reaches `step`.
  void At(const std::string& step, std::function<void()> check) {
    at_[(GetParam() ? "table split: " : "split: ") + step] = std::move(check);
    worker_->sync_points()->on_reach = [this](std::string_view point) {
      reached_.emplace_back(point);
      if (const auto it = at_.find(std::string(point)); it != at_.end()) it->second();
    };
  }
  // Returns whether a split has reached a step whose name ends in this.
  bool Reached(std::string_view step) const {
    return std::any_of(reached_.begin(), reached_.end(), [&](const std::string& one) { return one.ends_with(step); });
  }
  void AwaitFlush(HeldRegion* region) {
    while (region->log->dirty()) {
      region->RequestFlush();
      worker_->logs()->Step();
      network_.Step();
      worker_->logs()->Poll();
    }
  }
  // Returns whether the region covers all that its tree or table can hold.
  static bool CoversAll(const HeldRegion& region) {
    const RegionContent content = region.content();
    return content.hash_range.has_value() ? content.hash_range->last == UINT32_MAX : !content.range.high.has_value();
  }

  HeldRegion* const lower_;
  std::map<std::string, std::function<void()>> at_;
  std::vector<std::string> reached_;
};
INSTANTIATE_TEST_SUITE_P(Both, SplitOrderTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Part" : "Meganode"; });

// Otherwise a replay would find a region that was cut, and not what was cut off.
TEST_P(SplitOrderTest, TheNewRegionsLogIsOnDiskBeforeTheCutIsLogged) {
  bool dirty = false, durable = false;
  At("copied", [&] { dirty = UpperOf(lower_)->log->dirty(); });
  At("cut logged", [&] { durable = !UpperOf(lower_)->log->dirty(); });
  ASSERT_TRUE(Split().ok());
  EXPECT_TRUE(dirty);
  EXPECT_TRUE(durable);
}

// Otherwise a write that was acknowledged before would be replayed after the cut, or would be lost with it.
TEST_P(SplitOrderTest, AllEarlierWritesAreOnDiskBeforeTheCutIsLogged) {
  uint64_t written = 0, durable = 0;
  At("copied", [&] {
    AwaitFlush(UpperOf(lower_));  // It waits for nothing else.
    written = lower_->log->Append(RecordKind::kPut, "key000", "value");
  });
  At("cut logged", [&] { durable = lower_->log->durable(); });
  ASSERT_TRUE(Split().ok());
  EXPECT_GT(written, 0u);
  EXPECT_GE(durable, written);
}

// Otherwise a replay would bring back in the lower region what the new region has, and has changed since.
TEST_P(SplitOrderTest, TheCutIsOnDiskBeforeItIsMade) {
  uint64_t before = 0, logged = 0, durable = 0;
  bool all = false;
  RegionState state{};
  At("copied", [&] { before = lower_->log->appended(); });
  At("cut logged", [&] {
    logged = lower_->log->appended();
    state = lower_->state();
    all = CoversAll(*lower_);
  });
  At("cut", [&] { durable = lower_->log->durable(); });
  ASSERT_TRUE(Split().ok());
  EXPECT_EQ(logged, before + 1);
  EXPECT_EQ(state, RegionState::kFrozen);  // Nothing is written between the record and the cut.
  EXPECT_TRUE(all);
  EXPECT_GE(durable, logged);
}

// Until the cut is made, the keys belong to the lower region alone.
TEST_P(SplitOrderTest, TheNewRegionServesOnlyAfterTheCut) {
  RegionState before{}, after{};
  bool all_before = false, all_after = true;
  At("cut logged", [&] {
    before = UpperOf(lower_)->state();
    all_before = CoversAll(*lower_);
  });
  At("cut", [&] {
    after = UpperOf(lower_)->state();
    all_after = CoversAll(*lower_);
  });
  ASSERT_TRUE(Split().ok());
  EXPECT_EQ(before, RegionState::kFilling);
  EXPECT_TRUE(all_before);
  EXPECT_EQ(after, RegionState::kServing);
  EXPECT_FALSE(all_after);
}

// The new region has missed a write. Nothing may be cut, or logged as cut.
TEST_P(SplitOrderTest, AWriteThatTheNewRegionCouldNotTakeEndsTheSplit) {
  uint32_t made = 0;
  At("copied", [&] {
    HeldRegion* const upper = UpperOf(lower_);
    made = upper->region();
    EXPECT_TRUE(*worker_->logs()->store()->Has(made));
    for (int i = 0; !absl::IsResourceExhausted(Put(upper, fmt::format("zzz{:05}", i), std::string(2000, 'x'))); ++i) {
    }
    // One of these keys, at least, belongs to the upper part.
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(Put(lower_, fmt::format("zz{:03}", i), std::string(500, 'x')).ok());
  });
  const absl::Status status = Split();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(Reached("split: copied"));
  EXPECT_FALSE(Reached("split: cut logged"));
  EXPECT_EQ(lower_->state(), RegionState::kServing);
  EXPECT_FALSE(lower_->claimed());
  EXPECT_EQ(lower_->store->keys(), 120u);
  EXPECT_EQ(UpperOf(lower_), nullptr);
  const auto& regions = membership_->state().table.regions;
  EXPECT_TRUE(std::none_of(regions.begin(), regions.end(), [this](const auto& one) {
    return one.first > lower_->region();  // The new one was discarded.
  }));
  EXPECT_FALSE(*worker_->logs()->store()->Has(made));
}

// Whether the cut is on disk is unknown. If it is, who recovers the lower region needs the new one.
TEST_P(SplitOrderTest, TheNewRegionStaysInTheTableIfTheCutMayBeOnDisk) {
  uint32_t made = 0;
  At("cut logged", [&] {
    made = UpperOf(lower_)->region();
    lower_->FailLog(absl::UnavailableError("the disk has failed"));
  });
  const uint32_t lower = lower_->region();
  EXPECT_TRUE(absl::IsUnavailable(Split()));
  EXPECT_FALSE(Reached("split: cut"));
  ASSERT_NE(membership_->state().table.Find(made), nullptr);
  EXPECT_EQ(membership_->state().table.Find(made)->split_parent, lower);
}

// ---- A split of many steps.

class SlowSplitterTest : public SplitterTest {
 protected:
  SlowSplitterTest() : SplitterTest(/*copied=*/1) {}
};

TEST_F(SlowSplitterTest, ARegionThatIsLostMeanwhileIsCopiedNoFurther) {
  const uint32_t region = root()->region();
  Fill(region);
  bool copied = false;
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    if (point == "split: region made") membership_->Rejoin();
    copied |= point == "split: copied";
  };
  EXPECT_EQ(Run(worker_->splitter()->Split(region)).code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(copied);
  worker_->sync_points()->on_reach = nullptr;
}

}  // namespace
}  // namespace cell

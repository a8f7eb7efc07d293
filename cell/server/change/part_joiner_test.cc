// Tests a worker's joins of parts of Pilaf tables.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/server/change/joiner.h"
#include "cell/server/change/joiner_test.h"

namespace cell {
namespace {

constexpr uint64_t kKeys = 100;
constexpr int64_t kEveryNs = 100'000;

std::string KeyOf(uint64_t i) { return fmt::format("key{:03}", i); }

class PartJoinerTest : public JoinerFixture, public ::testing::WithParamInterface<uint32_t> {
 protected:
  explicit PartJoinerTest(bool joins = false) : JoinerFixture(joins, /*regions_max=*/12, kEveryNs) {}

  void Create(uint32_t parts) {
    ASSERT_TRUE(Run(worker_->tables()->Create("t", GetParam(), parts)).ok());
    AwaitIdle();
  }
  void Fill() {
    for (uint64_t i = 0; i < kKeys; ++i) Put(KeyOf(i), "value");
  }
  const HashParts& Parts() { return membership_->state().table.tables.at("t"); }
  HeldRegion* PartAt(size_t i) { return Find(std::next(Parts().parts.begin(), static_cast<ptrdiff_t>(i))->second); }
  HeldRegion* PartOf(const std::string& key) { return Find(Parts().RegionOf(HashKey(key).position)); }
  void Put(const std::string& key, const std::string& value) {
    ASSERT_TRUE(PartOf(key)->store->Put(key, value, Crc64(value, Crc64(key))).ok());
  }
  void Split(size_t part) {
    ASSERT_TRUE(Run(worker_->splitter()->Split(PartAt(part)->region())).ok());
    AwaitIdle();
  }
  // Checks that the keys from `first` on are there, and nothing else.
  void ExpectKeys(uint64_t first) {
    uint64_t keys = 0;
    for (size_t i = 0; i < Parts().parts.size(); ++i) {
      HeldRegion* const part = PartAt(i);
      ASSERT_NE(part, nullptr);
      EXPECT_EQ(part->state(), RegionState::kServing);
      EXPECT_FALSE(part->claimed());
      const absl::Status status = part->hash->Check();
      EXPECT_TRUE(status.ok()) << status;
      keys += part->store->keys();
    }
    EXPECT_EQ(keys, kKeys - first);
    for (uint64_t i = first; i < kKeys; ++i) {
      const auto found = PartOf(KeyOf(i))->hash->Get(KeyOf(i));
      ASSERT_TRUE(found.ok() && found->has_value()) << KeyOf(i);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, PartJoinerTest, ::testing::Values(0, 512));  // Bucket sizes; 0: slots.

TEST_P(PartJoinerTest, APartIsJoinedInOrder) {
  Create(2);
  Fill();
  const uint32_t lower = PartAt(0)->region(), upper = PartAt(1)->region();
  std::vector<std::string> reached;
  worker_->sync_points()->on_reach = [&](std::string_view point) { reached.emplace_back(point); };
  ASSERT_TRUE(Run(worker_->joiner()->Join(upper)).ok());
  worker_->sync_points()->on_reach = nullptr;
  EXPECT_EQ(reached, (std::vector<std::string>{"table join: copied", "table join: logged", "table join: committed",
                                               "table join: joined", "table join: cleaned"}));
  EXPECT_EQ(worker_->joiner()->counters().part_joins, 1u);
  EXPECT_EQ(worker_->joiner()->counters().joins, 0u);
  EXPECT_EQ(Find(upper), nullptr);
  EXPECT_EQ(membership_->state().table.Find(upper), nullptr);
  EXPECT_EQ(Parts().parts, (HashPartMap{{0, lower}}));
  EXPECT_EQ(PartAt(0)->hash->range(), HashRange{});
  ExpectKeys(0);
  EXPECT_FALSE(HasLog(upper));
  EXPECT_EQ(KeysInLog(lower, [upper](uint32_t region, uint32_t) { return region == upper; }), kKeys);
  // The part can be split again, at the same place.
  Split(0);
  EXPECT_EQ(Parts().parts.size(), 2u);
  ExpectKeys(0);
}

// The change of the region table decides: a recovery that finds the upper part there does not take what was copied.
TEST_P(PartJoinerTest, TheTableSaysWhetherARecoveryTakesWhatWasCopied) {
  Create(2);
  Fill();
  const uint32_t lower = PartAt(0)->region(), upper = PartAt(1)->region();
  const size_t lower_keys = PartAt(0)->store->keys();
  size_t without = 0, with = 0;
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    if (point != "table join: logged") return;
    without = KeysInLog(lower, [](uint32_t, uint32_t) { return false; });
    with = KeysInLog(lower, [upper](uint32_t region, uint32_t) { return region == upper; });
  };
  ASSERT_TRUE(Run(worker_->joiner()->Join(upper)).ok());
  worker_->sync_points()->on_reach = nullptr;
  EXPECT_EQ(without, lower_keys);
  EXPECT_EQ(with, kKeys);
}

TEST_P(PartJoinerTest, OneThatIsRefusedIsUndoneBeforeTheUpperPartIsWritten) {
  Create(2);
  Fill();
  const uint32_t lower = PartAt(0)->region(), upper = PartAt(1)->region();
  const uint64_t lower_keys = PartAt(0)->store->keys();
  uint32_t child = 0;  // Of a split that the region table knows of. It refuses the join.
  uint64_t at_most = 0;
  bool undone = false;
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    at_most = std::max(at_most, Find(lower)->store->keys());
    if (point == "table join: logged") child = *cluster_->state.table.Add({"own", 0}, upper);
    if (point != "table join: undone") return;
    undone = true;
    EXPECT_FALSE(Find(upper)->writable());
    EXPECT_EQ(Find(lower)->store->keys(), lower_keys);
    EXPECT_TRUE(Find(lower)->hash->Check().ok());
  };
  EXPECT_EQ(Run(worker_->joiner()->Join(upper)).code(), absl::StatusCode::kAborted);
  worker_->sync_points()->on_reach = nullptr;
  EXPECT_TRUE(cluster_->state.table.Remove(child).ok());
  EXPECT_TRUE(undone);
  EXPECT_EQ(at_most, kKeys);
  AwaitIdle();
  ExpectKeys(0);
  EXPECT_EQ(worker_->joiner()->counters().failed, 1u);
  // It can be joined later. What the first attempt has copied does not count.
  uint64_t gone = 0;
  while (PartOf(KeyOf(gone))->region() != upper) ++gone;
  ASSERT_TRUE(*Find(upper)->store->Delete(KeyOf(gone)));
  ASSERT_TRUE(Run(worker_->joiner()->Join(upper)).ok());
  EXPECT_EQ(KeysInLog(lower, [upper](uint32_t region, uint32_t) { return region == upper; }), kKeys - 1);
}

TEST_P(PartJoinerTest, WhatCannotBeJoinedIsSaid) {
  Create(2);
  const uint32_t lower = PartAt(0)->region(), upper = PartAt(1)->region();
  const auto code = [this](uint32_t region) { return Run(worker_->joiner()->Join(region)).code(); };
  EXPECT_EQ(code(99), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(lower), absl::StatusCode::kFailedPrecondition);  // It is the first.
  for (const uint32_t busy : {lower, upper}) {
    const RegionClaim claim(Find(busy), ClaimPurpose::kCheckpoint);
    EXPECT_EQ(code(upper), absl::StatusCode::kAborted);
  }
  for (uint64_t i = 0; PartAt(0)->store->fill() + PartAt(1)->store->fill() < 0.5; ++i) {
    Put(KeyOf(i), std::string(300, 'v'));
  }
  EXPECT_EQ(code(upper), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Find(upper)->state(), RegionState::kServing);
  EXPECT_EQ(Parts().parts.size(), 2u);
}

// The session is lost when all was copied. The regions may have other owners at any time after that.
TEST_P(PartJoinerTest, OneWhoseRegionsAreLostIsNotMade) {
  Create(2);
  Fill();
  const uint32_t upper = PartAt(1)->region();
  worker_->sync_points()->on_reach = [&](std::string_view point) {
    if (point == "table join: copied") membership_->Rejoin();
  };
  EXPECT_EQ(Run(worker_->joiner()->Join(upper)).code(), absl::StatusCode::kAborted);
  worker_->sync_points()->on_reach = nullptr;
  EXPECT_NE(membership_->state().table.Find(upper), nullptr);
  EXPECT_EQ(worker_->joiner()->counters().part_joins, 0u);
}

class ShrinkingTableTest : public PartJoinerTest {
 protected:
  ShrinkingTableTest() : PartJoinerTest(/*joins=*/true) {}

  // Lets the worker look at its regions some times.
  void Wait() {
    const int64_t until_ns = network_.now_ns() + 20 * kEveryNs;
    while (network_.now_ns() < until_ns) Turn();
    AwaitIdle();
  }
  void DeleteBelow(uint64_t end) {
    for (uint64_t i = 0; i < end; ++i) ASSERT_TRUE(*PartOf(KeyOf(i))->store->Delete(KeyOf(i)));
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, ShrinkingTableTest, ::testing::Values(0, 512));

TEST_P(ShrinkingTableTest, ItsPartsJoinUntilOneIsLeft) {
  Create(1);
  Fill();
  Split(0);
  Split(1);
  Split(0);
  Wait();
  ASSERT_EQ(Parts().parts.size(), 4u);  // What an operator has split stays split.
  DeleteBelow(90);
  Wait();
  EXPECT_EQ(Parts().parts.size(), 1u);
  EXPECT_EQ(worker_->joiner()->counters().part_joins, 3u);
  ExpectKeys(90);
}

TEST_P(ShrinkingTableTest, ItKeepsAsManyPartsAsItWasCreatedWith) {
  Create(2);
  Fill();
  Split(0);
  Split(2);
  DeleteBelow(kKeys);
  Wait();
  EXPECT_EQ(Parts().parts.size(), 2u);
  ExpectKeys(kKeys);
}

TEST_P(ShrinkingTableTest, EmptyPartsWithoutPairsJoin) {
  Create(1);
  Split(0);
  Wait();
  EXPECT_EQ(Parts().parts.size(), 1u);
}

}  // namespace
}  // namespace cell

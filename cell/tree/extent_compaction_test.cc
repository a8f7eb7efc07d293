// Tests ExtentCompaction over meganodes. (pilaf/hash_compaction_test.cc has those over parts of tables.)
#include "cell/region/extent_compaction.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/meganode.h"
#include "cell/tree/test_region.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr RegionShape kShape = {1024, 1 << 20, 1 << 20};
constexpr uint64_t kLarge = 20'000;

class ExtentCompactionTest : public ::testing::Test {
 protected:
  absl::Status Put(const std::string& key, const std::string& value, Expiry expiry = kNeverExpires) {
    absl::Status status = tree_.Put(key, value, Crc64(value, Crc64(key)), {}, expiry).status();
    if (status.ok()) pairs_[key] = value;
    return status;
  }
  void Delete(const std::string& key) {
    ASSERT_TRUE(*tree_.Delete(key));
    pairs_.erase(key);
  }
  // Fills the region, and deletes a pair here and there, until there is room for `free` bytes in small pieces.
  void Scatter(uint64_t free) {
    Random random(1);
    std::vector<std::string> keys;
    absl::Status status;
    while (status.ok()) {
      keys.push_back(fmt::format("{:08}", random.Below(100'000'000)));
      status = Put(keys.back(), std::string(400 + random.Below(1200), static_cast<char>('a' + random.Below(26))));
    }
    ASSERT_TRUE(absl::IsResourceExhausted(status));
    while (tree_.extents().bytes_total - tree_.extents().bytes_used < free) {
      const auto it = pairs_.lower_bound(keys[random.Below(keys.size())]);
      if (it != pairs_.end()) Delete(std::string(it->first));
    }
    ASSERT_TRUE(absl::IsResourceExhausted(tree_.Put("new", large_, Crc64(large_, Crc64("new"))).status()));
  }
  void Run(ExtentCompaction* pass, uint64_t bytes_max = 4096) {
    for (int i = 0; i < 100'000 && !pass->ended(); ++i) {
      const uint64_t before = pass->moved_bytes();
      ASSERT_TRUE(pass->Step(&tree_, bytes_max).ok());
      ASSERT_LT(pass->moved_bytes(), before + bytes_max + 2000);
    }
    ASSERT_TRUE(pass->ended());
  }
  void ExpectSound(const absl::flat_hash_set<uint64_t>& reserved = {}) {
    const TreeReport report = CheckTree(*region_.memory(), reserved);
    ASSERT_TRUE(report.ok()) << report.errors[0];
    for (const auto& [key, value] : pairs_) {
      const Meganode::Location location = *tree_.Find(key);
      ASSERT_TRUE(location.pair.has_value()) << key;
      ASSERT_EQ(*tree_.VerifiedValueOf(key, *location.pair), value);
    }
    ASSERT_EQ(tree_.keys(), pairs_.size());
  }

  TestRegion region_{kShape};
  Meganode tree_{region_.memory(), {0, nullptr}};
  std::map<std::string, std::string> pairs_;
  const std::string large_ = std::string(kLarge, 'l');
};

TEST_F(ExtentCompactionTest, APassMakesRoomForALargeExtent) {
  Scatter(300'000);
  ASSERT_TRUE(ExtentCompaction::MayMakeRoom(tree_, kLarge));
  ExtentCompaction pass(&tree_, kLarge + 3);
  Run(&pass);
  EXPECT_GT(pass.moved(), 5u);
  EXPECT_FALSE(ExtentCompaction::MayMakeRoom(tree_, kLarge + 3));
  ExpectSound();
  EXPECT_TRUE(Put("new", large_).ok());
  ExpectSound();
}

TEST_F(ExtentCompactionTest, AnotherAttemptEmptiesTheOtherSideOfTheLargestPiece) {
  Scatter(300'000);
  ExtentCompaction pass(&tree_, kLarge, ExtentCompaction::Aim::kLeast);
  Run(&pass);
  EXPECT_LT(pass.moved_bytes(), 2 * kLarge) << "more is moved than what is in the way";
  EXPECT_TRUE(tree_.extent_allocator()->Fits(kLarge));
  ExpectSound();
}

TEST_F(ExtentCompactionTest, InTheBackgroundHalfOfTheFreeSpaceBecomesOnePiece) {
  Scatter(300'000);
  ASSERT_TRUE(ExtentCompaction::Pays(tree_));
  ExtentCompaction pass(&tree_, 0);
  Run(&pass);
  EXPECT_FALSE(ExtentCompaction::Pays(tree_));
  EXPECT_LT(tree_.extents().fragmentation(), 0.6);
  ExpectSound();
}

TEST_F(ExtentCompactionTest, AnEmptyOrFullRegionDoesNotPay) {
  EXPECT_FALSE(ExtentCompaction::Pays(tree_));
  EXPECT_FALSE(ExtentCompaction::MayMakeRoom(tree_, kLarge));
  EXPECT_FALSE(ExtentCompaction::MayMakeRoom(tree_, 2 << 20));
  while (Put(fmt::format("{:08}", pairs_.size()), std::string(1000, 'v')).ok()) {
  }
  EXPECT_FALSE(ExtentCompaction::Pays(tree_));
  EXPECT_FALSE(ExtentCompaction::MayMakeRoom(tree_, kLarge));
  ExtentCompaction pass(&tree_, kLarge);
  Run(&pass);
  ExpectSound();
}

TEST_F(ExtentCompactionTest, PairsKeepStampAndExpiry) {
  Scatter(300'000);
  for (auto& [key, value] : pairs_) {
    if (value.size() % 2 == 0) {
      ASSERT_TRUE(Put(key, value, 1'000'000 + value.size()).ok());
    }
  }
  std::map<std::string, std::pair<uint64_t, Expiry>> before;
  for (const auto& [key, value] : pairs_) {
    const LeafPair pair = *tree_.Find(key)->pair;
    before[key] = {pair.stamp, pair.expiry};
  }
  ExtentCompaction pass(&tree_, 0);
  Run(&pass);
  ASSERT_GT(pass.moved(), 0u);
  for (const auto& [key, value] : pairs_) {
    const LeafPair pair = *tree_.Find(key)->pair;
    EXPECT_EQ((std::pair<uint64_t, Expiry>(pair.stamp, pair.expiry)), before[key]) << key;
  }
  ExpectSound();
}

// Nothing names it yet, so it must stay where the write has it.
TEST_F(ExtentCompactionTest, AnExtentOfAPreparedWriteStays) {
  Scatter(300'000);
  std::map<std::string, Meganode::Prepared> prepared;
  absl::flat_hash_set<uint64_t> reserved;
  for (int i = 0; i < 50; ++i) {
    const std::string key = fmt::format("prepared{}", i), value(300 + 10 * i, 'p');
    const auto one = tree_.Prepare(key, value, Crc64(value, Crc64(key)), {prepared.size(), true});
    if (!one.ok()) continue;
    prepared[key] = *one;
    reserved.insert(one->extent);
  }
  ASSERT_GT(prepared.size(), 10u);
  ExtentCompaction pass(&tree_, 0);
  Run(&pass);
  ASSERT_GT(pass.moved(), 0u);
  ExpectSound(reserved);
  for (const auto& [key, one] : prepared) {
    EXPECT_FALSE(tree_.Commit(one, key));
    pairs_[key] = std::string(one.bytes - key.size(), 'p');
  }
  ExpectSound();
}

// Its copy would have the CRC that it should have, or be as damaged.
TEST_F(ExtentCompactionTest, ADamagedExtentStaysWhereItIs) {
  Scatter(300'000);
  std::vector<uint64_t> damaged;
  size_t i = 0;
  for (const auto& [key, value] : pairs_) {
    if (++i % 3 != 0) continue;
    const uint64_t at = tree_.Find(key)->pair->outside.extent.offset();
    region_.memory()->StoreWord(at, ~LoadWord(region_.memory()->at(at), std::memory_order_relaxed));
    damaged.push_back(at);
  }
  const uint64_t used = tree_.extents().bytes_used;
  ExtentCompaction pass(&tree_, 0);
  Run(&pass);
  ASSERT_GT(pass.moved(), 0u);
  EXPECT_EQ(tree_.extents().bytes_used, used);
  i = 0;
  for (const auto& [key, value] : pairs_) {
    const LeafPair pair = *tree_.Find(key)->pair;
    if (++i % 3 == 0) {
      EXPECT_EQ(pair.outside.extent.offset(), damaged[i / 3 - 1]) << key;
    } else {
      EXPECT_EQ(*tree_.VerifiedValueOf(key, pair), value);
    }
  }
}

TEST_F(ExtentCompactionTest, ADamagedLeafEndsThePass) {
  Scatter(300'000);
  const uint64_t leaf = tree_.Find(pairs_.rbegin()->first)->leaf.offset();
  region_.memory()->StoreWord(leaf + 512, ~LoadWord(region_.memory()->at(leaf + 512), std::memory_order_relaxed));
  ExtentCompaction pass(&tree_, 0);
  absl::Status status;
  for (int i = 0; i < 100'000 && status.ok() && !pass.ended(); ++i) status = pass.Step(&tree_, 4096);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

// The region is used between two steps.
TEST_F(ExtentCompactionTest, WritesMayComeBetweenAnyTwoSteps) {
  Scatter(300'000);
  Random random(5);
  uint64_t moved = 0;
  for (int round = 0; round < 20; ++round) {
    ExtentCompaction pass(&tree_, random.Below(2) == 0 ? 0 : kLarge,
                          random.Below(2) == 0 ? ExtentCompaction::Aim::kLeast : ExtentCompaction::Aim::kHalf);
    for (int i = 0; i < 100'000 && !pass.ended(); ++i) {
      ASSERT_TRUE(pass.Step(&tree_, 1 + random.Below(3000)).ok());
      const auto it = pairs_.lower_bound(fmt::format("{:08}", random.Below(100'000'000)));
      if (it == pairs_.end()) continue;
      if (random.Below(2) == 0) {
        Delete(std::string(it->first));
      } else {
        (void)Put(fmt::format("{:08}", random.Below(100'000'000)), std::string(200 + random.Below(2000), 'w'));
      }
    }
    moved += pass.moved();
    ExpectSound();
  }
  EXPECT_GT(moved, 100u);
}

// Between any two stores of the writer, a reader that has any version of a leaf, and reads an extent by it, finds the
// pair of that version, or bytes whose CRC shows that they are not.
TEST_F(ExtentCompactionTest, AReaderFindsEachPairAllTheTime) {
  Scatter(300'000);
  Random random(7);
  std::vector<std::string> keys;
  for (const auto& [key, value] : pairs_) keys.push_back(key);
  uint64_t found = 0, again = 0, publishing = 0;
  struct Read {
    std::string key;
    LeafPair pair;  // As it was when the reader read the leaf.
    const std::byte* leaf;
    uint64_t version;  // Of the leaf.
  };
  std::vector<std::optional<Read>> readers(200);
  const auto extent_is_right = [&](const Read& read) {
    const ConstBytes extent(tree_.Extent(read.pair.outside.extent), read.pair.pair_bytes());
    if (!read.pair.Matches(Crc64(extent))) return false;
    EXPECT_EQ(std::string(AsText(extent)), read.key + pairs_[read.key]);
    ++found;
    return true;
  };
  region_.memory()->set_after_step([&] {
    for (const std::optional<Read>& other : readers) {
      // While a leaf is published, its version is odd. The extents of the one before are needed until that is done.
      if (!other.has_value() || LoadWord(other->leaf) != other->version + 1) continue;
      EXPECT_TRUE(extent_is_right(*other)) << "an extent was freed too early";
      ++publishing;
    }
    std::optional<Read>& reader = readers[random.Below(readers.size())];
    if (reader.has_value()) again += !extent_is_right(*reader);
    if (reader.has_value() && random.Below(10) != 0) return;
    reader.reset();
    const std::string& key = keys[random.Below(keys.size())];
    const NodeView leaf = *tree_.LeafOf(key);
    NodeView whole;
    const uint64_t version = LoadWord(leaf.bytes());
    if (NodeView::Parse({leaf.bytes(), leaf.node_bytes()}, leaf.self(), &whole) != NodeFault::kNone) {
      return;  // It is being published.
    }
    reader = Read{key, whole.pair(*whole.Find(key)), leaf.bytes(), version};
    EXPECT_TRUE(extent_is_right(*reader)) << "a leaf that is whole leads to an extent that is not";
  });
  ExtentCompaction pass(&tree_, 0);
  Run(&pass);
  region_.memory()->set_after_step(nullptr);
  EXPECT_GT(found, 1000u);
  EXPECT_GT(again, 0u) << "no reader came with an old leaf: the test is too easy";
  EXPECT_GT(publishing, 0u) << "no reader came during a publication: the test is too easy";
  ExpectSound();
}

}  // namespace
}  // namespace cell

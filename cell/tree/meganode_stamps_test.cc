// Checks which stamps a meganode gives to the pairs that are put.
#include <gtest/gtest.h>

#include "cell/base/crc64.h"
#include "cell/tree/meganode.h"
#include "cell/tree/test_region.h"

namespace cell {
namespace {

absl::StatusOr<bool> Put(Meganode* tree, std::string_view key, std::string_view value) {
  return tree->Put(key, value, Crc64(value, Crc64(key)));
}

uint64_t StampOf(const Meganode& tree, std::string_view key) { return tree.Find(key)->pair->stamp; }

// With the mutant stamp-kept this fails.
TEST(Stamps, GrowWithEachPutEvenOfAnEqualValue) {
  for (const size_t inline_max : {0, 64}) {
    TestRegion region({1024, 1 << 20, 1 << 20});
    Meganode tree(region.memory());
    tree.set_inline_max(inline_max);
    uint64_t last = 0;
    for (const char* value : {"a", "b", "b", "a", "a"}) {
      ASSERT_TRUE(Put(&tree, "key", value).ok());
      EXPECT_GT(StampOf(tree, "key"), last) << value;
      last = StampOf(tree, "key");
      ASSERT_TRUE(Put(&tree, "other", value).ok());
      EXPECT_EQ(StampOf(tree, "key"), last) << "another key's put leaves it alone";
    }
    ASSERT_TRUE(*tree.Delete("key"));
    ASSERT_TRUE(Put(&tree, "key", "a").ok());
    EXPECT_GT(StampOf(tree, "key"), last) << "a key that was deleted does not begin again";
    last = StampOf(tree, "key");
    const auto prepared = tree.Prepare("key", "a", Crc64("a", Crc64("key")), {});
    const auto next_prepared = tree.Prepare("key", "a", Crc64("a", Crc64("key")), {});
    ASSERT_TRUE(prepared.ok() && next_prepared.ok());
    EXPECT_EQ(StampOf(tree, "key"), last);
    EXPECT_GT(prepared->stamp, last);
    EXPECT_GT(next_prepared->stamp, prepared->stamp);
    for (const auto& one : {prepared, next_prepared}) {
      EXPECT_TRUE(tree.Commit(*one, "key"));
      EXPECT_EQ(StampOf(tree, "key"), one->stamp) << "the log has this one";
    }
    // Another owner of the same memory goes on.
    Meganode next(region.memory());
    EXPECT_GT(next.NextStamp(), StampOf(tree, "key"));
  }
}

TEST(Stamps, FollowTheClockAndNeverGoBackWithIt) {
  TestRegion region({1024, 1 << 20, 1 << 20});
  Meganode tree(region.memory());
  int64_t now_ns = 1'000'000;
  tree.set_cluster_time([&now_ns] { return now_ns; });
  EXPECT_EQ(tree.NextStamp(), 1'000'000u);
  EXPECT_EQ(tree.NextStamp(), 1'000'001u);
  now_ns = 2'000'000;
  EXPECT_EQ(tree.NextStamp(), 2'000'000u);
  now_ns = 5;
  EXPECT_EQ(tree.NextStamp(), 2'000'001u);
  now_ns = -5;
  EXPECT_EQ(tree.NextStamp(), 2'000'002u);
  EXPECT_EQ(tree.header().last_stamp, 2'000'002u);
}

// A stamp is given only if a bound that covers it is on disk.
TEST(Stamps, EndAtTheBound) {
  TestRegion region({1024, 1 << 20, 1 << 20});
  Meganode tree(region.memory());
  EXPECT_FALSE(tree.WantsStamps()) << "without a log there is no bound";
  int64_t now_ns = 1'000'000'000'000;
  tree.set_cluster_time([&now_ns] { return now_ns; });
  const uint64_t bound = tree.NextStampBound(0).value();
  EXPECT_GT(bound, static_cast<uint64_t>(now_ns));
  EXPECT_EQ(tree.NextStampBound(bound), std::nullopt) << "it will do for some time";
  tree.set_stamp_bound(bound);
  EXPECT_FALSE(tree.WantsStamps());
  EXPECT_EQ(tree.NextStamp(), static_cast<uint64_t>(now_ns));
  // No region is written for hours, or its log takes nothing. The clock must not use up what is left.
  now_ns = static_cast<int64_t>(bound) - 1;
  const uint64_t last = tree.header().last_stamp;
  EXPECT_EQ(tree.NextStamp(), last + 1);
  now_ns += 3'600'000'000'000;
  EXPECT_EQ(tree.NextStamp(), last + 2);
  EXPECT_GT(tree.NextStampBound(bound).value(), static_cast<uint64_t>(now_ns));
  // Another region's stamps, whose keys it takes over, may be anything.
  tree.RaiseLastStamp(bound - 1);
  EXPECT_TRUE(tree.WantsStamps());
  ASSERT_TRUE(Put(&tree, "key", "value").ok());
  EXPECT_EQ(StampOf(tree, "key"), bound);
  EXPECT_TRUE(absl::IsUnavailable(Put(&tree, "key", "again").status()));
  EXPECT_TRUE(absl::IsUnavailable(tree.Prepare("key", "again", Crc64("again", Crc64("key")), {}).status()));
  EXPECT_EQ(StampOf(tree, "key"), bound);
  EXPECT_TRUE(*tree.Delete("key")) << "that takes none";
  tree.set_stamp_bound(tree.NextStampBound(bound).value());
  ASSERT_TRUE(Put(&tree, "key", "again").ok());
  EXPECT_GT(StampOf(tree, "key"), bound);
}

}  // namespace
}  // namespace cell

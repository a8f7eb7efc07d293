#include "cell/cluster/region_ids.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "cell/base/random.h"

namespace cell {
namespace {

TEST(RegionIds, AreGivenInOrderAndThenAgain) {
  RegionIds ids;
  ids.max = 3;
  const auto none = [](uint32_t) { return false; };
  EXPECT_FALSE(ids.Given(1));
  for (const uint32_t expected : {1u, 2u, 3u, 1u, 2u}) EXPECT_EQ(*ids.Take(none), expected);
  EXPECT_TRUE(ids.Given(3));
}

TEST(RegionIds, OnesInUseArePassedOver) {
  RegionIds ids;
  ids.max = 4;
  const auto in_use = [](uint32_t id) { return id % 2 == 1; };
  EXPECT_EQ(*ids.Take(in_use), 2u);
  EXPECT_EQ(*ids.Take(in_use), 4u);
  EXPECT_EQ(*ids.Take(in_use), 2u);
  const auto all = [](uint32_t) { return true; };
  EXPECT_EQ(ids.Take(all).status().code(), absl::StatusCode::kResourceExhausted);
}

// Regions of all ages come and go, and some are moved meanwhile.
class RegionIdsUpTo : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Max, RegionIdsUpTo, ::testing::Values(256, 250, 199));

TEST_P(RegionIdsUpTo, RestAndComeBackWithHigherEpochs) {
  Random random(1);
  RegionIds ids;
  ids.max = GetParam();
  struct Live {
    uint32_t id;
    uint64_t epoch;
  };
  std::vector<Live> live;
  std::map<uint32_t, uint64_t> last_epochs;
  std::map<uint32_t, uint64_t> removed_at;
  uint64_t passed = 0;  // Ids that were given, passed over because they rest, or are in use.
  uint32_t before = 0;
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < 20'000; ++i) {
    if (live.size() < 8 || (live.size() < 60 && random.Below(2) == 0)) {
      const auto in_use = [&live](uint32_t id) {
        return std::any_of(live.begin(), live.end(), [id](const Live& one) { return one.id == id; });
      };
      const uint32_t id = *ids.Take(in_use);
      passed += id > before ? id - before : ids.max - before + id;
      before = id;
      ASSERT_FALSE(in_use(id));
      ASSERT_GT(ids.epoch, last_epochs[id]);
      if (removed_at.contains(id)) shortest = std::min(shortest, passed - removed_at[id]);
      live.push_back({id, ids.epoch});
    } else {
      const size_t at = random.Below(live.size());
      live[at].epoch += random.Below(3);
      last_epochs[live[at].id] = live[at].epoch;
      removed_at[live[at].id] = passed;
      ids.GiveBack(live[at].id, live[at].epoch);
      live.erase(live.begin() + static_cast<ptrdiff_t>(at));
    }
  }
  EXPECT_GT(shortest, ids.rest());
  EXPECT_LT(ids.resting.size(), 60u);
  EXPECT_LT(ids.epoch, 20'000u);
}

TEST(RegionIds, ComeBackWithAnEpochAboveTheLast) {
  RegionIds ids;
  ids.max = 3;
  const auto in_use = [](uint32_t id) { return id != 2; };
  EXPECT_EQ(*ids.Take(in_use), 2u);
  EXPECT_EQ(ids.epoch, 1u);
  ids.GiveBack(2, 5);
  EXPECT_EQ(*ids.Take(in_use), 2u);
  EXPECT_EQ(ids.epoch, 6u);
}

TEST(RegionIds, NoEpochIsForgotten) {
  RegionIds ids;
  ids.max = 3;
  ids.GiveBack(2, 5);
  ids.GiveBack(3, 1);
  EXPECT_EQ(ids.removed_epoch, 5u);
  ids.epoch = 9;
  EXPECT_TRUE(ids.Take([](uint32_t) { return false; }).ok());
  EXPECT_EQ(ids.epoch, 9u);
}

TEST(RegionIds, EndWithTheEpochs) {
  RegionIds ids;
  ids.epoch = RegionIds::kEpochEnd - 1;
  EXPECT_EQ(ids.Take([](uint32_t) { return false; }).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cell

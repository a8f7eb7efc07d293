// Tests a region's lifecycle, and claims on it.
#include "cell/server/region/region_claim.h"

#include <gtest/gtest.h>

#include <coroutine>
#include <string>
#include <utility>

#include "cell/base/event.h"
#include "cell/base/task.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/server/region/regions.h"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 32 << 10, 64 << 10};

// Checks the table of region_lifecycle.h.
TEST(RegionLifecycle, AllowsWhatItsTableShows) {
  constexpr std::string_view kNames[] = {"filling", "serving", "frozen", "sealed", "lost"};
  std::string changes;
  for (int from = 0; from < 5; ++from) {
    changes += fmt::format("{}:", kNames[from]);
    for (int to = 0; to < 5; ++to) {
      if (CanChange(RegionState(from), RegionState(to))) changes += fmt::format(" {}", kNames[to]);
    }
    changes += "\n";
  }
  EXPECT_EQ(changes,
            "filling: serving lost\n"
            "serving: frozen lost\n"
            "frozen: serving sealed lost\n"
            "sealed: serving lost\n"
            "lost:\n");
}

// Resumes at once who waits.
struct CountingExecutor : Executor {
  void Schedule(std::coroutine_handle<> ready) override {
    ++woken;
    ready.resume();
  }
  int woken = 0;
};

class RegionClaimTest : public ::testing::Test {
 protected:
  // Waits for two signals.
  static Task<bool> Wait(Event* event, Executor* executor) {
    for (int i = 0; i < 2; ++i) co_await event->Wait(executor);
    co_return true;
  }

  ShmFabric fabric_{{.huge_pages = false}};
  Regions regions_{&fabric_, kShape, 4};
};

TEST_F(RegionClaimTest, HoldsARegionUntilItsEnd) {
  HeldRegion* const region = *regions_.Create(1, {});
  {
    RegionClaim first(region, ClaimPurpose::kSplit);
    EXPECT_TRUE(region->claimed());
    EXPECT_FALSE(region->claimable());
    RegionClaim second = std::move(first);
    EXPECT_EQ(first.region(), nullptr);
    EXPECT_EQ(second.region(), region);
    EXPECT_TRUE(region->ClaimedFor(ClaimPurpose::kSplit));
    second.set_purpose(ClaimPurpose::kRouteBlocked);
    EXPECT_FALSE(region->ClaimedFor(ClaimPurpose::kSplit));
    EXPECT_TRUE(region->ClaimedFor(ClaimPurpose::kRouteBlocked));
    first = std::move(second);
    EXPECT_TRUE(region->claimed());
  }
  EXPECT_TRUE(region->claimable());
  RegionClaim third(region, ClaimPurpose::kCheckpoint);
  third.Release();
  third.Release();
  EXPECT_FALSE(region->claimed());
}

TEST_F(RegionClaimTest, YieldsWhileItsRouteIsBlocked) {
  HeldRegion* const region = *regions_.Create(1, {});
  EXPECT_FALSE(region->claim_yields());
  RegionClaim claim(region, ClaimPurpose::kRoute);
  EXPECT_FALSE(region->claim_yields());
  claim.set_purpose(ClaimPurpose::kRouteBlocked);
  EXPECT_TRUE(region->claim_yields());
  {
    const RegionClaim taken = RegionClaim::TakeOver(region, ClaimPurpose::kJoin);
    EXPECT_EQ(claim.region(), nullptr);
    EXPECT_TRUE(region->ClaimedFor(ClaimPurpose::kJoin));
    claim.Release();
    EXPECT_TRUE(region->claimed());
  }
  EXPECT_FALSE(region->claimed());
}

TEST_F(RegionClaimTest, HoldsNothingOnceTheRegionIsDropped) {
  RegionClaim claim(*regions_.Create(1, {}), ClaimPurpose::kMigrate);
  regions_.Drop(1);
  EXPECT_EQ(claim.region(), nullptr);
  claim = RegionClaim(*regions_.Create(1, {}), ClaimPurpose::kFill);
  EXPECT_TRUE(regions_.Find(1)->claimed());
}

TEST_F(RegionClaimTest, ItsEndIsSignalled) {
  CountingExecutor executor;
  Task<bool> task = Wait(regions_.unclaimed(), &executor);
  task.Start();
  RegionClaim claim(*regions_.Create(1, {}), ClaimPurpose::kSplit);
  RegionClaim moved = std::move(claim);
  EXPECT_EQ(executor.woken, 0);
  moved.Release();
  EXPECT_EQ(executor.woken, 1);
  const RegionClaim second(regions_.Find(1), ClaimPurpose::kMigrate);
  regions_.Drop(1);
  EXPECT_EQ(executor.woken, 2);
  EXPECT_TRUE(task.done());
}

TEST_F(RegionClaimTest, ItsEndIsAChangeOfItsRegion) {
  HeldRegion* const region = *regions_.Create(1, {});
  RegionClaim claim(region, ClaimPurpose::kSplit);
  CountingExecutor executor;
  Task<bool> task = Wait(&region->changed, &executor);
  task.Start();
  RegionClaim moved = std::move(claim);
  EXPECT_EQ(executor.woken, 0);
  moved.Release();
  EXPECT_EQ(executor.woken, 1);
  moved.Release();  // It holds nothing.
  EXPECT_EQ(executor.woken, 1);
  { const RegionClaim second(region, ClaimPurpose::kMigrate); }
  EXPECT_EQ(executor.woken, 2);
  EXPECT_TRUE(task.done());
}

TEST_F(RegionClaimTest, ALostRegionIsNeitherReadNorClaimable) {
  HeldRegion* const region = *regions_.Create(1, {});
  region->ChangeState(RegionState::kFrozen);
  EXPECT_TRUE(region->readable());
  EXPECT_FALSE(region->writable());
  region->ChangeState(RegionState::kLost);
  region->Unfreeze();
  EXPECT_TRUE(region->lost());
  EXPECT_FALSE(region->readable() || region->writable() || region->claimable());
}

using RegionClaimDeathTest = RegionClaimTest;

TEST_F(RegionClaimDeathTest, TwoClaimsAndImpossibleChangesEndTheProcess) {
  HeldRegion* const region = *regions_.Create(1, {});
  const RegionClaim claim(region, ClaimPurpose::kSplit);
  EXPECT_DEATH(RegionClaim(region, ClaimPurpose::kMigrate), "CHECK failed");
  EXPECT_DEATH(region->ChangeState(RegionState::kSealed), "CHECK failed");
}

}  // namespace
}  // namespace cell

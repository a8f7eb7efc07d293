// Tests that scattered free space for extents is made one piece again, and what waits for it.
#include "cell/server/request/compactor.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/server/request/test_request_service.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"

namespace cell {
namespace {

class CompactorTest : public RequestServiceTest {
 protected:
  HeldRegion* region() { return regions_.Find(1); }
  const Compactor::Counters& counters() const { return service_.compactor().counters(); }
  ExtentAllocator::Usage usage() { return region()->store->extents(); }

  // Fills a region with values of these sizes in turns, and deletes those of the first size, and some of the others.
  void Scatter(PairStore* store, size_t first, size_t second, bool some_others) {
    Random random(3);
    absl::Status status;
    std::map<std::string, size_t> stored;
    for (int i = 0; status.ok(); ++i) {
      const std::string key = fmt::format("{:08}", random.Below(100'000'000));
      const std::string value(i % 2 == 0 ? first : second, static_cast<char>('a' + i % 26));
      status = store->Put(key, value, Crc64(value, Crc64(key))).status();
      if (status.ok()) stored[key] = value.size();
    }
    ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    for (const auto& [key, size] : stored) {
      if (size == first || (some_others && random.Below(6) == 0)) {
        ASSERT_TRUE(*store->Delete(key));
      } else {
        pairs_[key] = size;
      }
    }
    ASSERT_GT(store->extents().fragmentation(), 0.9);
  }
  void Run(int turns = 4000) {
    for (int i = 0; i < turns; ++i) {
      const int64_t until_ns = server_->NowNs() + 500'000;
      while (server_->NowNs() < until_ns) server_->Wait(until_ns);
      service_.Step();
      Turn();
    }
  }
  void RunUntilAPassHasBegun() {
    const double before = usage().fragmentation();
    while (counters().passes == 0 && (counters().moved == 0 || usage().fragmentation() > before - 0.05)) Run(1);
    ASSERT_EQ(counters().passes, 0u) << "it has ended already: the test is too easy";
  }
  void ExpectSound() {
    const TreeReport report = CheckTree(*region()->memory);
    ASSERT_TRUE(report.ok()) << report.errors[0];
    for (const auto& [key, size] : pairs_) {
      const Meganode::Location location = *region()->tree->Find(key);
      ASSERT_TRUE(location.pair.has_value());
      EXPECT_EQ(region()->tree->VerifiedValueOf(key, *location.pair)->size(), size);
    }
  }

  std::map<std::string, size_t> pairs_;
  const std::string large_ = std::string(60'000, 'l');
};

TEST_F(CompactorTest, APutWaitsUntilTheFreeSpaceIsOnePiece) {
  Scatter(region()->store.get(), 1500, 1200, true);
  Reply reply;
  SendPut("large", large_, &reply);
  ASSERT_FALSE(reply.done);
  EXPECT_EQ(service_.writes()->held().size(1), 1u);
  for (int i = 0; i < 10'000 && !reply.done; ++i) {
    Turn();
    service_.writes()->RetryHeld();
  }
  ASSERT_TRUE(reply.done);
  EXPECT_EQ(CodeOf(reply.bytes), absl::StatusCode::kOk);
  EXPECT_GT(counters().moved, 10u);
  pairs_["large"] = large_.size();
  ExpectSound();
}

TEST_F(CompactorTest, WithSyncItIsLoggedWhenThereIsRoom) {
  Scatter(region()->store.get(), 1500, 1200, true);
  region()->SetLog(std::make_shared<RegionLog>(1, 1, 1, nullptr), /*first=*/true);
  Reply reply;
  SendPut("large", large_, &reply);
  for (int i = 0; i < 10'000 && region()->pending.empty(); ++i) {
    Turn();
    service_.writes()->RetryHeld();
  }
  ASSERT_EQ(region()->pending.size(), 1u);
  Run(100);  // What is logged and not applied stays where it is.
  region()->log->EndFlush(region()->log->BeginFlush(), absl::OkStatus());
  service_.writes()->ApplyDurable();
  while (!reply.done) Turn();
  EXPECT_EQ(CodeOf(reply.bytes), absl::StatusCode::kOk);
  pairs_["large"] = large_.size();
  ExpectSound();
}

// No hole takes any of the pairs that are left.
TEST_F(CompactorTest, APutIsRefusedAfterPassesInVain) {
  Scatter(region()->store.get(), 1200, 3000, false);
  Reply reply;
  SendPut("large", large_, &reply);
  ASSERT_FALSE(reply.done);
  for (int i = 0; i < 10'000 && !reply.done; ++i) {
    Turn();
    service_.writes()->RetryHeld();
  }
  ASSERT_TRUE(reply.done) << "it waits forever";
  EXPECT_EQ(CodeOf(reply.bytes), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(counters().in_vain, 1u);
  Reply next;
  SendPut("large", large_, &next);
  EXPECT_TRUE(next.done) << "it waits for one more pass";
  EXPECT_EQ(CodeOf(next.bytes), absl::StatusCode::kResourceExhausted);
  Reply smaller;
  SendPut("small", std::string(1000, 's'), &smaller);
  EXPECT_EQ(CodeOf(smaller.bytes), absl::StatusCode::kOk);
  pairs_["small"] = 1000;
  ExpectSound();
}

TEST_F(CompactorTest, InTheBackgroundARegionIsCompactedOnceInAWhile) {
  Scatter(region()->store.get(), 1500, 1200, true);
  Run();
  EXPECT_EQ(counters().passes, 1u);
  EXPECT_LT(usage().fragmentation(), 0.6);
  const uint64_t moved = counters().moved;
  Run();
  EXPECT_EQ(counters().moved, moved) << "it does not pay any more";
  ExpectSound();
}

TEST_F(CompactorTest, APassInVainIsNotRepeatedAtOnce) {
  Scatter(region()->store.get(), 1200, 3000, false);
  Run(20'000);  // Ten seconds.
  EXPECT_EQ(counters().passes, 1u);
}

TEST_F(CompactorTest, ARegionThatIsFrozenOrFilledOrClaimedIsLeftAlone) {
  Scatter(region()->store.get(), 1500, 1200, true);
  const auto expect_nothing = [&] {
    Run();
    EXPECT_EQ(counters().moved, 0u);
    EXPECT_EQ(counters().passes, 0u);
  };
  region()->ChangeState(RegionState::kFrozen);
  expect_nothing();
  region()->Unfreeze();
  {
    const RegionClaim claim(region(), ClaimPurpose::kMigrate);
    expect_nothing();
  }
  {
    // It yields to what gives room.
    const RegionClaim claim(region(), ClaimPurpose::kRouteBlocked);
    Run();
    EXPECT_EQ(counters().passes, 1u);
  }
  const uint64_t moved = counters().moved;
  HeldRegion* const filled = *regions_.Create(2, {}, RegionState::kFilling);
  pairs_.clear();
  Scatter(filled->store.get(), 1500, 1200, true);
  Run();
  EXPECT_EQ(counters().moved, moved);
}

TEST_F(CompactorTest, APassEndsWhenItsRegionIsClaimed) {
  Scatter(region()->store.get(), 1500, 1200, true);
  RunUntilAPassHasBegun();
  const RegionClaim claim(region(), ClaimPurpose::kMigrate);
  const double before = usage().fragmentation();
  Run(400);
  EXPECT_EQ(usage().fragmentation(), before);
  EXPECT_EQ(counters().passes, 0u);
  EXPECT_GT(counters().moved, 0u);
  ExpectSound();
}

TEST_F(CompactorTest, APassEndsWhenItsRegionIsGone) {
  Scatter(region()->store.get(), 1500, 1200, true);
  RunUntilAPassHasBegun();
  regions_.Drop(1);
  Run(10);
  EXPECT_EQ(counters().passes, 0u);
  EXPECT_GT(counters().moved, 0u);
}

TEST_F(CompactorTest, ARegionThatComesBackDuringAPassIsUnharmed) {
  Scatter(region()->store.get(), 1500, 1200, true);
  RunUntilAPassHasBegun();
  regions_.Drop(1);
  ASSERT_TRUE(regions_.Create(1, {}).ok());
  pairs_.clear();
  Scatter(region()->store.get(), 1500, 1200, true);
  Run();
  ExpectSound();
}

TEST_F(CompactorTest, APutToATableWaitsToo) {
  for (const uint32_t bucket_bytes : {0u, 1024u}) {
    SCOPED_TRACE(bucket_bytes);
    const uint32_t id = 10 + bucket_bytes;
    HeldRegion* const part = *regions_.Create(id, {{}, HashRange{}, bucket_bytes});
    Scatter(part->store.get(), 1500, 1200, true);
    Reply reply;
    const uint64_t crc = Crc64(large_, Crc64("large"));
    client_->Call(connection_,
                  AsBytes(MakePutRequest(HashRootOf(id), {}, crc, "large", static_cast<uint32_t>(large_.size()), 0)),
                  AsBytes(large_), kMessageBytesMax, INT64_MAX, &reply);
    for (int i = 0; i < 20'000 && !reply.done; ++i) {
      Turn();
      service_.writes()->RetryHeld();
    }
    ASSERT_TRUE(reply.done);
    EXPECT_EQ(CodeOf(reply.bytes), absl::StatusCode::kOk);
    EXPECT_GT(counters().moved, 10u);
    EXPECT_TRUE(part->hash->Check().ok()) << part->hash->Check();
    regions_.Drop(id);
    pairs_.clear();
  }
}

}  // namespace
}  // namespace cell

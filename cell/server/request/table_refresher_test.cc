#include "cell/server/request/table_refresher.h"

#include <gtest/gtest.h>

#include <utility>

namespace cell {
namespace {

struct TestClock : Clock {
  int64_t NowNs() const override { return now_ns; }
  int64_t now_ns = 0;
};

class TestMembership : public Membership {
 public:
  const ClusterState& state() const override { return state_; }
  void Refresh(Done done) override {
    ++refreshes;
    done_ = std::move(done);
  }
  void Change(TableChange, Done) override {}
  size_t Poll() override {
    if (done_) std::exchange(done_, nullptr)(answer);
    return 1;
  }
  bool pending() const override { return done_ != nullptr; }
  bool watches() const override { return follows; }

  int refreshes = 0;
  bool follows = false;
  absl::Status answer = absl::UnavailableError("not there");

 private:
  ClusterState state_;
  Done done_;
};

class TableRefresherTest : public ::testing::Test {
 protected:
  WorkerContext Context() {
    WorkerContext context;
    context.clock = &clock_;
    context.membership = &membership_;
    return context;
  }
  // Lets a client ask, and the reading that follows succeed.
  void ReadFirst(TableRefresher* refresher) {
    membership_.follows = true;
    membership_.answer = absl::OkStatus();
    (void)refresher->Age(UINT64_MAX);
    refresher->Step();
    membership_.Poll();
  }

  TestClock clock_;
  TestMembership membership_;
};

TEST_F(TableRefresherTest, LooksOnceInAWhile) {
  TableRefresher refresher(Context(), 100);
  refresher.Step();
  EXPECT_EQ(membership_.refreshes, 1);
  clock_.now_ns = 1000;
  refresher.Step();  // The first look has not ended.
  EXPECT_EQ(membership_.refreshes, 1);
  EXPECT_EQ(refresher.NextNs(), TableRefresher::kNever);
  membership_.Poll();  // It has failed, and the next one comes as usual.
  EXPECT_EQ(refresher.NextNs(), 100);
  refresher.Step();
  EXPECT_EQ(membership_.refreshes, 2);
  membership_.Poll();
  clock_.now_ns = 1099;
  refresher.Step();
  EXPECT_EQ(membership_.refreshes, 2);
  clock_.now_ns = 1100;
  refresher.Step();
  EXPECT_EQ(membership_.refreshes, 3);
}

TEST_F(TableRefresherTest, LeavesAMembershipThatFollowsTheClusterAlone) {
  membership_.follows = true;
  TableRefresher refresher(Context(), 100);
  refresher.Step();
  EXPECT_EQ(membership_.refreshes, 0);
  EXPECT_EQ(refresher.NextNs(), TableRefresher::kNever);
}

// An age is that of the request by which the table was read.
TEST_F(TableRefresherTest, KnowsHowOldTheTableIs) {
  membership_.follows = true;
  membership_.answer = absl::OkStatus();
  TableRefresher refresher(Context(), TableRefresher::kNever);
  EXPECT_EQ(refresher.Age(UINT64_MAX), std::nullopt);
  clock_.now_ns = 10;
  EXPECT_LE(refresher.NextNs(), 10);
  refresher.Step();
  EXPECT_EQ(membership_.refreshes, 1);
  EXPECT_EQ(refresher.NextNs(), TableRefresher::kNever);
  clock_.now_ns = 50;
  EXPECT_EQ(refresher.Age(UINT64_MAX), std::nullopt);
  membership_.Poll();
  EXPECT_EQ(refresher.Age(UINT64_MAX), 40);
  clock_.now_ns = 70;
  EXPECT_EQ(refresher.Age(UINT64_MAX), 60);
}

TEST_F(TableRefresherTest, KeepsTheTableYoungForAsLongAsClientsAsk) {
  constexpr int64_t kLease = kTableLeaseNs;
  membership_.follows = true;
  membership_.answer = absl::OkStatus();
  TableRefresher refresher(Context(), TableRefresher::kNever);
  const auto run = [&](int64_t ns, bool asked) {
    int64_t oldest_ns = 0;
    const int64_t until_ns = clock_.now_ns + ns;
    for (; clock_.now_ns < until_ns; clock_.now_ns += kLease / 100) {
      if (asked) oldest_ns = std::max(oldest_ns, refresher.Age(UINT64_MAX).value_or(INT64_MAX));
      refresher.Step();
      membership_.Poll();
    }
    return oldest_ns;
  };
  run(kLease / 100, /*asked=*/true);
  EXPECT_LE(run(10 * kLease, /*asked=*/true), kLease / 4);
  EXPECT_EQ(membership_.refreshes, 41);
  run(10 * kLease, /*asked=*/false);
  EXPECT_LE(membership_.refreshes, 46);
  EXPECT_EQ(refresher.NextNs(), TableRefresher::kNever);
}

// Others that renew their leases meanwhile do not make it forget that.
TEST_F(TableRefresherTest, ReadsSoonWhatOneClientWants) {
  constexpr int64_t kLease = kTableLeaseNs;
  TableRefresher refresher(Context(), TableRefresher::kNever);
  ReadFirst(&refresher);
  clock_.now_ns = kLease / 10;
  EXPECT_EQ(refresher.Age(UINT64_MAX), kLease / 10);
  EXPECT_EQ(refresher.NextNs(), kLease / 4);
  EXPECT_EQ(refresher.Age(0), kLease / 10);
  EXPECT_EQ(refresher.Age(UINT64_MAX), kLease / 10);
  EXPECT_LE(refresher.NextNs(), clock_.now_ns);
  refresher.Step();
  EXPECT_EQ(membership_.refreshes, 2);
  membership_.Poll();
  EXPECT_EQ(refresher.Age(UINT64_MAX), 0);
  EXPECT_EQ(refresher.NextNs(), clock_.now_ns + kLease / 4);  // It has that now.
}

TEST_F(TableRefresherTest, AFailureMakesNothingYoungerAndIsNotRepeatedAtOnce) {
  TableRefresher refresher(Context(), TableRefresher::kNever);
  ReadFirst(&refresher);
  membership_.answer = absl::UnavailableError("not there");
  clock_.now_ns = kTableLeaseNs;
  EXPECT_EQ(refresher.Age(UINT64_MAX), kTableLeaseNs);
  refresher.Step();
  membership_.Poll();
  EXPECT_EQ(refresher.Age(UINT64_MAX), kTableLeaseNs);
  EXPECT_EQ(refresher.NextNs(), kTableLeaseNs + kTableLeaseNs / 4);
  EXPECT_EQ(membership_.refreshes, 2);
}

TEST_F(TableRefresherTest, Never) {
  TableRefresher refresher(Context(), TableRefresher::kNever);
  refresher.Step();
  EXPECT_EQ(membership_.refreshes, 0);
}

}  // namespace
}  // namespace cell

#include "cell/server/change/table_refresher.h"

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
    if (done_) std::exchange(done_, nullptr)(absl::UnavailableError("not there"));
    return 1;
  }
  bool pending() const override { return done_ != nullptr; }
  bool watches() const override { return follows; }

  int refreshes = 0;
  bool follows = false;

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

TEST_F(TableRefresherTest, Never) {
  TableRefresher refresher(Context(), TableRefresher::kNever);
  refresher.Step();
  EXPECT_EQ(membership_.refreshes, 0);
}

}  // namespace
}  // namespace cell

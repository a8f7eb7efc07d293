#include "cell/cluster/zookeeper/session_lease.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

constexpr int64_t kSessionNs = 4000;

class SessionLeaseTest : public ::testing::Test {
 protected:
  // Makes a request that takes `ns`.
  bool Ask(int64_t ns, bool confirmed) {
    return lease_.Renew(
        kSessionNs,
        [&] {
          clock_.now_ns += ns;
          return confirmed;
        },
        [](bool result) { return result; });
  }

  struct SetClock : Clock {
    int64_t NowNs() const override { return now_ns; }
    int64_t now_ns = 10'000;
  };
  SetClock clock_;
  SessionLease lease_{&clock_};
};

TEST_F(SessionLeaseTest, IsNotThereAtFirst) { EXPECT_EQ(lease_.until_ns(), 0); }

// The leader may have received the request at any time while it was under way, possibly at once.
TEST_F(SessionLeaseTest, CountsFromBeforeTheRequest) {
  EXPECT_TRUE(Ask(1000, true));
  EXPECT_EQ(lease_.until_ns(), 10'000 + kSessionNs / 2);
  EXPECT_TRUE(Ask(5000, true));  // The answer took longer than the lease, so the renewed lease has already ended.
  EXPECT_EQ(lease_.until_ns(), 11'000 + kSessionNs / 2);
  EXPECT_LT(lease_.until_ns(), clock_.now_ns);
}

TEST_F(SessionLeaseTest, IsRenewedByWhatWasConfirmedAlone) {
  Ask(10, true);
  const int64_t before = lease_.until_ns();
  EXPECT_FALSE(Ask(1000, false));
  EXPECT_EQ(lease_.until_ns(), before);
}

}  // namespace
}  // namespace cell

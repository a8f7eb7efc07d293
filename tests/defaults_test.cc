// Checks that defaults fit together: a client with the default timeout waits until another server serves a region of a
// killed server (docs/operations/failures.md, "How long a takeover takes").
#include <gtest/gtest.h>

#include "cell/client/client.h"
#include "cell/cluster/zookeeper/zookeeper_membership.h"
#include "cell/server/change/recoverer.h"

namespace cell {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// ZooKeeper checks for expired sessions once per tick: 2 s by its own default.
constexpr int64_t kZooKeeperTickNs = 2 * kSecondNs;
// For the regions of one server, spread over the others, as measured for 1 GB (docs/results/durability.md).
constexpr int64_t kReplayNs = 4 * kSecondNs;

TEST(Defaults, AClientOutwaitsATakeover) {
  const RecovererOptions recoverer;
  const int64_t noticed_ns = ZooKeeperOptions().session_ms * int64_t{1'000'000} + kZooKeeperTickNs;
  const int64_t served_ns =
      noticed_ns + recoverer.takeover_after_ns + recoverer.look_every_ns + std::max(recoverer.lease_wait_ns, kReplayNs);
  EXPECT_LT(served_ns, ClientOptions().timeout_us * 1000);
  // ZooKeeper grants no session shorter than two ticks.
  EXPECT_GE(ZooKeeperOptions().session_ms * int64_t{1'000'000}, 2 * kZooKeeperTickNs);
}

}  // namespace
}  // namespace cell

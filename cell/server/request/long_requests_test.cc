#include "cell/server/request/long_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace cell {
namespace {

class LongRequestsTest : public ::testing::Test {
 protected:
  struct TestClock : Clock {
    int64_t NowNs() const override { return now_ns; }
    int64_t now_ns = 0;
  };

  // A request that takes `ns` of the worker.
  absl::Status Come(ConnectionId peer, int64_t ns, const Identity* user = nullptr) {
    const std::string request = std::to_string(ns);
    IncomingCall call{};
    call.peer = peer;
    call.from = user;
    call.request = AsBytes(request);
    return requests_.Serve(call, [this](const IncomingCall& one) { Work(one); });
  }
  // A turn of the worker. Returns the peers that were served.
  std::vector<ConnectionId> Turn() {
    served_.clear();
    requests_.ServeWaiting([this](const IncomingCall& call) { Work(call); });
    return served_;
  }
  void Work(const IncomingCall& call) {
    clock_.now_ns += std::stoll(std::string(AsText(call.request)));
    served_.push_back(call.peer);
  }

  TestClock clock_;
  LongRequests requests_{&clock_, {.turn_ns = 100, .per_peer_max = 4, .bytes_per_peer_max = 12}};
  std::vector<ConnectionId> served_;
};

TEST_F(LongRequestsTest, OneIsServedAtOnceWhileTheTurnHasTime) {
  ASSERT_TRUE(Come(1, 60).ok());
  ASSERT_TRUE(Come(1, 60).ok());
  ASSERT_TRUE(Come(1, 60).ok());  // The turn has had its time.
  EXPECT_EQ(served_, (std::vector<ConnectionId>{1, 1}));
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_EQ(Turn(), std::vector<ConnectionId>{1});
  EXPECT_EQ(requests_.size(), 0u);
}

TEST_F(LongRequestsTest, ATurnServesOneAtLeastAndEndsAfterItsTime) {
  ASSERT_TRUE(Come(1, 100).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Come(1, i == 0 ? 1000 : 50).ok());
  EXPECT_EQ(Turn().size(), 1u);
  EXPECT_EQ(Turn().size(), 2u);
  EXPECT_EQ(Turn().size(), 1u);
}

TEST_F(LongRequestsTest, NothingIsServedAtOnceWhileSomethingWaits) {
  ASSERT_TRUE(Come(1, 100).ok());
  ASSERT_TRUE(Come(1, 100).ok());
  ASSERT_TRUE(Come(1, 100).ok());
  EXPECT_EQ(Turn(), std::vector<ConnectionId>{1});
  served_.clear();
  ASSERT_TRUE(Come(2, 10).ok());
  EXPECT_TRUE(served_.empty());
}

// Peer 1 has a deep queue of expensive requests, and peer 2 sends cheap ones: both get the same time.
TEST_F(LongRequestsTest, ThePeerThatUsedLeastIsNext) {
  ASSERT_TRUE(Come(9, 100).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Come(1, 400).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Come(2, 50).ok());
  std::vector<ConnectionId> order;
  while (requests_.size() > 0) {
    for (const ConnectionId peer : Turn()) order.push_back(peer);
  }
  EXPECT_EQ(order, (std::vector<ConnectionId>{1, 2, 2, 2, 2, 1, 1, 1}));
}

// One user has three connections, and another has one: both get the same time, and the three share theirs.
TEST_F(LongRequestsTest, ConnectionsOfOneUserShareItsTime) {
  const Identity greedy{Role::kClient, "greedy"}, modest{Role::kClient, "modest"};
  ASSERT_TRUE(Come(9, 100).ok());
  for (int i = 0; i < 4; ++i) {
    for (const ConnectionId peer : {1u, 2u, 3u}) ASSERT_TRUE(Come(peer, 100, &greedy).ok());
    ASSERT_TRUE(Come(4, 100, &modest).ok());
  }
  std::vector<ConnectionId> order;
  while (requests_.size() > 0) {
    for (const ConnectionId peer : Turn()) order.push_back(peer);
  }
  EXPECT_EQ(order, (std::vector<ConnectionId>{1, 4, 2, 4, 3, 4, 1, 4, 2, 3, 1, 2, 3, 1, 2, 3}));
}

TEST_F(LongRequestsTest, AUserWhoseConnectionsEndLeavesNothing) {
  const Identity user{Role::kClient, "user"}, other{Role::kClient, "other"};
  ASSERT_TRUE(Come(9, 100).ok());
  for (const ConnectionId peer : {1u, 2u}) ASSERT_TRUE(Come(peer, 100, &user).ok());
  ASSERT_TRUE(Come(3, 100, &other).ok());
  requests_.Disconnected(1);
  EXPECT_EQ(requests_.size(), 2u);
  requests_.Disconnected(2);
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_EQ(Turn(), std::vector<ConnectionId>{3});
  ASSERT_TRUE(Come(1, 100, &user).ok());
  EXPECT_EQ(served_.back(), 3u);
  EXPECT_EQ(Turn(), std::vector<ConnectionId>{1});
}

// It does not wait behind what others have saved up, nor does it save up time itself.
TEST_F(LongRequestsTest, APeerThatComesLateCountsAsTheOneThatWasServedLast) {
  ASSERT_TRUE(Come(9, 100).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Come(1, 100).ok());
  EXPECT_EQ(Turn(), std::vector<ConnectionId>{1});
  EXPECT_EQ(Turn(), std::vector<ConnectionId>{1});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Come(2, 100).ok());
  std::vector<ConnectionId> order;
  while (requests_.size() > 0) {
    for (const ConnectionId peer : Turn()) order.push_back(peer);
  }
  EXPECT_EQ(order, (std::vector<ConnectionId>{2, 1, 2, 1, 2, 2}));
}

TEST_F(LongRequestsTest, MoreThanAPeersShareIsRefused) {
  ASSERT_TRUE(Come(1, 100).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Come(1, 1).ok());
  EXPECT_EQ(Come(1, 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Come(2, 1).ok());
  EXPECT_EQ(Come(2, 111'111'111'111).code(), absl::StatusCode::kResourceExhausted);  // Too many bytes.
  EXPECT_EQ(requests_.refused(), 2u);
  EXPECT_EQ(requests_.size(), 5u);
}

TEST_F(LongRequestsTest, APeerThatIsGoneIsNotServed) {
  ASSERT_TRUE(Come(9, 100).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Come(1, 1).ok());
  ASSERT_TRUE(Come(2, 1).ok());
  requests_.Disconnected(1);
  requests_.Disconnected(7);
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_EQ(Turn(), std::vector<ConnectionId>{2});
}

}  // namespace
}  // namespace cell

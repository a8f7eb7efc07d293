#include "cell/client/session/connections.h"

#include <gtest/gtest.h>

#include <vector>

#include "cell/client/session/session_test.h"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 32 << 10, 64 << 10};

class ConnectionsTest : public ConnectionsFixture, public ::testing::Test {
 protected:
  WorkerConnection* const server_connection_ = connections_.To({"server", 0}, "server");
};

TEST_F(ConnectionsTest, AreMadeWhenTheyAreNeeded) {
  EXPECT_FALSE(server_connection_->up);
  EXPECT_EQ(connections_.AnyUp(), nullptr);
  EXPECT_EQ(server_->peers(), 0u);
  ASSERT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  EXPECT_TRUE(server_connection_->up);
  EXPECT_EQ(connections_.AnyUp(), server_connection_);
  EXPECT_EQ(connections_.To({"server", 0}, "server"), server_connection_);
  EXPECT_EQ(server_->peers(), 1u);
}

// Many operations that find a server down must not all try to connect.
TEST_F(ConnectionsTest, AServerThatDoesNotAnswerIsTriedAgainAfterAPauseThatDoubles) {
  WorkerConnection* const nobody = connections_.To({"nobody", 0}, "nobody");
  int64_t pause_ns = options_.reconnect_us * 1000;
  for (int failed = 1; failed <= 6; ++failed) {
    SCOPED_TRACE(failed);
    EXPECT_TRUE(absl::IsUnavailable(Wait(connections_.Connect(nobody))));
    EXPECT_EQ(nobody->failed_attempts, failed);
    PassTime(pause_ns * 9 / 10);
    EXPECT_TRUE(absl::IsUnavailable(Wait(connections_.Connect(nobody))));
    EXPECT_EQ(nobody->failed_attempts, failed);  // No attempt was made.
    PassTime(pause_ns / 5);
    if (failed <= 3) pause_ns *= 2;
  }
}

TEST_F(ConnectionsTest, AServerThatCameBackElsewhereIsSoughtThere) {
  ASSERT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  const std::unique_ptr<SimFabric> second = network_.NewEndpoint();
  AnsweringService service(second.get());
  ASSERT_TRUE(second->Listen("elsewhere", &service).ok());
  EXPECT_EQ(connections_.To({"server", 0}, "elsewhere"), server_connection_);
  EXPECT_FALSE(server_connection_->up);
  ASSERT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_EQ(second->peers(), 1u);
  EXPECT_EQ(service_.disconnected, 1);  // The former one is closed.
}

TEST_F(ConnectionsTest, AConnectionThatIsLostIsDownAndIsMadeAgain) {
  ASSERT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  server_->Crash();
  EXPECT_FALSE(Wait(Call(server_connection_, MakeUploadRequest(1, 0, 0))).ok());
  EXPECT_FALSE(server_connection_->up);
  EXPECT_FALSE(server_connection_->why_down.ok());
  EXPECT_EQ(Wait(connections_.Connect(server_connection_)), server_connection_->why_down);  // It was lost a moment ago.
  const std::unique_ptr<SimFabric> again = network_.NewEndpoint();
  AnsweringService service(again.get());
  ASSERT_TRUE(again->Listen("server", &service).ok());
  PassTime(options_.reconnect_us * 1000 + 1);
  server_connection_->time.Set(1'000'000, 0, 0);
  EXPECT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  EXPECT_EQ(server_connection_->time.At(0, 1), ServerTime::Life::kUndecided) << "the new process has its own clock";
}

// The cluster may have been deleted and made again, or the address may have gone to a server of another one.
TEST_F(ConnectionsTest, AServerOfAnotherClusterIsNotConnectedTo) {
  connections_.set_cluster(7);
  uint64_t cluster = 8;
  service_.answer = [&](const IncomingCall&, MutableBytes to) {
    auto reply = ReplyOf<TableVersionReply>(MessageKind::kTableVersion);
    reply.cluster = cluster;
    Store(to.data(), reply);
    return sizeof(reply);
  };
  const absl::Status other = Wait(connections_.Connect(server_connection_));
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_FALSE(server_connection_->up);
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_EQ(service_.disconnected, 1);
  cluster = 7;
  PassTime(options_.reconnect_us * 1000 + 1);
  EXPECT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  EXPECT_TRUE(server_connection_->up);
}

TEST_F(ConnectionsTest, AReadFindsThatTheConnectionIsLost) {
  ASSERT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  server_->Crash();
  std::byte to[8];
  const absl::Status status = Wait(Read(server_connection_, {Pointer(1, 0), to, sizeof(to)}));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_FALSE(server_connection_->up);
  EXPECT_EQ(server_connection_->why_down, status);
}

// An operation whose deadline has passed does not end the attempt, because others may wait for it.
TEST_F(ConnectionsTest, AnAttemptOutlivesTheOperationThatBeganIt) {
  server_->SetPaused(true);
  Task<absl::Status> hurried = connections_.Connect(server_connection_, loop_.NowNs() + 1'000'000);
  hurried.Start();
  EXPECT_TRUE(server_connection_->connecting);
  EXPECT_TRUE(absl::IsUnavailable(End(&hurried)));
  EXPECT_TRUE(server_connection_->connecting);
  server_->SetPaused(false);
  EXPECT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  EXPECT_EQ(server_->peers(), 1u);
}

TEST_F(ConnectionsTest, OnlySoManyNumbersAreOutAtOnce) {
  std::vector<uint16_t> taken;
  for (size_t i = 0; i < kUploadsMax; ++i)
    taken.push_back(Wait(connections_.TakeNumber(server_connection_, INT64_MAX)));
  std::sort(taken.begin(), taken.end());
  EXPECT_EQ(taken, (std::vector<uint16_t>{1, 2, 3, 4}));
  EXPECT_EQ(Wait(connections_.TakeNumber(server_connection_, loop_.NowNs() + 1'000)), 0);
  Task<uint16_t> waiting = connections_.TakeNumber(server_connection_, INT64_MAX);
  waiting.Start();
  EXPECT_FALSE(waiting.done());
  connections_.GiveNumber(server_connection_, 3);
  ASSERT_TRUE(waiting.done());
  EXPECT_EQ(waiting.Take(), 3);
}

// A selector without observations chooses blindly. One that has observed both paths chooses by the rule.
TEST_F(ConnectionsTest, ASelectorLearnsFromWhatSucceeds) {
  ASSERT_TRUE(server_->CreateRegion(1, kShape.region_bytes()).ok());
  ASSERT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  Selector* const selector = server_connection_->selector(OperationKind::kGet);
  const auto known = [&] {
    selector->Choose(loop_.NowNs());
    return selector->last_reason() != Selector::Reason::kUnknown;
  };
  std::byte to[512];
  SearchReads broken_off(selector);
  // There is no such region.
  EXPECT_FALSE(Wait(Read(server_connection_, {Pointer(2, 0), to, sizeof(to)}, &broken_off)).ok());
  ASSERT_TRUE(Wait(Call(server_connection_, MakeUploadRequest(1, 0, 0), {selector})).ok());  // Nothing is learned.
  EXPECT_FALSE(known());
  for (int i = 0; i < 200; ++i) {
    SearchReads search(selector);
    ASSERT_TRUE(Wait(Read(server_connection_, {Pointer(1, 0), to, sizeof(to)}, &search)).ok());
    search.End();
  }
  EXPECT_FALSE(known());
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Wait(Call(server_connection_, MakeUploadRequest(1, 0, 0), {selector, Feedback::kCost})).ok());
  }
  EXPECT_TRUE(known());
}

// It knows the server's path, and would know both if it took the time of the read that failed.
TEST_F(ConnectionsTest, ASelectorLearnsNothingFromAReadThatFails) {
  ASSERT_TRUE(server_->CreateRegion(1, kShape.region_bytes()).ok());
  ASSERT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  Selector* const selector = server_connection_->selector(OperationKind::kGet);
  ASSERT_TRUE(Wait(Call(server_connection_, MakeUploadRequest(1, 0, 0), {selector, Feedback::kCost})).ok());
  SearchReads search(selector);
  std::byte to[512];
  for (const uint32_t region : {2u, 1u}) {
    const bool held = region == 1;
    EXPECT_EQ(Wait(Read(server_connection_, {Pointer(region, 0), to, sizeof(to)}, &search)).ok(), held);
    selector->Choose(loop_.NowNs());
    EXPECT_EQ(selector->last_reason() != Selector::Reason::kUnknown, held);
  }
}

// A search that was broken off says nothing about how many reads the next one takes.
TEST_F(ConnectionsTest, ASelectorLearnsTheRoundsOfASearchWhenItEnds) {
  ASSERT_TRUE(server_->CreateRegion(1, kShape.region_bytes()).ok());
  ASSERT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  Selector* const selector = server_connection_->selector(OperationKind::kGet);
  SearchReads search(selector), broken_off(selector);
  std::byte to[512];
  EXPECT_FALSE(Wait(Read(server_connection_, {Pointer(2, 0), to, sizeof(to)}, &broken_off)).ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Wait(Read(server_connection_, {Pointer(1, 0), to, sizeof(to)}, &search)).ok());
  }
  EXPECT_EQ(broken_off.rounds(), 1);
  EXPECT_EQ(search.rounds(), 3);
  EXPECT_EQ(selector->ReadsPerSearch(), SelectorOptions{}.reads_per_search);
  search.End(/*extents=*/1);
  EXPECT_EQ(selector->ReadsPerSearch(), 4);
}

TEST_F(ConnectionsTest, WhatIsSentAfterCloseEndsAsCancelled) {
  ASSERT_TRUE(Wait(connections_.Connect(server_connection_)).ok());
  Task<absl::StatusOr<std::string>> under_way = Call(server_connection_, MakeUploadRequest(1, 0, 0));
  under_way.Start();
  loop_.Close();
  ASSERT_TRUE(under_way.done());
  EXPECT_TRUE(absl::IsCancelled(under_way.Take().status()));
  std::byte to[8];
  Task<absl::Status> read = Read(server_connection_, {Pointer(1, 0), to, sizeof(to)});
  read.Start();
  ASSERT_TRUE(read.done());
  EXPECT_TRUE(absl::IsCancelled(read.Take()));
  Task<absl::Status> connect = connections_.Connect(connections_.To({"other", 0}, "other"));
  connect.Start();
  ASSERT_TRUE(connect.done());
  EXPECT_TRUE(absl::IsCancelled(connect.Take()));
}

}  // namespace
}  // namespace cell

// Tests writes that cannot be served at once: what they wait for, how long, and how they end.
#include "cell/server/request/write_pipeline.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "cell/base/crc64.h"
#include "cell/server/request/test_request_service.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

using std::string_view_literals::operator""sv;

// A write that waits for its region's migration is not acknowledged by a server that others may have taken for dead
// since.
TEST_F(RequestServiceTest, AWriteThatWaitedIsNotAcknowledgedAfterTheLeaseHasLapsed) {
  for (const bool lapses : {false, true}) {
    SCOPED_TRACE(lapses);
    membership_.set_lease_until_ns(server_->NowNs() + 1'000'000);
    regions_.Find(1)->ChangeState(RegionState::kFrozen);
    Reply reply;
    SendPut("key", lapses ? "after" : "before", &reply);
    ASSERT_EQ(service_.writes()->held().size(1), 1u);
    EXPECT_FALSE(reply.done);
    if (lapses) membership_.set_lease_until_ns(server_->NowNs() - 1);
    regions_.Find(1)->Unfreeze();
    EXPECT_EQ(service_.writes()->RetryHeld(), 1u);
    while (!reply.done) Turn();
    EXPECT_EQ(CodeOf(reply.bytes), lapses ? absl::StatusCode::kUnavailable : absl::StatusCode::kOk);
  }
  membership_.set_lease_until_ns(INT64_MAX);
  const std::string got = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "key"));
  EXPECT_EQ(ParseGetReply(AsBytes(got))->value, "before");
}

// A step of a migration drops a region that is the target of a write in the same batch.
TEST_F(RequestServiceTest, AWriteToARegionThatIsJustGivenAwayIsLedOn) {
  migrations_.on_move = [this] { regions_.Drop(1); };
  Reply moved, put;
  client_->Call(connection_, AsBytes(MakeMigrationRequest(MigrationStep::kDone, 1, 1)), {}, kMessageBytesMax, INT64_MAX,
                &moved);
  const std::string head = MakePutRequest(root_, {}, Crc64("v"sv, Crc64("k"sv)), "k", 1, 0);
  client_->Call(connection_, AsBytes(head), AsBytes("v"sv), kMessageBytesMax, INT64_MAX, &put);
  while (!moved.done || !put.done) Turn();
  EXPECT_EQ(nlohmann::json::parse(service_.reports().StatusJson(0, 1))["batches"], 1);  // They came together.
  const absl::StatusOr<RouteView> route = ParseRouteReply(AsBytes(put.bytes));
  ASSERT_TRUE(route.ok()) << route.status();
  EXPECT_EQ(route->kind, RouteKind::kNotHeld);
}

// A split, or a checkpoint or a sync before it, may take longer than writes may wait. That says nothing about the
// cluster's room, so the client tries again.
TEST_F(RequestServiceTest, AWriteToARegionThatIsFullForNowIsToBeTriedAgain) {
  const std::string value(kInlineValueBytesMax, 'v');
  absl::Status full;
  for (int i = 0; full.ok(); ++i) full = Put(fmt::format("{:05}", i), value).status();
  ASSERT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  room_.will_have = true;
  Reply first, second;
  SendPut("z", value, &first);
  const std::string erase = MakeKeyRequest(MessageKind::kDelete, root_, {}, "z");
  client_->Call(connection_, AsBytes(erase), {}, kMessageBytesMax, INT64_MAX, &second);
  for (int i = 0; i < 1000 && service_.writes()->held().size(1) < 2; ++i) Turn();
  ASSERT_EQ(service_.writes()->held().size(1), 2u);
  EXPECT_EQ(service_.writes()->RetryHeld(),
            0u);  // A later write does not overtake it, though there is room for it.
  room_.will_have = false;
  EXPECT_EQ(service_.writes()->RetryHeld(), 2u);
  for (const bool ends : {false, true}) {
    SCOPED_TRACE(ends);
    room_.will_have = true;
    Reply reply;
    SendPut("z", value, &reply);
    ASSERT_EQ(service_.writes()->held().size(1), 1u);
    EXPECT_EQ(service_.writes()->RetryHeld(), 0u);
    if (ends) {
      room_.will_have = false;  // The split has failed, and there is no room for another region.
    } else {
      const int64_t end_ns = server_->NowNs() + 1'100'000'000;
      while (server_->NowNs() < end_ns) server_->Wait(end_ns);
    }
    EXPECT_EQ(service_.writes()->RetryHeld(), 1u);
    while (!reply.done) Turn();
    EXPECT_EQ(CodeOf(reply.bytes), ends ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable);
  }
  // A region that waits for its own route, because the tier above has no room, counts as permanently full.
  room_.will_have = true;
  const RegionClaim claim(regions_.Find(1), ClaimPurpose::kRouteBlocked);
  Reply reply;
  SendPut("z", value, &reply);
  ASSERT_EQ(service_.writes()->held().size(1), 1u);
  const int64_t end_ns = server_->NowNs() + 1'100'000'000;
  while (server_->NowNs() < end_ns) server_->Wait(end_ns);
  EXPECT_EQ(service_.writes()->RetryHeld(), 1u);
  while (!reply.done) Turn();
  EXPECT_EQ(CodeOf(reply.bytes), absl::StatusCode::kResourceExhausted);
}

// Nor does a write wait for a migration that takes longer.
TEST_F(RequestServiceTest, AWriteDoesNotWaitForEverForItsRegionsMove) {
  EXPECT_EQ(service_.writes()->NextHeldNs(), INT64_MAX);
  regions_.Find(1)->ChangeState(RegionState::kFrozen);
  Reply reply;
  SendPut("key", "value", &reply);
  ASSERT_EQ(service_.writes()->held().size(1), 1u);
  const int64_t end_ns = service_.writes()->NextHeldNs();
  EXPECT_LE(end_ns, server_->NowNs() + 1'000'000'000);
  while (server_->NowNs() < end_ns - 1) server_->Wait(end_ns - 1);
  EXPECT_EQ(service_.writes()->RetryHeld(), 0u);
  while (server_->NowNs() < end_ns) server_->Wait(end_ns);
  ASSERT_EQ(service_.writes()->RetryHeld(), 1u);
  while (!reply.done) Turn();
  EXPECT_EQ(CodeOf(reply.bytes), absl::StatusCode::kUnavailable);
}

// The memory of waiting writes is bounded.
TEST_F(RequestServiceTest, AWriteBeyondAllThatMayWaitIsRefused) {
  const std::string put = MakePutRequest(root_, {}, Crc64("v"sv, Crc64("k"sv)), "k", 1, 0);
  constexpr size_t kMore = 4;
  std::vector<Reply> replies(HeldWrites::kBytesMax / (HeldWrites::kBytesPerWrite + put.size() + 1) + kMore);
  regions_.Find(1)->ChangeState(RegionState::kFrozen);
  const auto done = [&replies] {
    return static_cast<size_t>(
        std::count_if(replies.begin(), replies.end(), [](const Reply& reply) { return reply.done; }));
  };
  for (Reply& reply : replies) {
    client_->Call(connection_, AsBytes(put), AsBytes("v"), kReplyBytesMin, INT64_MAX, &reply);
  }
  for (int i = 0; i < 100'000 && (!replies.back().done || done() < kMore); ++i) Turn();
  EXPECT_EQ(done(), kMore);
  EXPECT_EQ(service_.writes()->held().size(1), replies.size() - kMore);
  EXPECT_EQ(CodeOf(replies.back().bytes), absl::StatusCode::kUnavailable);
  regions_.Find(1)->Unfreeze();
  EXPECT_EQ(service_.writes()->RetryHeld(), replies.size() - kMore);
  for (int i = 0; i < 100'000 && done() < replies.size(); ++i) Turn();
  EXPECT_EQ(CodeOf(replies.front().bytes), absl::StatusCode::kOk);
}

// One client's writes take all the room, and another client's still wait for their region, as its do.
TEST_F(RequestServiceTest, AnotherClientsWritesWaitAlthoughOneClientHoldsAll) {
  regions_.Find(1)->ChangeState(RegionState::kFrozen);
  const std::string value(60'000, 'v');
  const std::string put = MakePutRequest(root_, {}, 0, "k", static_cast<uint32_t>(value.size()), 0);
  std::vector<Reply> greedy(1'000);
  for (Reply& reply : greedy) {
    client_->Call(connection_, AsBytes(put), AsBytes(value), kReplyBytesMin, INT64_MAX, &reply);
  }
  for (int i = 0; i < 100'000 && !greedy.back().done; ++i) Turn();
  ASSERT_TRUE(greedy.back().done);
  const size_t held = held_.size();
  ASSERT_LT(held, greedy.size());
  const std::unique_ptr<SimFabric> other = network_.NewEndpoint();
  const ConnectionId connection = *ConnectTo(other.get(), "server");
  Reply its;
  const std::string small = MakePutRequest(root_, {}, Crc64("v"sv, Crc64("s"sv)), "s", 1, 0);
  other->Call(connection, AsBytes(small), AsBytes("v"), kReplyBytesMin, INT64_MAX, &its);
  for (int i = 0; i < 1'000; ++i) {
    Turn();
    other->Poll();
  }
  EXPECT_FALSE(its.done);
  EXPECT_EQ(held_.size(), held);
  EXPECT_EQ(held_.displaced(), 1u);
  const auto displaced = std::count_if(greedy.begin(), greedy.end(), [this](const Reply& reply) {
    return reply.done && reply.bytes.find("took the place") != std::string::npos &&
           CodeOf(reply.bytes) == absl::StatusCode::kUnavailable;
  });
  EXPECT_EQ(displaced, 1);
  regions_.Find(1)->Unfreeze();
  service_.writes()->RetryHeld();
  for (int i = 0; i < 1'000 && !its.done; ++i) {
    Turn();
    other->Poll();
  }
  EXPECT_EQ(CodeOf(its.bytes), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace cell

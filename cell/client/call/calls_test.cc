#include "cell/client/call/calls.h"

#include <gtest/gtest.h>

#include "cell/client/route/key_router_test.h"

namespace cell {
namespace {

// Writes to a server that answers as a test wants.
class WriteTest : public KeyRouterTest {
 protected:
  using Answer = std::function<size_t(MutableBytes)>;

  Attempt<bool> Put(const Answer& answer) {
    service_a_.answer = [&answer](const IncomingCall&, MutableBytes to) { return answer(to); };
    return session_.Run(PutOnce());
  }

 private:
  Task<Attempt<bool>> PutOnce() {
    KeyRouter router = Router("key");
    const absl::Status found = co_await router.FindConnection();
    if (!found.ok()) co_return found;
    const CallContext context{Path::kServer, session_.NowNs(), session_.NowNs() + kTimeoutNs};
    const KeyWrite write{"key", "value"};
    co_return co_await WriteHere<bool>(&session_, &router, write, {}, context);
  }
};

TEST_F(WriteTest, AWriteIsDoneWhenTheServerSaysSo) {
  const Attempt<bool> put = Put([](MutableBytes to) {
    WriteReply reply = ReplyOf<WriteReply>(MessageKind::kPut);
    reply.existed = 1;
    Store(to.data(), reply);
    return sizeof(reply);
  });
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(*put, true);
}

TEST_F(WriteTest, AWriteThatTheServerRefusedWasNotApplied) {
  const Attempt<bool> put = Put(
      [](MutableBytes to) { return WriteErrorReply(to, MessageKind::kPut, absl::DataLossError("a node is damaged")); });
  EXPECT_TRUE(absl::IsDataLoss(put.status()) && !IsMaybeApplied(put.status())) << put.status();
}

// What answers so may have applied the write.
TEST_F(WriteTest, AWriteWhoseAnswerIsMalformedMayHaveBeenApplied) {
  const std::vector<Answer> answers = {
      [](MutableBytes to) { return WriteTextReply(to, MessageKind::kUpload, ""); },  // To another request.
      [](MutableBytes to) { return WriteTextReply(to, MessageKind::kPut, "short"); },
      [](MutableBytes to) {
        WriteReply reply = ReplyOf<WriteReply>(MessageKind::kPut);
        reply.header.bytes += 8;  // More than was sent.
        Store(to.data(), reply);
        return sizeof(reply);
      },
      [](MutableBytes to) {
        RouteReply reply = ReplyOf<RouteReply>(MessageKind::kRoute);
        reply.low_key_bytes = 100;  // More than was sent.
        Store(to.data(), reply);
        return sizeof(reply);
      },
  };
  for (const Answer& answer : answers) {
    const absl::Status put = Put(answer).status();
    EXPECT_TRUE(IsMaybeApplied(put)) << put;
    EXPECT_NE(std::string(put.message()).find("malformed reply"), std::string::npos) << put;
  }
}

// Asks for the time that a pair has left.
class TimeLeftTest : public KeyRouterTest {
 protected:
  // Returns what a client makes of a reply with this life of the pair.
  absl::StatusOr<TimeLeft> LeftOf(const PairLife& life) {
    service_a_.answer = [&life](const IncomingCall&, MutableBytes to) {
      auto reply = ReplyOf<SearchReply>(MessageKind::kSearch, sizeof(SearchReply) + sizeof(PairLife));
      reply.found = 1;
      Store(to.data(), reply);
      Store(to.data() + sizeof(reply), life);
      return sizeof(SearchReply) + sizeof(PairLife);
    };
    const Attempt<TimeLeft> left = session_.Run(AskOnce());
    if (!left.ok()) return left.status();
    return left->value();
  }

 private:
  Task<Attempt<TimeLeft>> AskOnce() {
    KeyRouter router = Router("key");
    const absl::Status found = co_await router.FindConnection();
    if (!found.ok()) co_return found;
    const CallContext context{Path::kServer, session_.NowNs(), session_.NowNs() + kTimeoutNs};
    co_return co_await TimeLeftByCall(&session_, &router, "key", context);
  }
};

TEST_F(TimeLeftTest, IsFromTheServersTimeToTheExpiry) {
  EXPECT_EQ(*LeftOf({1000, 990}), 10);
  EXPECT_EQ(*LeftOf({kExpiryMax, 0}), static_cast<int64_t>(kExpiryMax));
  // It has expired between the server's search and its look at the clock.
  EXPECT_EQ(*LeftOf({1000, 1000}), std::nullopt);
  EXPECT_EQ(*LeftOf({1000, 1001}), std::nullopt);
  EXPECT_TRUE(absl::IsDataLoss(LeftOf({kExpiryMax + 1, 0}).status()));
}

}  // namespace
}  // namespace cell

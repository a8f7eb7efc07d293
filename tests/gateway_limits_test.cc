// Tests the limits of a connection of the gateway, and that its commands are atomic whatever others do between their
// steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gateway_fixture.h"

namespace cell::gateway {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class DisturbedGatewayTest : public GatewayTest {
 protected:
  // Runs what one_ is asked by `requests`, and lets somebody else run `disturb` after `steps` steps of it. Returns the
  // answer, and whether it was not complete before.
  template <typename Disturb>
  std::pair<std::string, bool> Disturbed(const std::string& requests, int steps, const Disturb& disturb) {
    one_.Receive(requests);
    one_.Advance();
    for (int i = 0; i < steps && one_.busy(); ++i) {
      client_->Poll(0);
      client_->Poll(client_->NowNs() + 200);
      ReadyList::Take(&shared_, [](Connection* ready) { ready->Advance(); });
    }
    const bool busy = one_.busy();
    disturb();
    return {Finish(&one_), busy};
  }
  // Runs a command of a client that uses another gateway.
  std::string Theirs(const std::vector<std::string>& words) {
    stranger_.Receive(Request(words));
    stranger_.Advance();
    while (stranger_.busy()) {
      their_client_->Poll(their_client_->NowNs() + 1'000'000);
      ReadyList::Take(&theirs_, [](Connection* ready) { ready->Advance(); });
    }
    stranger_.Advance();
    return std::exchange(*stranger_.out(), "");
  }

  std::unique_ptr<Client> their_client_ = NewClient(&cluster_);
  Shared theirs_{&totals_, their_client_.get(), {}};
  Connection stranger_{&theirs_, 9, ""};
};

TEST_F(DisturbedGatewayTest, NoWriteIsLost) {
  for (const std::string before : {"", "0"}) {
    bool busy = true;
    for (int steps = 0; busy; ++steps) {
      ASSERT_LT(steps, 20'000);
      Run({"DEL", "s"});
      if (!before.empty()) Run({"SET", "s", before, "EX", "100"});
      const auto [answer, was_busy] = Disturbed(Request({"APPEND", "s", "x"}), steps, [&] {
        Theirs({"APPEND", "s", "y"});
      });
      busy = was_busy;
      EXPECT_EQ(answer[0], ':') << answer;
      EXPECT_THAT(Run({"GET", "s"}), AnyOf(HasSubstr(before + "xy"), HasSubstr(before + "yx"))) << steps;
    }
  }
}

TEST_F(DisturbedGatewayTest, AKeyThatIsDeletedMeanwhileIsGoneOrNew) {
  bool busy = true;
  for (int steps = 0; busy; ++steps) {
    Run({"SET", "s", "1", "EX", "100"});
    const auto [answer, was_busy] = Disturbed(Request({"APPEND", "s", "x"}), steps, [&] { Theirs({"DEL", "s"}); });
    busy = was_busy;
    EXPECT_THAT(answer, AnyOf(":1\r\n", ":2\r\n"));
    EXPECT_EQ(Run({"GET", "s"}), answer == ":1\r\n" ? "$1\r\nx\r\n" : "$-1\r\n");
  }
}

TEST_F(DisturbedGatewayTest, WhatIsReadIsWhatIsDeleted) {
  bool busy = true;
  for (int steps = 0; busy; ++steps) {
    Run({"SET", "s", "1"});
    const auto [answer, was_busy] = Disturbed(Request({"GETDEL", "s"}), steps, [&] { Theirs({"APPEND", "s", "x"}); });
    busy = was_busy;
    EXPECT_THAT(answer, AnyOf("$1\r\n1\r\n", "$2\r\n1x\r\n"));
    EXPECT_EQ(Run({"GET", "s"}), answer == "$1\r\n1\r\n" ? "$1\r\nx\r\n" : "$-1\r\n");
  }
}

TEST_F(DisturbedGatewayTest, ExecSeesWhatWasWatched) {
  const std::string exec = Request({"MULTI"}) + Request({"GET", "w"}) + Request({"EXEC"});
  const std::string null = "+OK\r\n+QUEUED\r\n*-1\r\n";
  bool busy = true;
  for (int steps = 0; busy; ++steps) {
    Run({"SET", "w", "1"});
    Run({"WATCH", "w"});
    const auto [answer, was_busy] = Disturbed(exec, steps, [&] { Theirs({"SET", "w", "2"}); });
    busy = was_busy;
    EXPECT_THAT(answer, AnyOf(null, "+OK\r\n+QUEUED\r\n*1\r\n$1\r\n1\r\n")) << steps;
  }
  // A key that comes and goes.
  busy = true;
  for (int steps = 0; busy; ++steps) {
    Run({"DEL", "w"});
    Run({"WATCH", "w"});
    Theirs({"SET", "w", "2"});
    const auto [answer, was_busy] = Disturbed(exec, steps, [&] { Theirs({"DEL", "w"}); });
    busy = was_busy;
    EXPECT_THAT(answer, AnyOf(null, "+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n")) << steps;
  }
}

TEST_F(GatewayTest, CommandsWaitForTheirKeysTurn) {
  const std::string busy = "busy";
  ASSERT_TRUE(shared_.turns.Enter(busy).await_ready());
  one_.Receive(Request({"HSET", busy, "f", "v"}));
  one_.Advance();
  for (int i = 0; i < 100; ++i) client_->Poll(client_->NowNs() + 1'000'000);
  EXPECT_TRUE(one_.busy());
  shared_.turns.Leave(busy);
  EXPECT_EQ(Finish(&one_), ":1\r\n");
}

TEST_F(GatewayTest, HoldsFewRepliesBehindASlowCommand) {
  constexpr size_t kMost = size_t{4} << 20, kLarge = 500'000;
  Run({"SET", "large", std::string(kLarge, 'x')});
  const std::string busy = "busy";
  ASSERT_TRUE(shared_.turns.Enter(busy).await_ready());
  std::string requests = Request({"HSET", busy, "f", "v"});
  for (int i = 0; i < 150; ++i) requests += Request({"GET", "large"});
  one_.Receive(requests);
  one_.Advance();
  for (int i = 0; i < 5000; ++i) {
    client_->Poll(client_->NowNs() + 1'000'000);
    ReadyList::Take(&shared_, [](Connection* ready) { ready->Advance(); });
  }
  EXPECT_LT(one_.bytes(), kMost + 64 * kLarge + requests.size());
  shared_.turns.Leave(busy);
  Finish(&one_);
}

TEST_F(GatewayTest, BeginsWhatItMayAndNoMore) {
  const auto begun = [&](const std::string& requests) {
    const uint64_t before = totals_.commands;
    one_.Receive(requests);
    one_.Advance();
    const uint64_t now = totals_.commands;
    Finish(&one_);
    return now - before;
  };
  const std::string two = Request({"GET", "a"}) + Request({"GET", "b"});
  EXPECT_EQ(begun(two), 2u);
  EXPECT_EQ(begun(Request({"SET", "a", "1"}) + Request({"SET", "b", "1"})), 2u);
  EXPECT_EQ(begun(two), 2u) << "Nothing of the commands before is left.";
  totals_.buffered_bytes = (size_t{1} << 30) + 1;
  EXPECT_EQ(begun(two), 1u) << "The buffers are full.";
  totals_.buffered_bytes = 0;
  std::vector<std::string> exists(65, "k");
  exists[0] = "EXISTS";
  EXPECT_EQ(begun(Request({"GET", "a"}) + Request(exists)), 1u);
}

TEST_F(GatewayTest, TakesNoMoreThanItMay) {
  // Requests of many short words need more memory than they have bytes.
  std::vector<std::string> words(1000, "x");
  words[0] = "EXISTS";
  const std::string wide = Request(words);
  std::string requests;
  for (int i = 0; i < 300; ++i) requests += wide;
  other_.Receive(requests);
  other_.Advance();
  EXPECT_FALSE(other_.takes_input());
  EXPECT_LT(other_.bytes(), requests.size() + (size_t{4} << 20));
  other_.Abandon();
  Finish(&other_);
  // Transactions that wait.
  requests.clear();
  for (int i = 0; i < 10; ++i) requests += Request({"MULTI"}) + Request({"SET", "a", "1"}) + Request({"EXEC"});
  one_.Receive(requests);
  one_.Advance();
  EXPECT_FALSE(one_.takes_input());
  Finish(&one_);
  // Many short requests.
  requests = Request({"GET", "a"});
  for (int i = 0; i < 2000; ++i) requests += "PING\r\n";
  one_.Receive(requests);
  one_.Advance();
  EXPECT_FALSE(one_.takes_input());
  EXPECT_EQ(Finish(&one_).size(), std::string("$1\r\n1\r\n").size() + 2000 * std::string("+PONG\r\n").size());
  // Nothing is parsed while replies are not taken.
  Run({"SET", "large", std::string(500'000, 'x')});
  requests.clear();
  for (int i = 0; i < 20; ++i) requests += Request({"GET", "large"});
  one_.Receive(requests);
  one_.Advance();
  while (one_.busy()) {
    client_->Poll(client_->NowNs() + 1'000'000);
    ReadyList::Take(&shared_, [](Connection* ready) { ready->Advance(); });
  }
  requests.clear();
  for (int i = 0; i < 100; ++i) requests += wide;
  one_.Receive(requests);
  const size_t bytes = one_.bytes();
  one_.Advance();
  EXPECT_LE(one_.bytes(), bytes);
  one_.Abandon();
  Finish(&one_);
}

TEST_F(GatewayTest, StrangersCannotFillTheBuffer) {
  Shared guarded{&totals_, nullptr, {{"shop", "secret", client_.get()}}};
  Connection connection(&guarded, 3, "");
  std::string request = "*5\r\n";
  for (int i = 0; i < 3; ++i) request += "$16000\r\n" + std::string(16000, 'x') + "\r\n";
  connection.Receive(request);
  connection.Advance();
  EXPECT_FALSE(connection.takes_input());
  // A user who resets the connection is a stranger again.
  Connection user(&guarded, 4, "");
  user.Receive(Request({"AUTH", "shop", "secret"}) + Request({"RESET"}));
  user.Advance();
  user.Receive("*11\r\n");
  user.Advance();
  EXPECT_EQ(*user.out(), "+OK\r\n+RESET\r\n-ERR Protocol error: unauthenticated multibulk length\r\n");
  EXPECT_GT(user.unknown_since_ns(), 0);
}

TEST_F(GatewayTest, RefuseDropsWhatHasNotBegun) {
  one_.Receive(Request({"GET", "a"}) + "PING\r\nPING\r\n");
  one_.Advance();
  one_.Refuse("ERR full");
  EXPECT_FALSE(one_.takes_input());
  EXPECT_EQ(Finish(&one_), "$-1\r\n-ERR full\r\n");
  EXPECT_TRUE(one_.should_close());
  EXPECT_EQ(one_.bytes(), 0u);
}

TEST_F(GatewayTest, ForgetsWhatWasWatchedAndNoted) {
  std::vector<std::string> many = {"WATCH"};
  for (int i = 0; i < 1001; ++i) many.push_back(fmt::format("k{}", i));
  EXPECT_THAT(Run(many), HasSubstr("too many"));
  Run({"UNWATCH"});
  const std::string ping = Request({"MULTI"}) + "PING\r\n" + Request({"EXEC"});
  EXPECT_EQ(Answer(&one_, ping), "+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n");
  Run({"WATCH", "k"});
  Run({"RESET"});
  Answer(&other_, Request({"SET", "k", "1"}));
  EXPECT_EQ(Answer(&one_, ping), "+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n");
  // The first look counts.
  Run({"WATCH", "k"});
  Answer(&other_, Request({"SET", "k", "2"}));
  Run({"WATCH", "k"});
  EXPECT_EQ(Answer(&one_, ping), "+OK\r\n+QUEUED\r\n*-1\r\n");
  for (const char* end : {"DISCARD", "RESET"}) {
    Answer(&one_, Request({"MULTI"}) + Request({"SET", "k", "3"}));
    EXPECT_GT(one_.bytes(), 0u);
    Run({end});
    EXPECT_EQ(one_.bytes(), 0u) << end;
    EXPECT_EQ(Run({"GET", "k"}), "$1\r\n2\r\n") << end;
  }
  EXPECT_EQ(Answer(&one_, "HoSt: a\r\nPING\r\n"), "");
  EXPECT_TRUE(one_.should_close());
}

TEST_F(GatewayTest, UsedRequestsAreNew) {
  Answer(&one_, Request({"GET", "a"}) + Request({"GET", "b"}) + Request({"GET", "c"}) + Request({"GET", "d"}) +
                    Request({"GET", "e"}));
  EXPECT_EQ(Answer(&one_, Request({"SET", "a", "1"}) + Request({"QUIT"}) + Request({"SET", "a", "2"}) + Request({"x"})),
            "+OK\r\n+OK\r\n");
}

TEST_F(GatewayTest, TransactionsHaveLimits) {
  std::string requests = Request({"MULTI"});
  for (int i = 0; i < 10'001; ++i) requests += "PING\r\n";
  EXPECT_THAT(Answer(&one_, requests + Request({"EXEC"})), HasSubstr("-EXECABORT"));
  requests = Request({"MULTI"});
  for (int i = 0; i < 2001; ++i) requests += Request({"SET", "k", "v"});
  std::string answer = Answer(&one_, requests + Request({"EXEC"}));
  EXPECT_THAT(answer, HasSubstr("*2001\r\n+OK"));
  EXPECT_THAT(answer, HasSubstr("+OK\r\n-ERR that is more than one transaction can write"));
  // A pair that cannot be stored is an error of its command.
  const std::string longest(client_->key_bytes_max(), 'k');
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"SET", "", "v"},
                                             {"SET", longest + "k", "v"},
                                             {"SET", longest, "v", "EX", "100"},
                                             {"SET", "l", std::string((1 << 20) + 1, 'x')}}) {
    answer = Answer(&one_, Request({"MULTI"}) + Request(wrong) + Request({"SET", "right", "1"}) + Request({"EXEC"}));
    EXPECT_THAT(answer, HasSubstr("*2\r\n-ERR "));
    EXPECT_EQ(Run({"DEL", "right"}), ":1\r\n");
  }
}

TEST_F(GatewayTest, ArgumentsAreChecked) {
  const std::string hash("\0cell:h\1", 8);
  EXPECT_THAT(Run({"MSET", "a", "1", "b", hash}), HasSubstr("-ERR the value begins"));
  Run({"HSET", "h", "f", "v", "g", "v"});
  Run({"EXPIRE", "h", "100"});
  Run({"HDEL", "h", "f"});
  EXPECT_EQ(Run({"TTL", "h"}), ":100\r\n");
  Run({"SET", "a", "1"});
  EXPECT_THAT(Run({"DEL", "a", ""}), HasSubstr("-ERR 1 keys were deleted; then: "));
  const std::string text(5000, 'x');
  Run({"SET", "a", text});
  EXPECT_EQ(Run({"SET", "a", "2", "IFEQ", text}), "+OK\r\n");
  EXPECT_THAT(Run({"MSET", "m", "1", "", "2"}), HasSubstr("-ERR"));
  EXPECT_EQ(Run({"EXISTS", "m"}), ":0\r\n");
  EXPECT_THAT(Run({"HSCAN", "h", "0", "MATCH", std::string(1025, 'a')}), HasSubstr("-ERR the pattern"));
  EXPECT_THAT(Run({"SCAN", "0", "MATCH", std::string(1025, 'a')}), HasSubstr("-ERR the pattern"));
  EXPECT_THAT(Run({"SET", "e", "1", "EXAT", "1"}), HasSubstr("+OK"));
  EXPECT_EQ(Run({"EXISTS", "e"}), ":0\r\n");
  EXPECT_EQ(Run({"HDEL", "h", "g"}), ":1\r\n");
  EXPECT_EQ(Run({"EXISTS", "h"}), ":0\r\n");
  EXPECT_EQ(Run({"ZRANGEBYLEX", "cell:keys", "-", "+", "LIMIT", "-1", "2"}), "*0\r\n");
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "[b", "[a"}), ":0\r\n");
  EXPECT_EQ(Run({"ZRANGEBYLEX", "cell:keys", "-", "+", "LIMIT", "9223372036854775807", "9223372036854775807"}),
            "*0\r\n");
  EXPECT_THAT(Run({"ZRANGEBYLEX", "cell:keys", "-", "+", "LIMIT", "0", "9223372036854775807"}),
              HasSubstr("$1\r\na\r\n"));
  EXPECT_EQ(Run({"ZRANGEBYLEX", "cell:keys:" + std::string(300, 'k'), "-", "+"}), "*0\r\n");
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys:" + std::string(300, 'k'), "-", "+"}), ":0\r\n");
  const std::string last = std::string(client_->key_bytes_max() - 1, 'k') + '\xff';
  Run({"SET", last, "1"});
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "[kk", "[" + last + "z"}), ":1\r\n");
  EXPECT_THAT(Run({"HELLO", "2", "SETNAME", "a b"}), HasSubstr("-ERR Client names"));
  EXPECT_THAT(Run({"CLIENT", "SETNAME", "a\nb"}), HasSubstr("-ERR Client names"));
  EXPECT_THAT(Run({"HELLO", "3"}), HasSubstr("%7"));
  EXPECT_EQ(Run({"SET", "new", "1", "GET"}), "_\r\n");
  EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request({"GET", "nope"}) + Request({"EXEC"})),
            "+OK\r\n+QUEUED\r\n*1\r\n_\r\n");
}

}  // namespace
}  // namespace cell::gateway

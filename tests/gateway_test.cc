// Tests what a connection of the gateway answers, over a simulated cluster: pipelines, transactions, errors, and that
// nothing is lost or left when a client goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/gateway_fixture.h"

namespace cell::gateway {
namespace {

using ::testing::HasSubstr;

TEST_F(GatewayTest, RunsAPipelineAsIfOneByOne) {
  std::mt19937 random(1);
  std::map<std::string, int> model;
  for (int round = 0; round < 20; ++round) {
    std::string requests, expected;
    for (int i = 0; i < 200; ++i) {
      const std::string key = fmt::format("key{}", random() % 5);
      switch (random() % 4) {
        case 0:
          requests += Request({"INCR", key});
          expected += fmt::format(":{}\r\n", ++model[key]);
          break;
        case 1: {
          requests += Request({"GET", key});
          const auto found = model.find(key);
          const std::string value = found == model.end() ? "" : std::to_string(found->second);
          expected += found == model.end() ? "$-1\r\n" : fmt::format("${}\r\n{}\r\n", value.size(), value);
          break;
        }
        case 2:
          requests += Request({"SET", key, std::to_string(i)});
          model[key] = i;
          expected += "+OK\r\n";
          break;
        default:
          requests += Request({"DEL", key});
          expected += fmt::format(":{}\r\n", model.erase(key));
      }
    }
    EXPECT_EQ(Answer(&one_, requests), expected);
  }
}

TEST_F(GatewayTest, KeepsTheOrderOfReadsAndWritesOfSeveralKeys) {
  EXPECT_EQ(
      Answer(&one_, Request({"MSET", "a", "1", "b", "2"}) + Request({"MGET", "a", "b"}) + Request({"DEL", "a", "b"}) +
                        Request({"EXISTS", "a", "b", "a"}) + Request({"SET", "b", "3"}) + Request({"DBSIZE"}) +
                        Request({"DEL", "b"}) + Request({"DBSIZE"})),
      "+OK\r\n*2\r\n$1\r\n1\r\n$1\r\n2\r\n:2\r\n:0\r\n+OK\r\n:1\r\n:1\r\n:0\r\n");
}

TEST_F(GatewayTest, RunsATransactionAtOneMoment) {
  EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request({"SET", "a", "1"}) + Request({"INCR", "a"})),
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
  EXPECT_EQ(Answer(&other_, Request({"GET", "a"})), "$-1\r\n");
  EXPECT_EQ(Run({"EXEC"}), "*2\r\n+OK\r\n:2\r\n");
  EXPECT_EQ(Answer(&other_, Request({"GET", "a"})), "$1\r\n2\r\n");
  // Several in one pipeline, of which one is discarded and one has a wrong command.
  EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request({"INCR", "a"}) + Request({"EXEC"}) + Request({"MULTI"}) +
                              Request({"INCR", "a"}) + Request({"DISCARD"}) + Request({"MULTI"}) + Request({"NOPE"}) +
                              Request({"INCR", "a"}) + Request({"EXEC"}) + Request({"GET", "a"})),
            "+OK\r\n+QUEUED\r\n*1\r\n:3\r\n+OK\r\n+QUEUED\r\n+OK\r\n+OK\r\n"
            "-ERR unknown command 'NOPE', with args beginning with: \r\n+QUEUED\r\n"
            "-EXECABORT Transaction discarded because of previous errors.\r\n$1\r\n3\r\n");
  // A command that fails when it runs does not undo the others.
  EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request({"SET", "a", "x"}) + Request({"INCR", "a"}) +
                              Request({"SET", "b", "y"}) + Request({"EXEC"})),
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n"
            "-ERR value is not an integer or out of range\r\n+OK\r\n");
  EXPECT_EQ(Run({"EXEC"}), "-ERR EXEC without MULTI\r\n");
  EXPECT_EQ(Run({"DISCARD"}), "-ERR DISCARD without MULTI\r\n");
}

TEST_F(GatewayTest, WatchedKeysThatChangeEndATransaction) {
  for (const bool changes : {false, true}) {
    EXPECT_EQ(Run({"SET", "watched", "1"}), "+OK\r\n");
    EXPECT_EQ(Run({"WATCH", "watched", "absent"}), "+OK\r\n");
    if (changes) {
      EXPECT_EQ(Answer(&other_, Request({"SET", "absent", "now there"})), "+OK\r\n");
    }
    Run({"MULTI"});
    Run({"SET", "watched", "2"});
    EXPECT_EQ(Run({"EXEC"}), changes ? "*-1\r\n" : "*1\r\n+OK\r\n");
    EXPECT_EQ(Run({"GET", "watched"}), changes ? "$1\r\n1\r\n" : "$1\r\n2\r\n");
  }
  // UNWATCH, DISCARD and EXEC forget what was watched.
  for (const char* forget : {"UNWATCH", "DISCARD", "EXEC"}) {
    EXPECT_EQ(Run({"WATCH", "watched"}), "+OK\r\n");
    if (*forget != 'U') Run({"MULTI"});
    Run({forget});
    Answer(&other_, Request({"INCR", "watched"}));
    EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request({"GET", "absent"}) + Request({"EXEC"})),
              "+OK\r\n+QUEUED\r\n*1\r\n$9\r\nnow there\r\n")
        << forget;
  }
}

TEST_F(GatewayTest, AWatchedKeyThatHasItsValueAgainHasChanged) {
  for (const bool expires : {false, true}) {
    Run({"SET", "account", "100"});
    EXPECT_EQ(Run({"WATCH", "account"}), "+OK\r\n");
    if (expires) {
      Answer(&other_, Request({"EXPIRE", "account", "100"}));
    } else {
      Answer(&other_, Request({"SET", "account", "90"}) + Request({"SET", "account", "100"}));
    }
    EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request({"SET", "account", "80"}) + Request({"EXEC"})),
              "+OK\r\n+QUEUED\r\n*-1\r\n");
    // An EXEC of nothing tells as well.
    EXPECT_EQ(Run({"WATCH", "account"}), "+OK\r\n");
    Answer(&other_, Request({"SET", "account", "100"}));
    EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request({"EXEC"})), "+OK\r\n*-1\r\n");
  }
  std::vector<std::string> many = {"WATCH"};
  for (int i = 0; i < 1001; ++i) many.push_back(fmt::format("k{}", i));
  EXPECT_THAT(Run(many), HasSubstr("too many keys are watched"));
  EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request({"PING"}) + Request({"EXEC"})), "+OK\r\n+QUEUED\r\n*-1\r\n");
  EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request({"PING"}) + Request({"UNWATCH"}) + Request({"EXEC"})),
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+PONG\r\n+OK\r\n");
}

TEST_F(GatewayTest, LosesNoIncrementOfManyConnections) {
  std::vector<std::unique_ptr<Connection>> connections;
  std::string requests;
  for (int i = 0; i < 10; ++i) {
    requests +=
        Request({"MULTI"}) + Request({"INCR", "sum"}) + Request({"HINCRBY", "hash", "sum", "1"}) + Request({"EXEC"});
  }
  for (uint64_t id = 10; id < 15; ++id) {
    connections.push_back(std::make_unique<Connection>(&shared_, id, ""));
    connections.back()->Receive(requests);
    connections.back()->Advance();
  }
  for (const auto& connection : connections) {
    const std::string answer = Finish(connection.get());
    EXPECT_EQ(answer.find('-'), std::string::npos) << answer;
  }
  EXPECT_EQ(Run({"GET", "sum"}), "$2\r\n50\r\n");
  EXPECT_EQ(Run({"HGET", "hash", "sum"}), "$2\r\n50\r\n");
}

TEST_F(GatewayTest, KeepsExpiries) {
  EXPECT_EQ(Run({"SET", "a", "1", "EX", "100"}), "+OK\r\n");
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"INCR", "a"}, {"APPEND", "a", "0"}, {"SET", "a", "2", "KEEPTTL"}, {"TTL", "a"}}) {
    Run(command);
    EXPECT_EQ(Run({"TTL", "a"}), ":100\r\n") << command[0];
  }
  EXPECT_EQ(Run({"SET", "a", "1"}), "+OK\r\n");
  EXPECT_EQ(Run({"TTL", "a"}), ":-1\r\n");
  EXPECT_EQ(Run({"HSET", "h", "f", "v"}), ":1\r\n");
  EXPECT_EQ(Run({"EXPIRE", "h", "100"}), ":1\r\n");
  EXPECT_EQ(Run({"HSET", "h", "g", "v"}), ":1\r\n");
  EXPECT_EQ(Run({"TTL", "h"}), ":100\r\n");
  EXPECT_EQ(Run({"EXPIRE", "h", "-1"}), ":1\r\n");
  EXPECT_EQ(Run({"EXISTS", "h"}), ":0\r\n");
  // Between MULTI and EXEC as well, where the expiry is that of the transaction's own write.
  EXPECT_EQ(
      Answer(&one_, Request({"MULTI"}) + Request({"SET", "m", "1", "PX", "50000"}) + Request({"INCR", "m"}) +
                        Request({"TTL", "m"}) + Request({"PERSIST", "m"}) + Request({"TTL", "m"}) + Request({"EXEC"})),
      "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*5\r\n+OK\r\n:2\r\n:50\r\n:1\r\n:-1\r\n");
}

TEST_F(GatewayTest, KnowsStringsFromHashes) {
  constexpr char kWrong[] = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
  Run({"HSET", "h", "f", "v"});
  Run({"SET", "s", "1"});
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{{"GET", "h"},
                                                                                       {"INCR", "h"},
                                                                                       {"APPEND", "h", "x"},
                                                                                       {"STRLEN", "h"},
                                                                                       {"GETDEL", "h"},
                                                                                       {"GETSET", "h", "x"},
                                                                                       {"SET", "h", "x", "GET"},
                                                                                       {"HGET", "s", "f"},
                                                                                       {"HSET", "s", "f", "v"},
                                                                                       {"HDEL", "s", "f"},
                                                                                       {"HGETALL", "s"},
                                                                                       {"HMGET", "s", "f"},
                                                                                       {"HINCRBY", "s", "f", "1"},
                                                                                       {"HLEN", "s"}}) {
    EXPECT_EQ(Run(command), kWrong) << command[0];
    EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request(command) + Request({"EXEC"})),
              fmt::format("+OK\r\n+QUEUED\r\n*1\r\n{}", kWrong))
        << command[0];
  }
  EXPECT_EQ(Run({"HGETALL", "h"}), "*2\r\n$1\r\nf\r\n$1\r\nv\r\n");
  EXPECT_EQ(Run({"MGET", "h", "s"}), "*2\r\n$-1\r\n$1\r\n1\r\n");
  EXPECT_THAT(Run({"SET", "x", std::string("\0cell:h\1", 8)}), HasSubstr("-ERR the value begins"));
  EXPECT_THAT(Run({"APPEND", "x", std::string("\0cell:h\1", 8)}), HasSubstr("-ERR the value begins"));
  EXPECT_EQ(Run({"EXISTS", "x"}), ":0\r\n");
}

TEST_F(GatewayTest, ScansGiveEachKeyOnce) {
  std::string puts;
  for (int i = 0; i < 500; ++i) puts += Request({"SET", fmt::format("k{:03}", i), "v"});
  Answer(&one_, puts);
  for (const char* count : {"1", "7", "100", "100000"}) {
    std::vector<std::string> keys;
    std::string cursor = "0";
    do {
      const std::string answer = Run({"SCAN", cursor, "COUNT", count, "MATCH", "k*"});
      std::vector<std::string> lines;
      for (size_t at = 0, end; (end = answer.find("\r\n", at)) != std::string::npos; at = end + 2) {
        lines.push_back(answer.substr(at, end - at));
      }
      ASSERT_GE(lines.size(), 4u) << answer;
      cursor = lines[2];
      for (size_t i = 5; i < lines.size(); i += 2) keys.push_back(lines[i]);
    } while (cursor != "0");
    ASSERT_EQ(keys.size(), 500u);
    EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
  }
  EXPECT_THAT(Run({"SCAN", "12345"}), HasSubstr("-ERR this gateway does not know the cursor any more"));
  EXPECT_EQ(Run({"SCAN", "x"}), "-ERR invalid cursor\r\n");
  EXPECT_EQ(Run({"ZRANGEBYLEX", "cell:keys", "(k001", "[k004", "LIMIT", "1", "5"}),
            "*2\r\n$4\r\nk003\r\n$4\r\nk004\r\n");
  EXPECT_EQ(Run({"ZRANGEBYLEX", "cell:keys:k00", "[8", "+"}), "*2\r\n$1\r\n8\r\n$1\r\n9\r\n");
  EXPECT_EQ(Run({"ZREVRANGEBYLEX", "cell:keys", "+", "-", "LIMIT", "0", "2"}), "*2\r\n$4\r\nk499\r\n$4\r\nk498\r\n");
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "[k100", "(k200"}), ":100\r\n");
  EXPECT_EQ(Run({"ZRANGEBYLEX", "cell:keys", "[k2", "[k1"}), "*0\r\n");
}

TEST_F(GatewayTest, RefusesCommandsBeforeAuthentication) {
  Shared guarded{&totals_, nullptr, {{"shop", "secret", client_.get()}}};
  Connection connection(&guarded, 3, "");
  const auto answer = [&](std::string_view bytes) {
    connection.Receive(bytes);
    connection.Advance();
    while (connection.busy()) {
      client_->Poll(client_->NowNs() + 1'000'000);
      ReadyList::Take(&guarded, [](Connection* ready) { ready->Advance(); });
    }
    return std::exchange(*connection.out(), "");
  };
  EXPECT_EQ(answer(Request({"GET", "a"})), "-NOAUTH Authentication required.\r\n");
  EXPECT_EQ(answer(Request({"MULTI"})), "-NOAUTH Authentication required.\r\n");
  EXPECT_THAT(answer(Request({"HELLO", "3"})), HasSubstr("-NOAUTH HELLO"));
  EXPECT_THAT(answer(Request({"AUTH", "secret"})), HasSubstr("-WRONGPASS"));
  EXPECT_THAT(answer(Request({"AUTH", "shop", "secre"})), HasSubstr("-WRONGPASS"));
  EXPECT_THAT(answer(Request({"AUTH", "shop", "Secret"})), HasSubstr("-WRONGPASS"));
  EXPECT_THAT(answer(Request({"HELLO", "2", "AUTH", "other", "secret"})), HasSubstr("-WRONGPASS"));
  // Requests behind AUTH in the same packet run as the user.
  EXPECT_EQ(answer(Request({"AUTH", "shop", "secret"}) + Request({"SET", "a", "1"})), "+OK\r\n+OK\r\n");
  // Requests behind RESET do not.
  for (const char* command : {"GET", "INFO", "WATCH", "EXPIRE"}) {
    std::vector<std::string> words = {command};
    if (*command != 'I') words.push_back("a");
    if (*command == 'E') words.push_back("1");
    EXPECT_EQ(answer(Request({"RESET"}) + Request(words)), "+RESET\r\n-NOAUTH Authentication required.\r\n") << command;
    EXPECT_EQ(answer(Request({"AUTH", "shop", "secret"})), "+OK\r\n");
  }
  EXPECT_EQ(answer(Request({"RESET"}) + Request({"MULTI"}) + Request({"GET", "a"}) + Request({"EXEC"})),
            "+RESET\r\n+OK\r\n+QUEUED\r\n-NOAUTH Authentication required.\r\n");
  // Nothing of that is left for who comes next.
  std::string refused = Request({"AUTH", "shop", "secret"}) + Request({"RESET"});
  for (int i = 0; i < 9; ++i) refused += Request({"MULTI"}) + Request({"SET", "a", "stale"}) + Request({"EXEC"});
  refused += Request({"MULTI"}) + Request({"SET", "a", "stale"});
  EXPECT_THAT(answer(refused), HasSubstr("-NOAUTH Authentication required.\r\n+OK\r\n+QUEUED\r\n"));
  EXPECT_EQ(answer(Request({"AUTH", "shop", "secret"}) + Request({"EXEC"})), "+OK\r\n-ERR EXEC without MULTI\r\n");
  EXPECT_EQ(answer(Request({"MULTI"}) + Request({"SET", "b", "2"}) + Request({"GET", "a"}) + Request({"EXEC"})),
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\n1\r\n");
  EXPECT_EQ(connection.bytes(), 0u);
  EXPECT_EQ(answer(Request({"RESET"})), "+RESET\r\n");
  EXPECT_EQ(answer(Request({"GET", "a"})), "-NOAUTH Authentication required.\r\n");
  EXPECT_THAT(answer(Request({"HELLO", "3", "AUTH", "shop", "secret", "SETNAME", "me"})), HasSubstr("%7\r\n"));
  EXPECT_EQ(answer(Request({"CLIENT", "GETNAME"})), "$2\r\nme\r\n");
  EXPECT_EQ(answer("*11\r\n$1\r\n"), "");  // Others could not say this.
}

TEST_F(GatewayTest, AClientMayGoAtAnyMoment) {
  for (int polls = 0; polls < 60; ++polls) {
    auto connection = std::make_unique<Connection>(&shared_, 100, "");
    std::string requests;
    for (int i = 0; i < 50; ++i) requests += Request({"HINCRBY", "hash", "f", "1"}) + Request({"WATCH", "k1"});
    connection->Receive(requests);
    connection->Advance();
    for (int i = 0; i < polls; ++i) {
      client_->Poll(0);
      ReadyList::Take(&shared_, [](Connection* ready) { ready->Advance(); });
    }
    connection->Abandon();
    while (connection->busy()) {
      client_->Poll(client_->NowNs() + 1'000'000);
      ReadyList::Take(&shared_, [](Connection* ready) { ready->Advance(); });
    }
    ReadyList::Take(&shared_, [](Connection*) {});
    connection->Advance();
    EXPECT_TRUE(connection->should_close());
    // Each reply is that of one command, and what has not begun never will.
    const std::string replies = *connection->out();
    const auto added = std::count(replies.begin(), replies.end(), ':');
    const std::string sum = Run({"HGET", "hash", "f"});
    const std::string expected = std::to_string(added);
    EXPECT_EQ(sum, added == 0 ? "$-1\r\n" : fmt::format("${}\r\n{}\r\n", expected.size(), expected));
    EXPECT_LT(added, 50);
    Run({"DEL", "hash"});
  }
}

TEST_F(GatewayTest, HoldsNoMoreThanItMust) {
  constexpr size_t kMost = size_t{4} << 20, kLarge = 500'000;
  Run({"SET", "large", std::string(kLarge, 'x')});
  // Replies that nobody takes: the rest of the pipeline waits.
  std::string requests;
  for (int i = 0; i < 500; ++i) requests += Request({"GET", "large"});
  one_.Receive(requests);
  one_.Advance();
  const auto run = [&] {
    while (one_.busy()) {
      client_->Poll(client_->NowNs() + 1'000'000);
      ReadyList::Take(&shared_, [](Connection* ready) { ready->Advance(); });
    }
  };
  run();
  EXPECT_TRUE(one_.has_more());
  EXPECT_FALSE(one_.takes_input());
  EXPECT_LT(one_.bytes(), kMost + 64 * kLarge + requests.size()) << "At most 64 commands are in flight.";
  size_t all = 0;
  while (one_.has_more() || !one_.out()->empty()) {
    all += std::exchange(*one_.out(), "").size();
    one_.Advance();
    run();
  }
  EXPECT_EQ(all, 500 * (kLarge + std::string("$500000\r\n\r\n").size()));
  EXPECT_EQ(one_.bytes(), 0u);
  EXPECT_TRUE(one_.takes_input());
  // Large requests are taken one by one.
  for (int i = 0; i < 40; ++i) one_.Receive(Request({"SET", "same", std::string(kLarge, 'y')}));
  const size_t sent = one_.bytes();
  one_.Advance();
  EXPECT_LE(one_.bytes(), sent + (1 << 20));
  run();
  one_.Advance();
  EXPECT_EQ(one_.out()->size(), 40 * std::string("+OK\r\n").size());
  one_.out()->clear();
  EXPECT_EQ(one_.bytes(), 0u);
}

TEST_F(GatewayTest, ManyConnectionsRunAFewCommandsAtATime) {
  std::vector<std::unique_ptr<Connection>> connections;
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += Request({"GET", fmt::format("k{}", i)});
  requests += Request({"MGET", "a", "b", "c"}) + Request({"DBSIZE"});
  for (uint64_t id = 10; id < 60; ++id) {
    connections.push_back(std::make_unique<Connection>(&shared_, id, ""));
    connections.back()->Receive(requests);
    connections.back()->Advance();
    EXPECT_LE(shared_.weight, 512u);
  }
  EXPECT_FALSE(shared_.blocked.empty());
  connections.front()->Abandon();  // One that goes while it waits.
  connections.back()->Abandon();
  for (size_t i = 1; i + 1 < connections.size(); ++i) {
    const std::string answer = Finish(connections[i].get());
    EXPECT_EQ(answer.size(),
              100 * std::string("$-1\r\n").size() + std::string("*3\r\n$-1\r\n$-1\r\n$-1\r\n:0\r\n").size());
  }
  Finish(connections.front().get());
  Finish(connections.back().get());
  EXPECT_EQ(shared_.weight, 0u);
  EXPECT_TRUE(shared_.blocked.empty());
}

TEST_F(GatewayTest, WaitsForAKeyNoLongerThanACommandMayTake) {
  const std::string key = "hash";
  const auto enter = [](Shared* shared, const std::string* what) -> Task<bool> {
    co_await shared->turns.Enter(*what);
    co_return true;
  };
  Task<bool> holder = enter(&shared_, &key);  // As if its server did not answer.
  holder.Start();
  for (Connection* connection : {&one_, &other_}) {
    connection->Receive(Request({"HINCRBY", "hash", "f", "1"}));
    connection->Advance();
  }
  const int64_t until_ns = client_->NowNs() + 16'000'000'000;
  while (client_->NowNs() < until_ns) client_->Poll(until_ns);
  EXPECT_TRUE(one_.busy() && other_.busy());
  shared_.turns.Leave(key);
  for (Connection* connection : {&one_, &other_}) EXPECT_THAT(Finish(connection), HasSubstr("-TRYAGAIN"));
  EXPECT_EQ(Run({"HINCRBY", "hash", "f", "1"}), ":1\r\n");
}

TEST_F(GatewayTest, LongRepliesAreErrorsWhileBuffersAreFull) {
  Run({"SET", "large", std::string(100'000, 'x')});
  Run({"SET", "small", "x"});
  totals_.buffered_bytes = size_t{2} << 30;
  EXPECT_THAT(Run({"GET", "large"}), HasSubstr("-ERR the gateway's buffers are full"));
  EXPECT_EQ(Run({"GET", "small"}), "$1\r\nx\r\n");
  totals_.buffered_bytes = 0;
  EXPECT_EQ(Run({"GET", "large"}).size(), 100'000 + std::string("$100000\r\n\r\n").size());
}

TEST_F(GatewayTest, RepliesHaveALimit) {
  Run({"SET", "large", std::string(1 << 20, 'x')});
  Run({"HSET", "hash", "f", std::string(1'000'000, 'x')});
  std::vector<std::string> mget = {"MGET"}, hmget = {"HMGET", "hash"};
  for (int i = 0; i < 70; ++i) mget.push_back("large"), hmget.push_back("f");
  EXPECT_EQ(Run(mget), "-ERR the reply would have more than 64 MB\r\n");
  EXPECT_EQ(Run(hmget), "-ERR the reply would have more than 64 MB\r\n");
  EXPECT_EQ(Answer(&one_, Request({"MULTI"}) + Request(mget) + Request({"EXEC"})),
            "+OK\r\n+QUEUED\r\n*1\r\n-ERR the reply would have more than 64 MB\r\n");
  std::string gets = Request({"MULTI"});
  for (int i = 0; i < 70; ++i) gets += Request({"GET", "large"});
  EXPECT_THAT(Answer(&one_, gets + Request({"EXEC"})), HasSubstr("-ERR the replies have more than 64 MB\r\n"));
  EXPECT_THAT(Run({"KEYS", std::string(1025, 'a')}), HasSubstr("-ERR the pattern has more than 1024 bytes"));
}

TEST_F(GatewayTest, TransactionsHaveALimit) {
  Answer(&one_, Request({"MULTI"}) + Request({"SET", "a", std::string(900'000, 'x')}));
  // A write that is too much is an error of that command, and the others count.
  EXPECT_THAT(
      Answer(&one_, Request({"SET", "b", std::string(900'000, 'x')}) + Request({"SET", "c", "1"}) + Request({"EXEC"})),
      HasSubstr("*3\r\n+OK\r\n-ERR that is more than one transaction can write"));
  EXPECT_EQ(Run({"EXISTS", "a", "b", "c"}), ":2\r\n");
  std::string words = Request({"MULTI"});
  for (int i = 0; i < 5; ++i) words += Request({"SET", "d", std::string(500'000, 'x')});
  EXPECT_THAT(Answer(&one_, words + Request({"EXEC"})), HasSubstr("-EXECABORT"));
  EXPECT_EQ(one_.bytes(), 0u);
}

TEST_F(GatewayTest, KnowsTheVersionOfTheProtocolInAPipeline) {
  Run({"HSET", "h", "f", "v"});
  EXPECT_THAT(Answer(&one_, Request({"HELLO", "3"}) + Request({"HGETALL", "h"}) + Request({"GET", "nope"})),
              HasSubstr("%1\r\n$1\r\nf\r\n$1\r\nv\r\n_\r\n"));
  EXPECT_EQ(Answer(&one_, Request({"RESET"}) + Request({"HGETALL", "h"}) + Request({"GET", "nope"})),
            "+RESET\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n$-1\r\n");
}

TEST_F(GatewayTest, DoesNothingBehindQuit) {
  EXPECT_EQ(Answer(&one_, Request({"SET", "a", "1"}) + Request({"QUIT"}) + Request({"SET", "a", "2"}) + Request({"x"})),
            "+OK\r\n+OK\r\n");
  EXPECT_TRUE(one_.should_close());
  EXPECT_EQ(Answer(&other_, Request({"GET", "a"})), "$1\r\n1\r\n");
}

TEST_F(GatewayTest, WebPagesCannotSendCommands) {
  EXPECT_EQ(Answer(&one_, "POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET pwned yes\r\n"), "");
  EXPECT_TRUE(one_.should_close());
  EXPECT_EQ(Answer(&other_, Request({"EXISTS", "pwned"})), ":0\r\n");
}

TEST_F(GatewayTest, WritesDoNotPostponeAnExpiry) {
  Run({"HSET", "h", "n", "0"});
  Run({"SET", "s", "0"});
  Run({"PEXPIRE", "h", "100000"});
  Run({"PEXPIRE", "s", "100000"});
  const int64_t begin_ns = client_->NowNs();
  for (int i = 0; i < 2000; ++i) {
    Run({"HINCRBY", "h", "n", "1"});
    Run({"APPEND", "s", "1"});
  }
  const int64_t spent_ms = (client_->NowNs() - begin_ns) / 1'000'000;
  ASSERT_GT(spent_ms, 10);
  for (const char* key : {"h", "s"}) {
    const int64_t left_ms = std::stoll(Run({"PTTL", key}).substr(1));
    EXPECT_LE(left_ms, 100'000 - spent_ms + 2) << key;
    EXPECT_GT(left_ms, 100'000 - spent_ms - 100) << key;
  }
}

TEST_F(GatewayTest, AnExpiryThatIsSetMeanwhileStays) {
  for (int polls = 0; polls < 12; ++polls) {
    Run({"DEL", "h"});
    Run({"HSET", "h", "f", "v"});
    one_.Receive(Request({"HSET", "h", "f", "v"}));  // Writes the same value.
    one_.Advance();
    for (int i = 0; i < polls; ++i) client_->Poll(client_->NowNs() + 100'000);
    EXPECT_EQ(Answer(&other_, Request({"EXPIRE", "h", "100"})), ":1\r\n");
    Finish(&one_);
    EXPECT_EQ(Run({"TTL", "h"}), ":100\r\n") << polls;
  }
}

TEST_F(GatewayTest, ScansByType) {
  Run({"HSET", "h", "f", "v"});
  Run({"SET", "s", "v"});
  EXPECT_EQ(Run({"SCAN", "0", "TYPE", "hash"}), "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nh\r\n");
  EXPECT_EQ(Run({"SCAN", "0", "TYPE", "STRING"}), "*2\r\n$1\r\n0\r\n*1\r\n$1\r\ns\r\n");
  EXPECT_EQ(Run({"SCAN", "0", "TYPE", "list"}), "*2\r\n$1\r\n0\r\n*0\r\n");
  EXPECT_EQ(Run({"HSCAN", "h", "0", "MATCH", "f*"}), "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n");
}

TEST_F(GatewayTest, BoundsMayBeLongerThanKeys) {
  const std::string longest(client_->key_bytes_max(), 'k');
  Run({"MSET", "a", "1", longest, "2", "l", "3"});
  const std::string after = longest + "z";
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "[" + after, "+"}), ":1\r\n");
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "(" + longest, "+"}), ":1\r\n");
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "[" + longest, "+"}), ":2\r\n");
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "-", "(" + longest}), ":1\r\n");
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "-", "[" + longest}), ":2\r\n");
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "-", "(" + after}), ":2\r\n");
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "[" + std::string(300, '\xff'), "+"}), ":0\r\n");
  EXPECT_EQ(Run({"ZLEXCOUNT", "cell:keys", "-", "[" + std::string(300, '\xff')}), ":3\r\n");
  EXPECT_EQ(Run({"ZRANGE", "cell:keys", "-", "+", "BYLEX", "LIMIT", "0", "1"}), "*1\r\n$1\r\na\r\n");
  EXPECT_EQ(Run({"ZRANGE", "cell:keys", "+", "-", "BYLEX", "REV", "LIMIT", "0", "1"}), "*1\r\n$1\r\nl\r\n");
  EXPECT_EQ(Run({"KEYS", after + "*"}), "*0\r\n");
  EXPECT_EQ(Run({"SCAN", "0", "MATCH", after + "*"}), "*2\r\n$1\r\n0\r\n*0\r\n");
  EXPECT_THAT(Run({"ZRANGEBYLEX", "a", "-", "+"}), HasSubstr("-WRONGTYPE"));
}

TEST_F(GatewayTest, ErrorsEndAConnectionThatCannotBeUnderstood) {
  EXPECT_EQ(Answer(&one_, Request({"SET", "a", "1"}) + "*1\r\nx"),
            "+OK\r\n-ERR Protocol error: expected '$', got 'x'\r\n");
  EXPECT_TRUE(one_.should_close());
}

}  // namespace
}  // namespace cell::gateway

#include "cell/client/session/session.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cell/client/session/session_test.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/fabric/open/open_fabric.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    CELL_CHECK(server_->Listen("server", &service_).ok());
    service_.refuses = MessageKind::kTableVersion;
    service_.answer = [this](const IncomingCall& call, MutableBytes to) {
      CELL_CHECK(ParseHeader(call.request).value().kind == MessageKind::kReport);
      reports_.emplace_back(AsText(call.request.subspan(sizeof(MessageHeader))));
      return WriteTextReply(to, MessageKind::kReport, "");
    };
  }

  static ClusterState State() {
    ClusterState state;
    state.shape = {512, 32 << 10, 64 << 10};
    state.servers = {{"server", {{"server", 8}}, ""}};
    state.table.regions.Set(1, {{"server", 0}, 1});
    state.table.ids.next = 2;
    state.table.root = 1;
    return state;
  }
  std::unique_ptr<Session> NewSession(const ClientOptions& options, const ClusterState& state = State()) {
    return std::make_unique<Session>(options, network_.NewEndpoint(),
                                     std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(state)));
  }
  static Task<bool> Sleep(Session* session, int64_t ns) {
    co_await session->loop()->SleepUntil(session->NowNs() + ns);
    co_return true;
  }

  SimNetwork network_{SimOptions{}};
  std::unique_ptr<SimFabric> server_ = network_.NewEndpoint();
  AnsweringService service_{server_.get()};
  std::vector<std::string> reports_;
};

// The fabric is gone then, and the membership's threads may still have an answer.
TEST_F(SessionTest, IsNotWokenAfterItsEnd) {
  class WakingMembership : public MemoryMembership {
   public:
    WakingMembership(std::shared_ptr<MemoryCluster> cluster, std::function<void()>* wake)
        : MemoryMembership(std::move(cluster)), wake_(wake) {}
    bool SetWake(std::function<void()> wake) override {
      *wake_ = std::move(wake);
      return true;
    }

   private:
    std::function<void()>* const wake_;
  };
  std::function<void()> wake;
  Session session(ClientOptions(), network_.NewEndpoint(),
                  std::make_unique<WakingMembership>(std::make_shared<MemoryCluster>(State()), &wake));
  EXPECT_TRUE(wake);
  session.Close();
  EXPECT_FALSE(wake);
}

TEST_F(SessionTest, ACallsOptionsGoBeforeTheClients) {
  ClientOptions options;
  options.path = Path::kServer;
  options.timeout_us = 500;
  const std::unique_ptr<Session> session = NewSession(options);
  const int64_t now_ns = session->NowNs();
  struct {
    CallOptions call;
    Path path;
    int64_t deadline_ns;
  } const cases[] = {
      {{}, Path::kServer, now_ns + 500'000},
      {{Path::kClient, {}}, Path::kClient, now_ns + 500'000},
      {{{}, 7}, Path::kServer, now_ns + 7'000},
      {{{}, 0}, Path::kServer, now_ns},
      {{{}, -7}, Path::kServer, now_ns},
      {{{}, INT64_MAX}, Path::kServer, INT64_MAX},
      {{{}, INT64_MAX / 1000}, Path::kServer, INT64_MAX},  // Its end cannot be told in nanoseconds.
  };
  for (const auto& one : cases) {
    const CallContext context = session->Begin(one.call, OperationKind::kGet);
    EXPECT_EQ(context.path, one.path);
    EXPECT_EQ(context.started_ns, now_ns);
    EXPECT_EQ(context.deadline_ns, one.deadline_ns);
  }
}

TEST_F(SessionTest, TheSelectorChoosesThePathOfAHybridCallOnly) {
  const std::unique_ptr<Session> session = NewSession({});
  CommonEstimates common;
  Selector selector({}, 1, &common);
  const auto choose = [&](Path path) { return session->ChoosePath(&selector, {path, session->NowNs(), INT64_MAX}); };
  selector.ObserveServer(1000);  // It knows nothing of reads yet, and tries them.
  EXPECT_EQ(choose(Path::kHybrid), Path::kClient);
  EXPECT_EQ(choose(Path::kServer), Path::kServer);
  EXPECT_EQ(choose(Path::kClient), Path::kClient);
  EXPECT_EQ(session->metrics()->client_path, 2u);
  EXPECT_EQ(session->metrics()->server_path, 1u);
}

// A server sees no reads by clients, and has to know what is used where pairs may be evicted for not being used.
TEST_F(SessionTest, SomeHybridGetsGoToTheServerWhereItMustKnowWhatIsUsed) {
  const auto to_server = [this](Eviction eviction, Path path, OperationKind kind) {
    ClusterState state = State();
    CELL_CHECK(state.table.evictions.Set("", eviction).ok());
    const std::unique_ptr<Session> session = NewSession({}, state);
    CommonEstimates common;
    Selector selector({}, 1, &common);
    selector.ObserveServer(1000);  // It knows nothing of reads yet, and tries them.
    for (int i = 0; i < 160; ++i) {
      (void)session->ChoosePath(&selector, {path, session->NowNs(), INT64_MAX, kind});
    }
    return session->metrics()->server_path;
  };
  const uint64_t chosen = to_server(Eviction::kTtl, Path::kHybrid, OperationKind::kGet);
  EXPECT_LT(chosen, 100u);
  EXPECT_GE(to_server(Eviction::kLru, Path::kHybrid, OperationKind::kGet), chosen + 5);
  EXPECT_GE(to_server(Eviction::kLru, Path::kHybrid, OperationKind::kLookup), chosen + 5);
  EXPECT_EQ(to_server(Eviction::kLru, Path::kHybrid, OperationKind::kScan), chosen);
  EXPECT_EQ(to_server(Eviction::kLru, Path::kClient, OperationKind::kGet), 0u);
}

TEST_F(SessionTest, AnOperationItsErrorAndItsLatencyAreCountedOnce) {
  const std::unique_ptr<Session> session = NewSession({});
  for (const absl::Status& status : {absl::OkStatus(), absl::UnavailableError("nobody")}) {
    const CallContext context = session->Begin({}, OperationKind::kGet);
    session->Run(Sleep(session.get(), 3'000));
    session->End(context, status);
  }
  EXPECT_EQ(session->metrics()->operations, 2u);
  EXPECT_EQ(session->metrics()->errors, 1u);
  EXPECT_EQ(session->metrics()->latency_ns.count(), 2u);
  EXPECT_GE(session->metrics()->latency_ns.mean(), 3'000);
  EXPECT_LT(session->metrics()->latency_ns.max(), 4'000u);
}

// Counters are sums since the client began. Latencies are those since the last report.
TEST_F(SessionTest, AClientReportsOnceASecond) {
  const std::unique_ptr<Session> session = NewSession({});
  ASSERT_TRUE(session->Run(session->view()->Connect(1)).ok());
  const CallContext context = session->Begin({}, OperationKind::kGet);
  session->Run(Sleep(session.get(), 3'000));
  session->End(context, absl::OkStatus());
  session->Run(Sleep(session.get(), 2 * kSecondNs + kSecondNs / 2));
  ASSERT_EQ(reports_.size(), 2u);
  for (const std::string& report : reports_) {
    const nlohmann::json json = nlohmann::json::parse(report);
    EXPECT_EQ(json["operations"], 1) << report;
    EXPECT_EQ(json["read_rounds"], 0) << report;
    EXPECT_GE(json["calls"], 0) << report;
    EXPECT_EQ(json["extent_reads"], 0) << report;
  }
  EXPECT_EQ(reports_[0].find(R"("p50_us":0.00)"), std::string::npos) << reports_[0];
  EXPECT_NE(reports_[1].find(R"("p50_us":0.00)"), std::string::npos) << reports_[1];
}

// Otherwise a client that does not use that worker any more would report to it for ever.
TEST_F(SessionTest, AReportThatFailsTellsThatTheConnectionIsLost) {
  const std::unique_ptr<Session> session = NewSession({});
  ASSERT_TRUE(session->Run(session->view()->Connect(1)).ok());
  ASSERT_NE(session->connections()->AnyUp(), nullptr);
  server_->Crash();
  session->Run(Sleep(session.get(), kSecondNs + kSecondNs / 2));
  EXPECT_EQ(session->connections()->AnyUp(), nullptr);
}

TEST_F(SessionTest, AClientThatIsNotToReportDoesNot) {
  ClientOptions options;
  options.report = false;
  const std::unique_ptr<Session> session = NewSession(options);
  ASSERT_TRUE(session->Run(session->view()->Connect(1)).ok());
  session->Run(Sleep(session.get(), 3 * kSecondNs));
  EXPECT_EQ(reports_.size(), 0u);
}

TEST_F(SessionTest, PollReturnsSoonIfTheMembershipHasToAnswerAndWakesNobody) {
  const std::unique_ptr<Session> session = NewSession({});
  session->Run(Sleep(session.get(), kSecondNs / 10));  // Then the table may be read again.
  session->view()->RefreshSoon();
  const int64_t until_ns = session->NowNs() + kSecondNs / 10;
  session->Poll(until_ns);  // It asks.
  EXPECT_TRUE(session->view()->must_poll());
  EXPECT_LT(session->NowNs(), until_ns);
  session->Poll(until_ns);  // It is answered.
  EXPECT_FALSE(session->view()->must_poll());
  session->Poll(until_ns);
  EXPECT_EQ(session->NowNs(), until_ns);
}

// An event loop must not wait while a Poll may have something to do, even if the fabric has nothing: what has come may
// have left connections to close, or a table to read.
TEST_F(SessionTest, AWaitBeginsOnlyAfterAPollThatHasFoundNothing) {
  auto fabric = OpenFabric({.kind = "shm"});
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  Session session({}, *std::move(fabric), std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(State())));
  EXPECT_GE(session.WaitFd(), 0);
  const auto begins = [&session] { return session.BeginWait() != 0; };
  const auto poll = [&session] { session.Poll(0); };
  EXPECT_FALSE(begins());
  for (int i = 0; i < 10 && !begins(); ++i) poll();
  EXPECT_TRUE(begins());
  session.ContextOf({});  // An operation has begun.
  EXPECT_FALSE(begins());
  poll();
  EXPECT_TRUE(begins());
  session.EndWait();
  EXPECT_FALSE(begins());
  poll();
  session.loop()->fabric()->Wake();  // The membership has news: the next Poll takes them, whatever comes before it.
  EXPECT_FALSE(begins());
  EXPECT_FALSE(begins());
  poll();
  EXPECT_TRUE(begins());
  // It ends at the first time for which a coroutine waits, and at the next report.
  poll();
  int64_t until_ns = session.BeginWait();
  EXPECT_LE(until_ns, session.NowNs() + kSecondNs);
  Task<bool> sleeps = Sleep(&session, kSecondNs / 10);
  sleeps.Start();
  poll();
  until_ns = session.BeginWait();
  EXPECT_LE(until_ns, session.NowNs() + kSecondNs / 10);
  session.Close();
  EXPECT_TRUE(sleeps.done());
  EXPECT_EQ(session.BeginWait(), INT64_MAX);
  EXPECT_EQ(session.WaitFd(), -1);
}

TEST_F(SessionTest, PollReturnsAtTheTimeThatItWasGiven) {
  const std::unique_ptr<Session> session = NewSession({});
  const int64_t until_ns = session->NowNs() + 5'000;
  session->Poll(until_ns);
  EXPECT_EQ(session->NowNs(), until_ns);
}

}  // namespace
}  // namespace cell

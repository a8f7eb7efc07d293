// Checks that endpoints behave as their machine's model says, and tests faults between hosts.
#include "cell/io/sim/sim_network.h"

#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/sim/sim_fabric.h"

namespace cell {
namespace {

class Echo final : public Service {
 public:
  explicit Echo(Fabric* fabric) : fabric_(fabric) {}
  void Serve(absl::Span<const IncomingCall> calls) override {
    for (const IncomingCall& call : calls) {
      std::copy(call.request.begin(), call.request.end(), fabric_->BeginReply(call).begin());
      times = fabric_->TimesOf(call, 1024);
      fabric_->EndReply(call, call.request.size());
      last = call;
      served.push_back(std::string(AsText(call.request)));
    }
  }
  void Disconnected(ConnectionId) override { ++disconnected; }
  std::vector<std::string> served;
  IncomingCall last;
  ServiceTimes times;  // Times of the last call.
  int disconnected = 0;

 private:
  Fabric* const fabric_;
};

// Makes a new request whenever it is answered.
class Loop final : public Completion {
 public:
  Loop(SimFabric* client, ConnectionId connection, bool reads)
      : client_(client), connection_(connection), reads_(reads) {}
  void Ask() {
    asked_ns_ = client_->NowNs();
    if (reads_) {
      const ReadPart part{Pointer(1, 0), bytes_.data(), static_cast<uint32_t>(bytes_.size())};
      client_->Read(connection_, {&part, 1}, INT64_MAX, this);
    } else {
      client_->Call(connection_, AsBytes(std::string_view("12345678")), {}, kReplyBytesMin, INT64_MAX, this);
    }
  }
  void Done(const absl::Status& status, ConstBytes) override {
    if (!status.ok()) return;
    ++done;
    last_ns = client_->NowNs() - asked_ns_;
    Ask();
  }
  int64_t done = 0, last_ns = 0;

 private:
  SimFabric* const client_;
  const ConnectionId connection_;
  const bool reads_;
  int64_t asked_ns_ = 0;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1024);
};

class SimNetworkTest : public ::testing::Test {
 protected:
  static MachineModel Model() {
    MachineModel model;
    model.read_ns = 1'000;
    model.call_ns = 2'000;
    model.operation_ns = 800;
    model.read_latency_ns = 10'000;
    model.call_latency_ns = 20'000;
    model.connections_free = 20;
    model.connection_loss = 0.1;
    return model;
  }
  void Open(const MachineModel& model) {
    host_ = network_.NewHost(model);
    server_ = network_.NewEndpoint(host_);
    CELL_CHECK(server_->CreateRegion(1, 4096).ok());
    CELL_CHECK(server_->Listen("a", &service_.emplace(server_.get())).ok());
    server_->set_call_cost([](ConstBytes) { return 500; });
  }
  // Runs this many reading and calling loops for ten milliseconds, each over a connection of its own. Returns the
  // numbers of all their operations.
  std::pair<int64_t, int64_t> Run(int reading, int calling) {
    loops_.clear();
    for (int i = 0; i < reading + calling; ++i) {
      clients_.push_back(network_.NewEndpoint(network_.NewHost(MachineModel())));
      SimFabric* const client = clients_.back().get();
      Waiter connected;
      const ConnectionId connection = client->Connect("a", INT64_MAX, &connected);
      client->Poll();
      CELL_CHECK(connected.done());
      loops_.push_back(std::make_unique<Loop>(client, connection, i < reading));
      client->Drive([client] {
        if (client->Poll() == 0) client->Wait(INT64_MAX);
      });
    }
    for (const auto& loop : loops_) loop->Ask();
    const int64_t until = network_.now_ns() + 10'000'000;
    while (network_.now_ns() < until) network_.Step();
    std::pair<int64_t, int64_t> done;
    for (int i = 0; i < reading + calling; ++i) (i < reading ? done.first : done.second) += loops_[i]->done;
    return done;
  }

  SimNetwork network_{SimOptions{.line_ns = 0}};
  SimHost* host_ = nullptr;
  std::unique_ptr<SimFabric> server_;
  std::optional<Echo> service_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::vector<std::unique_ptr<SimFabric>> clients_;
};

TEST_F(SimNetworkTest, OneAtATimeTakesItsLatency) {
  Open(Model());
  Run(1, 0);
  EXPECT_EQ(loops_[0]->last_ns, 10'000);
  clients_.clear();
  Run(0, 1);
  EXPECT_EQ(loops_[0]->last_ns, 20'500);  // Includes the time on the core.
}

TEST_F(SimNetworkTest, AServerKnowsWhatIsBusyForHowLong) {
  MachineModel model = Model();
  Open(model);
  Run(0, 1);
  EXPECT_EQ(service_->times.call_ns, 500);
  EXPECT_EQ(service_->times.read_ns, 1'000);
  EXPECT_EQ(server_->TimesOf(service_->last, 1024).call_ns, 0) << "it is not being served any more";
  model.byte_ns = 2;
  EXPECT_EQ(model.ReadNs(1024), 2'048);
  model.byte_ns = 0;
  model.operation_ns = 3'000;
  EXPECT_EQ(model.ReadNs(1024), 3'000);
}

TEST_F(SimNetworkTest, ManyGoAtTheRatesOfTheNic) {
  Open(Model());
  EXPECT_NEAR(Run(10, 0).first, 10'000, 20);  // One per microsecond.
  clients_.clear();
  EXPECT_EQ(service_->disconnected, 10);
  EXPECT_NEAR(Run(0, 15).second, 5'000, 30);
}

TEST_F(SimNetworkTest, ReadsAndCallsShareAStage) {
  MachineModel model = Model();
  model.connections_free = 100;
  Open(model);
  const auto [reads, calls] = Run(20, 40);
  EXPECT_NEAR(reads + calls, 12'500, 50);  // Not 15,000, the sum of both rates.
  EXPECT_GT(calls, 3'000);
}

TEST_F(SimNetworkTest, ConnectionsBeyondTheFreeOnesCostSpeed) {
  Open(Model());
  EXPECT_NEAR(Run(30, 0).first, 5'000, 30);  // Ten more than are free, at a tenth each.
}

TEST_F(SimNetworkTest, ASlowHostsCallsTakeLonger) {
  Open(Model());
  host_->set_slowdown(100);
  EXPECT_NEAR(Run(0, 10).second, 10'000'000.0 / 50'000, 5);
}

TEST_F(SimNetworkTest, BytesTakeTheirTime) {
  MachineModel model = Model();
  model.byte_ns = 10;
  Open(model);
  EXPECT_NEAR(Run(10, 0).first, 10'000'000.0 / 10'240, 15);
}

// A client's next operation starts only after its core has processed the result of the last one.
TEST_F(SimNetworkTest, AClientsCoreIsBusyWithWhatEnded) {
  Open(Model());
  MachineModel model;
  model.call_completion_ns = 300;
  model.read_completion_ns = 1'000;
  model.read_part_ns = 400;
  const auto client = network_.NewEndpoint(network_.NewHost(model));
  Waiter connected;
  const ConnectionId connection = client->Connect("a", INT64_MAX, &connected);
  client->Poll();
  // Returns how long the operation that `begin` begins takes.
  const auto took_ns = [&](auto begin) {
    Waiter waiter;
    const int64_t since_ns = network_.now_ns();
    begin(&waiter);
    while (!waiter.done()) {
      client->Wait(INT64_MAX / 2);
      client->Poll();
    }
    return network_.now_ns() - since_ns;
  };
  std::byte to[16];
  const ReadPart parts[] = {{Pointer(1, 0), to, 8}, {Pointer(1, 8), to + 8, 8}};
  const auto read = [&](Waiter* waiter) { client->Read(connection, parts, INT64_MAX / 2, waiter); };
  const auto call = [&](Waiter* waiter) {
    client->Call(connection, AsBytes(std::string_view("x")), {}, kReplyBytesMin, INT64_MAX / 2, waiter);
  };
  took_ns(call);
  EXPECT_EQ(took_ns(call), 20'500 + 300);
  EXPECT_EQ(took_ns(read), 10'000 + 300);
  EXPECT_EQ(took_ns(read), 10'000 + 1'400);
  EXPECT_EQ(took_ns(call), 20'500 + 1'400);
  EXPECT_EQ(client->AheadNs(), 300);
  client->Wait(network_.now_ns() + 300);
  EXPECT_EQ(client->AheadNs(), 0);
}

TEST_F(SimNetworkTest, ACutHoldsWhatIsSentAndThenBreaks) {
  Open(Model());
  const auto client = network_.NewEndpoint();
  Waiter connected, held, lost;
  const ConnectionId connection = client->Connect("a", INT64_MAX, &connected);
  client->Poll();
  const auto call = [&](Waiter* waiter) {
    client->Call(connection, AsBytes(std::string_view("x")), {}, kReplyBytesMin, INT64_MAX / 2, waiter);
  };
  const auto run = [&](int64_t ns) {
    for (const int64_t until = network_.now_ns() + ns; network_.now_ns() < until;) {
      client->Wait(until);
      client->Poll();
    }
  };
  network_.SetCut(client->host(), host_, true);
  call(&held);
  run(50'000);
  EXPECT_TRUE(service_->served.empty());
  network_.SetCut(client->host(), host_, false);
  run(50'000);
  EXPECT_TRUE(held.done());
  EXPECT_TRUE(held.status().ok());
  // Cut the other direction: the call is served and not answered. Then both sides lose the connection.
  network_.SetCut(host_, client->host(), true);
  call(&lost);
  std::vector<std::byte> bytes(1024);
  const ReadPart part{Pointer(1, 0), bytes.data(), 1024};
  Waiter read, again;
  client->Read(connection, {&part, 1}, INT64_MAX, &read);
  run(90'000);
  EXPECT_FALSE(lost.done());
  EXPECT_EQ(service_->served.size(), 2u);
  run(30'000);
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(service_->disconnected, 1);
  EXPECT_EQ(server_->peers(), 0u);
  // No new connection can be made either, until the way is restored.
  client->Connect("a", client->NowNs() + 1'000, &again);
  run(5'000);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kUnavailable);
  network_.SetCut(host_, client->host(), false);
  Waiter back;
  client->Connect("a", INT64_MAX, &back);
  client->Poll();
  EXPECT_TRUE(back.status().ok());
  run(500'000);
  EXPECT_EQ(service_->served.size(), 2u);  // Lost messages stay lost.
}

TEST_F(SimNetworkTest, DelaysKeepTheOrderOfAConnection) {
  Open(Model());
  network_.SetDelays(0.5, 100'000);
  const auto client = network_.NewEndpoint();
  Waiter connected;
  const ConnectionId connection = client->Connect("a", INT64_MAX, &connected);
  client->Poll();
  std::vector<std::unique_ptr<Waiter>> waiters;
  std::vector<std::string> sent;
  const int64_t begun_ns = network_.now_ns();
  for (int i = 0; i < 50; ++i) {
    sent.push_back(std::to_string(i));
    client->Call(connection, AsBytes(sent.back()), {}, kReplyBytesMin, INT64_MAX / 2,
                 waiters.emplace_back(std::make_unique<Waiter>()).get());
  }
  while (!waiters.back()->done()) {
    client->Wait(INT64_MAX);
    client->Poll();
  }
  EXPECT_EQ(service_->served, sent);
  EXPECT_GT(network_.now_ns() - begun_ns, 60'000);
}

TEST_F(SimNetworkTest, AHostsClockIsItsOwn) {
  SimHost* const host = network_.NewHost();
  host->SetClock(1'000'000, 50'000);  // Ahead, and five percent too fast.
  const auto endpoint = network_.NewEndpoint(host);
  EXPECT_EQ(endpoint->NowNs(), 1'000'000);
  endpoint->Wait(3'100'000);
  EXPECT_NEAR(network_.now_ns(), 2'000'000, 100);
  EXPECT_GE(endpoint->NowNs(), 3'100'000);
  for (const int64_t local_ns : {1'000'000, 1'234'567, 999'999'999}) {
    EXPECT_GE(host->ToLocal(host->ToNetwork(local_ns)), local_ns);
    EXPECT_LT(host->ToLocal(host->ToNetwork(local_ns) - 1), local_ns);
  }
}

// Between the steps of one store a client reads repeatedly, and then disconnects.
TEST(SimClients, RunBetweenAWritersSteps) {
  for (const bool clients_run : {false, true}) {
    SimNetwork network({.latency_ns = 100, .line_ns = 5, .writer_step_ns = 1'000, .clients_run = clients_run});
    const auto server = network.NewEndpoint();
    RegionMemory* const memory = *server->CreateRegion(1, 4096);
    Echo echo(server.get());
    auto client = network.NewEndpoint();
    ASSERT_TRUE(server->Listen("a", &echo).ok());
    Waiter connected;
    const ConnectionId connection = client->Connect("a", INT64_MAX, &connected);
    client->Poll();
    ASSERT_TRUE(connected.done() && connected.status().ok());
    Loop loop(client.get(), connection, /*reads=*/true);
    loop.Ask();
    const int64_t gone_ns = network.now_ns() + 20'000;
    client->Drive([&] {
      client->Poll();
      if (client->NowNs() > gone_ns) client->Disconnect(connection);
      client->Wait(INT64_MAX);
    });
    const std::vector<std::byte> bytes(2048);
    memory->Store(0, bytes.data(), bytes.size());
    if (clients_run) {
      EXPECT_GT(loop.done, 20);
    } else {
      EXPECT_EQ(loop.done, 0);
    }
    EXPECT_EQ(echo.disconnected, 0);  // A server is not notified in the middle of its work.
    client->Drive(nullptr);
    for (int i = 0; i < 100; ++i) network.Step();
    EXPECT_EQ(echo.disconnected, clients_run);
    client.reset();  // Its destruction notifies `loop` and `echo`.
  }
}

}  // namespace
}  // namespace cell

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <tuple>
#include <utility>

#include "cell/control/control_client.h"
#include "cell/control/control_server.h"
#include "cell/control/controlled_worker.h"
#include "cell/io/net/fd.h"
#include "fmt/format.h"

namespace cell {
namespace {

// Returns options of a control plane at a Unix socket in a directory of its own.
ControlOptions AtSocket() {
  static const std::string directory = [] {
    std::string made = "/tmp/cell-control-XXXXXX";
    return std::string(::mkdtemp(made.data()));
  }();
  static int sockets = 0;
  ControlOptions options;
  options.socket = fmt::format("{}/{}", directory, sockets++);
  return options;
}

// Sends one message to a method by its name, and returns the answer, like a tool that was not built with our protocol.
std::string Ask(const std::string& socket, const std::string& method, const std::string& message) {
  grpc::GenericStub stub(grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  if (!wait()) return "no call";
  const grpc::Slice slice(message);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  if (!wait()) return "no write";
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  if (!wait()) return "no read";
  grpc::Slice whole;
  if (!reply.DumpToSingleSlice(&whole).ok()) return "no slice";
  context.TryCancel();
  return {reinterpret_cast<const char*>(whole.begin()), whole.size()};
}

TEST(ControlServer, TellsOfItsHealthAndItsServices) {
  const ControlOptions options = AtSocket();
  const auto server = ControlServer::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.status();
  // HealthCheckRequest{} and HealthCheckResponse{status: SERVING}.
  EXPECT_EQ(Ask(options.socket, "/grpc.health.v1.Health/Check", ""), std::string("\x08\x01"));
  // ServerReflectionRequest{list_services: ""}.
  const std::string services =
      Ask(options.socket, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", std::string("\x3a\x00", 2));
  EXPECT_NE(services.find("cell.control.Control"), std::string::npos);
  EXPECT_NE(services.find("grpc.health.v1.Health"), std::string::npos);
}

TEST(ControlServer, RefusesWhatItCannotDo) {
  ControlOptions options = AtSocket();
  const auto server = ControlServer::Start(options, {});
  ASSERT_TRUE(server.ok());
  const auto client = ControlClient::Open("server-0", (*server)->address(), {});
  ASSERT_TRUE(client.ok());
  EXPECT_EQ((*client)->Split(7).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*client)->SetLogLevel("loud").code(), absl::StatusCode::kInvalidArgument);
  const auto refused = [](const ControlOptions& of, const std::string& part) {
    const absl::Status status = ControlServer::Start(of, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  };
  options = {};
  options.address = "nowhere";
  options.insecure = true;
  refused(options, "nowhere");
  options.address = "127.0.0.1:0";
  options.insecure = false;
  refused(options, "everyone who can reach the control plane at 127.0.0.1:0 could drop tables");
  options.tls.certificate = options.tls.key = "/no/such/file";
  refused(options, "needs all three");
  options.tls.authority = "/no/such/file";
  refused(options, "/no/such/file");
  options.address.clear();
  refused(options, "give --control HOST:PORT, too");
  options = {};
  options.socket = "/tmp/" + std::string(110, 'x');
  refused(options, "use a directory with a shorter name");
  const auto nobody = ControlClient::Open("server-9", "127.0.0.1:1", {});
  ASSERT_TRUE(nobody.ok());
  const absl::Status status = (*nobody)->Split(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message().find("server-9 (control plane at 127.0.0.1:1) cannot be reached; is it running?: "), 0)
      << status;
}

// A worker whose answers the test chooses.
class FakeWorker : public ControlledWorker {
 public:
  void Status(Answer<std::string> answer) override { Give("status", std::move(answer), std::string("{}")); }
  void Regions(Answer<Holding> answer) override { Give("regions", std::move(answer), holding); }
  void Holds(uint32_t region, Answer<bool> answer) override {
    bool holds = false;
    for (const Region& held : holding.regions) holds |= held.region == region;
    Give("holds", std::move(answer), holds);
  }
  void RegionOwners(Answer<Owners> answer) override { Give("owners", std::move(answer), owners); }
  void DrainProgress(Answer<DrainState> answer) override { Give("drain progress", std::move(answer), drain); }
  void Allocate(uint32_t count, Answer<absl::StatusOr<size_t>> answer) override {
    GiveUnlessError<size_t>(fmt::format("allocate {}", count), std::move(answer), count);
  }
  void Split(uint32_t region, Answer<absl::Status> answer) override {
    Give(fmt::format("split {}", region), std::move(answer), error);
  }
  void Join(uint32_t region, Answer<absl::Status> answer) override {
    Give(fmt::format("join {}", region), std::move(answer), error);
  }
  void Move(uint32_t region, std::string server, uint32_t worker, Answer<absl::Status> answer) override {
    Give(fmt::format("move {} to {}.{}", region, server, worker), std::move(answer), error);
  }
  void SetDraining(bool draining, Answer<absl::Status> answer) override {
    Give(draining ? "drain" : "drain no more", std::move(answer), error);
  }
  void Rebalance(Answer<absl::StatusOr<uint64_t>> answer) override {
    GiveUnlessError<uint64_t>("rebalance", std::move(answer), 2);
  }
  void Checkpoint(Answer<absl::StatusOr<Checkpoints>> answer) override {
    GiveUnlessError<Checkpoints>("checkpoint", std::move(answer), Checkpoints{3, 1000});
  }
  void CreateTable(std::string table, uint32_t bucket_bytes, uint32_t parts, Answer<absl::Status> answer) override {
    Give(fmt::format("create {} {} {}", table, bucket_bytes, parts), std::move(answer), error);
  }
  void DropTable(std::string table, Answer<absl::Status> answer) override {
    Give("drop " + table, std::move(answer), error);
  }
  void SetEviction(std::string table, std::string prefix, std::string evict, Answer<absl::Status> answer) override {
    Give(fmt::format("evict {} of {}/{}", evict, table, prefix), std::move(answer), error);
  }

  void Administers(std::string client, Scope scope, Answer<bool> answer) override {
    Give("administers", std::move(answer), client == "shop" && scope.table == "its" && !scope.everything);
  }
  void ChangeGrant(GrantChange change, Answer<absl::Status> answer) override {
    const std::string of = change.scope.everything ? "everything" : change.scope.table + "/" + change.scope.prefix;
    Give(fmt::format("{} {} {} of {}", change.revoke ? "revoke" : "grant", change.user, change.rights, of),
         std::move(answer), error);
  }
  void EnforceGrants(bool enforce, Answer<absl::Status> answer) override {
    Give(enforce ? "enforce" : "enforce no more", std::move(answer), error);
  }

  // Makes it hold one more region, of which only the number matters.
  void Hold(uint32_t region) { holding.regions.emplace_back().region = region; }
  // Returns all orders so far, without the questions.
  std::vector<std::string> Orders() {
    const std::lock_guard lock(mutex_);
    return orders_;
  }
  // Waits until a request is not answered, because of `silent_on`.
  void AwaitUnanswered() {
    std::unique_lock lock(mutex_);
    waiting_.wait(lock, [this] { return !unanswered_.empty(); });
  }
  // Answers such requests.
  void AnswerLate() {
    const std::lock_guard lock(mutex_);
    for (const std::function<void()>& answer : std::exchange(unanswered_, {})) answer();
  }

  Holding holding;
  Owners owners;
  DrainState drain;
  absl::Status error;     // The result of orders.
  std::string silent_on;  // Requests that begin with this are not answered; "": all are.

 private:
  template <typename T>
  void GiveUnlessError(const std::string& request, Answer<absl::StatusOr<T>> answer, T result) {
    if (error.ok()) return Give(request, std::move(answer), absl::StatusOr<T>(std::move(result)));
    Give(request, std::move(answer), absl::StatusOr<T>(error));
  }
  template <typename T>
  void Give(const std::string& request, Answer<T> answer, T result) {
    {
      const std::lock_guard lock(mutex_);
      constexpr std::array kQuestions = {"status", "regions", "holds", "owners", "drain progress"};
      if (std::find(kQuestions.begin(), kQuestions.end(), request) == kQuestions.end()) orders_.push_back(request);
      if (!silent_on.empty() && request.rfind(silent_on, 0) == 0) {
        unanswered_.emplace_back([answer = std::move(answer), result = std::move(result)] { answer(result); });
        waiting_.notify_all();
        return;
      }
    }
    answer(std::move(result));
  }

  std::mutex mutex_;
  std::condition_variable waiting_;
  std::vector<std::string> orders_;                // Guarded by mutex_.
  std::vector<std::function<void()>> unanswered_;  // Guarded by mutex_.
};

// A control plane over two workers, and its client.
class ControlOverWorkers : public testing::Test {
 protected:
  void Start(const ControlOptions& options = AtSocket()) {
    socket_ = options.socket;
    auto server = ControlServer::Start(options, {&workers_[0], &workers_[1]});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = NewClient();
  }
  std::unique_ptr<ControlClient> NewClient(std::optional<std::chrono::nanoseconds> timeout = std::nullopt) {
    return *ControlClient::Open("server-0", server_->address(), {}, timeout);
  }
  // A control plane that waits for no worker long.
  void StartImpatient() {
    ControlOptions options = AtSocket();
    options.answer_timeout = std::chrono::milliseconds(50);
    Start(options);
  }

  std::array<FakeWorker, 2> workers_;  // Outlive the server.
  std::string socket_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<ControlClient> client_;
};

using Orders = std::vector<std::string>;

TEST_F(ControlOverWorkers, ListsTheRegionsOfAllWorkers) {
  workers_[0].holding = {{{7, 3, 1, 10, 0.5, true, "", "being filled", 9}}, 4};
  workers_[1].holding = {{{8, 1, 0, 20, 0.25, false, "table", "", 0}}, 2};
  workers_[1].Hold(9);
  workers_[0].owners = {{{7, "server-0", 0, 3, false, true}, {8, "server-1", 5, 2, true, false}}, 11};
  Start();
  const auto listed = client_->ListRegions();
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->free, 6u);
  ASSERT_EQ(listed->regions.size(), 3u);
  const ControlClient::Region& first = listed->regions[0];
  EXPECT_EQ(std::tie(first.region, first.worker, first.tier, first.epoch, first.keys),
            std::make_tuple(7u, 0u, 1u, 3u, 10u));
  EXPECT_EQ(std::tie(first.fill, first.busy, first.table, first.state), std::make_tuple(0.5, true, "", "being filled"));
  EXPECT_EQ(first.right, 9u);
  EXPECT_EQ(listed->regions[1].worker, 1u);
  EXPECT_EQ(listed->regions[1].table, "table");
  EXPECT_EQ(listed->regions[2].region, 9u);
  EXPECT_EQ(listed->table_version, 11u);
  ASSERT_EQ(listed->owners.size(), 2u);
  const ControlClient::Owner& owner = listed->owners[1];
  EXPECT_EQ(std::tie(owner.region, owner.server, owner.worker, owner.epoch), std::make_tuple(8u, "server-1", 5u, 2u));
  EXPECT_TRUE(owner.recovering);
  EXPECT_FALSE(owner.in_making);
  EXPECT_TRUE(listed->owners[0].in_making);
}

TEST_F(ControlOverWorkers, AsksEachWorkerForItsStatus) {
  Start();
  const auto status = client_->Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, (std::vector<std::string>{"{}", "{}"}));
}

TEST_F(ControlOverWorkers, OrdersTheWorkerThatHoldsTheRegion) {
  workers_[1].Hold(8);
  Start();
  EXPECT_TRUE(client_->Split(8).ok());
  EXPECT_TRUE(client_->Join(8).ok());
  EXPECT_TRUE(client_->Move(8, "server-2", 3).ok());
  EXPECT_EQ(client_->Split(9).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(workers_[0].Orders(), Orders());
  EXPECT_EQ(workers_[1].Orders(), (Orders{"split 8", "join 8", "move 8 to server-2.3"}));
}

TEST_F(ControlOverWorkers, DividesWhatIsPrepared) {
  Start();
  const auto ready = client_->Allocate(5);
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_EQ(*ready, 5u);
  EXPECT_EQ(workers_[0].Orders(), Orders{"allocate 3"});
  EXPECT_EQ(workers_[1].Orders(), Orders{"allocate 2"});
}

TEST_F(ControlOverWorkers, AddsUpWhatTheWorkersDid) {
  Start();
  const auto moved = client_->Rebalance();
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(*moved, 4u);
  const auto made = client_->Checkpoint();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->regions, 6u);
  EXPECT_EQ(made->bytes, 2000u);
}

TEST_F(ControlOverWorkers, CreatesATableWhereThereIsMostRoom) {
  workers_[0].holding.room = 1;
  workers_[1].holding.room = 2;
  Start();
  EXPECT_TRUE(client_->CreateTable("t", 64, 3).ok());
  EXPECT_EQ(workers_[1].Orders(), Orders{"create t 64 3"});
  EXPECT_TRUE(client_->DropTable("t").ok());
  EXPECT_EQ(workers_[0].Orders(), Orders{"drop t"});
}

TEST_F(ControlOverWorkers, SetsWhatIsEvicted) {
  Start();
  const std::string prefix("\0\xff", 2);
  EXPECT_TRUE(client_->SetEviction("", prefix, "ttl").ok());
  EXPECT_EQ(workers_[0].Orders(), Orders{"evict ttl of /" + prefix});
  EXPECT_TRUE(client_->SetEviction("t", "", "ttl").ok());
  EXPECT_EQ(workers_[0].Orders(), (Orders{"evict ttl of /" + prefix, "evict ttl of t/"}));
}

TEST_F(ControlOverWorkers, ChangesGrants) {
  Start();
  EXPECT_TRUE(client_->ChangeGrant({.user = "a", .rights = "read", .everything = true}).ok());
  EXPECT_TRUE(client_->ChangeGrant({.user = "a", .rights = "scan", .table = "t", .revoke = true}).ok());
  EXPECT_TRUE(client_->ChangeGrant({.user = "*", .rights = "write,read", .prefix = "p"}).ok());
  EXPECT_TRUE(client_->EnforceGrants(true).ok());
  EXPECT_TRUE(client_->EnforceGrants(false).ok());
  EXPECT_EQ(workers_[0].Orders(), (Orders{"grant a read of everything", "revoke a scan of t/",
                                          "grant * write,read of /p", "enforce", "enforce no more"}));
}

TEST_F(ControlOverWorkers, TellsWhyAWorkerFailed) {
  for (FakeWorker& worker : workers_) {
    worker.Hold(7);
    worker.error = absl::ResourceExhaustedError("no room for region 7");
  }
  Start();
  for (const absl::Status& status :
       {client_->Split(7), client_->Join(7), client_->Move(7, "server-1", 0), client_->Drain(false),
        client_->Drain(true), client_->Allocate(1).status(), client_->Rebalance().status(),
        client_->Checkpoint().status(), client_->CreateTable("t", 0, 0), client_->DropTable("t"),
        client_->SetEviction("", "", "ttl"), client_->ChangeGrant({.user = "a", .rights = "read"}),
        client_->EnforceGrants(true)}) {
    EXPECT_EQ(status, absl::ResourceExhaustedError("no room for region 7"));
  }
}

TEST_F(ControlOverWorkers, DrainEndsWhenNoRegionIsLeft) {
  workers_[0].drain = workers_[1].drain = {0, true, absl::OkStatus()};
  Start();
  EXPECT_TRUE(client_->Drain(false).ok());
  EXPECT_EQ(workers_[0].Orders(), Orders{"drain"});
  EXPECT_TRUE(client_->Drain(true).ok());
  EXPECT_EQ(workers_[0].Orders(), (Orders{"drain", "drain no more"}));
}

TEST_F(ControlOverWorkers, DrainTellsWhyItDoesNotEnd) {
  workers_[0].drain = {1, true, absl::OkStatus()};
  workers_[1].drain = {2, true, absl::ResourceExhaustedError("server-1 has no room")};
  Start();
  const absl::Status stuck = client_->Drain(false);
  EXPECT_EQ(stuck.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(stuck.message().find("3 regions are left, and none can be migrated away: server-1 has no room"),
            std::string::npos)
      << stuck;
}

TEST_F(ControlOverWorkers, DrainTellsThatAnotherCommandCancelledIt) {
  workers_[0].drain = {1, false, absl::OkStatus()};
  workers_[1].drain = {2, true, absl::OkStatus()};
  Start();
  EXPECT_EQ(client_->Drain(false),
            absl::AbortedError("the drain was cancelled by another command; 3 regions are left"));
}

TEST_F(ControlOverWorkers, ReportsAWorkerThatDoesNotAnswer) {
  workers_[0].Hold(7);
  workers_[0].silent_on = "holds";
  StartImpatient();
  const absl::Status silent = client_->Split(7);
  EXPECT_EQ(silent.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(silent.message(), fmt::format("server-0 (control plane at {}): the worker does not answer", socket_));
  EXPECT_EQ(workers_[0].Orders(), Orders());
}

TEST_F(ControlOverWorkers, ReportsAnOrderThatTakesTooLong) {
  workers_[0].Hold(7);
  workers_[0].silent_on = "split";
  StartImpatient();
  const absl::Status slow = client_->Split(7);
  EXPECT_EQ(slow.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(slow.message().find("it continues"), std::string::npos) << slow;
}

// It may be stopped, or work on an order for long.
TEST_F(ControlOverWorkers, AServerThatDoesNotAnswerInTheCallersTimeIsNamed) {
  workers_[0].silent_on = "status";
  workers_[1].silent_on = "split";
  workers_[1].Hold(7);
  Start();
  const auto hurried = NewClient(std::chrono::milliseconds(50));
  const std::string who = fmt::format("server-0 (control plane at {})", socket_);
  EXPECT_EQ(hurried->Status().status(),
            absl::DeadlineExceededError(who + " did not answer within 0.05 s; is it stopped or overloaded?"));
  EXPECT_EQ(hurried->Split(7),
            absl::DeadlineExceededError(who + " did not finish within 0.05 s; is it stopped or overloaded? If not, the "
                                              "operation continues there"));
}

TEST_F(ControlOverWorkers, WaitsForARebalanceAsLongAsNecessary) {
  workers_[0].silent_on = "rebalance";
  StartImpatient();
  auto moved = std::async(std::launch::async, [this] { return client_->Rebalance(); });
  workers_[0].AwaitUnanswered();
  EXPECT_EQ(moved.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  workers_[0].AnswerLate();
  const auto result = moved.get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*result, 4u);
}

TEST_F(ControlOverWorkers, ACallerThatStopsWaitingIsFree) {
  workers_[0].silent_on = "checkpoint";
  Start();
  auto made = std::async(std::launch::async, [this] { return client_->Checkpoint(); });
  workers_[0].AwaitUnanswered();
  client_->Cancel();
  EXPECT_EQ(made.get().status().code(), absl::StatusCode::kCancelled);
}

// Connects and says nothing. Returns whether the server has closed the connection within ten seconds.
bool IsEnded(const sockaddr* address, socklen_t bytes) {
  const Fd fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), address, bytes) != 0) return false;
  const timeval patience{10, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char buffer[4096];
  for (;;) {  // gRPC says that it will end.
    const ssize_t got = ::recv(fd.get(), buffer, sizeof(buffer), 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    if (got < 0) return false;
  }
}

TEST_F(ControlOverWorkers, AnIdleConnectionEnds) {
  ControlOptions options = AtSocket();
  options.address = "127.0.0.1:0";
  options.insecure = true;
  options.idle = std::chrono::milliseconds(50);
  Start(options);
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  std::memcpy(local.sun_path, options.socket.data(), options.socket.size());
  EXPECT_TRUE(IsEnded(reinterpret_cast<const sockaddr*>(&local), sizeof(local)));
  const std::string address = server_->address().substr(0, server_->address().find(','));
  sockaddr_in remote{};
  remote.sin_family = AF_INET;
  remote.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  remote.sin_port = ::htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  EXPECT_TRUE(IsEnded(reinterpret_cast<const sockaddr*>(&remote), sizeof(remote)));
  EXPECT_TRUE(client_->Status().ok());  // It connects again.
}

TEST_F(ControlOverWorkers, ALargeRequestIsRefused) {
  Start();
  EXPECT_EQ(client_->DropTable(std::string(100'000, 'x')).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(workers_[0].Orders(), Orders());
}

TEST_F(ControlOverWorkers, AsManyRequestsAreServedAtOnceAsThereAreThreads) {
  constexpr int kRequests = 48, kServedMax = 32;
  workers_[0].silent_on = "status";
  ControlOptions options = AtSocket();
  options.answer_timeout = std::chrono::seconds(3);
  Start(options);
  grpc::CompletionQueue queue;
  struct Request {
    std::unique_ptr<grpc::GenericStub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> call;
    grpc::ByteBuffer reply;
    grpc::Status status;
  };
  std::vector<std::unique_ptr<Request>> requests;
  const grpc::Slice nothing("");
  for (int i = 0; i < kRequests; ++i) {
    Request& request = *requests.emplace_back(std::make_unique<Request>());
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // A connection of its own.
    request.stub = std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel("unix:" + socket_, grpc::InsecureChannelCredentials(), own));
    request.call = request.stub->PrepareUnaryCall(&request.context, "/cell.control.Control/Status",
                                                  grpc::ByteBuffer(&nothing, 1), &queue);
    request.call->StartCall();
    request.call->Finish(&request.reply, &request.status, nullptr);
  }
  int served = 0, refused = 0;
  for (int i = 0; i < kRequests; ++i) {
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
  }
  for (const auto& request : requests) {
    served += request->status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    refused += request->status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
  }
  EXPECT_LE(served, kServedMax);
  EXPECT_GT(served, 0);
  EXPECT_EQ(served + refused, kRequests);
}

// A worker that has ended, and does not run any more, does not answer.
TEST_F(ControlOverWorkers, EndsWhatWaitsForAWorkerThatHasEnded) {
  for (FakeWorker& worker : workers_) {
    worker.Hold(7);
    worker.drain = {1, true, absl::OkStatus()};
  }
  const std::vector<std::pair<std::string, std::function<absl::Status()>>> waiting = {
      {"holds", [this] { return client_->Split(7); }},
      {"split", [this] { return client_->Split(7); }},
      {"drain progress", [this] { return client_->Drain(false); }},
      {"checkpoint", [this] { return client_->Checkpoint().status(); }},
  };
  for (const auto& [silent_on, call] : waiting) {
    workers_[0].silent_on = silent_on;
    Start();
    auto status = std::async(std::launch::async, call);
    workers_[0].AwaitUnanswered();
    server_.reset();
    const absl::Status ended = status.get();
    EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << silent_on;
    EXPECT_NE(ended.message().find("this server is shutting down"), std::string::npos) << silent_on << ": " << ended;
    workers_[0].AnswerLate();  // Nobody waits for it any more.
  }
}

}  // namespace
}  // namespace cell

// Which role may send which message (cell/layout/roles.h), on every fabric: every kind of message, known or not, from a
// peer of every role. A peer is told PermissionDenied exactly if the table says so, and the worker counts it.
//
// Verbs need a device with the address in CELL_TEST_RDMA_HOST, which //tests:verbs_vm_test has.
#include "cell/layout/roles.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "cell/base/bytes.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/io/fabric/tcp/tcp_fabric.h"
#include "cell/io/fabric/verbs/verbs_fabric.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/net/test_credentials.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/server/worker.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr uint16_t kKindsMax = 80;  // More than there are, so that unknown ones are tried, too.
constexpr Role kRoles[] = {Role::kClient, Role::kOperator, Role::kServer};

struct Fabrics {
  std::string name, address;
  std::function<std::unique_ptr<Fabric>()> make;
};

class RolesTest : public ::testing::TestWithParam<std::function<Fabrics()>> {
 protected:
  void SetUp() override {
    fabrics_ = GetParam()();
    if (fabrics_.make == nullptr) GTEST_SKIP() << "no RDMA device; //tests:verbs_vm_test has one";
    ClusterState state;
    state.shape = {512, 32 << 10, 64 << 10};
    Worker::Options options;
    options.self = {"server-0", 0};
    worker_ = std::make_unique<Worker>(
        fabrics_.make(), std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(state)), options);
  }
  void TearDown() override {
    if (worker_ != nullptr) (void)worker_->Stop();
  }

  void RunUntilDone(Fabric* client, const Waiter& waiter) {
    for (int i = 0; i < 10'000'000 && !waiter.done(); ++i) {
      const size_t did = worker_->Poll() + client->Poll();
      if (did == 0) client->Wait(client->NowNs() + 100'000);
    }
    ASSERT_TRUE(waiter.done());
  }
  // Sends a request that is only a header, and returns the code of the answer.
  absl::StatusCode Ask(Fabric* client, ConnectionId connection, uint16_t kind) {
    const MessageHeader header{static_cast<MessageKind>(kind), kWireVersion, sizeof(MessageHeader)};
    Waiter answer;
    client->Call(connection, {reinterpret_cast<const std::byte*>(&header), sizeof(header)}, {}, kMessageBytesMax,
                 INT64_MAX, &answer);
    RunUntilDone(client, answer);
    EXPECT_TRUE(answer.status().ok()) << answer.status();
    if (answer.reply().size() < sizeof(ReplyHeader)) return absl::StatusCode::kDataLoss;
    return static_cast<absl::StatusCode>(Load<ReplyHeader>(AsBytes(answer.reply()).data()).code);
  }

  Fabrics fabrics_;
  std::unique_ptr<Worker> worker_;
};

TEST_P(RolesTest, EachMessageNeedsItsRole) {
  ASSERT_TRUE(worker_->Start(fabrics_.address).ok());
  uint64_t refused = 0;
  for (const Role role : kRoles) {
    const auto client = fabrics_.make();
    client->SetSelf({role, "peer"});
    Waiter connected;
    const ConnectionId connection = client->Connect(fabrics_.address, INT64_MAX, &connected);
    RunUntilDone(client.get(), connected);
    ASSERT_TRUE(connected.status().ok()) << connected.status();
    for (uint16_t kind = 0; kind < kKindsMax; ++kind) {
      const bool may = MayRequest(role, static_cast<MessageKind>(kind));
      refused += may ? 0 : 1;
      EXPECT_EQ(Ask(client.get(), connection, kind) == absl::StatusCode::kPermissionDenied, !may)
          << fabrics_.name << ": " << ToString(role) << " sends kind " << kind;
    }
    client->Disconnect(connection);
  }
  EXPECT_EQ(refused, 9u);  // Clients: check and four of servers. Operators: those four.
  const auto status = nlohmann::json::parse(worker_->service()->reports().StatusJson(0, SIZE_MAX));
  EXPECT_EQ(status["not_allowed"], refused);
}

int NextNumber() {
  static int number = 0;
  return ::getpid() % 20'000 * 2 + number++;
}

Fabrics OverSim() {
  const auto network = std::make_shared<SimNetwork>(SimOptions());
  return {"sim", "server", [network]() -> std::unique_ptr<Fabric> { return network->NewEndpoint(); }};
}
Fabrics OverShm() {
  return {"shm", fmt::format("/tmp/cell-roles-{}", NextNumber()), []() -> std::unique_ptr<Fabric> {
            return std::make_unique<ShmFabric>(ShmFabricOptions{.huge_pages = false});
          }};
}
Fabrics OverTcp() {
  return {
      "tcp", fmt::format("127.77.{}.{}:7300", NextNumber() / 200 % 200, 1 + NextNumber() % 200),
      []() -> std::unique_ptr<Fabric> { return std::make_unique<TcpFabric>(TcpFabricOptions{.huge_pages = false}); }};
}
Fabrics OverTcpWithASecret() {
  Fabrics fabrics = OverTcp();
  fabrics.name = "tcp with a secret";
  fabrics.make = []() -> std::unique_ptr<Fabric> {
    return std::make_unique<TcpFabric>(TcpFabricOptions{.huge_pages = false, .credentials = CredentialsOf("secret")});
  };
  return fabrics;
}

Fabrics OverVerbs() {
  const char* const host = std::getenv("CELL_TEST_RDMA_HOST");
  if (host == nullptr) return {"verbs", "", nullptr};
  return {"verbs", fmt::format("{}:7300", host),
          []() -> std::unique_ptr<Fabric> { return std::make_unique<VerbsFabric>(); }};
}

INSTANTIATE_TEST_SUITE_P(Fabrics, RolesTest, ::testing::Values(OverSim, OverShm, OverTcp, OverTcpWithASecret));
INSTANTIATE_TEST_SUITE_P(Verbs, RolesTest, ::testing::Values(OverVerbs));

}  // namespace
}  // namespace cell

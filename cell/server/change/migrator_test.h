// Provides a worker whose migrations a test drives as the other side of them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "cell/base/check.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/io/sim/sim_files.h"
#include "cell/io/sim/sim_thread_pool.h"
#include "cell/log/directory_log_store.h"
#include "cell/server/worker.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {

inline constexpr RegionShape kShape{512, 64 << 10, 176 << 10};
inline constexpr uint32_t kRegion = 7;
inline constexpr uint32_t kPages = kShape.region_bytes() / WrittenPages::kPageBytes;

// Answers each step with the runs that the test wants.
class Source : public Service {
 public:
  explicit Source(Fabric* fabric) : fabric_(fabric) {}
  void Serve(absl::Span<const IncomingCall> calls) override {
    for (const IncomingCall& call : calls) {
      const auto request = ParseMigrationRequest(call.request);
      const MigrationStep step = request->fixed.step;
      steps.push_back(step);
      if (step == MigrationStep::kCancel) why = std::string(request->key);
      if (!answers) continue;
      const bool tells =
          step == MigrationStep::kBegin || step == MigrationStep::kWritten || step == MigrationStep::kFreeze;
      const MutableBytes to = fabric_->BeginReply(call);
      auto reply = ReplyOf<MigrationReply>(MessageKind::kMigration);
      for (const PageRun& run : tells ? runs : std::vector<PageRun>()) {
        Store(to.data() + reply.header.bytes, run);
        reply.header.bytes += sizeof(PageRun);
        ++reply.runs;
      }
      Store(to.data(), reply);
      fabric_->EndReply(call, reply.header.bytes);
      if (tells && shrinks && runs[0].pages > 1) --runs[0].pages;
    }
  }
  void Disconnected(ConnectionId) override {}
  bool Saw(MigrationStep step) const { return std::find(steps.begin(), steps.end(), step) != steps.end(); }

  bool answers = true;
  bool shrinks = false;  // Each step names one page less than the step before.
  std::vector<PageRun> runs;
  std::vector<MigrationStep> steps;
  std::string why;  // The target's reason when it cancelled.

 private:
  Fabric* fabric_;
};

class MigratorTest : public ::testing::Test {
 protected:
  explicit MigratorTest(Durability durability = Durability::kNone) {
    ClusterState state;
    state.shape = kShape;
    state.durability = durability;
    state.servers = {{"target", {{"target", 8}}, ""}, {"source", {{"source", 8}}, ""}};
    state.table.ids.next = kRegion + 1;
    state.table.root = 1;
    state.table.regions = {{1, {{"source", 0}, 1}}, {kRegion, {{"source", 0}, 1}}};
    cluster_ = std::make_shared<MemoryCluster>(state);
    Worker::Options options;
    options.self = {"target", 0};
    options.balance.enabled = false;
    options.logs.durability = durability;
    auto membership = std::make_unique<MemoryMembership>(cluster_);
    membership_ = membership.get();
    auto disk_pool = std::make_unique<SimThreadPool>(&network_, 1, 1'000);
    disk_pool_ = disk_pool.get();
    Worker::Logs logs{std::make_shared<DirectoryLogStore>(files_.get(), "log"), std::move(disk_pool),
                      std::make_unique<SimThreadPool>(&network_, 2, 1'000)};
    worker_ = std::make_unique<Worker>(network_.NewEndpoint(), std::move(membership), std::move(logs), options);
    CELL_CHECK(worker_->Start("target").ok());
    memory_ = *source_fabric_->CreateRegion(kRegion, kShape.region_bytes());
    CELL_CHECK(source_fabric_->Listen("source", &source_).ok());
    client_->SetSelf({Role::kServer, "source"});
  }
  ~MigratorTest() override { EXPECT_TRUE(worker_->Stop().ok()); }

  // Offers the region, and waits until nothing is in progress.
  void Offer() {
    std::string offer = MakeMigrationRequest(MigrationStep::kOffer, kRegion, 1, 0, "source");
    Waiter connected, answered;
    const ConnectionId connection = client_->Connect("target", INT64_MAX, &connected);
    ASSERT_TRUE(connected.Await(client_.get()).ok());
    client_->Call(connection, AsBytes(offer), {}, kReplyBytesMin, INT64_MAX, &answered);
    for (int i = 0; i < 100'000 && (!answered.done() || !worker_->scheduler()->idle()); ++i) {
      client_->Poll();
      source_fabric_->Poll();
      if (worker_->Poll() == 0) network_.Step();
    }
    ASSERT_TRUE(answered.done() && worker_->scheduler()->idle());
  }
  // Runs the target and its source.
  void RunUntil(const std::function<bool()>& ended) {
    for (int i = 0; i < 100'000 && !ended(); ++i) {
      source_fabric_->Poll();
      if (worker_->Poll() == 0) network_.Step();
    }
    ASSERT_TRUE(ended());
  }
  // Returns the answer to an offer that `client_` sends as `from`, or else as the server that the offer names.
  absl::Status AnswerTo(const std::string& offer, std::optional<Identity> from = std::nullopt) {
    const auto request = ParseMigrationRequest(AsBytes(offer));
    if (!from.has_value() && request.ok()) from = IdentityOf(Role::kServer, request->key);
    if (from.has_value()) client_->SetSelf(*from);
    Waiter connected, answered;
    const ConnectionId connection = client_->Connect("target", INT64_MAX, &connected);
    CELL_CHECK(connected.Await(client_.get()).ok());
    client_->Call(connection, AsBytes(offer), {}, kReplyBytesMin, INT64_MAX, &answered);
    while (!answered.done()) {
      client_->Poll();
      worker_->fabric()->Poll();
      network_.Step();
    }
    std::vector<PageRun> none;
    return ParseMigrationReply(AsBytes(answered.reply()), &none).status();
  }
  bool Migrated() {
    const bool held = worker_->regions()->Find(kRegion) != nullptr;
    EXPECT_EQ(held, cluster_->state.table.Find(kRegion)->owner.server == "target");
    EXPECT_EQ(held, source_.Saw(MigrationStep::kSeal));
    return held;
  }
  size_t ConnectionsToServers() {
    return nlohmann::json::parse(worker_->service()->reports().StatusJson(0, 1))["connections_to_servers"]
        .get<size_t>();
  }
  void SetDraining(bool draining) {
    const auto set = [](Worker* worker, bool draining) -> Task<bool> {
      co_return (co_await worker->rebalancer()->SetDraining(draining)).ok();
    };
    worker_->scheduler()->Spawn(set(worker_.get(), draining));
    for (int i = 0; i < 100'000 && worker_->rebalancer()->draining() != draining; ++i) {
      if (worker_->Poll() == 0) network_.Step();
    }
  }

  SimNetwork network_{{}};
  SimDisk disk_{1};
  const std::unique_ptr<SimFiles> files_ = disk_.NewHost();
  SimThreadPool* disk_pool_;  // The worker's.
  std::shared_ptr<MemoryCluster> cluster_;
  std::unique_ptr<Worker> worker_;
  MemoryMembership* membership_;  // The worker's.
  std::unique_ptr<SimFabric> source_fabric_ = network_.NewEndpoint();
  Source source_{source_fabric_.get()};
  std::unique_ptr<SimFabric> client_ = network_.NewEndpoint();
  RegionMemory* memory_;
};

}  // namespace cell

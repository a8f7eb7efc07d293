#include "cell/cmd/worker_control.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "cell/base/check.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/server/worker.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

// One worker of a cluster of two servers. The other server does not run.
class WorkerControlTest : public testing::Test {
 protected:
  WorkerControlTest() : worker_(network_.NewEndpoint(), std::move(made_), Options()) {
    EXPECT_TRUE(worker_.Start("server-0").ok());
  }
  ~WorkerControlTest() override { EXPECT_TRUE(worker_.Stop().ok()); }

  static std::shared_ptr<MemoryCluster> TwoServers() {
    ClusterState state;
    state.shape = {512, 32 << 10, 64 << 10};
    state.servers = {{"server-0", {{"server-0", 8}}, ""}, {"server-1", {{"server-1", 8}}, ""}};
    return std::make_shared<MemoryCluster>(state);
  }
  static Worker::Options Options() {
    Worker::Options options;
    options.self = {"server-0", 0};
    options.balance.enabled = false;
    return options;
  }

  // Lets the worker run until it has answered a request that `begin` makes.
  template <typename T, typename Begin>
  T Answered(Begin begin) {
    std::optional<T> answered;
    begin([&answered](T answer) { answered = std::move(answer); });
    EXPECT_FALSE(answered.has_value()) << "it was answered on a thread that is not the worker's";
    for (int i = 0; i < 100'000 && !answered; ++i) {
      if (worker_.Poll() == 0) worker_.Wait(worker_.fabric()->NowNs() + 1'000'000);
    }
    CELL_CHECK(answered.has_value());
    return *std::move(answered);
  }
  absl::Status Split(uint32_t region) {
    return Answered<absl::Status>([&](auto answer) { control_.Split(region, std::move(answer)); });
  }
  ControlledWorker::Holding Holding() {
    return Answered<ControlledWorker::Holding>([&](auto answer) { control_.Regions(std::move(answer)); });
  }
  ControlledWorker::DrainState DrainProgress() {
    return Answered<ControlledWorker::DrainState>([&](auto answer) { control_.DrainProgress(std::move(answer)); });
  }

  std::shared_ptr<MemoryCluster> cluster_ = TwoServers();
  std::unique_ptr<MemoryMembership> made_ = std::make_unique<MemoryMembership>(cluster_);
  MemoryMembership* const membership_ = made_.get();
  SimNetwork network_{{}};
  Worker worker_;
  WorkerControl control_{&worker_};
};

TEST_F(WorkerControlTest, DescribesTheRegionsOfItsWorker) {
  const uint32_t root = cluster_->state.table.root;
  const auto status = Answered<std::string>([&](auto answer) { control_.Status(std::move(answer)); });
  EXPECT_EQ(nlohmann::json::parse(status).at("regions").size(), 1u);
  const ControlledWorker::Holding holding = Holding();
  EXPECT_EQ(holding.room, 15u);
  ASSERT_EQ(holding.regions.size(), 1u);
  EXPECT_EQ(holding.regions[0].region, root);
  EXPECT_EQ(holding.regions[0].epoch, 1u);
  EXPECT_EQ(holding.regions[0].table, "");
  EXPECT_FALSE(holding.regions[0].busy);
  EXPECT_TRUE(Answered<bool>([&](auto answer) { control_.Holds(root, std::move(answer)); }));
  EXPECT_FALSE(Answered<bool>([&](auto answer) { control_.Holds(root + 1, std::move(answer)); }));
  const auto owners =
      Answered<ControlledWorker::Owners>([&](auto answer) { control_.RegionOwners(std::move(answer)); });
  EXPECT_EQ(owners.table_version, cluster_->state.table.version);
  ASSERT_EQ(owners.owners.size(), 1u);
  EXPECT_EQ(owners.owners[0].region, root);
  EXPECT_EQ(owners.owners[0].server, "server-0");
  EXPECT_FALSE(owners.owners[0].in_making);
}

TEST_F(WorkerControlTest, CreatesAndDropsTables) {
  const auto create = [&] {
    return Answered<absl::Status>([&](auto answer) { control_.CreateTable("t", 0, 1, std::move(answer)); });
  };
  EXPECT_TRUE(create().ok());
  EXPECT_EQ(cluster_->state.table.tables.count("t"), 1u);
  EXPECT_EQ(Holding().regions.back().table, "t");
  EXPECT_EQ(create().code(), absl::StatusCode::kAlreadyExists);
  const auto drop = [&] {
    return Answered<absl::Status>([&](auto answer) { control_.DropTable("t", std::move(answer)); });
  };
  EXPECT_TRUE(drop().ok());
  EXPECT_EQ(cluster_->state.table.tables.count("t"), 0u);
  EXPECT_EQ(drop().code(), absl::StatusCode::kNotFound);
}

TEST_F(WorkerControlTest, SetsWhatIsEvicted) {
  const auto set = [&](const std::string& prefix, const std::string& evict, const std::string& table = "") {
    return Answered<absl::Status>([&](auto answer) { control_.SetEviction(table, prefix, evict, std::move(answer)); });
  };
  EXPECT_TRUE(set("cache/", "lru-sampled").ok());
  EXPECT_EQ(cluster_->state.table.evictions.Of("cache/1"), Eviction::kLru);
  EXPECT_EQ(set("cache/", "lru").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(set(std::string(65, 'p'), "ttl").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(set("cache/", "none").ok());
  EXPECT_FALSE(cluster_->state.table.evictions.on());
  EXPECT_EQ(cluster_->state.table.evictions.by_prefix().size(), 1u);
  EXPECT_TRUE(set("cache/", "default").ok());
  EXPECT_TRUE(cluster_->state.table.evictions.by_prefix().empty());
  EXPECT_EQ(set("", "ttl", "t").code(), absl::StatusCode::kNotFound) << "there is no such table";
}

// The coordinator may have made a change whose answer was lost, so it is made again.
TEST_F(WorkerControlTest, ARevokeWhoseAnswerWasLostIsNoError) {
  const auto change = [&](bool revoke, auto answer) {
    control_.ChangeGrant({"a", "read", {.prefix = "p"}, revoke}, std::move(answer));
  };
  const auto changed = [&](bool revoke) {
    return Answered<absl::Status>([&](auto answer) { change(revoke, std::move(answer)); });
  };
  EXPECT_EQ(changed(/*revoke=*/true).code(), absl::StatusCode::kNotFound) << "there is no such grant";
  EXPECT_TRUE(changed(/*revoke=*/false).ok());
  membership_->set_unreachable(true);
  std::optional<absl::Status> answered;
  change(/*revoke=*/true, [&answered](absl::Status status) { answered = std::move(status); });
  const auto run_until = [this](const auto& ended) {
    for (int i = 0; i < 100'000 && !ended(); ++i) {
      if (worker_.Poll() == 0) worker_.Wait(worker_.fabric()->NowNs() + 1'000'000);
    }
    return ended();
  };
  ASSERT_TRUE(run_until([this] { return cluster_->state.table.grants.by_user().empty(); }));
  EXPECT_FALSE(answered.has_value());
  membership_->set_unreachable(false);
  ASSERT_TRUE(run_until([&answered] { return answered.has_value(); }));
  EXPECT_EQ(*answered, absl::OkStatus());
}

TEST_F(WorkerControlTest, PreparesMemory) {
  const auto allocate = [&](uint32_t count) {
    return Answered<absl::StatusOr<size_t>>([&](auto answer) { control_.Allocate(count, std::move(answer)); });
  };
  const auto ready = allocate(3);
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_EQ(*ready, 3u);
  EXPECT_EQ(allocate(100).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(WorkerControlTest, TellsWhatCannotBeDone) {
  const uint32_t root = cluster_->state.table.root;
  EXPECT_EQ(Split(root + 1).code(), absl::StatusCode::kNotFound);
  const absl::Status one_leaf = Split(root);
  EXPECT_EQ(one_leaf.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(one_leaf.message().find(fmt::format("region {} has only one leaf: it can be split once", root)),
            std::string::npos)
      << one_leaf;
  const auto joined = Answered<absl::Status>([&](auto answer) { control_.Join(root, std::move(answer)); });
  EXPECT_EQ(joined.code(), absl::StatusCode::kFailedPrecondition) << joined;
  const auto moved =
      Answered<absl::Status>([&](auto answer) { control_.Move(root, "server-1", 0, std::move(answer)); });
  EXPECT_FALSE(moved.ok());
  const auto made = Answered<absl::StatusOr<ControlledWorker::Checkpoints>>(
      [&](auto answer) { control_.Checkpoint(std::move(answer)); });
  EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition) << "there are no logs";
  const auto rebalanced =
      Answered<absl::StatusOr<uint64_t>>([&](auto answer) { control_.Rebalance(std::move(answer)); });
  ASSERT_TRUE(rebalanced.ok()) << rebalanced.status();
  EXPECT_EQ(*rebalanced, 0u);
}

TEST_F(WorkerControlTest, BeginsAndCancelsADrain) {
  const auto set = [&](bool draining) {
    return Answered<absl::Status>([&](auto answer) { control_.SetDraining(draining, std::move(answer)); });
  };
  EXPECT_TRUE(set(true).ok());
  EXPECT_EQ(cluster_->state.table.draining.count("server-0"), 1u);
  const ControlledWorker::DrainState progress = DrainProgress();
  EXPECT_TRUE(progress.draining);
  EXPECT_EQ(progress.regions_left, 1u);
  EXPECT_TRUE(set(false).ok());
  EXPECT_FALSE(DrainProgress().draining);
}

}  // namespace
}  // namespace cell

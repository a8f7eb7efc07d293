// Clusters for tests: in virtual time, and over shared memory with each server in a thread.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "cell/base/random.h"
#include "cell/client/client.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/shm_fabric.h"
#include "cell/io/sim_fabric.h"
#include "cell/server/worker.h"
#include "cell/tree/tree_check.h"

namespace cell {

struct TestClusterOptions {
  int servers = 1;
  size_t regions_max = 64;  // Of each server.
  int64_t silence_ns = 1'000'000'000;
  StewardOptions steward;
  int membership_polls_max = 1;
};

class TestCluster {
 public:
  virtual ~TestCluster() = default;
  virtual std::unique_ptr<Client> NewClient(ClientOptions options) = 0;
  // After all clients have gone: what is wrong in any region or between them, the keys of all.
  virtual TreeReport Check() = 0;

 protected:
  static ClusterState Describe(const RegionShape& shape, const std::string& address,
                               const TestClusterOptions& options) {
    ClusterState state;
    state.shape = shape;
    for (int i = 0; i < options.servers; ++i) {
      state.servers.push_back({fmt::format("server-{}", i),
                               {{fmt::format("{}{}", address, i), static_cast<uint32_t>(options.regions_max)}},
                               ""});
    }
    return state;
  }
  static Worker::Options WorkerOptions(const TestClusterOptions& options, int server) {
    Worker::Options made;
    made.service.name = fmt::format("server-{}", server);
    made.steward = options.steward;
    made.steward.self = {made.service.name, 0};
    made.steward.seed += static_cast<uint64_t>(server);
    made.regions_max = options.regions_max;
    made.silence_ns = options.silence_ns;
    return made;
  }
  static TreeReport CheckAll(const std::vector<Worker*>& workers) {
    TreeReport all;
    std::vector<TreeReport> reports;
    for (Worker* worker : workers) {
      for (HeldRegion* region : worker->regions()->all()) {
        if (!region->joined || region->state == HeldRegion::State::kSealed) continue;
        reports.push_back(CheckTree(*region->memory));
        all.error_count += reports.back().error_count;
        for (const std::string& error : reports.back().errors) {
          all.errors.push_back(fmt::format("region {}: {}", region->meganode.region(), error));
        }
      }
    }
    const ClusterReport cluster = CheckNeighbours(reports);
    all.keys = cluster.keys;
    all.half_splits = cluster.missing_routes;
    all.error_count += cluster.errors.size();
    all.errors.insert(all.errors.end(), cluster.errors.begin(), cluster.errors.end());
    return all;
  }
};

inline std::unique_ptr<Client> Opened(absl::StatusOr<std::unique_ptr<Client>> client) {
  if (!client.ok()) std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
  CELL_CHECK(client.ok());
  return *std::move(client);
}

class SimCluster : public TestCluster {
 public:
  explicit SimCluster(RegionShape shape, SimOptions sim = {}, TestClusterOptions options = {})
      : network_(sim),
        random_(sim.seed),
        cluster_(
            std::make_shared<MemoryCluster>(Describe(shape, "sim", options), sim.seed, options.membership_polls_max)) {
    for (int i = 0; i < options.servers; ++i) {
      auto fabric = network_.NewEndpoint();
      fabrics_.push_back(fabric.get());
      auto membership = std::make_unique<MemoryMembership>(cluster_);
      memberships_.push_back(membership.get());
      workers_.push_back(std::make_unique<Worker>(std::move(fabric), std::move(membership), WorkerOptions(options, i)));
      CELL_CHECK(workers_.back()->Start(fmt::format("sim{}", i)).ok());
      TakeTurns(workers_.size() - 1);
    }
  }
  ~SimCluster() override {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (!Dead(i)) workers_[i]->Stop();
    }
    *alive_ = false;
    for (size_t i = 0; i < workers_.size(); ++i) {
      // What a dead worker was about to do waits for ever, and refers to all of it.
      if (Dead(i)) graveyard_->push_back(std::move(workers_[i]));
    }
  }
  std::unique_ptr<Client> NewClient(ClientOptions options) override {
    return Opened(Client::Open(options, network_.NewEndpoint(), std::make_unique<MemoryMembership>(cluster_)));
  }
  TreeReport Check() override {
    for (int i = 0; i < 1'000'000 && !Quiet(); ++i) network_.Step();
    CELL_CHECK(Quiet());
    std::vector<Worker*> workers;
    for (const auto& worker : workers_) workers.push_back(worker.get());
    return CheckAll(workers);
  }
  // Nothing goes on that is not asked for, but for the dead.
  bool Quiet() const {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (!Dead(i) && !workers_[i]->turns()->idle()) return false;
    }
    return true;
  }
  // From within one of its points, or from outside.
  void Kill(size_t i) {
    fabrics_[i]->Crash();
    memberships_[i]->Crash();
    dead_.insert(i);
  }
  bool Dead(size_t i) const { return dead_.contains(i); }
  // As SIGSTOP: it does nothing until Continue; its memory can be read. From outside of it.
  void Stop(size_t i) {
    fabrics_[i]->SetPaused(true);
    stopped_.insert(i);
  }
  void Continue(size_t i) {
    stopped_.erase(i);
    fabrics_[i]->SetPaused(false);
  }
  SimNetwork* network() { return &network_; }
  SimFabric* server(size_t i = 0) { return fabrics_[i]; }
  const std::shared_ptr<MemoryCluster>& shared() const { return cluster_; }
  MemoryMembership* membership(size_t i = 0) { return memberships_[i]; }
  Worker* worker(size_t i = 0) { return workers_[i].get(); }
  const RegionTable& table() const { return cluster_->state.table; }

 private:
  static constexpr uint64_t kTurnNs = 1'000;

  void TakeTurns(size_t i) {
    network_.At(network_.now_ns() + static_cast<int64_t>(1 + random_.Below(2 * kTurnNs)), [this, i, alive = alive_] {
      if (!*alive || Dead(i)) return;
      if (!stopped_.contains(i)) workers_[i]->Poll();
      TakeTurns(i);
    });
  }

  SimNetwork network_;
  Random random_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::shared_ptr<MemoryCluster> cluster_;
  std::vector<SimFabric*> fabrics_;
  std::vector<MemoryMembership*> memberships_;
  std::set<size_t> dead_, stopped_;
  static inline auto* const graveyard_ = new std::vector<std::unique_ptr<Worker>>;  // Never emptied.
  std::vector<std::unique_ptr<Worker>> workers_;
};

// Three servers with meganodes of 64 nodes, which split and move as soon as there is a reason.
constexpr RegionShape kSpreadingShape{512, 32 << 10, 64 << 10};
inline TestClusterOptions SpreadingOptions() {
  TestClusterOptions options;
  options.servers = 3;
  options.steward.balance_every_ns = 20'000;
  return options;
}
inline SimCluster SpreadingCluster() { return SimCluster(kSpreadingShape, {}, SpreadingOptions()); }

// The members' copies of the table are kept by one lock: each server and client has a thread of its own.
class ShmCluster : public TestCluster {
 public:
  explicit ShmCluster(RegionShape shape, TestClusterOptions options = {})
      : cluster_(std::make_shared<MemoryCluster>(
            Describe(shape, fmt::format("/tmp/cell-test-{}-{}-", ::getpid(), counter_++), options))) {
    for (int i = 0; i < options.servers; ++i) {
      workers_.push_back(std::make_unique<Worker>(std::make_unique<ShmFabric>(ShmFabricOptions{.huge_pages = false}),
                                                  std::make_unique<MemoryMembership>(cluster_),
                                                  WorkerOptions(options, i)));
      const auto index = static_cast<size_t>(i);
      CELL_CHECK(workers_.back()->Start(cluster_->state.servers[index].workers[0].address).ok());
    }
    for (const auto& worker : workers_) {
      threads_.emplace_back([this, worker = worker.get()] {
        while (!stop_) {
          if (worker->Poll() == 0) worker->Wait(worker->fabric()->NowNs() + 1'000'000);
        }
      });
    }
  }
  ~ShmCluster() override {
    Join();
    for (const auto& worker : workers_) worker->Stop();
  }
  std::unique_ptr<Client> NewClient(ClientOptions options) override {
    return Opened(Client::Open(options, std::make_unique<ShmFabric>(), std::make_unique<MemoryMembership>(cluster_)));
  }
  TreeReport Check() override {
    Join();
    std::vector<Worker*> workers;
    for (const auto& worker : workers_) workers.push_back(worker.get());
    for (int turns = 0; turns < 1'000'000; ++turns) {
      bool idle = true;
      for (Worker* worker : workers) {
        worker->Poll();
        idle &= worker->turns()->idle();
      }
      if (idle) break;
    }
    return CheckAll(workers);
  }

 private:
  void Join() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  static inline std::atomic<int> counter_ = 0;
  std::shared_ptr<MemoryCluster> cluster_;
  std::atomic<bool> stop_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
};

}  // namespace cell

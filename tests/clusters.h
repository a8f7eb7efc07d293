// Clusters for tests: in virtual time, and over shared memory with each server in a thread.
#pragma once

#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "cell/base/random.h"
#include "cell/client/client.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/shm_fabric.h"
#include "cell/io/sim_background.h"
#include "cell/io/sim_fabric.h"
#include "cell/io/sim_files.h"
#include "cell/log/directory_log_store.h"
#include "cell/server/worker.h"
#include "cell/tree/tree_check.h"

namespace cell {

// Protections that a simulated cluster may lack, so that tests can show that they would notice.
enum class Mutant {
  kNone,
  kNoFence,         // A log is synced whoever has the region by now.
  kSyncedTooEarly,  // A sync says that it is done, and is not.
  kNoLeaseWait,     // What is recovered is served at once.
  kNoServerLease,   // A server serves however long its session has not been renewed.
};

struct TestClusterOptions {
  int servers = 1;
  size_t regions_max = 64;  // Of each server.
  int64_t silence_ns = 1'000'000'000;
  StewardOptions steward;
  int membership_polls_max = 1;
  LogKeeperOptions logs;
  // Simulated clusters with logs: sessions, takeovers, and what a sync takes.
  int64_t session_ns = 300'000;
  int64_t takeover_after_ns = 20'000;
  int64_t table_lease_ns = 200'000;
  int64_t lease_wait_ns = 220'000;
  int64_t disk_ns = 5'000;
  Mutant mutant = Mutant::kNone;
};

struct TestReport : TreeReport {
  uint64_t hash_keys = 0;  // Of all tables.
};

class TestCluster {
 public:
  virtual ~TestCluster() = default;
  virtual std::unique_ptr<Client> NewClient(ClientOptions options) = 0;
  // After all clients have gone: what is wrong in any region or between them, the keys of all.
  virtual TestReport Check() = 0;

 protected:
  static ClusterState Describe(const RegionShape& shape, const std::string& address,
                               const TestClusterOptions& options) {
    ClusterState state;
    state.shape = shape;
    state.durability = options.logs.durability;
    if (state.durability != Durability::kNone) state.table_lease_ns = options.table_lease_ns;
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
    made.logs = options.logs;
    made.recoverer = {made.steward.self,
                      options.takeover_after_ns,
                      options.mutant == Mutant::kNoLeaseWait ? 0 : options.lease_wait_ns,
                      5'000,
                      made.steward.seed,
                      1'000'000};
    return made;
  }
  static TestReport CheckAll(const std::vector<Worker*>& workers) {
    TestReport all;
    std::vector<TreeReport> reports;
    for (Worker* worker : workers) {
      for (HeldRegion* region : worker->regions()->all()) {
        if (!region->joined || region->state == HeldRegion::State::kSealed) continue;
        if (region->hash != nullptr) {
          const absl::Status status = region->hash->Check();
          if (!status.ok()) all.errors.push_back(std::string(status.message()));
          all.error_count += !status.ok();
          all.hash_keys += region->hash->keys();
          continue;
        }
        reports.push_back(CheckTree(*region->memory));
        all.error_count += reports.back().error_count;
        for (const std::string& error : reports.back().errors) {
          all.errors.push_back(fmt::format("region {}: {}", region->region(), error));
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
      : options_(options),
        network_(sim),
        random_(sim.seed),
        disk_(sim.seed),
        cluster_(
            std::make_shared<MemoryCluster>(Describe(shape, "sim", options), sim.seed, options.membership_polls_max)),
        servers_(static_cast<size_t>(options.servers)) {
    for (size_t i = 0; i < servers_.size(); ++i) Start(i);
    if (durable()) WatchSessions();
  }
  ~SimCluster() override {
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (!Dead(i)) servers_[i].worker->Stop();
    }
    *alive_ = false;
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (Dead(i)) Bury(i);
    }
  }
  std::unique_ptr<Client> NewClient(ClientOptions options) override {
    return Opened(Client::Open(options, network_.NewEndpoint(), std::make_unique<MemoryMembership>(cluster_)));
  }
  TestReport Check() override {
    for (int i = 0; i < 1'000'000 && !Quiet(); ++i) network_.Step();
    CELL_CHECK(Quiet());
    std::vector<Worker*> workers;
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (!durable() || !Dead(i)) workers.push_back(worker(i));
    }
    return CheckAll(workers);
  }
  // Nothing goes on that is not asked for, but for the dead.
  bool Quiet() const {
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (!Dead(i) && !servers_[i].worker->turns()->idle()) return false;
    }
    return true;
  }
  // From within one of its points, or from outside. With its machine, what was written and not synced is lost, too.
  void Kill(size_t i, bool machine = false) {
    servers_[i].fabric->Crash();
    servers_[i].membership->Crash();
    if (durable()) servers_[i].disk->Crash(), servers_[i].replay->Crash();
    if (machine) servers_[i].files->Crash();
    servers_[i].dead = true;
    servers_[i].stopped = false;
  }
  bool Dead(size_t i) const { return servers_[i].dead; }
  // A dead server comes back, under its name and with its disk. From outside of all workers.
  void Restart(size_t i) {
    CELL_CHECK(Dead(i));
    Bury(i);
    Start(i);
  }
  // As SIGSTOP: it does nothing until Continue; its memory can be read. From outside of it.
  void Stop(size_t i) {
    servers_[i].fabric->SetPaused(true);
    if (durable()) servers_[i].disk->SetPaused(true), servers_[i].replay->SetPaused(true);
    servers_[i].stopped = true;
  }
  void Continue(size_t i) {
    servers_[i].stopped = false;
    if (durable()) servers_[i].disk->SetPaused(false), servers_[i].replay->SetPaused(false);
    servers_[i].fabric->SetPaused(false);
  }
  // A Pilaf table, by server i.
  absl::Status CreateTable(const std::string& name, uint32_t bucket_bytes, uint32_t parts, size_t i = 0) {
    std::optional<absl::Status> created;
    const auto create = [&]() -> Task<bool> {
      created = co_await worker(i)->tables()->Create(name, bucket_bytes, parts);
      co_return true;
    };
    worker(i)->turns()->Begin(create());
    while (!created.has_value()) network_.Step();
    return *created;
  }
  SimNetwork* network() { return &network_; }
  SimDisk* disk() { return &disk_; }
  SimFiles* files(size_t i = 0) { return servers_[i].files.get(); }
  SimBackground* background(size_t i = 0) { return servers_[i].disk; }
  SimFabric* server(size_t i = 0) { return servers_[i].fabric; }
  const std::shared_ptr<MemoryCluster>& shared() const { return cluster_; }
  MemoryMembership* membership(size_t i = 0) { return servers_[i].membership; }
  Worker* worker(size_t i = 0) { return servers_[i].worker.get(); }
  const RegionTable& table() const { return cluster_->state.table; }

 private:
  static constexpr uint64_t kTurnNs = 1'000;

  struct Server {
    SimFabric* fabric = nullptr;
    MemoryMembership* membership = nullptr;
    SimBackground* disk = nullptr;  // Null without logs.
    SimBackground* replay = nullptr;
    std::shared_ptr<SimFiles> files;
    std::unique_ptr<Worker> worker;
    int life = 0;  // Grows with each start.
    bool dead = false, stopped = false, expired = false;
    int64_t heard_ns = 0, rejoins_ns = 0;
  };

  // A store on a host's files, which live as long.
  struct HostStore : DirectoryLogStore {
    HostStore(std::shared_ptr<SimFiles> files, Mutant mutant)
        : DirectoryLogStore(files.get(), "log"), host(std::move(files)), mutant(mutant) {}
    absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence) override {
      absl::StatusOr<std::unique_ptr<LogWriter>> writer = DirectoryLogStore::Open(region, epoch, sequence);
      if (!writer.ok() || (mutant != Mutant::kNoFence && mutant != Mutant::kSyncedTooEarly)) return writer;
      return std::make_unique<BadWriter>(*std::move(writer), mutant);
    }
    const std::shared_ptr<SimFiles> host;
    const Mutant mutant;
  };
  struct BadWriter : LogWriter {
    BadWriter(std::unique_ptr<LogWriter> writer, Mutant mutant) : writer(std::move(writer)), mutant(mutant) {}
    absl::Status Append(std::string_view bytes) override { return writer->Append(bytes); }
    absl::Status Sync() override {
      if (mutant == Mutant::kSyncedTooEarly) return absl::OkStatus();
      const absl::Status status = writer->Sync();
      return absl::IsAborted(status) ? absl::OkStatus() : status;
    }
    const std::unique_ptr<LogWriter> writer;
    const Mutant mutant;
  };

  bool durable() const { return options_.logs.durability != Durability::kNone; }
  std::string* AddressOf(size_t i) { return &cluster_->state.servers[i].workers[0].address; }

  void Start(size_t i) {
    Server& server = servers_[i];
    const std::string address = fmt::format("sim{}", i);
    auto fabric = network_.NewEndpoint();
    server.fabric = fabric.get();
    auto membership = std::make_unique<MemoryMembership>(cluster_);
    server.membership = membership.get();
    Worker::Logs logs;
    if (durable()) {
      server.files = disk_.NewHost();
      auto disk = std::make_unique<SimBackground>(&network_, random_.Next(), options_.disk_ns);
      server.disk = disk.get();
      auto replay = std::make_unique<SimBackground>(&network_, random_.Next(), options_.disk_ns);
      server.replay = replay.get();
      logs = {std::make_shared<HostStore>(server.files, options_.mutant), std::move(disk), std::move(replay)};
    }
    server.worker = std::make_unique<Worker>(std::move(fabric), std::move(membership), std::move(logs),
                                             WorkerOptions(options_, static_cast<int>(i)));
    const absl::Status started = server.worker->Start(address);
    if (!started.ok()) std::fprintf(stderr, "%s\n", started.ToString().c_str());
    CELL_CHECK(started.ok());
    ++server.life;
    server.dead = server.stopped = server.expired = false;
    server.heard_ns = network_.now_ns();
    *AddressOf(i) = address;
    TellMembers();
    TakeTurns(i, server.life);
  }

  // What a dead worker was about to do waits for ever, and refers to all of it.
  void Bury(size_t i) { graveyard_->push_back(std::move(servers_[i].worker)); }

  void TakeTurns(size_t i, int life) {
    network_.At(network_.now_ns() + static_cast<int64_t>(1 + random_.Below(2 * kTurnNs)),
                [this, i, life, alive = alive_] {
                  if (!*alive || Dead(i) || servers_[i].life != life) return;
                  if (!servers_[i].stopped) {
                    if (durable()) Renew(i);
                    servers_[i].worker->Poll();
                  }
                  TakeTurns(i, life);
                });
  }

  // A server that takes turns keeps its session. One whose session has expired hears of it some time after it goes on,
  // and makes another.
  void Renew(size_t i) {
    Server& server = servers_[i];
    const bool no_lease = options_.mutant == Mutant::kNoServerLease;
    if (no_lease) server.membership->set_lease_until_ns(INT64_MAX / 2);
    if (server.expired) {
      if (server.rejoins_ns == 0) {
        server.rejoins_ns =
            network_.now_ns() + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(options_.session_ns)));
      }
      if (network_.now_ns() < server.rejoins_ns) return;
      server.expired = false;
      server.rejoins_ns = 0;
      *AddressOf(i) = fmt::format("sim{}", i);
      server.membership->Rejoin();
      TellMembers();
    }
    server.heard_ns = network_.now_ns();
    if (!no_lease) server.membership->set_lease_until_ns(server.heard_ns + options_.session_ns * 3 / 4);
  }
  void WatchSessions() {
    network_.At(network_.now_ns() + options_.session_ns / 8, [this, alive = alive_] {
      if (!*alive) return;
      bool changed = false;
      for (size_t i = 0; i < servers_.size(); ++i) {
        if (servers_[i].expired || network_.now_ns() - servers_[i].heard_ns <= options_.session_ns) continue;
        servers_[i].expired = changed = true;
        AddressOf(i)->clear();
      }
      if (changed) TellMembers();
      WatchSessions();
    });
  }
  void TellMembers() {
    for (Server& server : servers_) {
      if (server.membership != nullptr && !server.dead) server.membership->Refresh([](const absl::Status&) {});
    }
  }

  const TestClusterOptions options_;
  SimNetwork network_;
  Random random_;
  SimDisk disk_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::shared_ptr<MemoryCluster> cluster_;
  std::vector<Server> servers_;
  static inline auto* const graveyard_ = new std::vector<std::unique_ptr<Worker>>;  // Never emptied.
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
  TestReport Check() override {
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

  // A Pilaf table, by the first server.
  absl::Status CreateTable(const std::string& name, uint32_t bucket_bytes, uint32_t parts) {
    std::promise<absl::Status> created;
    std::future<absl::Status> future = created.get_future();
    const auto create = [&](Worker* worker) -> Task<bool> {
      absl::Status status = co_await worker->tables()->Create(name, bucket_bytes, parts);
      created.set_value(std::move(status));
      co_return true;
    };
    workers_[0]->Post([&create](Worker* worker) { worker->turns()->Begin(create(worker)); });
    return future.get();
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

// SimCluster simulates servers, their disks and their coordinator in virtual time, with the faults of each. Instead of
// disks there may be a pool of objects that all servers use.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/client/client_testing.h"
#include "cell/cluster/zookeeper/session_lease.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/io/sim/sim_files.h"
#include "cell/io/sim/sim_thread_pool.h"
#include "cell/log/sealed_log_store.h"
#include "cell/log/test_keys.h"
#include "tests/log_hosts.h"
#include "tests/test_cluster.h"

namespace cell {

class SimCluster : public TestCluster {
 public:
  explicit SimCluster(RegionShape shape, SimOptions sim = {}, TestClusterOptions options = {})
      : options_(options),
        network_(sim),
        random_(sim.seed),
        disk_(sim.seed),
        pool_(sim.seed),
        cluster_(
            std::make_shared<MemoryCluster>(Describe(shape, "sim", options), sim.seed, options.membership_polls_max)),
        servers_(static_cast<size_t>(options.servers)) {
    disk_.set_cached(options.disk_cached);
    for (size_t i = 0; i < servers_.size(); ++i) {
      servers_[i].host = NewHost();
      if (i + static_cast<size_t>(options.joining) < servers_.size()) {
        Start(i);
      } else {
        AddressOf(i)->clear();
      }
    }
    if (durable()) WatchSessions();
  }
  ~SimCluster() override {
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (Dead(i)) continue;
      if (servers_[i].stopped) Continue(i);  // A stopped server cannot end.
      CELL_CHECK(servers_[i].worker->Stop().ok());
    }
    *alive_ = false;
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (Dead(i)) Bury(i);
    }
  }
  std::unique_ptr<Client> NewClient(ClientOptions options) override {
    return Opened(ClientTesting::Open(options, network_.NewEndpoint(), NewClientMembership()));
  }
  // A client that is `self`, not an operator like the others.
  std::unique_ptr<Client> NewClientOf(const Identity& self, ClientOptions options) {
    options.connect = false;  // Not before it says who it is.
    auto endpoint = network_.NewEndpoint();
    SimFabric* const fabric = endpoint.get();
    auto client = Opened(ClientTesting::Open(options, std::move(endpoint), NewClientMembership()));
    fabric->SetSelf(self);
    return client;
  }
  // A client that the network drives, on a host of its own.
  struct DrivenClient {
    SimHost* host = nullptr;
    MemoryMembership* membership = nullptr;
    std::unique_ptr<Client> client;
    SimFabric* fabric = nullptr;
    void Drive() {
      fabric->Drive([client = client.get()] { client->Poll(INT64_MAX); });
    }
  };
  // With `self`, the client is not an operator like the others, and connects with its first operation.
  absl::StatusOr<DrivenClient> TryNewDrivenClient(ClientOptions options,
                                                  const std::optional<Identity>& self = std::nullopt) {
    SimHost* const host = NewHost();
    auto fabric = network_.NewEndpoint(host);
    auto membership = NewClientMembership();
    DrivenClient made{host, membership.get(), nullptr, fabric.get()};
    options.connect = options.connect && !self.has_value();
    ASSIGN_OR_RETURN(made.client, ClientTesting::Open(options, std::move(fabric), std::move(membership)));
    if (self.has_value()) made.fabric->SetSelf(*self);
    return made;
  }
  DrivenClient NewDrivenClient(const ClientOptions& options) {
    absl::StatusOr<DrivenClient> made = TryNewDrivenClient(options);
    CELL_CHECK(made.ok());
    return *std::move(made);
  }
  TestReport Check() override {
    for (int i = 0; i < 1'000'000 && !Quiet(); ++i) network_.Step();
    // If there are no more regions, some things are retried forever.
    if (!Quiet() && options_.quiet_at_end) {
      TestReport report;
      report.error_count = 1;
      report.errors.push_back("something goes on that nobody has asked for");
      return report;
    }
    std::vector<Worker*> workers;
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (worker(i) != nullptr && (!durable() || !Dead(i))) workers.push_back(worker(i));
    }
    return CheckAll(workers);
  }
  // Returns whether no server that is alive has background tasks, or writes that are logged and not applied: those of
  // a sweep may be half applied.
  bool Quiet() const {
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (Dead(i)) continue;
      if (!servers_[i].worker->scheduler()->idle()) return false;
      bool pending = false;
      servers_[i].worker->regions()->ForEach([&](const HeldRegion* region) { pending |= !region->pending.empty(); });
      if (pending) return false;
    }
    return true;
  }
  // Kills a server, from one of its sync points or from outside. With `machine`, unsynced writes are lost, too.
  void Kill(size_t i, bool machine = false) {
    servers_[i].fabric->Crash();
    servers_[i].membership->Crash();
    if (durable()) servers_[i].disk->Crash(), servers_[i].replay->Crash();
    if (objects(i) != nullptr) objects(i)->Crash();
    if (machine) servers_[i].files->Crash();
    servers_[i].dead = true;
    servers_[i].stopped = false;
  }
  bool Dead(size_t i) const { return servers_[i].dead; }
  bool Stopped(size_t i) const { return servers_[i].stopped; }
  bool Expired(size_t i) const { return servers_[i].expired; }
  // Returns the version of the grants that a server knew at the end of its last turn. In the middle of a turn it may
  // go by newer ones already.
  uint64_t grants_followed(size_t i) const { return servers_[i].grants_followed; }
  // Restarts a dead server with its name and its disk. Must not be called from within a worker.
  void Restart(size_t i) {
    CELL_CHECK(Dead(i));
    Bury(i);
    Start(i);
  }
  // Sets whether, from its next start on, the server is of a release that writes the next format of logs
  // (LaterReleaseStore).
  void SetLaterRelease(size_t i, bool later) { servers_[i].later_release = later; }
  bool later_release(size_t i) const { return servers_[i].later_release; }
  // Stops a server, like SIGSTOP: it does nothing until Continue; its memory can be read. Must not be called from
  // within it.
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
  // Makes its cores this many times slower.
  void SlowHost(size_t i, double slowdown) { servers_[i].host->set_slowdown(slowdown); }
  void SlowDisk(size_t i, int64_t mean_ns) {
    if (durable()) servers_[i].disk->set_mean_ns(mean_ns), servers_[i].replay->set_mean_ns(mean_ns);
  }
  // Cuts the server off from the coordinator: it sees nothing new, and its session will expire.
  void CutCoordinator(size_t i, bool cut) {
    servers_[i].unheard = cut;
    servers_[i].membership->set_unreachable(cut);
  }
  // Makes the coordinator take the server for dead. The server learns that some time later.
  void ExpireSession(size_t i) {
    servers_[i].expired = true;
    AddressOf(i)->clear();
    TellMembers();
  }
  // Stops the machine of the server and its clock until Thaw: afterwards the server does not know how much time has
  // passed.
  void Freeze(size_t i) {
    servers_[i].frozen_ns = network_.now_ns();
    Stop(i);
  }
  void Thaw(size_t i) {
    servers_[i].host->StandStill(network_.now_ns() - servers_[i].frozen_ns);
    Continue(i);
  }
  // Makes the part of the coordinator that the server uses lose its leader. Nothing can be changed or learnt there, and
  // the leader does not know that the server is alive, though that part still answers.
  void CutLeader(size_t i, bool cut) {
    servers_[i].leaderless = cut;
    servers_[i].membership->set_unreachable(cut);
  }
  void SetDraining(size_t i, bool draining) {
    const auto drain = [](Worker* worker, bool on) -> Task<bool> {
      co_return (co_await worker->rebalancer()->SetDraining(on)).ok();
    };
    worker(i)->scheduler()->Spawn(drain(worker(i), draining));
  }
  SimHost* host(size_t i) { return servers_[i].host; }
  size_t servers() const { return servers_.size(); }

  // Creates a Pilaf table with server i.
  absl::Status CreateTable(const std::string& name, uint32_t bucket_bytes, uint32_t parts, size_t i = 0) {
    return RunOn(i, [&](Worker* worker) { return worker->tables()->Create(name, bucket_bytes, parts); });
  }
  absl::Status DropTable(const std::string& name, size_t i = 0) {
    return RunOn(i, [&](Worker* worker) { return worker->tables()->Drop(name); });
  }
  // Splits a region, or has it join its left neighbour, with server i, which holds it.
  absl::Status Split(uint32_t region, size_t i) {
    return RunOn(i, [&](Worker* worker) { return worker->splitter()->Split(region); });
  }
  absl::Status Join(uint32_t region, size_t i) {
    return RunOn(i, [&](Worker* worker) { return worker->joiner()->Join(region); });
  }
  // Migrates a region from server `from`, which holds it, to server `to`.
  absl::Status Migrate(uint32_t region, size_t from, size_t to) {
    return RunOn(from, [&](Worker* worker) {
      return worker->migrator()->Migrate(region, WorkerId{fmt::format("server-{}", to), 0});
    });
  }
  // Writes a checkpoint of a region with server i, which holds it.
  absl::Status Checkpoint(uint32_t region, size_t i) {
    return RunOn(i, [&](Worker* worker) { return worker->checkpointer()->Checkpoint(region); });
  }
  // Sets what is evicted of a table, with server i.
  absl::Status SetEviction(const std::string& table, Eviction eviction, size_t i = 0) {
    return RunOn(i, [&](Worker* worker) { return worker->SetEviction(table, "", eviction); });
  }
  // Changes the region table with server i.
  absl::Status ChangeTable(const Membership::TableChange& change, size_t i = 0) {
    return RunOn(i, [&](Worker* worker) { return worker->ChangeTable(change); });
  }
  SimNetwork* network() { return &network_; }
  SimDisk* disk() { return &disk_; }
  SimFiles* files(size_t i = 0) { return servers_[i].files.get(); }
  // The pool of objects that has the logs, and the view of it that server i has. Null if the logs are in files.
  SimObjects* pool() { return options_.objects ? &pool_ : nullptr; }
  SimObjectStore* objects(size_t i = 0) { return servers_[i].objects.get(); }
  SimThreadPool* disk_pool(size_t i = 0) { return servers_[i].disk; }
  SimFabric* server(size_t i = 0) { return servers_[i].fabric; }
  const std::shared_ptr<MemoryCluster>& shared() const { return cluster_; }
  MemoryMembership* membership(size_t i = 0) { return servers_[i].membership; }
  Worker* worker(size_t i = 0) { return servers_[i].worker.get(); }
  const RegionTable& table() const { return cluster_->state.table; }

 private:
  // Runs a change of the region table on server i to its end.
  template <typename Work>
  absl::Status RunOn(size_t i, Work work) {
    std::optional<absl::Status> status;
    const auto run = [&]() -> Task<bool> {
      status = co_await work(worker(i));
      co_return true;
    };
    worker(i)->scheduler()->Spawn(run());
    while (!status.has_value()) network_.Step();
    return *status;
  }

  static constexpr uint64_t kTurnNs = 1'000;

  struct Server {
    SimHost* host = nullptr;
    SimFabric* fabric = nullptr;
    MemoryMembership* membership = nullptr;
    SimThreadPool* disk = nullptr;  // Null without logs.
    SimThreadPool* replay = nullptr;
    std::shared_ptr<SimFiles> files;
    std::shared_ptr<SimObjectStore> objects;
    std::unique_ptr<Worker> worker;
    int life = 0;  // Grows with each start.
    bool dead = true, stopped = false, expired = false, unheard = false;
    bool leaderless = false;
    bool later_release = false;
    uint64_t grants_followed = 0;
    int64_t heard_ns = 0, rejoins_ns = 0;
    int64_t frozen_ns = 0;
  };

  bool durable() const { return options_.logs.durability != Durability::kNone; }
  std::unique_ptr<MemoryMembership> NewClientMembership() const {
    auto membership = std::make_unique<MemoryMembership>(cluster_);
    if (options_.learns) membership->SetLearns();
    return membership;
  }
  std::string* AddressOf(size_t i) { return &cluster_->state.servers[i].workers[0].address; }

  std::shared_ptr<LogStore> NewStore(Server* server) {
    if (!options_.objects) {
      return std::make_shared<FileLogHost>(server->files, server->later_release, options_.mutant);
    }
    server->objects = pool_.NewHost();
    ObjectLogStore::Options options;
    options.chunk_bytes = options_.object_bytes;
    options.append_bytes = options_.object_bytes / 2;
    options.nonce = [next = next_nonce_]() { return (*next)++; };
    return std::make_shared<ObjectLogHost>(server->objects, std::move(options), options_.mutant);
  }

  void Start(size_t i) {
    Server& server = servers_[i];
    const std::string address = fmt::format("sim{}", i);
    auto fabric = network_.NewEndpoint(server.host);
    server.fabric = fabric.get();
    auto membership = std::make_unique<MemoryMembership>(cluster_);
    server.membership = membership.get();
    membership->Watch();
    Worker::Logs logs;
    if (durable()) {
      server.files = disk_.NewHost();
      auto disk = std::make_unique<SimThreadPool>(&network_, random_.Next(), options_.disk_ns, options_.disk_in_steps);
      server.disk = disk.get();
      auto replay =
          std::make_unique<SimThreadPool>(&network_, random_.Next(), options_.disk_ns, options_.disk_in_steps);
      server.replay = replay.get();
      std::shared_ptr<LogStore> store = NewStore(&server);
      if (options_.encrypted) store = std::make_shared<SealedLogStore>(std::move(store), keys_);
      logs = {std::move(store), std::move(disk), std::move(replay)};
    }
    Worker::Options worker = WorkerOptions(options_, static_cast<int>(i));
    const int64_t ahead_ns = options_.clock_offset_ns[i % options_.clock_offset_ns.size()];
    worker.pairs.cluster_time = [network = &network_, ahead_ns] { return network->now_ns() + ahead_ns; };
    server.worker = std::make_unique<Worker>(std::move(fabric), std::move(membership), std::move(logs), worker);
    server.worker->regions()->snapshots()->set_limits(options_.snapshots);
    // A server does not start while it cannot list the logs.
    const bool full = pool_.full(), silent = pool_.silent();
    pool_.set_full(false), pool_.set_silent(false);
    const absl::Status started = server.worker->Start(address);
    pool_.set_full(full), pool_.set_silent(silent);
    if (!started.ok()) std::fprintf(stderr, "%s\n", started.ToString().c_str());
    CELL_CHECK(started.ok());
    ++server.life;
    server.dead = server.stopped = server.expired = server.unheard = server.leaderless = false;
    FollowGrants(i);
    server.heard_ns = network_.now_ns();
    *AddressOf(i) = address;
    TellMembers();
    TakeTurns(i, server.life);
  }

  SimHost* NewHost() {
    SimHost* const host = network_.NewHost();
    if (options_.clock_gain_ppm > 0) {
      const auto gain = static_cast<int64_t>(random_.Below(static_cast<uint64_t>(2 * options_.clock_gain_ppm + 1)));
      host->SetClock(static_cast<int64_t>(random_.Below(1'000'000'000)), gain - options_.clock_gain_ppm);
    }
    return host;
  }

  // Keeps a dead worker, because its pending work refers to it and waits forever.
  void Bury(size_t i) { graveyard_->push_back(std::move(servers_[i].worker)); }

  void TakeTurns(size_t i, int life) {
    const auto turn_ns = static_cast<uint64_t>(2 * kTurnNs * servers_[i].host->slowdown());
    network_.At(network_.now_ns() + static_cast<int64_t>(1 + random_.Below(turn_ns)), [this, i, life, alive = alive_] {
      if (!*alive || Dead(i) || servers_[i].life != life) return;
      if (!servers_[i].stopped) {
        if (durable()) Renew(i);
        servers_[i].worker->Poll();
        FollowGrants(i);
      }
      TakeTurns(i, life);
    });
  }

  // Renews the session of a running server. A server whose session has expired learns that some time after it
  // continues, and makes another one.
  void Renew(size_t i) {
    Server& server = servers_[i];
    if (server.unheard) return;
    if (server.leaderless) {
      if (options_.mutant == Mutant::kLeaseByFollower) {
        const int64_t now_ns = server.host->ToLocal(network_.now_ns());
        server.membership->set_lease_until_ns(now_ns + SessionLease::LastsNs(options_.session_ns));
      }
      return;
    }
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
    if (!no_lease)
      server.membership->set_lease_until_ns(server.host->ToLocal(server.heard_ns) +
                                            SessionLease::LastsNs(options_.session_ns));
  }
  void WatchSessions() {
    network_.At(network_.now_ns() + options_.session_ns / 8, [this, alive = alive_] {
      if (!*alive) return;
      bool changed = false;
      for (size_t i = 0; i < servers_.size(); ++i) {
        if (servers_[i].worker == nullptr || servers_[i].expired) continue;
        if (network_.now_ns() - servers_[i].heard_ns <= options_.session_ns) continue;
        servers_[i].expired = changed = true;
        AddressOf(i)->clear();
      }
      if (changed) TellMembers();
      WatchSessions();
    });
  }
  void TellMembers() { ++cluster_->changes; }
  void FollowGrants(size_t i) { servers_[i].grants_followed = servers_[i].membership->state().table.grants.version(); }

  const TestClusterOptions options_;
  SimNetwork network_;
  Random random_;
  SimDisk disk_;
  SimObjects pool_;
  const std::shared_ptr<uint32_t> next_nonce_ = std::make_shared<uint32_t>(1);
  const std::shared_ptr<TestKeys> keys_ = std::make_shared<TestKeys>(std::vector<DataKey>{TestKey(1)});
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::shared_ptr<MemoryCluster> cluster_;
  std::vector<Server> servers_;
  static inline auto* const graveyard_ = new std::vector<std::unique_ptr<Worker>>;  // Never emptied.
};

// Three servers with meganodes of 64 nodes, which split and migrate as soon as there is a reason.
constexpr RegionShape kSpreadingShape{512, 32 << 10, 64 << 10};
inline TestClusterOptions SpreadingOptions() {
  TestClusterOptions options;
  options.servers = 3;
  options.balance.every_ns = 20'000;
  return options;
}
inline SimCluster SpreadingCluster() { return SimCluster(kSpreadingShape, {}, SpreadingOptions()); }

}  // namespace cell

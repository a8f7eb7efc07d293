#include "tests/simulation/faults.h"

#include <array>

#include "cell/io/net/descriptors.h"
#include "cell/server/report/region_check.h"

namespace cell {
namespace {

// After this time a server that was frozen has no lease any more, and its earlier answers have arrived.
constexpr int64_t kThawedNs = 500'000;
// A call that the pool does not answer takes several times as long as others.
constexpr int64_t kPoolHeardNs = 5'000'000;
constexpr int64_t kClientCutNs = 500'000;  // Minimum, longer than the lease on the region table.

}  // namespace

void Faults::Plan() {
  const int64_t begin_ns = world_->now_ns();
  for (const FaultPlan& fault : world_->plan.faults) {
    world_->At(begin_ns + fault.at_ns, [this, &fault] {
      if (!world_->healed && Inject(fault)) ++world_->report.faults[static_cast<size_t>(fault.fault)];
    });
  }
}

std::optional<size_t> Faults::AnyServer(bool alive, Random* random) {
  std::vector<size_t> found;
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (alive == !world_->cluster.Dead(i)) found.push_back(i);
  }
  if (found.empty()) return std::nullopt;
  return found[random->Below(found.size())];
}

SimHost* Faults::AnyHost(Random* random) {
  std::vector<SimHost*> hosts;
  for (size_t i = 0; i < servers_.size(); ++i) hosts.push_back(world_->cluster.host(i));
  for (size_t i = 0; i < users_->size(); ++i) {
    if (users_->host(i) != nullptr) hosts.push_back(users_->host(i));
  }
  return hosts[random->Below(hosts.size())];
}

void Faults::CutClient(MemoryMembership* membership, int64_t until_ns) {
  membership->set_unreachable(true);
  world_->At(until_ns, [this, membership] {
    for (size_t i = 0; i < users_->size(); ++i) {  // It may be gone since.
      if (users_->membership(i) == membership) membership->set_unreachable(false);
    }
  });
}

void Faults::Later(size_t i, int64_t at_ns, std::function<void()> undo) {
  world_->At(at_ns, [this, i, life = servers_[i].life, undo = std::move(undo)] {
    if (!world_->healed && servers_[i].life == life && !world_->cluster.Dead(i)) undo();
  });
}

void Faults::Kill(size_t i, bool machine) {
  MayLose(world_->now_ns() + 5'000);  // Answers on their way still arrive.
  world_->cluster.Kill(i, machine);
}

void Faults::Restart(size_t i) {
  Collect(i);
  world_->journal.Trace("server {} starts", i);
  world_->cluster.Restart(i);
  Server& server = servers_[i];
  ++server.life;
  server.frozen = false;
  DiskMayHaveLost(i);
  server.disk_failed_ns.reset();
}

void Faults::SetLaterRelease(size_t i, bool later) {
  Kill(i, false);
  world_->cluster.SetLaterRelease(i, later);
  Restart(i);
}

// With `async`, writes that were acknowledged before the log failed are lost, however the region is recovered. The
// server sees the failure when its call to the disk returns, which may be after the disk has room again.
void Faults::DiskMayFail(size_t i) {
  if (!servers_[i].disk_failed_ns.has_value()) servers_[i].disk_failed_ns = world_->now_ns();
}

void Faults::DiskMayHaveLost(size_t i) {
  if (!servers_[i].disk_failed_ns.has_value()) return;
  int64_t heard_ns = world_->now_ns() + 3 * kSlowestDisk * world_->plan.disk_ns;
  if (world_->plan.objects) heard_ns += kPoolHeardNs;
  world_->history.MayLose(*servers_[i].disk_failed_ns, heard_ns);
}

bool Faults::Inject(const FaultPlan& fault) {
  Random random(fault.seed);
  const int64_t until_ns = world_->now_ns() + fault.lasts_ns;
  const std::optional<size_t> victim = AnyServer(/*alive=*/fault.fault != Fault::kJoin, &random);
  if (!victim.has_value()) return false;
  const size_t i = *victim;
  SimCluster& cluster = world_->cluster;
  world_->journal.Trace("fault: {} on server {} for {} ns", ToString(fault.fault), i, fault.lasts_ns);
  switch (fault.fault) {
    case Fault::kKill:
    case Fault::kPowerLoss:
      Kill(i, fault.fault == Fault::kPowerLoss);
      world_->At(until_ns, [this, i] {
        if (!world_->healed && world_->cluster.Dead(i)) Restart(i);
      });
      return true;
    case Fault::kStop:
      MayLose(until_ns + kTimeoutNs);
      cluster.Stop(i);
      Later(i, until_ns, [this, i] { world_->cluster.Continue(i); });
      return true;
    case Fault::kSlowHost:
      MayLose(until_ns + kTimeoutNs);
      cluster.SlowHost(i, static_cast<double>(2 + random.Below(50)));
      Later(i, until_ns, [this, i] { world_->cluster.SlowHost(i, 1); });
      return true;
    case Fault::kLostAnswers:
    case Fault::kSilence:
      return InjectPool(fault, i, until_ns, &random);
    case Fault::kDiskFull:
      if (world_->plan.objects) return InjectPool(fault, i, until_ns, &random);
      [[fallthrough]];
    case Fault::kSlowDisk:
    case Fault::kDiskError:
    case Fault::kCheckpoint:
    case Fault::kSlowDirectory:
    case Fault::kDescriptors:
      return InjectDisk(fault, i, until_ns, &random);
    case Fault::kExpire:
    case Fault::kCoordinator:
    case Fault::kMembership:
    case Fault::kLeaderless:
      return InjectMembership(fault, i, until_ns, &random);
    case Fault::kCheck:
      CheckRegions(i);
      return true;
    case Fault::kFlood:
      floods_.Begin(i, random.Next(), until_ns);
      return true;
    case Fault::kGrant:
      grants_.Give(i, &random, until_ns);
      return true;
    case Fault::kRevoke:
      return grants_.Take(i, &random, until_ns);
    case Fault::kRollback:
      SetLaterRelease(i, true);
      Later(i, until_ns, [this, i] { SetLaterRelease(i, false); });
      return true;
    case Fault::kFreeze:
      if (cluster.Stopped(i)) return false;
      MayLose(until_ns + kTimeoutNs);
      servers_[i].frozen = true;
      cluster.Freeze(i);
      Later(i, until_ns, [this, i] { Thaw(i); });
      return true;
    case Fault::kJoin:
      if (servers_[i].life > 0 || i < static_cast<size_t>(world_->plan.servers)) return false;  // It was there before.
      Restart(i);
      return true;
    case Fault::kDrain:
      cluster.SetDraining(i, true);
      servers_[i].draining = true;
      Later(i, until_ns, [this, i] {
        world_->cluster.SetDraining(i, false);
        servers_[i].draining = false;
      });
      return true;
    default:
      return InjectNetwork(fault, until_ns, &random);
  }
}

bool Faults::InjectNetwork(const FaultPlan& fault, int64_t until_ns, Random* random) {
  SimNetwork* const network = world_->cluster.network();
  SimHost* const one = AnyHost(random);
  SimHost* const other = AnyHost(random);
  switch (fault.fault) {
    case Fault::kPartition:
    case Fault::kOneWay: {
      if (one == other) return false;
      const bool both = fault.fault == Fault::kPartition;
      const auto set = [network, one, other, both](bool cut) {
        network->SetCut(one, other, cut);
        if (both) network->SetCut(other, one, cut);
      };
      set(true);
      cuts_.emplace_back(one, other);
      world_->At(until_ns, [set] { set(false); });
      return true;
    }
    case Fault::kDelay:
      network->SetDelays(random->Unit() / 2, static_cast<int64_t>(100 + random->Below(50'000)));
      world_->At(until_ns, [network] { network->SetDelays(0, 0); });
      return true;
    case Fault::kBreak:
      network->Break(one, other);
      return true;
    case Fault::kClientCut: {
      std::vector<MemoryMembership*> there;
      for (size_t i = 0; i < users_->size(); ++i) {
        if (users_->membership(i) != nullptr) there.push_back(users_->membership(i));
      }
      if (there.empty()) return false;
      CutClient(there[random->Below(there.size())], until_ns + kClientCutNs);
      return true;
    }
    default:
      return false;
  }
}

bool Faults::InjectMembership(const FaultPlan& fault, size_t i, int64_t until_ns, Random* random) {
  SimCluster& cluster = world_->cluster;
  MayLose(until_ns + kTimeoutNs);
  switch (fault.fault) {
    case Fault::kExpire:
      cluster.ExpireSession(i);
      return true;
    case Fault::kCoordinator:
      cluster.CutCoordinator(i, true);
      Later(i, until_ns, [this, i] { world_->cluster.CutCoordinator(i, false); });
      return true;
    case Fault::kLeaderless:
      cluster.CutLeader(i, true);
      // Clients that use that part see what it sees.
      for (size_t user = 0; user < users_->size(); ++user) {
        if (users_->membership(user) != nullptr && random->Below(2) == 0) CutClient(users_->membership(user), until_ns);
      }
      Later(i, until_ns, [this, i] { world_->cluster.CutLeader(i, false); });
      return true;
    case Fault::kMembership: {
      static constexpr std::array kCodes = {absl::StatusCode::kResourceExhausted, absl::StatusCode::kInternal,
                                            absl::StatusCode::kDataLoss, absl::StatusCode::kFailedPrecondition};
      cluster.membership(i)->set_failure(absl::Status(kCodes[random->Below(kCodes.size())], "the membership fails"));
      Later(i, until_ns, [this, i] { world_->cluster.membership(i)->set_failure(absl::OkStatus()); });
      return true;
    }
    default:
      return false;
  }
}

void Faults::SetShort(size_t i, Fault fault, bool on) {
  SimFiles* const files = world_->cluster.files(i);
  if (fault == Fault::kDiskFull) {
    files->set_full(on);
  } else {
    files->set_descriptors_gone(on);
  }
}

// No log fails for want of a descriptor: it waits until there is one.
void Faults::CheckLogs(size_t i) {
  for (const HeldRegion* region : world_->cluster.worker(i)->regions()->all()) {
    if (region->log == nullptr || !IsOutOfDescriptors(region->log->status())) continue;
    world_->journal.Violate("the log of region {} of server {} has failed: {}", region->region(), i,
                            region->log->status().ToString());
  }
}

// A check changes nothing, and finds no errors, whatever else is in progress. Each region is checked at one moment, and
// then in slices, between which others write it, split it and take it away.
void Faults::CheckRegions(size_t i) {
  constexpr int64_t kSliceBytes = 4 << 10;
  const auto check = [](Worker* worker, size_t i, World* world) -> Task<bool> {
    std::vector<uint32_t> ids;
    for (const HeldRegion* region : worker->regions()->all()) ids.push_back(region->region());
    for (const uint32_t id : ids) {
      for (const int64_t bytes : {INT64_MAX, kSliceBytes}) {
        RegionCheck checked(worker->regions(), fmt::format("server {}", i), id);
        absl::StatusOr<bool> ended = checked.Step(bytes);
        while (ended.ok() && !*ended) {
          co_await worker->scheduler()->Yield();
          ended = checked.Step(bytes);
        }
        if (!ended.ok()) break;  // It is being joined or filled, or was taken away.
        const std::string report = checked.Report();
        if (report.find("\"errors\":[]") != std::string::npos) continue;
        world->journal.Violate("the check of region {} of server {} says {}", id, i, report);
      }
    }
    co_return true;
  };
  Worker* const worker = world_->cluster.worker(i);
  worker->scheduler()->Spawn(check(worker, i, world_));
}

// A server that does not know how long it stood still may continue to answer reads until its lease has lapsed by its
// own clock. The protocols state that (docs/protocols.md), so such reads are in no history. And `async` may acknowledge
// writes that its log, which belongs to another server by now, does not accept any more.
void Faults::Thaw(size_t i) {
  servers_[i].frozen = false;
  world_->cluster.Thaw(i);
  world_->history.MayBeStale(world_->now_ns(), world_->now_ns() + kThawedNs);
  MayLose(world_->now_ns() + kTimeoutNs);
}

bool Faults::InjectDisk(const FaultPlan& fault, size_t i, int64_t until_ns, Random* random) {
  SimCluster& cluster = world_->cluster;
  switch (fault.fault) {
    case Fault::kSlowDisk:
      cluster.SlowDisk(i, world_->plan.disk_ns * static_cast<int64_t>(2 + random->Below(kSlowestDisk - 1)));
      Later(i, until_ns, [this, i] { world_->cluster.SlowDisk(i, world_->plan.disk_ns); });
      return true;
    case Fault::kSlowDirectory:
      cluster.files(i)->set_directory_slowness(static_cast<int>(5 + random->Below(50)));
      Later(i, until_ns, [this, i] { world_->cluster.files(i)->set_directory_slowness(1); });
      return true;
    case Fault::kDiskFull:
    case Fault::kDescriptors:
      DiskMayFail(i);
      SetShort(i, fault.fault, true);
      Later(i, until_ns, [this, i, kind = fault.fault] {
        CheckLogs(i);
        SetShort(i, kind, false);
        if (!world_->plan.restarts_after_disk) return DiskMayHaveLost(i);
        Kill(i, false);
        Restart(i);
      });
      return true;
    case Fault::kDiskError: {
      DiskMayFail(i);
      const uint64_t call = random->Below(20);
      cluster.files(i)->FailAt(
          call, random->Below(2) == 0 ? absl::UnavailableError("EIO") : absl::ResourceExhaustedError("ENOSPC"));
      Later(i, until_ns, [this, i] {
        Kill(i, false);
        Restart(i);
      });
      return true;
    }
    case Fault::kCheckpoint: {
      const auto checkpoint = [](Worker* worker) -> Task<bool> {
        Checkpointer::Made made;
        co_return (co_await worker->checkpointer()->CheckpointAll(&made)).ok();
      };
      cluster.worker(i)->scheduler()->Spawn(checkpoint(cluster.worker(i)));
      return true;
    }
    default:
      return false;
  }
}

void Faults::PoolFails(int64_t until_ns, std::function<void()> undo) {
  for (size_t i = 0; i < servers_.size(); ++i) DiskMayFail(i);
  world_->At(until_ns, [this, undo = std::move(undo)] {
    if (world_->healed) return;
    undo();
    for (size_t i = 0; i < servers_.size(); ++i) DiskMayHaveLost(i);
  });
}

// No server is restarted because of the pool: each recovers by itself.
bool Faults::InjectPool(const FaultPlan& fault, size_t i, int64_t until_ns, Random* random) {
  SimObjects* const pool = world_->cluster.pool();
  if (pool == nullptr) return false;
  SimObjectStore* const objects = world_->cluster.objects(i);
  if (fault.fault == Fault::kDiskFull) {
    pool->set_full(true);
    PoolFails(until_ns, [pool] { pool->set_full(false); });
    return true;
  }
  if (fault.fault == Fault::kSilence && random->Below(3) == 0) {
    pool->set_silent(true);
    PoolFails(until_ns, [pool] { pool->set_silent(false); });
    return true;
  }
  DiskMayFail(i);
  if (fault.fault == Fault::kSilence) {
    objects->set_silent(true);
  } else if (random->Below(2) == 0) {
    objects->LoseAt(random->Below(20));
  } else {
    objects->set_loss(1 + static_cast<int>(random->Below(20)));
  }
  Later(i, until_ns, [this, i, objects] {
    objects->EndFaults();
    DiskMayHaveLost(i);
  });
  return true;
}

void Faults::Heal() {
  world_->healed = true;
  world_->journal.Trace("the faults are over");
  SimCluster& cluster = world_->cluster;
  cluster.network()->SetDelays(0, 0);
  floods_.End();
  for (const auto& [one, other] : cuts_) {
    cluster.network()->SetCut(one, other, false);
    cluster.network()->SetCut(other, one, false);
  }
  for (size_t i = 0; i < users_->size(); ++i) {
    if (users_->membership(i) != nullptr) users_->membership(i)->set_unreachable(false);
  }
  if (cluster.pool() != nullptr) {
    cluster.pool()->set_full(false);
    cluster.pool()->set_silent(false);
    cluster.pool()->MakeAllLate();
  }
  for (size_t i = 0; i < servers_.size(); ++i) {
    const bool joins_yet = i >= static_cast<size_t>(world_->plan.servers) && servers_[i].life == 0;
    if (joins_yet) continue;
    cluster.SlowHost(i, 1);
    if (world_->plan.Has(Fault::kRollback) && !cluster.later_release(i)) {  // At the end all servers can read all logs.
      if (!cluster.Dead(i)) Kill(i, false);
      cluster.SetLaterRelease(i, true);
    }
    if (cluster.Dead(i)) {
      Restart(i);
      if (servers_[i].draining) cluster.SetDraining(i, false);
      continue;
    }
    CheckLogs(i);
    if (servers_[i].frozen) Thaw(i);
    cluster.Continue(i);
    cluster.CutCoordinator(i, false);
    cluster.CutLeader(i, false);
    cluster.membership(i)->set_failure(absl::OkStatus());
    if (world_->plan.durability != Durability::kNone) {
      cluster.files(i)->set_directory_slowness(1);
      cluster.files(i)->FailAt(0, absl::OkStatus());  // A call that was to fail may not have been made.
      SetShort(i, Fault::kDiskFull, false);
      SetShort(i, Fault::kDescriptors, false);
    }
    if (cluster.objects(i) != nullptr) cluster.objects(i)->EndFaults();
    cluster.SlowDisk(i, world_->plan.disk_ns);
    if (servers_[i].disk_failed_ns.has_value() && world_->plan.restarts_after_disk && !world_->plan.objects) {
      Kill(i, false);
      Restart(i);
    }
    DiskMayHaveLost(i);
    if (servers_[i].draining) cluster.SetDraining(i, false);
  }
}

void Faults::Collect(size_t i) {
  Worker* const worker = world_->cluster.worker(i);
  if (worker == nullptr) return;
  SimulationReport& report = world_->report;
  report.splits += worker->splitter()->meganodes().splits;
  report.joins += worker->joiner()->counters().joins;
  report.roots_removed += worker->joiner()->counters().roots_removed;
  report.cleared += worker->service()->writes()->cleared();
  report.expired += worker->service()->writes()->expired();
  report.evicted += worker->service()->writes()->evicted();
  report.moved_extents += worker->service()->compactor().counters().moved;
  report.moves += worker->migrator()->counters().received;
  report.recovered += worker->recoverer()->counters().recovered;
  report.table_splits += worker->splitter()->parts().splits;
  report.table_joins += worker->joiner()->counters().part_joins;
  report.checkpoints += worker->checkpointer()->counters().checkpoints;
}

}  // namespace cell

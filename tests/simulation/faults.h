// Faults executes a plan's faults, undoes those that last, and repairs everything at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "tests/simulation/floods.h"
#include "tests/simulation/grant_changes.h"
#include "tests/simulation/users.h"
#include "tests/simulation/world.h"

namespace cell {

class Faults {
 public:
  // Both arguments must outlive it.
  Faults(World* world, Users* users)
      : world_(world), users_(users), floods_(world), grants_(world), servers_(world->cluster.servers()) {}

  // Schedules all faults of the plan.
  void Plan();
  // Ends all faults: every server runs, every way is open, every disk has room.
  void Heal();
  // Adds up the counters of server `i` in this life.
  void Collect(size_t i);

 private:
  struct Server {
    int life = 0;                           // Grows with each start.
    std::optional<int64_t> disk_failed_ns;  // Time since when its disk may have failed: it must be restarted.
    bool draining = false;
    bool frozen = false;
  };
  // Sets which resource the disk of server `i` lacks, or returns it.
  void SetShort(size_t i, Fault fault, bool on);
  void Thaw(size_t i);
  void CheckLogs(size_t i);
  void CheckRegions(size_t i);
  // Records that the disk of server `i` may fail from now on.
  void DiskMayFail(size_t i);
  void DiskMayHaveLost(size_t i);
  // Does that for all servers and calls `undo` at `until_ns`, and then records what their pool may have lost.
  void PoolFails(int64_t until_ns, std::function<void()> undo);

  // Returns false if there was nothing that the fault could affect.
  bool Inject(const FaultPlan& fault);
  bool InjectNetwork(const FaultPlan& fault, int64_t until_ns, Random* random);
  bool InjectMembership(const FaultPlan& fault, size_t i, int64_t until_ns, Random* random);
  bool InjectDisk(const FaultPlan& fault, size_t i, int64_t until_ns, Random* random);
  bool InjectPool(const FaultPlan& fault, size_t i, int64_t until_ns, Random* random);
  std::optional<size_t> AnyServer(bool alive, Random* random);
  SimHost* AnyHost(Random* random);
  // Cuts a client off from the coordinator until `until_ns`.
  void CutClient(MemoryMembership* membership, int64_t until_ns);
  // Calls `undo` for server `i` at `at_ns`, if it is still the same process then.
  void Later(size_t i, int64_t at_ns, std::function<void()> undo);
  // Records that what `async` acknowledges from now until `until_ns` may be lost.
  void MayLose(int64_t until_ns) { world_->history.MayLose(world_->now_ns(), until_ns); }
  void Kill(size_t i, bool machine);
  void Restart(size_t i);
  // Restarts it with a later release or with this one.
  void SetLaterRelease(size_t i, bool later);

  World* const world_;
  Users* const users_;
  Floods floods_;
  GrantChanges grants_;
  std::vector<Server> servers_;
  std::vector<std::pair<SimHost*, SimHost*>> cuts_;
};

}  // namespace cell

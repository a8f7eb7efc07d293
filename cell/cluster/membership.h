// Membership shows who is in the cluster, and the region table, as this member sees them.
//
//   embedded    a directory on one machine (embedded_membership.h)
//   ZooKeeper   (zookeeper_membership.h)
//
// The view may be out of date. An outdated table leads to a worker that says so, or to invalidated nodes; Refresh then
// gets the current state. Changes are atomic: each is applied to the newest table, one after the other.
//
// Not thread-safe. Callbacks run only from Poll, and state() changes only there and in Learn.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cell/cluster/region_table.h"
#include "cell/layout/region.h"

namespace cell {

// Says when a write is acknowledged.
enum class Durability {
  kNone,   // At once. There are no logs.
  kAsync,  // At once. The write is on disk within a bound.
  kSync,   // When the write is on disk.
};

inline const char* ToString(Durability durability) {
  return durability == Durability::kNone ? "none" : durability == Durability::kAsync ? "async" : "sync";
}
std::optional<Durability> ParseDurability(const std::string& text);

// How long a client's view of the region table is valid, counted from when the client requested it. Until then the
// client reads one-sided by it. A worker that recovers a region waits longer before it serves it (docs/protocols.md).
inline constexpr int64_t kTableLeaseNs = 500'000'000;

struct ClusterState {
  struct Worker {
    std::string address;  // Address for the fabric. Empty: the worker is not there.
    uint32_t regions_max = 0;
    bool operator==(const Worker&) const = default;
  };
  struct Server {
    std::string name;
    std::vector<Worker> workers;
    std::string control;  // HOST:PORT of its control plane; empty if unknown.
    bool operator==(const Server&) const = default;
  };

  std::string uuid;  // Identifies the cluster; set when it is made. Empty: an earlier release made it.
  RegionShape shape;
  Durability durability = Durability::kNone;
  int64_t table_lease_ns = kTableLeaseNs;
  std::vector<Server> servers;   // Servers that are there. Embedded: servers that are listed.
  uint64_t servers_version = 0;  // Grows when `servers` changes. 0: unknown.
  RegionTable table;
  uint64_t revision = 0;  // Grows whenever this member sees a new state.

  // Takes over the servers and the table of another state of this cluster, each if it is as new or newer. Returns
  // whether one was; `revision` has grown then.
  bool TakeNewer(const ClusterState& other);
  const Server* FindServer(const std::string& name) const;
  // Returns null if there is no such member.
  const Worker* FindWorker(const WorkerId& id) const;
  // Returns the worker that holds a region. Returns NotFound if the table does not list the region, and Unavailable if
  // its server is gone.
  absl::StatusOr<WorkerId> OwnerOf(uint32_t region) const;
};

class Membership {
 public:
  using Done = std::function<void(const absl::Status&)>;
  // Changes a table, or refuses with an error. May be called several times for one change.
  using TableChange = std::function<absl::Status(RegionTable*)>;

  virtual ~Membership() = default;

  virtual const ClusterState& state() const = 0;
  // Reads the state again. Returns Unavailable if the membership cannot be reached; state() is unchanged then.
  virtual void Refresh(Done done) = 0;
  // Applies a change. Returns the change's own error, in which case nothing was changed; OutOfRange if it is for more
  // regions than can be changed at once, in which case nothing was changed either; or an error like Refresh, in which
  // case the outcome is unknown.
  virtual void Change(TableChange change, Done done) = 0;
  // Runs the callbacks of finished operations. Returns their number.
  virtual size_t Poll() = 0;
  // Returns whether a callback is still to come.
  virtual bool pending() const = 0;
  // Sets the function that is called, on any thread, whenever there is something new for Poll. Null: none is called.
  // When this returns, the former function is not called any more. Returns false if this membership never calls it, as
  // those of simulations: then the owner must call Poll again and again while pending().
  virtual bool SetWake(std::function<void()>) { return false; }
  // Returns until when a worker may acknowledge writes, on CLOCK_BOOTTIME. Until then nobody can take it for dead.
  virtual int64_t LeaseUntilNs() const { return INT64_MAX; }
  // Returns whether state() follows the cluster by itself. If not, it is as of the last Refresh or Change.
  virtual bool watches() const { return false; }
  // Returns whether Learn takes what workers tell. If so, the owner asks them for the newest state as long as one
  // answers, and uses Refresh if none does: any number of members then costs the coordinator the same.
  virtual bool learns() const { return false; }
  // Takes over those parts of a state of this cluster that are newer than those of state(). REQUIRES: learns().
  virtual void Learn(std::shared_ptr<const ClusterState>) {}
  // Changes if others may meanwhile have taken this worker for dead, and its regions over.
  virtual uint64_t session() const { return 1; }
  // Returns whether a worker is known to have ended, so that it acknowledges nothing any more.
  virtual bool IsGone(const WorkerId& worker) const { return state().FindWorker(worker) == nullptr; }
};

}  // namespace cell

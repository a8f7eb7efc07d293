// Membership: who is in the cluster, and the region table, as this member sees them.
//
//   embedded    a directory on one machine (embedded_membership.h)
//   ZooKeeper   (zookeeper_membership.h)
//
// What is seen may be old: a table that is out of date leads to a worker that says so, or to nodes that are gone, and
// then Refresh tells better. Changes are atomic: each is made to the newest table, one after the other.
//
// One thread. Callbacks are told by Poll alone, and state() changes there alone.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cell/cluster/region_table.h"
#include "cell/layout/region.h"

namespace cell {

// When a write is acknowledged.
enum class Durability {
  kNone,   // At once; there are no logs.
  kAsync,  // At once; it is on disk within a bound.
  kSync,   // When it is on disk.
};

inline const char* ToString(Durability durability) {
  return durability == Durability::kNone ? "none" : durability == Durability::kAsync ? "async" : "sync";
}
std::optional<Durability> ParseDurability(const std::string& text);

// A client's view of the region table is good for so long from when it was asked for. Until then it reads one-sided by
// it; whoever recovers a region waits longer before it serves it (docs/protocols.md).
inline constexpr int64_t kTableLeaseNs = 1'000'000'000;

struct ClusterState {
  struct Worker {
    std::string address;  // What the fabric connects to. Empty: it is not there.
    uint32_t regions_max = 0;
  };
  struct Server {
    std::string name;
    std::vector<Worker> workers;
    std::string control;  // HOST:PORT of its control plane; empty: not known.
  };

  std::string uuid;  // Of the cluster; given when it is made. Empty: an earlier release made it.
  RegionShape shape;
  Durability durability = Durability::kNone;
  int64_t table_lease_ns = kTableLeaseNs;
  std::vector<Server> servers;  // Those that are there; embedded: those that are listed.
  RegionTable table;
  uint64_t revision = 0;  // Grows whenever this member sees another state.

  const Server* FindServer(const std::string& name) const;
  // Null: no such server is a member.
  const Worker* FindWorker(const WorkerId& id) const;
  // The worker that holds a region. NotFound: the table does not know the region. Unavailable: its server is gone.
  absl::StatusOr<WorkerId> OwnerOf(uint32_t region) const;
};

class Membership {
 public:
  using Done = std::function<void(const absl::Status&)>;
  // Changes a table, or refuses with an error. May be called several times, for one change that is made.
  using TableChange = std::function<absl::Status(RegionTable*)>;

  virtual ~Membership() = default;

  virtual const ClusterState& state() const = 0;
  // Unavailable: the membership cannot be reached, and state() is what it was.
  virtual void Refresh(Done done) = 0;
  // The change's own error, and then nothing was changed; or as Refresh, and then it is not known.
  virtual void Change(TableChange change, Done done) = 0;
  // Tells what is done. The number of callbacks told.
  virtual size_t Poll() = 0;
  // Whether a callback is still to come.
  virtual bool pending() const = 0;
  // A worker may acknowledge writes until then, on CLOCK_MONOTONIC: as long as no one can take it for dead.
  virtual int64_t LeaseUntilNs() const { return INT64_MAX; }
  // Whether state() follows the cluster by itself; else it is as of the last Refresh or Change.
  virtual bool watches() const { return false; }
  // Changes when others may have taken this worker for dead in between, and its regions.
  virtual uint64_t session() const { return 1; }
  // Whether a worker has ended, and acknowledges nothing any more, as far as is known now.
  virtual bool IsGone(const WorkerId& worker) const { return state().FindWorker(worker) == nullptr; }
};

}  // namespace cell

// TableAsker asks workers whether this client's view of the region table is the newest one, so that the leases of any
// number of clients cost the coordinator the same. Internal to cell/client. Not thread-safe.
//
// All clients of a cluster ask the same few workers, because each worker that is asked reads the table a few times for
// each lease. Each client keeps to one of them until that one gives no answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/base/task.h"
#include "cell/client/client.h"
#include "cell/client/session/client_loop.h"
#include "cell/client/session/connections.h"
#include "cell/cluster/membership.h"

namespace cell {

class TableAsker {
 public:
  // All arguments must outlive this. Clients with different seeds, or made at different times, begin with different
  // workers.
  TableAsker(ClientLoop* loop, Connections* connections, ClientMetrics* metrics, uint64_t seed)
      : loop_(loop), connections_(connections), metrics_(metrics), turn_(seed + static_cast<uint64_t>(loop->NowNs())) {}

  struct Answer {
    uint64_t version = 0;                // Of the region table.
    uint64_t servers_version = 0;        // Of the list of servers.
    int64_t as_of_ns = 0;                // Those were the newest versions then or later, by this client's clock.
    WorkerConnection* worker = nullptr;  // Who said so.
  };
  // Asks a worker, and if that gives no usable answer in half of the time, another one, which later questions go to. If
  // what it knows is older than `age_ns`, it will soon know better. Returns Unavailable if none answers before the
  // deadline, and FailedPrecondition if the last one belongs to another cluster or cannot say how old its table is.
  Task<absl::StatusOr<Answer>> Ask(const ClusterState* cluster, uint64_t age_ns, int64_t deadline_ns);
  // Makes the next question go to another worker.
  void PassOver() { ++turn_; }

 private:
  static constexpr size_t kAskedMax = 4;

  // Returns the worker to ask next. Returns null if the cluster has no worker.
  WorkerConnection* Next(const ClusterState& cluster);
  Task<absl::StatusOr<Answer>> AskOne(WorkerConnection* worker, uint64_t cluster, uint64_t age_ns, int64_t deadline_ns);

  ClientLoop* const loop_;
  Connections* const connections_;
  ClientMetrics* const metrics_;
  uint64_t turn_;                // Chooses one of asked_. Grows with each question that got no usable answer.
  uint64_t revision_ = 0;        // Revision of the cluster's state when asked_ was made.
  std::vector<WorkerId> asked_;  // The workers that clients of this cluster ask.
};

}  // namespace cell

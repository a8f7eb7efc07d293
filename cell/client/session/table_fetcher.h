// TableFetcher gets from a worker what has changed of the region table and the servers, so that the coordinator is not
// asked for it. Internal to cell/client. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cell/base/task.h"
#include "cell/client/client.h"
#include "cell/client/session/client_loop.h"
#include "cell/client/session/connections.h"
#include "cell/cluster/membership.h"
#include "cell/layout/wire.h"

namespace cell {

class TableFetcher {
 public:
  // All arguments must outlive this.
  TableFetcher(ClientLoop* loop, Connections* connections, ClientMetrics* metrics)
      : loop_(loop), connections_(connections), metrics_(metrics) {}

  struct Versions {
    uint64_t table = 0;
    uint64_t servers = 0;
  };
  // Returns `have` with these versions of its table and its servers, where they are newer. Asks `worker`, which is
  // connected, for the parts that `have` lacks, one after the other. Returns Aborted if the worker knows other versions
  // by now, DataLoss if what it sends is not valid, and otherwise errors like those of a call.
  Task<absl::StatusOr<std::shared_ptr<const ClusterState>>> Fetch(WorkerConnection* worker, ClusterState have,
                                                                  Versions newer, int64_t deadline_ns);

 private:
  Task<absl::Status> FetchServers(WorkerConnection* worker, uint64_t version, int64_t deadline_ns, ClusterState* to);
  Task<absl::Status> FetchTable(WorkerConnection* worker, uint64_t version, int64_t deadline_ns, ClusterState* to);
  // Returns a part of at most `bytes_max` bytes.
  Task<absl::StatusOr<std::string>> FetchPart(WorkerConnection* worker, TablePart part, size_t bytes_max,
                                              int64_t deadline_ns);

  ClientLoop* const loop_;
  Connections* const connections_;
  ClientMetrics* const metrics_;
};

}  // namespace cell

// Peers holds a worker's connections to the other workers of its cluster. A connection is made when it is first needed.
// Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cell/base/task.h"
#include "cell/cluster/membership.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

class Peers {
 public:
  static constexpr int64_t kAnswerTimeoutNs = 2'000'000'000;

  Peers(Fabric* fabric, const Membership* membership) : fabric_(fabric), membership_(membership) {}

  // Sends `request` to another worker and returns its reply. Returns Unavailable if the worker is not in the cluster or
  // cannot be reached, and Unknown if it may have received the request. A connection that was lost before the request
  // was sent is made again once: the worker may have been started again. `timeout_ns`: for the answer, and at most as
  // long for the connection.
  Task<absl::StatusOr<std::string>> Call(WorkerId worker, std::string request, int64_t timeout_ns = kAnswerTimeoutNs);
  // Reads parts of a worker's regions one-sided.
  Task<absl::Status> Read(WorkerId worker, absl::Span<const ReadPart> parts);
  // Forgets the location of a region's memory at a worker that may have held it before.
  void ForgetRegion(const WorkerId& worker, uint32_t region);

  // Closes connections that were lost, and those to workers that have left the cluster. Must not be called from a
  // completion.
  void Step();
  // Returns the number of connections.
  size_t connections() const { return links_.size(); }

 private:
  // Sets *before to whether the connection was made by an earlier request.
  Task<absl::StatusOr<ConnectionId>> Connect(WorkerId worker, int64_t timeout_ns, bool* before);
  void Lost(const WorkerId& worker, ConnectionId used);

  Fabric* const fabric_;
  const Membership* const membership_;
  std::map<WorkerId, ConnectionId> links_;  // Connections that are up.
  uint64_t seen_revision_ = 0;
  std::vector<ConnectionId> to_close_;  // Closed by Step.
};

}  // namespace cell

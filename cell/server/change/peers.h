// Peers: a worker's connections to the other workers of its cluster, made when first needed. One thread.
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
  Peers(Fabric* fabric, const Membership* membership) : fabric_(fabric), membership_(membership) {}

  // A request to a worker, which is not this one, and its reply. Unavailable: it is not in the cluster, or does not
  // answer. Unknown: it may have got the request.
  Task<absl::StatusOr<std::string>> Ask(WorkerId worker, std::string request);
  // Reads of its regions.
  Task<absl::Status> Read(WorkerId worker, absl::Span<const ReadPart> parts);
  // Of a region that may have been there before.
  void ForgetRegion(const WorkerId& worker, uint32_t region);

  // Outside of all completions: ends connections that were lost, and those to workers that are not members any more.
  void Step();
  // How many connections there are.
  size_t connections() const { return links_.size(); }

 private:
  Task<absl::StatusOr<ConnectionId>> Connect(WorkerId worker);
  void Lost(const WorkerId& worker, ConnectionId used);

  Fabric* const fabric_;
  const Membership* const membership_;
  std::map<WorkerId, ConnectionId> links_;  // Those that are up.
  uint64_t seen_revision_ = 0;
  std::vector<ConnectionId> lost_;
};

}  // namespace cell

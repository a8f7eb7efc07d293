// ClusterText: what a cluster's members write about themselves and the cluster, as JSON: in files (embedded_membership.h)
// and znodes (zookeeper_membership.h). Pure. Anybody may have written it: it is checked before it is acted on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cell/base/json.h"
#include "cell/cluster/membership.h"

namespace cell {

// The members "node_bytes", "meganode_bytes" and "extents_bytes". InvalidArgument: they are missing, or no region can
// have such parts.
absl::StatusOr<RegionShape> ParseShape(JsonView json);
// The member "durability"; kNone, if it is missing.
absl::StatusOr<Durability> ParseDurability(JsonView json);

// The constants that all members of a cluster must agree on.
struct ClusterConstants {
  RegionShape shape;
  Durability durability = Durability::kNone;
};
// Names the constants that are not `cluster`'s, as a server's flags, with both values: "--node-bytes 512 (the cluster
// has 1024)". Empty: all are.
std::string Differences(const ClusterConstants& started_with, const ClusterConstants& cluster);

// A worker as it announces itself.
struct WorkerText {
  ClusterState::Worker worker;
  std::string control;
};
std::string ToText(const WorkerText& worker);
absl::StatusOr<WorkerText> ParseWorkerText(std::string_view text);
// SERVER.N. None: it is not of this form.
std::optional<WorkerId> ParseWorkerId(std::string_view text);

}  // namespace cell

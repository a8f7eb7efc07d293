// Defines the JSON texts that members of a cluster write about themselves and the cluster, in files
// (embedded_membership.h) and znodes (zookeeper_membership.h). Pure. The texts are untrusted: they are checked before
// use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/base/json.h"
#include "cell/cluster/membership.h"

namespace cell {

// Returns InvalidArgument if no region can have such parts.
absl::Status CheckShape(const RegionShape& shape);
// Parses the members "node_bytes", "meganode_bytes" and "extents_bytes". Returns InvalidArgument if one is missing, or
// if no region can have such parts.
absl::StatusOr<RegionShape> ParseShape(JsonView json);
// Parses the member "durability". Returns kNone if it is missing.
absl::StatusOr<Durability> ParseDurability(JsonView json);

// Holds the constants that all members of a cluster must agree on.
struct ClusterConstants {
  RegionShape shape;
  Durability durability = Durability::kNone;
};
// Describes the constants that differ from `cluster`, as a server's flags with both values: "--node-bytes 512 (the
// cluster has 1024)". Returns "" if none differs.
std::string Differences(const ClusterConstants& started_with, const ClusterConstants& cluster);

// Holds what a worker announces about itself.
struct WorkerText {
  ClusterState::Worker worker;
  std::string control;
};
std::string ToText(const WorkerText& worker);
absl::StatusOr<WorkerText> ParseWorkerText(std::string_view text);
// The servers of a cluster, as a worker tells them to clients.
std::string ServersText(const std::vector<ClusterState::Server>& servers);
// Returns InvalidArgument if the text is not such a list.
absl::StatusOr<std::vector<ClusterState::Server>> ParseServersText(std::string_view text);
// Parses SERVER.N. Returns nullopt if the text does not have this form, or SERVER is no server's name.
std::optional<WorkerId> ParseWorkerId(std::string_view text);

}  // namespace cell

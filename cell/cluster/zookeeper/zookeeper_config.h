// Reads and writes the znode /NAME of a cluster, which has what all members must agree on, and converts clusters of the
// release before this one. Internal to cell/cluster/zookeeper.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/cluster/zookeeper/zookeeper_connection.h"
#include "cell/cluster/zookeeper/zookeeper_membership.h"

namespace cell {

// Formats of a cluster in ZooKeeper (docs/versions.md).
inline constexpr uint32_t kZooKeeperFormat = 3;
inline constexpr uint32_t kZooKeeperFormatOfOneZnode = 2;  // The region table was one JSON text.

std::string ToJson(const ZooKeeperMembership::Config& config);

// Returns InvalidArgument if the text is malformed, and FailedPrecondition if it has another format.
absl::StatusOr<ZooKeeperMembership::Config> ParseConfig(const std::string& text, uint32_t format = kZooKeeperFormat);

// Converts a cluster of kZooKeeperFormatOfOneZnode; does nothing if it has another format. `root` is its path. Returns
// FailedPrecondition if it has servers: a server of that release could not read the table any more.
absl::Status ConvertCluster(ZooKeeperConnection* connection, const std::string& root);

}  // namespace cell

// Opens clusters by their name on command lines: a directory, or zk://HOST:PORT[,HOST:PORT...]/NAME.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cell/cluster/membership.h"

namespace cell {

inline bool NamesZooKeeper(const std::string& cluster) { return cluster.compare(0, 5, "zk://") == 0; }

// Opens a cluster as a client. `digest` is for ZooKeeper, or empty. A directory whose file `address` names a cluster in
// ZooKeeper stands for that cluster, with the credentials in its file kDigestFileName unless `digest` is given. Returns
// PermissionDenied if the directory may not be read, and otherwise the errors of EmbeddedMembership::Open and
// ZooKeeperMembership::Open. `timeout_ns`: how long to wait for a ZooKeeper that does not answer, if that is less than
// two of its sessions.
absl::StatusOr<std::unique_ptr<Membership>> OpenMembership(const std::string& cluster, const std::string& digest,
                                                           int64_t timeout_ns = INT64_MAX);

}  // namespace cell

#include "cell/cluster/open_membership.h"

#include <utility>

#include "cell/base/status_macros.h"
#include "cell/cluster/embedded_membership.h"
#include "cell/cluster/zookeeper_membership.h"

namespace cell {

absl::StatusOr<std::unique_ptr<Membership>> OpenMembership(const std::string& cluster, const std::string& digest) {
  if (!NamesZooKeeper(cluster)) {
    ASSIGN_OR_RETURN(std::unique_ptr<Membership> embedded, EmbeddedMembership::Open(cluster));
    return embedded;
  }
  ASSIGN_OR_RETURN(ZooKeeperOptions options, ZooKeeperOptions::Parse(cluster));
  options.digest = digest;
  ASSIGN_OR_RETURN(std::unique_ptr<Membership> zookeeper, ZooKeeperMembership::Open(options));
  return zookeeper;
}

}  // namespace cell

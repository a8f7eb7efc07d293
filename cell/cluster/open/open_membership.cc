#include "cell/cluster/open/open_membership.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/cluster/embedded/embedded_membership.h"
#include "cell/cluster/zookeeper/digest_file.h"
#include "cell/cluster/zookeeper/zookeeper_membership.h"
#include "cell/io/file/text_file.h"
#include "fmt/format.h"

namespace cell {
absl::StatusOr<std::unique_ptr<Membership>> OpenMembership(const std::string& cluster, const std::string& digest,
                                                           int64_t timeout_ns) {
  if (!NamesZooKeeper(cluster)) {
    const std::string config = cluster + "/cluster.json";
    errno = 0;
    if (::access(config.c_str(), R_OK) != 0 && errno == EACCES) {
      return absl::PermissionDeniedError(fmt::format(
          "permission denied: \"{}\" is another user's cluster; ask that user for permission to read it", config));
    }
    // If this is the directory of servers whose cluster is in ZooKeeper, //tools:up wrote the cluster's address there.
    const std::string address = errno == ENOENT ? FirstLineOf(cluster + "/address").value_or("") : "";
    if (NamesZooKeeper(address)) {
      const std::string file = fmt::format("{}/{}", cluster, kDigestFileName);
      if (!digest.empty() || ::access(file.c_str(), F_OK) != 0) return OpenMembership(address, digest, timeout_ns);
      ASSIGN_OR_RETURN(const std::string its, ReadZooKeeperDigest(file));
      return OpenMembership(address, its, timeout_ns);
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Membership> embedded, EmbeddedMembership::Open(cluster));
    return embedded;
  }
  ASSIGN_OR_RETURN(ZooKeeperOptions options, ZooKeeperOptions::Parse(cluster));
  options.digest = digest;
  options.connect_ns = timeout_ns;
  ASSIGN_OR_RETURN(std::unique_ptr<Membership> zookeeper, ZooKeeperMembership::Open(options));
  return zookeeper;
}

}  // namespace cell

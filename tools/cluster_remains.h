// ClusterRemains: what is left of a cluster whose servers have ended, and how it is deleted.
//
// Nothing else in Cell deletes a cluster's keys. It is refused as long as a server of the cluster runs; a server of it
// that comes back later finds that the cluster is gone, by its UUID, and serves nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/cluster/zookeeper_membership.h"
#include "cell/io/net/fd.h"

namespace cell {

class ClusterRemains {
 public:
  // A directory that //tools:up made, whichever membership keeps its cluster. Servers of this name cannot start there
  // as long as this object lives. `log_dir`: of its logs; empty: DIR/log.
  //
  // NotFound: no cluster is there. FailedPrecondition: a process of it runs, or the logs are another cluster's.
  static absl::StatusOr<ClusterRemains> InDirectory(const std::string& directory, const std::string& digest,
                                                    const std::string& log_dir);
  // A cluster that ZooKeeper keeps. `log_dir`: of its logs; empty: they stay. Errors as above, and those of
  // ZooKeeperMembership::Open.
  static absl::StatusOr<ClusterRemains> InZooKeeper(const std::string& cluster, const std::string& digest,
                                                    const std::string& log_dir);

  const std::string& name() const { return name_; }
  const std::string& uuid() const { return uuid_; }  // Empty: it has none, or it cannot be read.
  // What Delete removes, line by line, for people.
  const std::vector<std::string>& listed() const { return listed_; }

  // Stops at the first error; calling it for the same cluster once more goes on.
  absl::Status Delete();

 private:
  absl::Status AddLogs(const std::string& directory, bool check);
  void AddTable(const RegionTable& table);
  void AddFile(const std::string& path);

  std::string name_;
  std::string uuid_;
  std::vector<std::string> listed_;
  std::optional<ZooKeeperOptions> zookeeper_;
  std::string log_dir_;
  bool check_logs_ = false;
  std::vector<std::string> files_;
  std::string zookeeper_dir_;
  std::vector<Fd> locks_;
};

}  // namespace cell

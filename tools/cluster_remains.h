// ClusterRemains deletes what is left of a cluster whose servers have ended.
//
// Nothing else in Cell deletes a cluster's keys. Deleting is refused while a server of the cluster runs. A server that
// comes back later finds by the UUID that the cluster is gone, and serves nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/cluster/zookeeper/zookeeper_membership.h"
#include "cell/io/net/fd.h"
#include "cell/log/place/log_place.h"

namespace cell {

class ClusterRemains {
 public:
  // Finds the cluster of a directory that //tools:up made, whichever membership it has. Servers of this name cannot
  // start there while this object lives. `logs` has its logs; by default what up has noted there, or DIR/log. With
  // `keep_logs` they stay, and their place is not looked at.
  //
  // Returns NotFound if there is no cluster, PermissionDenied if it is another user's, and FailedPrecondition if a
  // process of it runs, or if the logs belong to another cluster.
  static absl::StatusOr<ClusterRemains> InDirectory(const std::string& directory, const std::string& digest,
                                                    const std::optional<LogPlace>& logs, bool keep_logs);
  // Finds a cluster in ZooKeeper. `logs` has its logs; without it they stay. Returns the errors above, and those of
  // ZooKeeperMembership::Open.
  static absl::StatusOr<ClusterRemains> InZooKeeper(const std::string& cluster, const std::string& digest,
                                                    const std::optional<LogPlace>& logs);

  const std::string& name() const { return name_; }
  const std::string& uuid() const { return uuid_; }  // Empty: it has none, or it cannot be read.
  // Returns what Delete removes, line by line, for people.
  const std::vector<std::string>& listed() const { return listed_; }

  // Deletes everything. Stops at the first error; another call for the same cluster continues.
  absl::Status Delete();

 private:
  absl::Status AddLogs(const LogPlace& logs, bool check);
  void AddTable(const RegionTable& table);
  void AddFile(const std::string& path);

  std::string name_;
  std::string uuid_;
  std::vector<std::string> listed_;
  std::optional<ZooKeeperOptions> zookeeper_;
  std::optional<LogPlace> logs_;
  bool check_logs_ = false;
  std::vector<std::string> files_;
  std::vector<std::string> services_;  // Directories of a ZooKeeper and a Ceph that up has started for the cluster.
  std::vector<Fd> locks_;
};

}  // namespace cell

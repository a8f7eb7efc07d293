// The embedded membership: a cluster on one machine is a directory.
//
//   cluster.json   written by //tools:up, before the servers start: what all must agree on. It is replaced as a whole when
//                  the cluster gets more servers; the rest of it stays
//     {"format": 2, "node_bytes": 1024, "meganode_bytes": 67108864, "extents_bytes": 268435456,
//      "servers": [{"name": "server-0", "workers": [{"socket": "server-0.0.sock", "regions_max": 16}]}]}
//     A worker has a socket, or addresses "tcp": "HOST:PORT", "verbs": "HOST:PORT", or several of them.
//     and "durability": "none" (default), "async" or "sync", and then the regions' logs are in DIR/log
//     and "uuid", which tells this cluster from any other that is called the same (cell/log/log_directory.h)
//   NAME.lock      locked by server NAME as long as it runs: so that it is gone, all others know
//   NAME.control   where a server's control plane listens
//   regions.json   the region table; replaced as a whole (rename) by who holds the lock on regions.lock
//
// Its calls do their work at once: they take the time of some file operations, about 100 us.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/cluster/membership.h"

namespace cell {

class EmbeddedMembership : public Membership {
 public:
  static constexpr int kFormat = 2;

  // Of `directory`. NotFound: no cluster there. FailedPrecondition: another release's. InvalidArgument: damaged, or its
  // values make no sense. Every message says what to do.
  static absl::StatusOr<std::unique_ptr<EmbeddedMembership>> Open(const std::string& directory);
  // cluster.json's content.
  static absl::StatusOr<ClusterState> ParseConfig(const std::string& json, const std::string& directory);

  const ClusterState& state() const override { return state_; }
  void Refresh(Done done) override;
  void Change(TableChange change, Done done) override;
  size_t Poll() override;
  bool pending() const override { return !told_.empty(); }
  bool IsGone(const WorkerId& worker) const override;
  // What server NAME locks.
  static std::string LockPath(const std::string& directory, const std::string& server) {
    return directory + "/" + server + ".lock";
  }

 private:
  struct Told {
    Done done;
    absl::Status status;
    RegionTable table;  // If it is ok.
  };

  EmbeddedMembership(std::string directory, ClusterState state)
      : directory_(std::move(directory)), state_(std::move(state)) {}

  // What is in cluster.json now, into servers_. Unavailable: the cluster is gone, or another one is there.
  absl::Status ReadServers();
  void ReadControls();
  absl::StatusOr<RegionTable> ReadTable();
  absl::StatusOr<RegionTable> ChangeTable(const TableChange& change);
  void Tell(Done done, absl::StatusOr<RegionTable> table);

  const std::string directory_;
  ClusterState state_;
  std::string config_text_;                    // Of cluster.json, as it was read last...
  std::vector<ClusterState::Server> servers_;  // ...with the servers that it lists...
  uint64_t servers_version_ = 0;               // ...which of them this is...
  uint64_t servers_seen_ = 0;                  // ...and which state_ has.
  std::map<std::string, std::tuple<ino_t, int64_t, int64_t>> controls_;  // Files of control planes: inode, and when made.
  std::string table_text_;  // What was read last...
  RegionTable table_;       // ...and what it says.
  std::vector<Told> told_;
};

}  // namespace cell

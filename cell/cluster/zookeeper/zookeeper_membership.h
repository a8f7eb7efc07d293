// ZooKeeperMembership keeps the membership of clusters of several machines in Apache ZooKeeper.
//
//   /NAME                     persistent: {"format": 3, "node_bytes": .., "meganode_bytes": .., "extents_bytes": ..,
//                             "durability": .., "uuid": ..}
//   /NAME/workers/SERVER.N    ephemeral, one for each worker: {"address": .., "regions_max": .., "control": ..}
//   /NAME/table               persistent: the root of the region table (table_shards.h)
//   /NAME/table/NNNNNNNN      persistent: its shards
//
// A change writes the root and some shards, at once, by compare-and-set of the root's version. Changes that are asked
// for while others are being made are written together. A member reads only the shards that have changed.
//
// ZooKeeper has three properties to deal with. A lost connection leaves open whether a change was made: each change
// therefore has an id that stays in the table for a while, and can be looked up there. Watches fire once and are set
// again with each read: Refresh always gets the current state. A session expires at ZooKeeper first: a worker therefore
// relies on its own clock, and does not wait to be told (LeaseUntilNs).
//
// Clients learn from workers what has changed (Learn), and the members of one process tell each other. While workers
// answer, a process of clients has no connection to ZooKeeper: it ends some seconds after it was last used.
//
// A thread makes all calls to ZooKeeper, one after the other: that of the worker, or one for all clients of the cluster
// in this process (ZooKeeperMember). The functions of a membership belong to one thread, as those of every Membership.
// Open, Join and Delete can be called by any.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cell/cluster/membership.h"
#include "cell/cluster/zookeeper/told_states.h"
#include "cell/cluster/zookeeper/zookeeper_options.h"

namespace cell {

class ZooKeeperMember;

class ZooKeeperMembership : public Membership {
 public:
  // Holds the constants that all members of a cluster must agree on.
  struct Config {
    std::string uuid = {};  // Join sets it when it makes the cluster.
    RegionShape shape;
    Durability durability = Durability::kNone;
  };
  // Opens an existing cluster as a client. Returns NotFound if it does not exist, and Unavailable if ZooKeeper does not
  // answer.
  static absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> Open(const ZooKeeperOptions& options);
  // Joins a cluster as a worker. The first worker makes the cluster. Returns FailedPrecondition if the cluster has
  // another configuration, and AlreadyExists if there is such a worker.
  static absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> Join(const ZooKeeperOptions& options,
                                                                   const Config& config, const WorkerId& self,
                                                                   const ClusterState::Worker& worker,
                                                                   const std::string& control);
  // Deletes the constants and the region table of the cluster `uuid`. Returns FailedPrecondition if a worker is a
  // member, or if another cluster has this name now. Returns NotFound and Unavailable like Open.
  static absl::Status Delete(const ZooKeeperOptions& options, const std::string& uuid);
  ~ZooKeeperMembership() override;

  const ClusterState& state() const override { return state_; }
  void Refresh(Done done) override;
  void Change(TableChange change, Done done) override;
  size_t Poll() override;
  bool pending() const override { return pending_ > 0; }
  bool SetWake(std::function<void()> wake) override;
  int64_t LeaseUntilNs() const override;
  uint64_t session() const override { return session_seen_; }
  bool watches() const override { return true; }
  bool learns() const override;
  void Learn(std::shared_ptr<const ClusterState> state) override;

 private:
  explicit ZooKeeperMembership(std::shared_ptr<ZooKeeperMember> member);
  // Makes a membership of a member that was opened. Returns an error if that does not see its cluster any more.
  static absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> Of(std::shared_ptr<ZooKeeperMember> member);

  void Take(const ClusterState& state);

  const std::shared_ptr<ZooKeeperMember> member_;
  const std::shared_ptr<ToldStates> told_;
  ClusterState state_;
  uint64_t session_seen_ = 1;
  size_t pending_ = 0;
};

}  // namespace cell

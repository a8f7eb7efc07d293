// The membership that Apache ZooKeeper keeps, for clusters of several machines.
//
//   /NAME                     persistent: {"format": 2, "node_bytes": .., "meganode_bytes": .., "extents_bytes": ..,
//                             "durability": .., "uuid": ..}
//   /NAME/workers/SERVER.N    ephemeral, one for each worker: {"address": .., "regions_max": .., "control": ..}
//   /NAME/table               persistent: the region table
//
// The table is one znode, changed by compare-and-set of its version: at 60 bytes a region it takes 15,000 regions (of
// 64 MB and more) until it reaches ZooKeeper's limit of 1 MB.
//
// ZooKeeper as it is. A lost connection leaves open whether a change was made: each change carries an id that the table
// keeps for a while, and the answer is looked up there. Watches fire once and are set anew with each read; whoever
// needs to know for certain calls Refresh. A session expires at ZooKeeper first: so a worker trusts its own clock, and
// not to be told (LeaseUntilNs).
//
// All calls to ZooKeeper are made by a thread of this object's own, one after the other; the rest is for one thread, as
// of every Membership.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cell/cluster/membership.h"
#include "cell/io/exec/system_clock.h"

namespace cell {

struct ZooKeeperOptions {
  std::string servers;  // HOST:PORT[,HOST:PORT...]
  std::string name;     // Of the cluster.
  std::string digest;   // USER:PASSWORD, for ACLs that keep others out; empty: everyone may.
  int session_ms = 4'000;
  const Clock* clock = SystemClock::Get();  // The one that callers compare LeaseUntilNs with.

  // Of zk://HOST:PORT[,HOST:PORT...]/NAME. InvalidArgument says what is wrong.
  static absl::StatusOr<ZooKeeperOptions> Parse(const std::string& uri);
};

class ZooKeeperMembership : public Membership {
 public:
  // What all members of a cluster must agree on.
  struct Config {
    std::string uuid = {};  // Join gives a cluster that it makes one.
    RegionShape shape;
    Durability durability = Durability::kNone;
  };
  // As a client of a cluster that is there. NotFound: it is not. Unavailable: ZooKeeper does not answer.
  static absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> Open(const ZooKeeperOptions& options);
  // As a worker; the first makes the cluster. FailedPrecondition: the cluster has another configuration. AlreadyExists:
  // such a worker is in it.
  static absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> Join(const ZooKeeperOptions& options,
                                                                   const Config& config, const WorkerId& self,
                                                                   const ClusterState::Worker& worker,
                                                                   const std::string& control);
  // Deletes the cluster `uuid`: its constants and its region table. FailedPrecondition: a worker is a member, or the
  // cluster of this name is another one. NotFound, Unavailable: as Open.
  static absl::Status Delete(const ZooKeeperOptions& options, const std::string& uuid);
  ~ZooKeeperMembership() override;

  const ClusterState& state() const override;
  void Refresh(Done done) override;
  void Change(TableChange change, Done done) override;
  size_t Poll() override;
  bool pending() const override;
  int64_t LeaseUntilNs() const override;
  uint64_t session() const override;
  bool watches() const override { return true; }

 private:
  class Client;
  explicit ZooKeeperMembership(std::unique_ptr<Client> client);

  std::unique_ptr<Client> client_;
};

}  // namespace cell

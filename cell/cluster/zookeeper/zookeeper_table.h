// ZooKeeperTable reads and changes the region table of a cluster in ZooKeeper (table_shards.h).
//
//   PATH             the root
//   PATH/NNNNNNNN    a shard, named by its first id in decimal
//
// A member knows the table as it last read it, and reads only what has changed since. Each change writes the root,
// whose version is checked, so that changes come one after the other.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/cluster/region_table.h"
#include "cell/cluster/table_shards.h"
#include "cell/cluster/zookeeper/zookeeper_connection.h"

namespace cell {

class ZooKeeperTable {
 public:
  // `connection` must outlive this. `between` is called between requests, of which there may be many.
  ZooKeeperTable(ZooKeeperConnection* connection, std::string path, std::function<void()> between)
      : connection_(connection), path_(std::move(path)), between_(std::move(between)) {}

  // The table as last read or written.
  const RegionTable& table() const { return table_; }
  // ZooKeeper's count of all its changes when table() was written, and when its znode was made. Another table has
  // another one.
  int64_t zxid() const { return root_zxid_; }
  int64_t made_zxid() const { return root_made_zxid_; }

  // Reads what has changed. A watch reports the next change. Returns Unavailable, naming the znode, if it cannot be
  // read or is no valid table; the table is unchanged then.
  absl::Status Read();
  // Returns whether ZooKeeper still has this table, without reading it. Errors count as a change.
  bool IsCurrent();

  // Replaces the table by one that was made from table(). Returns a code of ZooKeeper's C client: ZBADVERSION if
  // another member was faster, in which case Read gets what that one wrote. Returns OutOfRange if the change is
  // larger than ZooKeeper takes at once.
  absl::StatusOr<int> Write(RegionTable changed);

  // Creates the znode of an empty table, unless it is there.
  absl::Status Create();
  // Returns the paths of the shards and of the root, in an order in which they can be deleted.
  absl::StatusOr<std::vector<std::string>> Paths();

  // Returns what creates `table` where no shards are, and replaces the root, whose version must be `root_version`.
  static absl::StatusOr<std::vector<ZooKeeperConnection::Op>> OpsToReplace(const std::string& path, RegionTable table,
                                                                           int root_version);

 private:
  // Returns the shards of a root. Reads those that are not among `have`. Returns Aborted if one has another version.
  absl::StatusOr<std::vector<RegionMap::Shard>> ReadShards(const std::vector<ShardRef>& refs,
                                                           const std::vector<RegionMap::Shard>& have);

  ZooKeeperConnection* const connection_;
  const std::string path_;
  const std::function<void()> between_;
  RegionTable table_;
  // ZooKeeper's count of all its changes when the root's znode was made, and when it was last written. 0: not read yet.
  int64_t root_made_zxid_ = 0;
  int64_t root_zxid_ = 0;
  int root_version_ = -1;  // Version of the root's znode.
};

}  // namespace cell

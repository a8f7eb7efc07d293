// Translates region tables to and from the form in which ZooKeeper has them: a root of a few KB and shards of a few KB.
// Pure: no I/O.
//
//   root     JSON: all but the regions, and for each shard its first id and the version of the table in which it was
//            last written: "shards": [[first, version], ..]
//   shards   regions with neighbouring ids (RegionMap::Shard), binary: region_shard.proto
//
// A change writes the root and the shards that it changed, all or nothing. A reader that knows an earlier version reads
// the root, and the shards whose version is another one there. A shard names its version, too: a reader that finds
// another one than the root has was overtaken by a change, and begins again with the root.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/cluster/region_table.h"

namespace cell {

// The longest root and the longest shard that are read, in bytes. ZooKeeper's own limit is 1 MB.
inline constexpr size_t kTableRootMax = 512 * 1024;
inline constexpr size_t kTableShardMax = 128 * 1024;

struct ShardRef {
  uint32_t first = 0;
  uint64_t version = 0;
  bool operator==(const ShardRef&) const = default;
};

// The root of a table, and which shards belong to it.
struct TableRoot {
  RegionTable table;  // Without regions, and without the parts of Pilaf tables.
  std::vector<ShardRef> shards;
};

// Returns InvalidArgument if the text is not a root.
absl::StatusOr<TableRoot> ParseTableRoot(const std::string& text);

// Returns InvalidArgument if the bytes are not a shard that begins at `ref.first`, and Aborted if its version is not
// `ref.version`.
absl::StatusOr<RegionMap::Shard> ParseTableShard(std::string_view bytes, const ShardRef& ref);

// Returns a shard for each of `refs`, in order. If `have` contains a shard with the same first id and version, it is
// that one; otherwise it is a shard without `entries`. `have` is in order. It may belong to an earlier or to a later
// version of the table.
std::vector<RegionMap::Shard> KnownShards(const std::vector<ShardRef>& refs, const std::vector<RegionMap::Shard>& have);

// Makes a table of a root and its shards, in order. Returns InvalidArgument if they do not make a valid table.
absl::StatusOr<RegionTable> JoinTable(TableRoot root, std::vector<RegionMap::Shard> shards);

// Return the root, and a shard, of a table as they are stored. REQUIRES: all shards of the table, or this shard, are
// stored as they are (RegionMap::Shard::version).
std::string StoredRoot(const RegionTable& table);
std::string StoredShard(const RegionMap::Shard& shard);

// Lists the writes that change a stored table. Either all of them are made or none.
struct TableWrite {
  struct Shard {
    uint32_t first = 0;
    std::string bytes;
  };
  std::string root;
  std::vector<Shard> created;  // That were not there before.
  std::vector<Shard> replaced;
  std::vector<uint32_t> removed;

  size_t bytes() const;
};

// Returns what turns `before`, as it is stored, into `*after`, which has a higher version. Marks the shards of `*after`
// as stored in its version. A root has at most kTableRootMax bytes and a shard kTableShardMax, because what is in them
// is limited (RegionTable).
TableWrite WriteTable(const RegionTable& before, RegionTable* after);

}  // namespace cell

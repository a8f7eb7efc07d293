// The embedded membership: a cluster on one machine is a directory with a file cluster.json.
//
//   {"format": 1, "node_bytes": 1024, "meganode_bytes": 67108864, "extents_bytes": 268435456,
//    "servers": [{"name": "server-0", "workers": [{"socket": "server-0.0.sock", "regions": [1]}]}]}
//
// It is written once, by //tools:up, before the servers start, and holds what servers and clients must agree on.
// Region ids are handed out once; the region with the lowest id holds the root of the tree (the thesis, 4.2).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/layout/pointer.h"
#include "cell/layout/region.h"

namespace cell {

struct ClusterFile {
  static constexpr int kFormat = 1;

  struct Worker {
    std::string socket;  // As a path that can be connected to.
    std::vector<uint32_t> regions;
  };
  struct Server {
    std::string name;
    std::vector<Worker> workers;
  };

  RegionShape shape;
  std::vector<Server> servers;

  // Of DIRECTORY/cluster.json. NotFound: no cluster there. FailedPrecondition: another release's. InvalidArgument:
  // damaged, or its values make no sense. Every message says what to do.
  static absl::StatusOr<ClusterFile> Read(const std::string& directory);
  static absl::StatusOr<ClusterFile> Parse(const std::string& json, const std::string& directory);

  // Where the tree's root is: a region's first node is its meganode's root.
  Pointer tree_root() const;
  const Server* FindServer(const std::string& name) const;
  const Worker* OwnerOf(uint32_t region) const;
};

}  // namespace cell

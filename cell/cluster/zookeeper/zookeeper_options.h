// ZooKeeperOptions says where the membership of a cluster is, and how to get at it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cell/io/exec/system_clock.h"

namespace cell {

struct ZooKeeperOptions {
  std::string servers;  // HOST:PORT[,HOST:PORT...]
  std::string name;     // Name of the cluster.
  std::string digest;   // USER:PASSWORD for ACLs that exclude others; empty: everyone has access.
  int session_ms = 4'000;
  const Clock* clock = SystemClock::Get();  // The one that callers compare LeaseUntilNs with.

  // Parses zk://HOST:PORT[,HOST:PORT...]/NAME. Returns InvalidArgument with what is wrong.
  static absl::StatusOr<ZooKeeperOptions> Parse(const std::string& uri);
};

}  // namespace cell

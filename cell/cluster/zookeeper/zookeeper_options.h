// ZooKeeperOptions says where the membership of a cluster is, and how to get at it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cell/io/exec/system_clock.h"

namespace cell {

struct ZooKeeperOptions {
  std::string servers;  // HOST:PORT[,HOST:PORT...]
  std::string name;     // Name of the cluster.
  std::string digest;   // USER:PASSWORD for ACLs that exclude others; empty: everyone has access.
  int session_ms = 4'000;
  int64_t connect_ns = INT64_MAX;    // How long to wait for a connection at most; no longer than two sessions anyway.
  int64_t idle_ns = 10'000'000'000;  // A client's connection ends when it was not used for so long.
  const Clock* clock = SystemClock::Get();  // The one that callers compare LeaseUntilNs with.

  // Parses zk://HOST:PORT[,HOST:PORT...]/NAME. Returns InvalidArgument with what is wrong.
  static absl::StatusOr<ZooKeeperOptions> Parse(const std::string& uri);
};

}  // namespace cell

// Opens the fabric that the flags ask for.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cell/io/fabric/open/multi_fabric.h"
#include "cell/io/net/credentials.h"

namespace cell {

struct FabricOptions {
  std::string kind = "auto";  // "auto": all that this machine has; or one of "shm", "tcp", "verbs".
  Polling polling = Polling::kAdaptive;
  bool huge_pages = true;
  bool zero_freed = false;                                                               // RegionPool::set_zero_freed
  std::shared_ptr<CredentialSource> credentials = std::make_shared<FixedCredentials>();  // For tcp and verbs.
  std::optional<gid_t> shm_group = {};                                                   // ShmFabricOptions::group.
  // For verbs connections that are made from here (VerbsFabricOptions).
  std::string rdma_device = {};
  int rdma_gid_index = -1;
  uint32_t rdma_mtu = 0;
};

// Opens a fabric. Returns InvalidArgument if there is no such fabric, and FailedPrecondition if this machine does not
// have the fabric.
absl::StatusOr<std::unique_ptr<MultiFabric>> OpenFabric(const FabricOptions& options);
}  // namespace cell

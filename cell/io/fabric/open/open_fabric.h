// Opens the fabric that the flags ask for.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cell/io/fabric/open/multi_fabric.h"

namespace cell {

struct FabricOptions {
  std::string kind = "auto";  // "auto": all that this machine has; or one of "shm", "tcp", "verbs".
  Polling polling = Polling::kAdaptive;
  bool huge_pages = true;
  std::string secret_file = {};  // See ReadSecret; empty: no secret.
  // For verbs connections that are made from here (VerbsFabricOptions).
  std::string rdma_device = {};
  int rdma_gid_index = -1;
  uint32_t rdma_mtu = 0;
};

// Opens a fabric. Returns InvalidArgument if there is no such fabric, or if the secret's file is not valid. Returns
// FailedPrecondition if this machine does not have the fabric.
absl::StatusOr<std::unique_ptr<MultiFabric>> OpenFabric(const FabricOptions& options);

// Reads a cluster's secret: the file's content without trailing white space, at least 16 bytes. Other users must not be
// able to read the file.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

}  // namespace cell

// The fabric that flags ask for.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cell/io/fabric/open/multi_fabric.h"

namespace cell {

struct FabricOptions {
  std::string kind = "auto";  // "auto": all that this machine has; or one of them: "shm", "tcp", "verbs".
  Polling polling = Polling::kAdaptive;
  bool huge_pages = true;
  std::string secret_file = {};  // See ReadSecret; empty: no secret.
  // Of connections by verbs that are made from here (VerbsFabricOptions).
  std::string rdma_device = {};
  int rdma_gid_index = -1;
  uint32_t rdma_mtu = 0;
};

// InvalidArgument: there is no such fabric, or the secret's file is not as it should be. FailedPrecondition: this
// machine does not have it.
absl::StatusOr<std::unique_ptr<MultiFabric>> OpenFabric(const FabricOptions& options);

// A cluster's secret: the file's content without white space at its end, at least 16 bytes. Others must not be able to
// read the file.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

}  // namespace cell

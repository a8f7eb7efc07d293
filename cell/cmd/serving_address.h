// Chooses the addresses where a worker serves, by its server's flags.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cell/io/fabric/fabric_address.h"

namespace cell {

struct ServingFlags {
  std::string fabric = "auto";  // Or "shm", "tcp", "verbs".
  std::string listen;  // HOST or HOST:PORT for fabrics between machines; worker N takes PORT + N. May be empty.
  std::string socket;  // The path for shared memory.
};

struct ServingAddress {
  std::string address;  // See fabric_address.h.
  std::string why;      // For the log: what was chosen, and why not more.
};

// Chooses the address of worker `index`. A missing or zero port is replaced by a free one. Returns InvalidArgument if
// the flags are not consistent.
absl::StatusOr<ServingAddress> ChooseServingAddress(const ServingFlags& flags, uint32_t index);

// Chooses those of the `listed` addresses that --fabric allows, for a cluster with given addresses. Returns
// InvalidArgument if there is none.
absl::StatusOr<ServingAddress> ChooseOfListed(const std::string& fabric, const std::string& listed);

// Returns HOST:PORT. If PORT is 0, it is replaced by one that is free now.
absl::StatusOr<std::string> WithFreePort(const std::string& host_port);

}  // namespace cell

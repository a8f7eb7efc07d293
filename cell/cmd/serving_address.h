// Where a worker serves, by its server's flags.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cell/io/fabric/fabric_address.h"

namespace cell {

struct ServingFlags {
  std::string fabric = "auto";  // Or "shm", "tcp", "verbs".
  std::string listen;  // HOST or HOST:PORT for those that cross machines; worker N takes PORT + N. May be empty.
  std::string socket;  // The path for shared memory.
};

struct ServingAddress {
  std::string address;  // fabric_address.h
  std::string why;      // For the log: what was chosen, and why not more.
};

// Of worker `index`. A port of 0, or none, is replaced by one that is free. InvalidArgument: the flags make no sense.
absl::StatusOr<ServingAddress> ChooseServingAddress(const ServingFlags& flags, uint32_t index);

// Those of `listed` that --fabric allows: for a cluster whose addresses were given before. InvalidArgument: none.
absl::StatusOr<ServingAddress> ChooseOfListed(const std::string& fabric, const std::string& listed);

// HOST:PORT with a port that is free now, if PORT is 0.
absl::StatusOr<std::string> WithFreePort(const std::string& host_port);

}  // namespace cell

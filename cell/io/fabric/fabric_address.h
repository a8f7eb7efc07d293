// Parses a worker's address in the membership, which has an address for each fabric that the worker serves on.
//
//   tcp://HOST:PORT,verbs://HOST:PORT,shm://MACHINE/PATH    any of them, in this order; MACHINE: the machine of PATH
//   PATH                                                   on this machine: only shm, as in an embedded cluster
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cell {

enum class FabricKind { kTcp, kVerbs, kShm };

// Returns "tcp", "verbs" or "shm".
std::string_view ToString(FabricKind kind);
std::optional<FabricKind> ParseFabricKind(std::string_view text);

struct FabricAddress {
  FabricKind kind;
  std::string address;  // The fabric's own address: HOST:PORT or a path.
  std::string machine;  // For shm: the machine. Empty: this machine.

  bool operator==(const FabricAddress&) const = default;
};

// Returns InvalidArgument with what is wrong.
absl::StatusOr<std::vector<FabricAddress>> ParseAddresses(const std::string& text);
std::string ToString(std::vector<FabricAddress> addresses);

// Returns an id that differs between machines and between boots. Processes with the same id see the same files, unless
// they are in different containers.
const std::string& ThisMachine();

}  // namespace cell

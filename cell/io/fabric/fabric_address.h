// Where a worker can be reached, as the membership keeps it: an address for each fabric that it serves on.
//
//   tcp://HOST:PORT,verbs://HOST:PORT,shm://MACHINE/PATH    any of them, in this order; MACHINE: whose PATH it is
//   PATH                                                   of this machine: shm alone, as an embedded cluster has it
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cell {

enum class FabricKind { kTcp, kVerbs, kShm };

// "tcp", "verbs", "shm".
std::string_view ToString(FabricKind kind);
std::optional<FabricKind> ParseFabricKind(std::string_view text);

struct FabricAddress {
  FabricKind kind;
  std::string address;  // What the fabric itself takes: HOST:PORT or a path.
  std::string machine;  // shm: whose; empty: this one's.

  bool operator==(const FabricAddress&) const = default;
};

// InvalidArgument: says what is wrong with it.
absl::StatusOr<std::vector<FabricAddress>> ParseAddresses(const std::string& text);
std::string ToString(std::vector<FabricAddress> addresses);

// Other at each boot and on each machine: who has the same sees the same files, unless in another container.
const std::string& ThisMachine();

}  // namespace cell

// WorkerId names a worker of a cluster: its server, and its number among the server's workers.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fmt/format.h"

namespace cell {

struct WorkerId {
  std::string server;
  uint32_t worker = 0;
  auto operator<=>(const WorkerId&) const = default;
};

inline std::string ToString(const WorkerId& id) { return fmt::format("{}.{}", id.server, id.worker); }

// Returns whether a server may have this name: 1 to kServerNameMax printable ASCII characters, without / and spaces.
inline constexpr size_t kServerNameMax = 64;
inline bool IsServerName(std::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f && c != '/'; });
  return !name.empty() && name.size() <= kServerNameMax && plain;
}

}  // namespace cell

// Generates the identity of a cluster. A name or a directory can be given to another cluster; a UUID cannot.
#pragma once

#include <sys/random.h>

#include <array>
#include <cstdint>
#include <string>

#include "cell/base/check.h"
#include "fmt/format.h"

namespace cell {

// Returns a random UUID (RFC 4122, version 4).
inline std::string NewUuid() {
  std::array<uint8_t, 16> bytes;
  CELL_CHECK_EQ(::getrandom(bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  bytes[6] = static_cast<uint8_t>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<uint8_t>((bytes[8] & 0x3f) | 0x80);
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

}  // namespace cell

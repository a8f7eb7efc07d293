// Pointer names a node or an extent on any server by its region's id (24 bits) and its byte offset there (40 bits). It
// is never an address, so that a region can be mapped anywhere and owned by any server.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "fmt/format.h"

namespace cell {

class Pointer {
 public:
  static constexpr int kOffsetBits = 40;
  static constexpr uint64_t kOffsetMax = (uint64_t{1} << kOffsetBits) - 1;
  static constexpr uint32_t kRegionMax = (1u << 24) - 1;

  constexpr Pointer() = default;  // null
  constexpr Pointer(uint32_t region, uint64_t offset) : raw_(uint64_t{region} << kOffsetBits | (offset & kOffsetMax)) {}

  static constexpr Pointer FromRaw(uint64_t raw) {
    Pointer pointer;
    pointer.raw_ = raw;
    return pointer;
  }

  constexpr uint64_t raw() const { return raw_; }
  constexpr uint32_t region() const { return static_cast<uint32_t>(raw_ >> kOffsetBits); }
  constexpr uint64_t offset() const { return raw_ & kOffsetMax; }
  constexpr bool null() const { return raw_ == 0; }

  auto operator<=>(const Pointer&) const = default;

 private:
  uint64_t raw_ = 0;  // 0 is null because there is no region 0.
};

inline std::string ToString(Pointer pointer) { return fmt::format("{}:{:#x}", pointer.region(), pointer.offset()); }

}  // namespace cell

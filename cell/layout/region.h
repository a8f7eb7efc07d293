// Defines a region: one meganode's nodes and the extents that its leaves point at, in one contiguous area.
//
//   [RegionHeader, one page][nodes: node_count x node_bytes][extents]
//
// The meganode's root is always the first node. A root that splits moves its content into two new nodes and becomes
// their parent in place, so that pointers at a meganode stay valid when it grows.
//
// Memory that held a region before may be formatted for another. A reader that still looks for the old region finds
// nodes that carry another region's pointer.
//
// Thread-safety: one thread writes. Other threads may read nodes and extents by words at any time, and the first 64
// bytes of the header page, which never change after Format. They may not read the rest of the header page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cell/base/shared_words.h"
#include "cell/layout/limits.h"
#include "cell/layout/pointer.h"
#include "fmt/format.h"

namespace cell {

inline constexpr uint64_t kRegionMagic = 0x314e474552434c43;  // "CLCREGN1" in memory order
inline constexpr uint32_t kLayoutVersion =
    5;  // 2: inline pairs, stamps. 3: expiries. 4: bounds of stamps. 5: keys that are held.
inline constexpr size_t kRegionHeaderBytes = 4096;
inline constexpr uint64_t kExtentsBytesMax = uint64_t{32} << 30;

// Allocator state: free lists by size class, in two levels (TLSF). Units of 16 bytes; 0 means no block.
inline constexpr int kExtentClassBits = 4;
inline constexpr int kExtentClasses = 1 << kExtentClassBits;
inline constexpr int kExtentGroups = 29;

struct ExtentAllocatorState {
  uint32_t group_bitmap;
  uint32_t class_bitmap[kExtentGroups];
  uint32_t first_free[kExtentGroups][kExtentClasses];
  uint32_t reserved[2];
  uint64_t blocks;      // Blocks in use.
  uint64_t bytes_used;  // Bytes of blocks in use, with their headers.
};

struct RegionHeader {
  // These fields are constant after Format.
  uint64_t magic;
  uint32_t layout_version;
  uint32_t region;
  uint32_t node_bytes;
  uint32_t node_count;
  uint64_t nodes_offset;
  uint64_t extents_offset;
  uint64_t extents_bytes;
  uint64_t reserved[2];
  // These fields belong to the writing thread.
  uint64_t nodes_used;  // Nodes in use.
  uint64_t nodes_end;   // Nodes from this offset on were never used.
  uint64_t free_node;   // Offset of the first free node, 0 if there is none. Free nodes are linked by `right`.
  uint64_t keys;        // Number of pairs; above tier 0, number of child meganodes.
  uint64_t data_bytes;  // Bytes of the stored keys and values.
  ExtentAllocatorState extents;
  uint64_t log_sequence;  // During a migration: sequence number of the last log record. 0 if the region has no log.
  uint64_t last_stamp;    // The last stamp of a pair. Not below any stamp that a put to the region's keys ever had.
  uint64_t expiring;      // Number of pairs that have an expiry.
  uint64_t stamp_bound;   // No put is given a higher stamp. It is on disk if the region has a log (log_record.h).
};
static_assert(offsetof(RegionHeader, nodes_used) == 64);
static_assert(sizeof(RegionHeader) <= kRegionHeaderBytes);

// Gives the sizes of a region's parts.
struct RegionShape {
  uint32_t node_bytes = kNodeBytesDefault;
  uint64_t meganode_bytes = kMeganodeBytesDefault;     // A multiple of node_bytes.
  uint64_t extents_bytes = 4 * kMeganodeBytesDefault;  // A multiple of 4096.

  constexpr uint64_t extents_offset() const { return kRegionHeaderBytes + RoundUp(meganode_bytes, 4096); }
  constexpr uint64_t region_bytes() const { return extents_offset() + extents_bytes; }

  static constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }
};

// Describes the key range of a region's meganode and its right neighbour.
struct MeganodeRange {
  uint8_t tier = 0;  // 0: it holds pairs. Above: it holds routes.
  std::string low;
  std::optional<std::string> high;  // nullopt: no upper bound.
  Pointer right;                    // The root of the meganode that begins at `high`.
};

// Returns the root of a region's meganode.
constexpr Pointer RootOf(uint32_t region) { return Pointer(region, kRegionHeaderBytes); }

// Says why memory with another layout version is not used, and what to do about it.
inline absl::Status OtherLayout(uint32_t region, uint32_t version) {
  return absl::FailedPreconditionError(fmt::format(
      "region {} has layout version {}, and this release knows version {} only: run one release in the whole "
      "cluster. To take data along, make a backup with the release that wrote it (cellctl backup), and restore it "
      "with this one (cellctl restore)",
      region, version, kLayoutVersion));
}

// Checks that such a region is possible: a Pointer must be able to address each of its words.
inline absl::Status CheckRegion(uint32_t region, uint64_t bytes) {
  if (region == 0 || region > Pointer::kRegionMax) {
    return absl::InvalidArgumentError(
        fmt::format("region {} is not valid: ids are 1 to {}", region, Pointer::kRegionMax));
  }
  if (bytes == 0 || bytes > Pointer::kOffsetMax || bytes % kWordBytes != 0) {
    return absl::InvalidArgumentError(
        fmt::format("region {} cannot have {} bytes: the size must be whole words and at most 1 TB", region, bytes));
  }
  return absl::OkStatus();
}

}  // namespace cell

// The sizes that servers and clients must agree on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace cell {

// Nodes and messages are read as raw bytes, and are little-endian.
static_assert(std::endian::native == std::endian::little);

inline constexpr uint32_t kNodeBytesMin = 512;
inline constexpr uint32_t kNodeBytesDefault = 1024;  // The thesis, 5.3: beyond 1 KB a read's latency grows with size.
inline constexpr uint32_t kNodeBytesMax = 4096;

inline constexpr uint64_t kMeganodeBytesDefault = uint64_t{64} << 20;  // The thesis, 4.3. Nodes only.

inline constexpr size_t kValueBytesMax = size_t{1} << 20;

// How many meganodes are on the way from the tree's root to a pair.
inline constexpr int kTiersMax = 8;

// The height of a tree in one meganode. With a fan-out of at least 4 this is beyond any region size.
inline constexpr int kLevelsMax = 24;

constexpr bool ValidNodeBytes(uint64_t bytes) {
  return bytes >= kNodeBytesMin && bytes <= kNodeBytesMax && (bytes & (bytes - 1)) == 0;
}

// The longest key that nodes of this size take: 226 bytes at 1 KB, 98 at 512 B.
//
// It is what lets every split succeed. A full node of N bytes plus one entry must fit into two, whatever the sizes:
// each side spends 56 bytes (taken as 64) on header and tail version, its two fences, and one of them may be a new,
// longest separator. With entries of at most e = 28 + key bytes, a cut exists when 2 e + 2 key <= N - 64 (docs in
// cell/tree/README.md), that is, 4 key <= N - 120.
constexpr size_t KeyBytesMax(uint32_t node_bytes) { return (node_bytes - 120) / 4; }

// The longest key of a Pilaf table, which no node has to take.
inline constexpr size_t kHashKeyBytesMax = 4096;

}  // namespace cell

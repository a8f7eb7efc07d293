// Defines the sizes that servers and clients must agree on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace cell {

// Nodes and messages are read as raw bytes and are little-endian.
static_assert(std::endian::native == std::endian::little);

inline constexpr uint32_t kNodeBytesMin = 512;
inline constexpr uint32_t kNodeBytesDefault = 1024;  // Beyond 1 KB a read's latency grows with its size (thesis, 5.3).
inline constexpr uint32_t kNodeBytesMax = 4096;

inline constexpr uint64_t kMeganodeBytesDefault = uint64_t{64} << 20;  // Thesis, 4.3. Counts nodes only.

inline constexpr size_t kValueBytesMax = size_t{1} << 20;
inline constexpr size_t kFunctionNameBytesMax = 32;

inline constexpr uint64_t kLastStampMax = uint64_t{1} << 63;  // A greater stamp was not given: what has it is damaged.

// Limits one message. Larger values take several messages (thesis, 6.6.2).
inline constexpr size_t kMessageBytesMax = size_t{64} << 10;

// Limits the number of meganodes between the tree's root and a pair.
inline constexpr int kTiersMax = 8;

// Limits the height of the tree in one meganode. With a fan-out of at least 4 no region size reaches this height.
inline constexpr int kLevelsMax = 24;

constexpr bool ValidNodeBytes(uint64_t bytes) {
  return bytes >= kNodeBytesMin && bytes <= kNodeBytesMax && (bytes & (bytes - 1)) == 0;
}

// Returns the size of the longest key for nodes of this size: 226 bytes at 1 KB, 98 at 512 B.
//
// The limit makes every split succeed. A full node of N bytes plus one entry must fit into two nodes, whatever the
// sizes of the entries. Each side spends 56 bytes on its header and tail version, and needs room for its two fences,
// one of which may be a new, longest separator. An entry whose pair is outside takes 20 bytes for head and slot, 16 for
// its PairExtent, and 4 less than the key's for the tail: e = 32 + key bytes. Inline pairs take no more
// (InlineBytesMax). A cut exists if 2 e + 2 key <= N - 56 (explained in cell/tree/README.md), that is,
// 4 key <= N - 120. The expiry of a pair counts as 8 bytes of its key.
constexpr size_t KeyBytesMax(uint32_t node_bytes) { return (node_bytes - 120) / 4; }

// Returns the size, key and value together, of the largest pair that nodes of this size can hold inline: 218 bytes at
// 1 KB, 90 at 512 B. Four of them fit into a leaf if no key, and so neither fence, is longer than 16 bytes. An entry
// takes 20 bytes for head and slot, the value, and the key's tail, which is 4 bytes shorter than the key: 4 (pair + 16)
// + 2 * 16 <= N - 56. It is never larger than that of an outside pair with the longest key.
constexpr size_t InlineBytesMax(uint32_t node_bytes) { return (node_bytes - 152) / 4; }

// Pairs of at most this size, key and value together, are inline unless a server has another setting. 0: all pairs are
// outside, as in the thesis.
inline constexpr size_t kInlineMaxDefault = 128;

// Limits the keys of Pilaf tables. They never have to fit into a node.
inline constexpr size_t kHashKeyBytesMax = 4096;

}  // namespace cell

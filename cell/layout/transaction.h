// Defines a *part*: what a transaction has read and wants to write in one region. A part is sent by a client, and is in
// the region's log from when it is prepared. Pure.
//
// A part is a sequence of operations. Each is a PartOperationHeader, its key, and its value.
//
// A *digest* describes what was read, so that the owner can tell whether it would read the same now. The digest of a
// pair is the CRC64 of its key and value. The digest of a range is the CRC64 of the digests of its pairs, in order.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/base/crc64.h"
#include "cell/layout/expiry.h"
#include "cell/layout/limits.h"
#include "cell/layout/outcome.h"

namespace cell {

// The size of all parts of one transaction, and so of each of them.
inline constexpr size_t kTransactionBytesMax = kValueBytesMax;
inline constexpr size_t kTransactionOperationsMax = 4096;
// How many regions one transaction can write to. An outcome has the ids of all but one of them (outcome.h).
inline constexpr size_t kTransactionRegionsMax = 17;
// How many pairs the ranges that it has read can have in one region.
inline constexpr uint64_t kTransactionRangePairsMax = 16'384;

enum class PartOperationKind : uint8_t {
  kReadNothing = 1,  // The key was not stored.
  kReadPair = 2,     // It was, and `digest` is that of its pair.
  kReadRange = 3,    // From the key on, up to the key in `value`, or to the end of the tree if that is empty.
  kPut = 4,
  kDelete = 5,
};

struct PartOperationHeader {
  uint64_t digest;   // Of what was read. Of a put: of the pair that it puts.
  uint64_t expires;  // Of a put: as PutRequest has it. In a log: an Expiry.
  uint32_t value_bytes;
  uint16_t key_bytes;
  PartOperationKind kind;
  uint8_t reserved;
};
static_assert(sizeof(PartOperationHeader) == 24 && std::has_unique_object_representations_v<PartOperationHeader>);

// The views point into the part.
struct PartOperation {
  PartOperationKind kind{};
  std::string_view key;
  std::string_view value = {};
  uint64_t digest = 0;
  uint64_t expires = kNeverExpires;

  bool writes() const { return kind == PartOperationKind::kPut || kind == PartOperationKind::kDelete; }
};

inline uint64_t PairDigest(std::string_view key, std::string_view value) { return Crc64(value, Crc64(key)); }
// Adds the next pair to the digest of a range, which is 0 before the first.
inline uint64_t AddToDigest(uint64_t digest, uint64_t pair) {
  return Crc64(std::string_view(reinterpret_cast<const char*>(&pair), sizeof(pair)), digest);
}

void AppendOperation(const PartOperation& operation, std::string* part);
constexpr size_t OperationBytes(size_t key_bytes, size_t value_bytes) {
  return sizeof(PartOperationHeader) + key_bytes + value_bytes;
}
// Returns InvalidArgument if `part` has no operation or too many, or if one of them is not valid: if it has a size that
// cannot be, or a key or bound that is empty, or if the part writes a key twice.
absl::StatusOr<std::vector<PartOperation>> ParseOperations(std::string_view part);

// A part in a log. The ids of the other regions to which the transaction writes follow if this region is the primary,
// and then the part.
struct PreparedHeader {
  uint64_t client;
  uint64_t number;
  uint64_t until;
  uint64_t stamp;        // The region has given it when it was prepared.
  uint32_t fingerprint;  // Of the part.
  uint32_t user;         // As in OutcomeHeader.
  uint32_t primary;      // Id of the region whose log decides.
  uint16_t slot;
  uint8_t others;  // How many ids follow.
  uint8_t reserved;
};
static_assert(sizeof(PreparedHeader) == 48 && std::has_unique_object_representations_v<PreparedHeader>);

inline constexpr size_t kPreparedBytesMax =
    sizeof(PreparedHeader) + (kTransactionRegionsMax - 1) * sizeof(uint32_t) + kTransactionBytesMax;

// A transaction that is prepared in a region. The views point into the record that it was read from.
struct PreparedPart {
  RequestId id;
  uint64_t stamp = 0;
  uint32_t fingerprint = 0;
  uint32_t user = 0;
  uint32_t primary = 0;
  std::string_view others;  // Ids of regions, 4 bytes each.
  std::string_view part;
};
std::string EncodePrepared(const PreparedPart& prepared);
// Returns InvalidArgument if the bytes are not those of a prepared part.
absl::StatusOr<PreparedPart> ParsePrepared(std::string_view bytes);

}  // namespace cell

// Defines how a region remembers what became of a request that must take effect only once: an application of a
// function, or a transaction.
//
// A client has slots, and numbers the requests in each, as the sessions of NFS do (RFC 8881, 2.10.6). It uses a slot
// for another request only when the one before has ended. So a region remembers the last outcome of each slot, and
// knows a request that comes a second time by its number.
//
// A request says until which stamp it may be tried. A region refuses one when it has given a greater stamp, and may
// forget its outcome then, because it will never be tried again. Stamps grow whoever owns the region, so this needs no
// clock (docs/protocols.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "cell/base/bytes.h"

namespace cell {

struct RequestId {
  uint64_t client = 0;  // Chosen at random. 0: the request has no id.
  uint64_t number = 0;  // Grows with each request in the slot.
  uint64_t until = 0;   // It may be tried as long as the region has given no greater stamp. 0: it may not be tried.
  uint16_t slot = 0;
};

// How long a client tries a request again, and how far `until` may be ahead, in nanoseconds of cluster time.
inline constexpr uint64_t kRequestTriedNs = 60'000'000'000;
inline constexpr uint64_t kRequestAheadNsMax = 10 * kRequestTriedNs;
inline constexpr uint16_t kRequestSlots = 1024;  // Of one client. Slots are 0 to 1023.

// An outcome in a log, and between servers. The result follows, of up to 64 bytes (function.h).
struct OutcomeHeader {
  uint64_t client;
  uint64_t number;
  uint64_t until;
  uint64_t stamp;        // Of the pair that the request has put, or has left. In a record of the pair: 0.
  uint32_t fingerprint;  // Of what the request was.
  uint32_t user;         // Of whose it was: a hash of the name.
  uint16_t slot;
  uint8_t flags;  // kOutcomeExisted, kOutcomeChanged, kOutcomeOpen; other bits are zero.
  uint8_t result_bytes;
  uint8_t reserved[4];
};
inline constexpr uint8_t kOutcomeExisted = 1;
inline constexpr uint8_t kOutcomeChanged = 2;
inline constexpr uint8_t kOutcomeOpen = 4;
static_assert(sizeof(OutcomeHeader) == 48 && std::has_unique_object_representations_v<OutcomeHeader>);

inline constexpr size_t kOutcomeBytesMax = sizeof(OutcomeHeader) + 64;

struct Outcome {
  RequestId id;
  uint64_t stamp = 0;
  uint32_t fingerprint = 0;
  uint32_t user = 0;
  bool existed = false;  // The key was there before.
  bool changed = true;   // The request has put a value. If not, it must not do so if it comes again.
  // Of a function: its result. Of a transaction whose primary is this region: the ids of the other regions to which it
  // writes, 4 bytes each.
  std::string result = {};
  // The number of its record in the log. 0: the record is on disk, or the region has no log. Not encoded.
  uint64_t sequence = 0;
  // A transaction that has committed, and of which not all others have heard. It is not forgotten.
  bool open = false;
};

inline std::string EncodeOutcome(const Outcome& outcome) {
  OutcomeHeader header{};
  header.client = outcome.id.client;
  header.number = outcome.id.number;
  header.until = outcome.id.until;
  header.stamp = outcome.stamp;
  header.fingerprint = outcome.fingerprint;
  header.user = outcome.user;
  header.slot = outcome.id.slot;
  header.flags = static_cast<uint8_t>((outcome.existed ? kOutcomeExisted : 0) |
                                      (outcome.changed ? kOutcomeChanged : 0) | (outcome.open ? kOutcomeOpen : 0));
  header.result_bytes = static_cast<uint8_t>(outcome.result.size());
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + outcome.result;
}

// Returns the size of the outcome at the beginning of `bytes`, or nullopt if they do not begin with a valid outcome.
inline std::optional<size_t> OutcomeBytes(std::string_view bytes) {
  if (bytes.size() < sizeof(OutcomeHeader)) return std::nullopt;
  const auto header = Load<OutcomeHeader>(AsBytes(bytes).data());
  const size_t size = sizeof(header) + header.result_bytes;
  if (header.client == 0 || header.slot >= kRequestSlots ||
      header.flags > (kOutcomeExisted | kOutcomeChanged | kOutcomeOpen) || size > kOutcomeBytesMax ||
      size > bytes.size()) {
    return std::nullopt;
  }
  return size;
}

// REQUIRES: OutcomeBytes(bytes) is the size of `bytes`.
inline Outcome DecodeOutcome(std::string_view bytes) {
  const auto header = Load<OutcomeHeader>(AsBytes(bytes).data());
  return {{header.client, header.number, header.until, header.slot},
          header.stamp,
          header.fingerprint,
          header.user,
          (header.flags & kOutcomeExisted) != 0,
          (header.flags & kOutcomeChanged) != 0,
          std::string(bytes.substr(sizeof(header), header.result_bytes)),
          0,
          (header.flags & kOutcomeOpen) != 0};
}

}  // namespace cell

// Defines when a pair expires.
//
// The *expiry* of a pair is the moment from which it counts as not stored, whether or not it has been removed by then.
// It is in cluster time, the nanoseconds since the Unix epoch by the clock of the region's owner (ClusterTimeNs).
#pragma once

#include <cstddef>
#include <cstdint>

namespace cell {

using Expiry = uint64_t;

inline constexpr Expiry kNeverExpires = 0;
inline constexpr Expiry kExpiryMax = (uint64_t{1} << 63) - 1;  // In the year 2262. A later one is refused.

// Returns whether a pair with this expiry has expired at `now` of cluster time.
constexpr bool HasExpired(Expiry expiry, uint64_t now) { return expiry != kNeverExpires && expiry <= now; }

// Returns how many bytes of a node an expiry takes. A key and an inline pair can be smaller than others by so much.
constexpr size_t ExpiryBytes(Expiry expiry) { return expiry == kNeverExpires ? 0 : sizeof(Expiry); }

}  // namespace cell

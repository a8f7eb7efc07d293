// SnapshotMemory has what pairs were before they changed, for all snapshots of a worker. Pure. Not thread-safe: used
// only on the worker's thread.
//
// The regions of a worker keep the pairs of a snapshot together, so nothing has to be moved when a region is split, or
// takes in its neighbour. When the snapshots keep too much, of the user whose keep most the one is ended that keeps
// most. What has ended is freed a bit at a time, and at least as fast as more is kept.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cell/layout/expiry.h"
#include "cell/layout/snapshot.h"

namespace cell {

// A snapshot is its user's alone. The user is as outcomes name it.
struct SnapshotOfUser {
  SnapshotId id;
  uint32_t user = 0;
  auto operator<=>(const SnapshotOfUser&) const = default;
};

// A pair as it was when a snapshot was taken.
struct PairBefore {
  std::string value;
  Expiry expiry = kNeverExpires;
  uint64_t stamp = 0;
  bool damaged = false;  // In memory, before it was kept: nobody knows what it was.
};
// Null: the key was not there. Several snapshots may keep the same.
using PairKept = std::shared_ptr<const PairBefore>;

// All that is kept of one snapshot.
struct KeptPairs {
  uint64_t time = 0;  // Cluster time: pairs with an earlier expiry are not in it. 0: it is not known yet.
  std::map<std::string, PairKept, std::less<>> changed;  // Keys that have changed since.
  bool ended = false;                                    // It is not to be read any more.

 private:
  friend class SnapshotMemory;
  SnapshotOfUser of_;
  size_t pieces_ = 0;
  size_t bytes_ = 0;
};

struct SnapshotLimits {
  size_t max = 32;                           // In a region. One user may have half of them.
  int64_t still_ns = 200'000'000;            // How long a region is still at most.
  int64_t moves_ns_per_still_ns = 4;         // How much longer than it was still it then takes writes.
  int64_t kept_ns_max = kSnapshotKeptNsMax;  // How long one is kept at most.
};

class SnapshotMemory {
 public:
  static constexpr size_t kBytesMaxDefault = size_t{256} << 20;

  SnapshotMemory() = default;
  SnapshotMemory(const SnapshotMemory&) = delete;
  SnapshotMemory& operator=(const SnapshotMemory&) = delete;

  // Returns about how much is kept, and how much of what has ended is not freed yet.
  size_t bytes() const { return bytes_; }
  size_t freed_bytes() const { return freed_bytes_; }
  size_t bytes_max() const { return bytes_max_; }
  void set_bytes_max(size_t bytes) { bytes_max_ = bytes; }
  const SnapshotLimits& limits() const { return limits_; }
  void set_limits(const SnapshotLimits& limits) { limits_ = limits; }
  // Returns whether there is so much to be freed that no snapshot should be added.
  bool crowded() const { return freed_bytes_ > bytes_max_; }
  // Returns how many snapshots were ended because there was too much.
  uint64_t ended() const { return ended_; }
  // Returns whether there are no snapshots, and nothing is to be freed.
  bool idle() const { return all_.empty() && freed_.empty(); }

  // Takes a region's share of what is kept of a snapshot, which is new if there was none. Release gives it back.
  KeptPairs* Take(const SnapshotOfUser& of);
  void Release(KeptPairs* kept);

  // Returns whether the key's pair is to be kept.
  bool Wants(const KeptPairs& kept, std::string_view key) const;
  void Keep(KeptPairs* kept, std::string_view key, const PairKept& pair);
  // Ends snapshots that keep too much. A pair that several of them keep counts for each.
  void Trim();
  // Ends a snapshot: it is not to be read any more.
  void End(KeptPairs* kept);
  // Frees a bit.
  void Step();

 private:
  using Changed = std::map<std::string, PairKept, std::less<>>;

  static size_t BytesOf(std::string_view key, const PairKept& pair) {
    constexpr size_t kBytesPerKey = 160;  // Of what holds them.
    return kBytesPerKey + key.size() + (pair == nullptr ? 0 : pair->value.size());
  }
  // Makes what was kept of a snapshot something to be freed.
  void Empty(KeptPairs* kept);
  void Free(size_t pairs);

  size_t bytes_max_ = kBytesMaxDefault;
  SnapshotLimits limits_;
  std::map<SnapshotOfUser, KeptPairs> all_;
  size_t bytes_ = 0;
  std::vector<Changed> freed_;
  size_t freed_bytes_ = 0;
  uint64_t ended_ = 0;
};

}  // namespace cell

// UseTimes remembers when keys were used, of as many keys as it has room for.
//
// It is a table of buckets of one cache line. A key has a tag in one of them, which replaces the one that was used
// longest ago. So a key that is not there was not used since the oldest of its bucket, which is what it is taken for.
// The evictor samples pairs and compares their times, as in Redis's approximated LRU, but there each object has its own
// time. This costs nothing in the memory that clients read, and nothing if no rule needs it. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "pilaf/key_hash.h"

namespace cell {

class UseTimes {
 public:
  static constexpr size_t kBytesPerKey = 8;

  // Has room for `keys` keys, rounded up to a power of two. All keys count as used now. Times are kept in units of
  // 2^unit_shift ns, and so for 2^(32 + unit_shift) ns.
  UseTimes(size_t keys, int unit_shift, int64_t now_ns)
      : unit_shift_(unit_shift), begin_ns_(now_ns), buckets_(std::bit_ceil(std::max<size_t>(keys / kBucketKeys, 1))) {}

  void Touch(std::string_view key, int64_t now_ns) {
    const KeyHash hash = HashKey(key);
    Bucket& bucket = buckets_[BucketOf(hash)];
    Use* use = std::find_if(bucket.begin(), bucket.end(), [&](const Use& one) { return one.tag == hash.probes[1]; });
    if (use == bucket.end()) use = std::min_element(bucket.begin(), bucket.end(), Older);
    *use = {hash.probes[1], static_cast<uint32_t>((now_ns - begin_ns_) >> unit_shift_)};
  }
  // Returns for how long the key was not used, to one unit. It is at least as long if the key is not there.
  int64_t IdleNs(std::string_view key, int64_t now_ns) const {
    const KeyHash hash = HashKey(key);
    const Bucket& bucket = buckets_[BucketOf(hash)];
    const Use* use =
        std::find_if(bucket.begin(), bucket.end(), [&](const Use& one) { return one.tag == hash.probes[1]; });
    if (use == bucket.end()) use = std::min_element(bucket.begin(), bucket.end(), Older);
    return std::max<int64_t>(((now_ns - begin_ns_) >> unit_shift_) - use->unit, 0) << unit_shift_;
  }

 private:
  static constexpr size_t kBucketKeys = 8;
  struct Use {
    uint32_t tag = 0;
    uint32_t unit = 0;  // Since begin_ns_.
  };
  static_assert(sizeof(Use) == kBytesPerKey);
  using Bucket = std::array<Use, kBucketKeys>;

  static bool Older(const Use& a, const Use& b) { return a.unit < b.unit; }
  size_t BucketOf(const KeyHash& hash) const { return hash.probes[0] & (buckets_.size() - 1); }

  const int unit_shift_;
  const int64_t begin_ns_;
  std::vector<Bucket> buckets_;
};

}  // namespace cell

// BucketLookup: a lookup in buckets. The key's first bucket; if that says that the key may be away, the second; the
// extents of records that look like it. A key is absent if neither has it, and the first has not changed until the
// second was read: for a key that comes back to its first bucket leaves the second only after that. See README.md.
#pragma once

#include "pilaf/bucket.h"
#include "pilaf/lookup.h"

namespace cell {

class BucketLookup : public Lookup {
 public:
  BucketLookup(std::string_view key, const KeyHash& hash, const HashPlace& place, const LookupOptions& options);

 private:
  enum class Phase { kFirst, kSecond, kExtents, kConfirm };

  Step Begin() override;
  Step VisitImages(absl::Span<const ConstBytes> images) override;
  Step VisitBucket(ConstBytes image, int which);
  // No bucket from `which` on has been looked at.
  Step GoOn(int which);

  std::array<uint32_t, 2> at_;
  Phase phase_ = Phase::kFirst;
  int looked_at_ = 0;     // Buckets.
  uint32_t version_ = 0;  // Of the first.
  bool may_be_away_ = false;
};

}  // namespace cell

// BucketLookup looks up a key in buckets. It reads the key's first bucket, then the second if the first says that the
// key may be away, then the extents of matching records. A key is absent if neither bucket has it and the first did not
// change until the second was read. That suffices because a key that returns to its first bucket leaves the second only
// afterwards. See README.md.
#pragma once

#include "pilaf/bucket.h"
#include "pilaf/lookup.h"

namespace cell {

class BucketLookup : public Lookup {
 public:
  BucketLookup(std::string_view key, const KeyHash& hash, const HashGeometry& geometry, const LookupOptions& options);

 private:
  enum class Phase { kFirst, kSecond, kExtents, kConfirm };

  Step Begin() override;
  Step VisitImages(absl::Span<const ConstBytes> images) override;
  Step VisitBucket(ConstBytes image, int which);
  // Continues with bucket `which`. REQUIRES: neither it nor a later bucket was visited.
  Step GoOn(int which);

  std::array<uint32_t, 2> at_;
  Phase phase_ = Phase::kFirst;
  int looked_at_ = 0;     // Number of visited buckets.
  uint32_t version_ = 0;  // Version of the first bucket.
  bool may_be_away_ = false;
};

}  // namespace cell

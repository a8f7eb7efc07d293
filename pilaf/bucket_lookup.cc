#include "pilaf/bucket_lookup.h"

#include "cell/base/mutant.h"

namespace cell {

BucketLookup::BucketLookup(std::string_view key, const KeyHash& hash, const HashGeometry& geometry,
                           const LookupOptions& options)
    : Lookup(key, hash, geometry, options), at_(BucketsOf(hash, geometry.units)) {
  BucketLookup::Begin();
}

Lookup::Step BucketLookup::Begin() {
  phase_ = Phase::kFirst;
  looked_at_ = 0;
  Want(geometry_.OffsetOf(at_[0]), geometry_.bucket_bytes);
  return Step::kRead;
}

Lookup::Step BucketLookup::VisitImages(absl::Span<const ConstBytes> images) {
  switch (phase_) {
    case Phase::kFirst:
      return VisitBucket(images[0], 0);
    case Phase::kSecond:
      return VisitBucket(images[0], 1);
    case Phase::kExtents:
      if (const std::optional<Step> step = VisitExtents(images)) return *step;
      return GoOn(looked_at_);
    case Phase::kConfirm:
      return Load<BucketHeader>(images[0].data()).version == version_ ? Step::kAbsent : Restart(&counters_.moved);
  }
  return Step::kGaveUp;
}

Lookup::Step BucketLookup::VisitBucket(ConstBytes image, int which) {
  const std::optional<BucketView> bucket = BucketView::Parse(image, geometry_.region, geometry_.OffsetOf(at_[which]));
  if (!bucket.has_value()) return Restart(&counters_.torn);
  const BucketHeader header = bucket->header();
  if (!header.range.Has(hash_)) return Step::kElsewhere;
  if (header.held != 0 && !Mutated(Mutant::kLocksUnseen)) return Step::kHeld;
  if (which == 0) {
    version_ = header.version;
    may_be_away_ = bucket->MayBeAway(hash_);
  }
  looked_at_ = which + 1;
  candidates_.clear();
  const std::optional<BucketRecord> pair = bucket->Find(key_, hash_, [this](const BucketRecord& record) {
    if (geometry_.InBounds(record.slot)) candidates_.push_back(record.slot);
    return false;
  });
  if (pair.has_value()) {
    pair_ = {pair->key, pair->value, pair->expiry, /*outside=*/false};
    return Step::kFound;
  }
  if (candidates_.empty()) return GoOn(looked_at_);
  phase_ = Phase::kExtents;
  return ReadExtents();
}

Lookup::Step BucketLookup::GoOn(int which) {
  wants_.clear();
  if (which == 1) {
    if (!may_be_away_) return Step::kAbsent;  // One image of a single moment shows this.
    phase_ = Phase::kSecond;
    Want(geometry_.OffsetOf(at_[1]), geometry_.bucket_bytes);
    return Step::kRead;
  }
  if (!options_.serializable) return Step::kAbsent;
  phase_ = Phase::kConfirm;
  Want(geometry_.OffsetOf(at_[0]), sizeof(BucketHeader));
  return Step::kRead;
}

}  // namespace cell

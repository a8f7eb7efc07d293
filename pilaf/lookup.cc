#include "pilaf/lookup.h"

#include "cell/base/check.h"
#include "pilaf/bucket_lookup.h"
#include "pilaf/cuckoo_lookup.h"

namespace cell {

Lookup::Step Lookup::Visit(absl::Span<const ConstBytes> images) {
  CELL_CHECK_EQ(images.size(), wants_.size());
  if (with_header_) {
    with_header_ = false;
    const std::optional<HashHeader> header = ParseHashHeader(images.back().data(), geometry_.region);
    if (header.has_value() && !header->Serves(hash_)) return Step::kElsewhere;
    images.remove_suffix(1);
  }
  return VisitImages(images);
}

Lookup::Step Lookup::Restart(int* why) {
  ++*why;
  if (++restarts_ > kRestartsMax) return Step::kGaveUp;
  wants_.clear();
  const Step step = Begin();
  Want(kHashHeaderOffset, sizeof(HashHeader));
  with_header_ = true;
  return step;
}

Lookup::Step Lookup::ReadExtents() {
  wants_.clear();
  for (const HashSlot& slot : candidates_) Want(geometry_.ExtentOf(slot), slot.extent_bytes);
  return Step::kRead;
}

std::optional<Lookup::Step> Lookup::VisitExtents(absl::Span<const ConstBytes> images) {
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const std::string_view extent = AsText(images[i].subspan(0, candidates_[i].extent_bytes));
    const std::optional<HashPair> pair = ParseExtent(candidates_[i], extent);
    if (!pair.has_value()) return Restart(&counters_.torn_extents);  // The extent was freed since.
    if (pair->key != key_) continue;
    pair_ = *pair;
    return Step::kFound;
  }
  return std::nullopt;
}

std::unique_ptr<Lookup> NewLookup(std::string_view key, const KeyHash& hash, const HashGeometry& geometry,
                                  const LookupOptions& options) {
  if (geometry.bucket_bytes == 0) return std::make_unique<CuckooLookup>(key, hash, geometry, options);
  return std::make_unique<BucketLookup>(key, hash, geometry, options);
}

}  // namespace cell

#include "pilaf/lookup.h"

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "pilaf/bucket_lookup.h"
#include "pilaf/cuckoo_lookup.h"

namespace cell {

Lookup::Step Lookup::Visit(absl::Span<const ConstBytes> images) {
  CELL_CHECK(images.size() == wants_.size());
  if (with_header_) {
    with_header_ = false;
    const std::optional<HashHeader> header = ParseHashHeader(images.back().data(), place_.region);
    if (header.has_value() && (header->generation == 0 || !header->range.Has(hash_))) return Step::kElsewhere;
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

bool Lookup::IsPair(ConstBytes extent, uint64_t crc, bool* again) {
  const std::string_view pair = AsText(extent);
  *again = Crc64(pair) != crc;  // It was freed since.
  if (*again || pair.substr(0, key_.size()) != key_) return false;
  value_ = pair.substr(key_.size());
  return true;
}

std::unique_ptr<Lookup> NewLookup(std::string_view key, const KeyHash& hash, const HashPlace& place,
                                  const LookupOptions& options) {
  if (place.bucket_bytes == 0) return std::make_unique<CuckooLookup>(key, hash, place, options);
  return std::make_unique<BucketLookup>(key, hash, place, options);
}

}  // namespace cell

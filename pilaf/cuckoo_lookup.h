// CuckooLookup: a lookup in slots (the thesis, Algorithm 1). All slots that may have the key; then the extents of those
// that look like it; and, before the key is called absent, the slots once more, and the header.
//
// The thesis reads slots one by one and then again all but the last: a key that was missed went from a slot that was
// read late to one that was read before, whose version tells. Read at the same time no slot is the last, so all are
// read again. See README.md for why that is enough.
#pragma once

#include <array>

#include "pilaf/lookup.h"

namespace cell {

class CuckooLookup : public Lookup {
 public:
  CuckooLookup(std::string_view key, const KeyHash& hash, const HashPlace& place, const LookupOptions& options);

 private:
  enum class Phase { kSlots, kExtents, kConfirm };

  Step Begin() override;
  Step VisitImages(absl::Span<const ConstBytes> images) override;
  Step Confirm();
  // False: not all of the first `count` are whole.
  bool ParseSlots(absl::Span<const ConstBytes> images, int count, std::array<HashSlot, kProbes>* slots) const;
  Step VisitSlots(absl::Span<const ConstBytes> images);
  Step VisitConfirm(absl::Span<const ConstBytes> images);

  std::array<uint32_t, kProbes> at_;
  Phase phase_ = Phase::kSlots;
  std::array<HashSlot, kProbes> slots_{};
};

}  // namespace cell

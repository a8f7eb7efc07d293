// CuckooLookup looks up a key in slots (thesis, Algorithm 1). It reads all slots that may have the key, then the
// extents of those that match. Before it reports the key as absent, it reads the slots and the header again, and if the
// region's range has ever grown, the slots once more.
//
// The thesis reads slots one by one, and then all but the last again. If a key was missed, it was moved from a slot
// that was read late to a slot that was read early, and the version of the latter shows that. Here slots are read at
// the same time, so none is the last, and all are read again. README.md explains why that is enough.
#pragma once

#include <array>

#include "pilaf/lookup.h"

namespace cell {

class CuckooLookup : public Lookup {
 public:
  CuckooLookup(std::string_view key, const KeyHash& hash, const HashGeometry& geometry, const LookupOptions& options);

 private:
  enum class Phase { kSlots, kExtents, kConfirm, kConfirmAgain };

  Step Begin() override;
  Step VisitImages(absl::Span<const ConstBytes> images) override;
  Step Confirm();
  // Parses the first `count` images. Returns false if one of them is torn.
  bool ParseSlots(absl::Span<const ConstBytes> images, int count, std::array<HashSlot, kProbes>* slots) const;
  Step VisitSlots(absl::Span<const ConstBytes> images);
  Step VisitConfirm(absl::Span<const ConstBytes> images);
  void WantSlotsAgain();
  // Returns nullopt if the slots' versions are those of the first images.
  std::optional<Step> VisitSlotsAgain(absl::Span<const ConstBytes> images);

  std::array<uint32_t, kProbes> at_;
  Phase phase_ = Phase::kSlots;
  std::array<HashSlot, kProbes> slots_{};
};

}  // namespace cell

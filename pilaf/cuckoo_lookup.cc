#include "pilaf/cuckoo_lookup.h"

#include "cell/base/mutant.h"

namespace cell {

CuckooLookup::CuckooLookup(std::string_view key, const KeyHash& hash, const HashGeometry& geometry,
                           const LookupOptions& options)
    : Lookup(key, hash, geometry, options) {
  for (int i = 0; i < kProbes; ++i) at_[i] = SlotOf(hash.probes[i], geometry.units);
  CuckooLookup::Begin();
}

Lookup::Step CuckooLookup::Begin() {
  phase_ = Phase::kSlots;
  for (const uint32_t at : at_) Want(geometry_.OffsetOf(at), sizeof(HashSlot));
  return Step::kRead;
}

Lookup::Step CuckooLookup::VisitImages(absl::Span<const ConstBytes> images) {
  switch (phase_) {
    case Phase::kSlots:
      return VisitSlots(images);
    case Phase::kExtents:
      if (const std::optional<Step> step = VisitExtents(images)) return *step;
      return Confirm();
    case Phase::kConfirm:
      return VisitConfirm(images);
    case Phase::kConfirmAgain:
      return VisitSlotsAgain(images).value_or(Step::kAbsent);
  }
  return Step::kGaveUp;
}

bool CuckooLookup::ParseSlots(absl::Span<const ConstBytes> images, int count,
                              std::array<HashSlot, kProbes>* slots) const {
  for (int i = 0; i < count; ++i) {
    const std::optional<HashSlot> slot = ParseSlot(images[i].data(), geometry_.region, at_[i]);
    if (!slot.has_value()) return false;
    (*slots)[i] = *slot;
  }
  return true;
}

Lookup::Step CuckooLookup::VisitSlots(absl::Span<const ConstBytes> images) {
  if (!ParseSlots(images, kProbes, &slots_)) return Restart(&counters_.torn);
  candidates_.clear();
  for (const HashSlot& slot : slots_) {
    if (slot.held != 0 && !Mutated(Mutant::kLocksUnseen)) return Step::kHeld;
  }
  for (const HashSlot& slot : slots_) {
    if (!slot.in_use() || slot.tag != hash_.tag() || slot.key_bytes != key_.size() || !geometry_.InBounds(slot))
      continue;
    // A key is in two slots while it is moved.
    bool again = false;
    for (const HashSlot& other : candidates_) again |= other.extent == slot.extent;
    if (!again) candidates_.push_back(slot);
  }
  if (candidates_.empty()) return Confirm();
  phase_ = Phase::kExtents;
  return ReadExtents();
}

Lookup::Step CuckooLookup::Confirm() {
  if (!options_.serializable) return Step::kAbsent;
  phase_ = Phase::kConfirm;
  WantSlotsAgain();
  Want(kHashHeaderOffset, sizeof(HashHeader));
  return Step::kRead;
}

void CuckooLookup::WantSlotsAgain() {
  wants_.clear();
  for (int i = 0; i < options_.slots_confirmed; ++i) Want(geometry_.OffsetOf(at_[i]), sizeof(HashSlot));
}

std::optional<Lookup::Step> CuckooLookup::VisitSlotsAgain(absl::Span<const ConstBytes> images) {
  std::array<HashSlot, kProbes> now;
  if (!ParseSlots(images, options_.slots_confirmed, &now)) return Restart(&counters_.torn);
  for (int i = 0; i < options_.slots_confirmed; ++i) {
    if (now[i].version != slots_[i].version) return Restart(&counters_.moved);
  }
  return std::nullopt;
}

Lookup::Step CuckooLookup::VisitConfirm(absl::Span<const ConstBytes> images) {
  if (const std::optional<Step> step = VisitSlotsAgain(images)) return *step;
  const std::optional<HashHeader> header = ParseHashHeader(images.back().data(), geometry_.region);
  if (!header.has_value()) return Restart(&counters_.torn);
  if (!header->Serves(hash_)) return Step::kElsewhere;
  if (header->joins == 0) return Step::kAbsent;
  // The range may have grown, and the key come here, after the slots were read and before the header was.
  phase_ = Phase::kConfirmAgain;
  WantSlotsAgain();
  return Step::kRead;
}

}  // namespace cell

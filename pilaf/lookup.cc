#include "pilaf/lookup.h"

#include "cell/base/check.h"
#include "cell/base/crc64.h"

namespace cell {

Lookup::Lookup(std::string_view key, const KeyHash& hash, const HashPlace& place, const Options& options)
    : key_(key), hash_(hash), place_(place), options_(options) {
  for (int i = 0; i < kProbes; ++i) at_[i] = SlotOf(hash.probes[i], place.slots);
  ReadSlots(false);
}

void Lookup::Want(uint64_t offset, uint64_t bytes) {
  wants_.push_back({offset, static_cast<uint32_t>(RoundUp(bytes, kWordBytes))});
  ++counters_.reads;
}

Lookup::Step Lookup::ReadSlots(bool with_header) {
  phase_ = Phase::kSlots;
  wants_.clear();
  for (const uint32_t at : at_) Want(place_.OffsetOf(at), sizeof(HashSlot));
  if (with_header) Want(kHashHeaderOffset, sizeof(HashHeader));
  return Step::kRead;
}

Lookup::Step Lookup::Restart(int* why) {
  ++*why;
  if (++restarts_ > kRestartsMax) return Step::kGaveUp;
  return ReadSlots(true);  // A region that was given up has no whole slots any more.
}

Lookup::Step Lookup::Visit(absl::Span<const ConstBytes> images) {
  CELL_CHECK(images.size() == wants_.size());
  switch (phase_) {
    case Phase::kSlots:
      return VisitSlots(images);
    case Phase::kExtents:
      return VisitExtents(images);
    case Phase::kConfirm:
      return VisitConfirm(images);
  }
  return Step::kGaveUp;
}

bool Lookup::ParseSlots(absl::Span<const ConstBytes> images, int count, std::array<HashSlot, kProbes>* slots) const {
  for (int i = 0; i < count; ++i) {
    const std::optional<HashSlot> slot = ParseSlot(images[i].data(), place_.region, at_[i]);
    if (!slot.has_value()) return false;
    (*slots)[i] = *slot;
  }
  return true;
}

Lookup::Step Lookup::VisitSlots(absl::Span<const ConstBytes> images) {
  if (images.size() > kProbes) {
    const std::optional<HashHeader> header = ParseHashHeader(images[kProbes].data(), place_.region);
    if (header.has_value() && (header->generation == 0 || !header->range.Has(hash_))) return Step::kElsewhere;
  }
  if (!ParseSlots(images, kProbes, &slots_)) return Restart(&counters_.torn_slots);
  candidates_.clear();
  for (const HashSlot& slot : slots_) {
    if (!slot.in_use() || slot.tag != hash_.tag() || slot.key_bytes != key_.size() || !place_.InBounds(slot)) continue;
    // While it is moved a key is in two slots.
    bool again = false;
    for (const HashSlot& other : candidates_) again |= other.extent == slot.extent;
    if (!again) candidates_.push_back(slot);
  }
  return ReadExtents();
}

Lookup::Step Lookup::ReadExtents() {
  wants_.clear();
  if (!candidates_.empty()) {
    phase_ = Phase::kExtents;
    for (const HashSlot& slot : candidates_) Want(place_.ExtentOf(slot), slot.extent_bytes);
    return Step::kRead;
  }
  if (!options_.serializable) return Step::kAbsent;
  phase_ = Phase::kConfirm;
  for (int i = 0; i < options_.slots_confirmed; ++i) Want(place_.OffsetOf(at_[i]), sizeof(HashSlot));
  Want(kHashHeaderOffset, sizeof(HashHeader));
  return Step::kRead;
}

Lookup::Step Lookup::VisitExtents(absl::Span<const ConstBytes> images) {
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const std::string_view pair = AsText(images[i].subspan(0, candidates_[i].extent_bytes));
    if (Crc64(pair) != candidates_[i].extent_crc) return Restart(&counters_.torn_extents);  // It was freed since.
    if (pair.substr(0, key_.size()) != key_) continue;
    value_ = pair.substr(key_.size());
    return Step::kFound;
  }
  candidates_.clear();
  return ReadExtents();
}

Lookup::Step Lookup::VisitConfirm(absl::Span<const ConstBytes> images) {
  std::array<HashSlot, kProbes> now;
  if (!ParseSlots(images, options_.slots_confirmed, &now)) return Restart(&counters_.torn_slots);
  for (int i = 0; i < options_.slots_confirmed; ++i) {
    if (now[i].version != slots_[i].version) return Restart(&counters_.moved);
  }
  const std::optional<HashHeader> header = ParseHashHeader(images.back().data(), place_.region);
  if (!header.has_value()) return Restart(&counters_.torn_slots);
  return header->generation != 0 && header->range.Has(hash_) ? Step::kAbsent : Step::kElsewhere;
}

}  // namespace cell

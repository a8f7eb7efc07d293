#include "pilaf/cuckoo_table.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "cell/base/bytes.h"
#include "cell/base/check.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"

namespace cell {

HashSlot CuckooTable::Slot(uint32_t at) const { return Load<HashSlot>(memory_->at(geometry_.OffsetOf(at))); }

std::array<uint32_t, kProbes> CuckooTable::SlotsOf(const KeyHash& hash) const {
  std::array<uint32_t, kProbes> at;
  for (int i = 0; i < kProbes; ++i) at[i] = SlotOf(hash.probes[i], geometry_.units);
  return at;
}

std::optional<CuckooTable::Found> CuckooTable::FindSlot(std::string_view key, const KeyHash& hash) const {
  for (const uint32_t at : SlotsOf(hash)) {
    const HashSlot slot = Slot(at);
    if (slot.in_use() && slot.tag == hash.tag() && KeyOf(slot) == key) return Found{at, slot};
  }
  return std::nullopt;
}

void CuckooTable::Publish(uint32_t at, HashSlot slot) {
  slot.version = Slot(at).version + 1;
  slot.held = IsHeld(at) && !Mutated(Mutant::kHeldUnshown);
  slot.crc = SlotCrc(slot, geometry_.region, at);
  // The words may be stored in any order, because the CRC tells when the slot is whole.
  const auto* words = reinterpret_cast<const std::byte*>(&slot);
  for (size_t done = 0; done < sizeof(slot); done += kWordBytes) {
    memory_->StoreWord(geometry_.OffsetOf(at) + done, Load<uint64_t>(words + done));
    memory_->AfterStep();
  }
}

std::optional<HashTable::Located> CuckooTable::LocateAny(std::string_view key, const KeyHash& hash) const {
  const std::optional<Found> found = FindSlot(key, hash);
  return found.has_value() ? std::optional(LocatedAt(found->slot)) : std::nullopt;
}

HashTable::Units CuckooTable::UnitsOf(const KeyHash& hash) const {
  const std::array<uint32_t, kProbes> slots = SlotsOf(hash);
  return {slots.begin(), slots.end()};
}

void CuckooTable::PrefetchUnits(const KeyHash& hash) const {
  for (const uint32_t at : SlotsOf(hash)) Prefetch(memory_->at(geometry_.OffsetOf(at)), sizeof(HashSlot));
}

void CuckooTable::PrefetchPair(const KeyHash& hash) const {
  constexpr uint32_t kPrefetched = 256;  // In bytes. The hardware prefetches the rest.
  for (const uint32_t at : SlotsOf(hash)) {
    const HashSlot slot = Slot(at);
    if (!slot.in_use() || slot.tag != hash.tag()) continue;
    Prefetch(memory_->at(geometry_.ExtentOf(slot)), std::min(slot.extent_bytes, kPrefetched));
  }
}

absl::StatusOr<PairStore::Prepared> CuckooTable::PreparePair(const HashPair& pair, const KeyHash& hash, uint64_t crc,
                                                             When when) {
  Prepared prepared;
  // If the key may be deleted first, reserve a slot in any case.
  const std::optional<Found> found = when != When::kLater ? FindSlot(pair.key, hash) : std::nullopt;
  std::vector<uint32_t> chain;
  if (!found.has_value() && (chain = FindChain(hash)).empty()) return Full(pair.key);
  ASSIGN_OR_RETURN(const HashSlot slot, StoreExtent(pair, crc));
  Kick(chain);
  prepared.unit = found.has_value() ? kNoUnit : chain.front();
  if (when != When::kNow && !found.has_value()) {
    if (chain.size() > 1) Publish(prepared.unit, {});  // Its former content is in the next slot by now.
    kept_.insert(prepared.unit);
  }
  prepared.extent = geometry_.ExtentOf(slot);
  prepared.bytes = static_cast<uint32_t>(slot.pair_bytes());
  prepared.crc = crc;
  prepared.expiry = pair.expiry;
  return prepared;
}

void CuckooTable::Release(const Prepared& prepared) { kept_.erase(prepared.unit); }

std::optional<Expiry> CuckooTable::CommitPair(const Prepared& prepared, std::string_view key, const KeyHash& hash) {
  const std::optional<Found> found = FindSlot(key, hash);
  HashSlot slot = SlotFor(prepared, key.size());
  slot.tag = hash.tag();
  CELL_CHECK(found.has_value() || prepared.unit != kNoUnit);
  Publish(found.has_value() ? found->at : prepared.unit, slot);
  RegionHeader& header = memory_->header();
  header.data_bytes += slot.pair_bytes();
  AddExpiry(prepared.expiry);
  if (!found.has_value()) {
    ++header.keys;
    return std::nullopt;
  }
  const Expiry replaced = ExpiryOf(found->slot);
  header.data_bytes -= found->slot.pair_bytes();
  RemoveExpiry(found->slot.expires != 0);
  FreeExtent(found->slot);
  return replaced;
}

std::vector<uint32_t> CuckooTable::FindChain(const KeyHash& hash) const {
  struct Step {
    uint32_t at;
    int32_t from;  // The step whose key would move here; -1: the new key.
  };
  std::vector<Step> steps;
  const auto chain_to = [&steps](uint32_t at, int32_t from) {
    std::vector<uint32_t> chain = {at};
    for (; from >= 0; from = steps[static_cast<size_t>(from)].from)
      chain.push_back(steps[static_cast<size_t>(from)].at);
    std::reverse(chain.begin(), chain.end());
    return chain;
  };
  absl::flat_hash_set<uint32_t> seen;
  std::array<uint32_t, kProbes> next = SlotsOf(hash);
  for (int32_t from = -1;; next = SlotsOf(HashKey(KeyOf(Slot(steps[static_cast<size_t>(from)].at))))) {
    for (const uint32_t at : next) {
      if (!Slot(at).in_use() && !Kept(at)) return chain_to(at, from);
    }
    for (const uint32_t at : next) {
      if (!Kept(at) && seen.insert(at).second) steps.push_back({at, from});
    }
    if (++from >= static_cast<int32_t>(thorough_ ? steps.size() : std::min(steps.size(), kKicksMax))) return {};
  }
}

void CuckooTable::Kick(const std::vector<uint32_t>& chain) {
  const size_t moves = chain.empty() ? 0 : chain.size() - 1;
  std::vector<HashSlot> moved;
  for (size_t i = 0; i < moves; ++i) moved.push_back(Slot(chain[i]));
  for (size_t i = 0; i < moves; ++i) {
    const size_t from = kick_from_front_ || Mutated(Mutant::kCuckooFromFront) ? i : moves - 1 - i;
    Publish(chain[from + 1], moved[from]);
    Moved(KeyOf(moved[from]), ExpiryOf(moved[from]), chain[from], chain[from + 1]);
  }
  counters_.kicked += moves;
  counters_.longest_chain = std::max<uint64_t>(counters_.longest_chain, moves);
}

void CuckooTable::Clear(uint32_t at) {
  const HashSlot slot = Slot(at);
  Publish(at, {});
  RemoveExpiry(slot.expires != 0);
  FreeExtent(slot);
  memory_->header().data_bytes -= slot.pair_bytes();
  --memory_->header().keys;
}

std::optional<Expiry> CuckooTable::DeleteKey(std::string_view key, const KeyHash& hash) {
  const std::optional<Found> found = FindSlot(key, hash);
  if (!found.has_value()) return std::nullopt;
  const Expiry expiry = ExpiryOf(found->slot);
  SpoilExtent(found->slot);
  Clear(found->at);
  return expiry;
}

// The old extent is not spoiled, unlike that of a pair that is deleted: a reader that has the old slot finds a pair
// that was true when it read the slot.
bool CuckooTable::MoveExtentsOf(uint32_t at, ExtentMoves* moves) {
  const std::optional<HashSlot> old = ParseSlot(memory_->at(geometry_.OffsetOf(at)), geometry_.region, at);
  if (!old.has_value() || !old->in_use() || !geometry_.InBounds(*old)) return true;
  const uint64_t from = geometry_.ExtentOf(*old);
  if (!moves->window.Has(from, old->extent_bytes)) return true;
  const auto is_sound = [&] { return VerifiedPairOf(*old).has_value(); };
  const std::optional<uint64_t> to = CopyOutside(from, old->extent_bytes, is_sound, moves);
  if (!to.has_value()) return true;
  HashSlot slot = *old;
  slot.extent = WordOf(*to);
  Publish(at, slot);
  FreeExtent(*old);
  return true;
}

void CuckooTable::CleanUnit(uint32_t at) {
  const HashSlot slot = Slot(at);
  if (slot.in_use() && !range().Has(HashKey(KeyOf(slot)))) Clear(at);
}

// If the key is not stored here there is nothing to do: readers check the header before they report it as absent.
void CuckooTable::CleanKey(std::string_view key, const KeyHash& hash) {
  if (const std::optional<Found> found = FindSlot(key, hash)) Clear(found->at);
}

void CuckooTable::Republish(uint32_t at) {
  const std::optional<HashSlot> slot = ParseSlot(memory_->at(geometry_.OffsetOf(at)), geometry_.region, at);
  if (slot.has_value()) Publish(at, *slot);
}

absl::StatusOr<HashSlot> CuckooTable::VerifiedSlot(uint32_t at) const {
  const std::optional<HashSlot> slot = ParseSlot(memory_->at(geometry_.OffsetOf(at)), geometry_.region, at);
  if (!slot.has_value()) return Damaged(fmt::format("slot {} is damaged", at));
  if (!slot->in_use()) return *slot;
  if (!geometry_.InBounds(*slot)) return Damaged(fmt::format("slot {} points outside the region", at));
  if (!VerifiedPairOf(*slot).has_value()) return Damaged(fmt::format("the extent of slot {} is damaged", at));
  return *slot;
}

absl::Status CuckooTable::VisitUnit(uint32_t at, const Visit& visit) const {
  ASSIGN_OR_RETURN(const HashSlot slot, VerifiedSlot(at));
  if (slot.in_use()) visit(PairOf(slot));
  return absl::OkStatus();
}

absl::Status CuckooTable::VisitExpiring(uint32_t at, const Visit& visit) const {
  return Slot(at).expires != 0 ? VisitUnit(at, visit) : absl::OkStatus();
}

absl::StatusOr<std::optional<HashPair>> CuckooTable::FindVerified(std::string_view key, const KeyHash& hash) const {
  const std::optional<Found> found = FindSlot(key, hash);
  if (!found.has_value()) return std::nullopt;
  ASSIGN_OR_RETURN(const HashSlot slot, VerifiedSlot(found->at));
  return PairOf(slot);
}

std::array<uint64_t, kProbes> CuckooTable::KeysByProbe(uint32_t every) const {
  std::array<uint64_t, kProbes> keys{};
  for (uint64_t at = 0; at < geometry_.units; at += every) {
    const HashSlot slot = Slot(static_cast<uint32_t>(at));
    if (!slot.in_use()) continue;
    const std::array<uint32_t, kProbes> its = SlotsOf(HashKey(KeyOf(slot)));
    ++keys[static_cast<size_t>(std::find(its.begin(), its.end(), at) - its.begin())];
  }
  return keys;
}

absl::Status CuckooTable::CheckUnit(uint32_t at, bool, const std::function<absl::Status(const Held&)>& held) const {
  ASSIGN_OR_RETURN(const HashSlot slot, VerifiedSlot(at));
  if ((slot.held != 0) != (IsHeld(at) && !Mutated(Mutant::kHeldUnshown)))
    return Damaged(fmt::format("slot {}: it is wrong about keys that are held", at));
  if (!slot.in_use()) return absl::OkStatus();
  const std::string_view key = KeyOf(slot);
  const KeyHash hash = HashKey(key);
  const std::array<uint32_t, kProbes> its = SlotsOf(hash);
  if (slot.tag != hash.tag() || std::find(its.begin(), its.end(), at) == its.end()) {
    return Damaged(fmt::format("key {} does not belong in slot {}", ForMessage(key), at));
  }
  return held({key, ExpiryOf(slot), &slot});
}

}  // namespace cell

#include "pilaf/cuckoo_table.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cell/base/bytes.h"
#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"

namespace cell {

absl::Status CuckooTable::Format(RegionMemory* memory, uint32_t region, const RegionShape& shape,
                                 const HashRange& range) {
  if (region == 0 || region > Pointer::kRegionMax || memory->bytes() < shape.region_bytes()) {
    return absl::InvalidArgumentError(fmt::format("region {}: bad id or too little memory", region));
  }
  if (shape.meganode_bytes < 2 * 4096 || shape.extents_bytes % 4096 != 0 || shape.extents_bytes > kExtentsBytesMax ||
      range.first > range.last) {
    return absl::InvalidArgumentError("a shape that no hash region has");
  }
  const HashPlace place = PlaceOf(region, shape);
  RegionHeader& header = memory->header();
  header = {};
  header.magic = kHashMagic;
  header.layout_version = kLayoutVersion;
  header.region = region;
  header.node_bytes = sizeof(HashSlot);
  header.node_count = place.slots;
  header.nodes_offset = kSlotsOffset;
  header.extents_offset = place.extents_offset;
  header.extents_bytes = place.extents_bytes;
  ExtentAllocator(memory).Format();
  HashHeader first{};
  first.magic = kHashMagic;
  first.region = region;
  first.slots = place.slots;
  first.range = range;
  first.generation = 1;
  first.crc = HeaderCrc(first);
  memory->Store(kHashHeaderOffset, reinterpret_cast<const std::byte*>(&first), sizeof(first));
  return absl::OkStatus();
}

CuckooTable::CuckooTable(RegionMemory* memory)
    : memory_(memory),
      extents_(memory),
      place_{memory->header().region, memory->header().node_count, memory->header().extents_offset,
             memory->header().extents_bytes} {
  CELL_CHECK(memory->header().magic == kHashMagic && memory->header().layout_version == kLayoutVersion);
}

HashHeader CuckooTable::header() const { return Load<HashHeader>(memory_->at(kHashHeaderOffset)); }

HashSlot CuckooTable::Slot(uint32_t at) const { return Load<HashSlot>(memory_->at(place_.OffsetOf(at))); }

std::string_view CuckooTable::Extent(const HashSlot& slot) const {
  return AsText({memory_->at(place_.ExtentOf(slot)), slot.extent_bytes});
}

std::array<uint32_t, kProbes> CuckooTable::SlotsOf(const KeyHash& hash) const {
  std::array<uint32_t, kProbes> at;
  for (int i = 0; i < kProbes; ++i) at[i] = SlotOf(hash.probes[i], place_.slots);
  return at;
}

absl::Status CuckooTable::CheckKey(std::string_view key, const KeyHash& hash) const {
  if (key.empty()) return absl::InvalidArgumentError("a key has at least one byte");
  if (key.size() > kKeyBytesMax) {
    return absl::InvalidArgumentError(fmt::format("key {} is longer than {} bytes", ForMessage(key), kKeyBytesMax));
  }
  if (!header().range.Has(hash)) {
    return absl::OutOfRangeError(fmt::format("{} is not in region {}", ForMessage(key), place_.region));
  }
  return absl::OkStatus();
}

std::optional<CuckooTable::Found> CuckooTable::Find(std::string_view key, const KeyHash& hash) const {
  for (const uint32_t at : SlotsOf(hash)) {
    const HashSlot slot = Slot(at);
    if (slot.in_use() && slot.tag == hash.tag() && KeyOf(slot) == key) return Found{at, slot};
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<std::string_view>> CuckooTable::Get(std::string_view key) const {
  const KeyHash hash = HashKey(key);
  RETURN_IF_ERROR(CheckKey(key, hash));
  const std::optional<Found> found = Find(key, hash);
  if (!found.has_value()) return std::nullopt;
  return Extent(found->slot).substr(key.size());
}

void CuckooTable::Publish(uint32_t at, HashSlot slot) {
  slot.version = Slot(at).version + 1;
  slot.crc = SlotCrc(slot, place_.region, at);
  // Word by word, in any order: it is whole when its CRC says so.
  const auto* words = reinterpret_cast<const std::byte*>(&slot);
  for (size_t done = 0; done < sizeof(slot); done += kWordBytes) {
    memory_->StoreWord(place_.OffsetOf(at) + done, Load<uint64_t>(words + done));
    memory_->AfterStep();
  }
}

absl::StatusOr<bool> CuckooTable::Put(std::string_view key, std::string_view value, uint64_t crc) {
  const KeyHash hash = HashKey(key);
  RETURN_IF_ERROR(CheckKey(key, hash));
  if (value.size() > kValueBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("value of {} bytes for key {} is larger than {}", value.size(), ForMessage(key), kValueBytesMax));
  }
  if (Crc64(value, Crc64(key)) != crc) {
    return absl::InvalidArgumentError(fmt::format("the CRC of key {} and its value is wrong", ForMessage(key)));
  }
  const std::optional<Found> found = Find(key, hash);
  uint32_t at = 0;
  std::vector<uint32_t> chain;
  if (found.has_value()) {
    at = found->at;
  } else {
    chain = FindChain(hash);
    if (chain.empty()) {
      ++counters_.full;
      return absl::ResourceExhaustedError(
          fmt::format("region {} is full: {} of {} slots are in use, and none can be freed for key {}", place_.region,
                      keys(), place_.slots, ForMessage(key)));
    }
    at = chain.front();
  }
  const std::optional<uint64_t> extent = extents_.Store(key, value);
  if (!extent.has_value()) {
    return absl::ResourceExhaustedError(
        fmt::format("region {} has no room for a pair of {} bytes", place_.region, key.size() + value.size()));
  }
  Kick(chain);
  HashSlot slot{};
  slot.extent = static_cast<uint32_t>((*extent - place_.extents_offset) / kWordBytes);
  slot.extent_bytes = static_cast<uint32_t>(key.size() + value.size());
  slot.extent_crc = crc;
  slot.tag = hash.tag();
  slot.key_bytes = static_cast<uint16_t>(key.size());
  Publish(at, slot);
  RegionHeader& header = memory_->header();
  header.data_bytes += slot.extent_bytes;
  if (found.has_value()) {
    header.data_bytes -= found->slot.extent_bytes;
    extents_.Free(place_.ExtentOf(found->slot));
  } else {
    ++header.keys;
  }
  ++counters_.puts;
  return found.has_value();
}

std::vector<uint32_t> CuckooTable::FindChain(const KeyHash& hash) const {
  struct Step {
    uint32_t at;
    int32_t from;  // The step whose key would come here; -1: the new key.
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
      if (!Slot(at).in_use()) return chain_to(at, from);
    }
    for (const uint32_t at : next) {
      if (seen.insert(at).second) steps.push_back({at, from});
    }
    if (++from >= static_cast<int32_t>(std::min(steps.size(), kKicksMax))) return {};
  }
}

void CuckooTable::Kick(const std::vector<uint32_t>& chain) {
  const size_t moves = chain.empty() ? 0 : chain.size() - 1;
  std::vector<HashSlot> moved;
  for (size_t i = 0; i < moves; ++i) moved.push_back(Slot(chain[i]));
  for (size_t i = 0; i < moves; ++i) {
    const size_t from = kick_from_front_ ? i : moves - 1 - i;
    Publish(chain[from + 1], moved[from]);
  }
  counters_.kicked += moves;
  counters_.longest_chain = std::max<uint64_t>(counters_.longest_chain, moves);
}

absl::StatusOr<bool> CuckooTable::Delete(std::string_view key) {
  const KeyHash hash = HashKey(key);
  RETURN_IF_ERROR(CheckKey(key, hash));
  const std::optional<Found> found = Find(key, hash);
  if (!found.has_value()) return false;
  const uint64_t extent = place_.ExtentOf(found->slot);
  // The thesis, Lemma 3.1: a reader that has the slot already does not find the pair any more either.
  memory_->StoreWord(extent, ~Load<uint64_t>(memory_->at(extent)));
  memory_->AfterStep();
  Publish(found->at, {});
  extents_.Free(extent);
  RegionHeader& header = memory_->header();
  header.data_bytes -= found->slot.extent_bytes;
  --header.keys;
  ++counters_.deletes;
  return true;
}

void CuckooTable::ForEach(const std::function<void(std::string_view key, std::string_view value)>& visit) const {
  for (uint32_t at = 0; at < place_.slots; ++at) {
    const HashSlot slot = Slot(at);
    if (slot.in_use()) visit(KeyOf(slot), Extent(slot).substr(slot.key_bytes));
  }
}

std::array<uint64_t, kProbes> CuckooTable::KeysByProbe() const {
  std::array<uint64_t, kProbes> keys{};
  for (uint32_t at = 0; at < place_.slots; ++at) {
    const HashSlot slot = Slot(at);
    if (!slot.in_use()) continue;
    const std::array<uint32_t, kProbes> its = SlotsOf(HashKey(KeyOf(slot)));
    ++keys[static_cast<size_t>(std::find(its.begin(), its.end(), at) - its.begin())];
  }
  return keys;
}

absl::Status CuckooTable::Check() const {
  const auto wrong = [this](const std::string& what) {
    return absl::DataLossError(fmt::format("region {}: {}", place_.region, what));
  };
  if (!ParseHashHeader(memory_->at(kHashHeaderOffset), place_.region).has_value())
    return wrong("its header is damaged");
  absl::flat_hash_map<uint64_t, uint64_t> extents;  // Where they are, and how long.
  absl::flat_hash_set<std::string_view> keys;
  for (uint32_t at = 0; at < place_.slots; ++at) {
    const std::optional<HashSlot> slot = ParseSlot(memory_->at(place_.OffsetOf(at)), place_.region, at);
    if (!slot.has_value()) return wrong(fmt::format("slot {} is damaged", at));
    if (!slot->in_use()) continue;
    if (!place_.InBounds(*slot)) return wrong(fmt::format("slot {} points out of the region", at));
    if (Crc64(Extent(*slot)) != slot->extent_crc) return wrong(fmt::format("the extent of slot {} is damaged", at));
    const std::string_view key = KeyOf(*slot);
    const KeyHash hash = HashKey(key);
    const std::array<uint32_t, kProbes> its = SlotsOf(hash);
    if (slot->tag != hash.tag() || std::find(its.begin(), its.end(), at) == its.end() || !header().range.Has(hash)) {
      return wrong(fmt::format("key {} does not belong into slot {}", ForMessage(key), at));
    }
    if (!keys.insert(key).second) return wrong(fmt::format("key {} is there twice", ForMessage(key)));
    extents[place_.ExtentOf(*slot)] = slot->extent_bytes;
  }
  if (keys.size() != this->keys())
    return wrong(fmt::format("{} keys, and the header says {}", keys.size(), this->keys()));
  uint64_t blocks = 0, unowned = 0;
  RETURN_IF_ERROR(extents_.Walk([&](uint64_t offset, uint64_t room) {
    const auto it = extents.find(offset);
    unowned += it == extents.end() || it->second > room;
    ++blocks;
  }));
  if (unowned != 0 || blocks != extents.size()) {
    return wrong(fmt::format("{} extents for {} keys, {} of them nobody's", blocks, keys.size(), unowned));
  }
  return absl::OkStatus();
}

}  // namespace cell

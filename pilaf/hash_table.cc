#include "pilaf/hash_table.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cell/base/bytes.h"
#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "pilaf/bucket_draft.h"
#include "pilaf/bucket_table.h"
#include "pilaf/cuckoo_table.h"
#include "pilaf/hash_check.h"

namespace cell {

absl::Status HashTable::Format(RegionMemory* memory, uint32_t region, const RegionShape& shape, const HashRange& range,
                               uint32_t bucket_bytes) {
  if (region == 0 || region > Pointer::kRegionMax || memory->bytes() < shape.region_bytes()) {
    return absl::InvalidArgumentError(
        fmt::format("region {}: the id is invalid, or there is too little memory", region));
  }
  if (bucket_bytes != 0 && !ValidBucketBytes(bucket_bytes)) {
    return absl::InvalidArgumentError(
        fmt::format("a bucket size of {} is invalid: it must be a power of two from {} to {}", bucket_bytes,
                    kBucketBytesMin, kBucketBytesMax));
  }
  if (shape.meganode_bytes < 4096 + std::max<uint64_t>(4096, 2 * bucket_bytes) || shape.extents_bytes % 4096 != 0 ||
      shape.extents_bytes > kExtentsBytesMax || range.first > range.last) {
    return absl::InvalidArgumentError("the shape or range is not valid for a region of a Pilaf table");
  }
  const HashGeometry geometry = GeometryOf(region, shape, bucket_bytes);
  RegionHeader& header = memory->header();
  const bool used_before = header.magic != 0;
  header = {};
  header.magic = kHashMagic;
  header.layout_version = kLayoutVersion;
  header.region = region;
  header.node_bytes = geometry.unit_bytes();
  header.node_count = geometry.units;
  header.nodes_offset = kUnitsOffset;
  header.extents_offset = geometry.extents_offset;
  header.extents_bytes = geometry.extents_bytes;
  header.stamp_bound = kLastStampMax;
  ExtentAllocator(memory).Format();
  static constexpr std::array<std::byte, 4096> kZeros{};
  for (uint64_t at = kUnitsOffset; used_before && at < geometry.extents_offset; at += kZeros.size()) {
    memory->Store(at, kZeros.data(), kZeros.size());
  }
  for (uint32_t at = 0; bucket_bytes != 0 && at < geometry.units; ++at) {
    BucketDraft bucket(region, geometry.OffsetOf(at), bucket_bytes);
    bucket.Begin(range);
    bucket.Publish(memory);
  }
  HashHeader first{};
  first.magic = kHashMagic;
  first.region = region;
  first.units = geometry.units;
  first.range = range;
  first.bucket_bytes = bucket_bytes;
  first.crc = HeaderCrc(first);
  memory->Store(kHashHeaderOffset, reinterpret_cast<const std::byte*>(&first), sizeof(first));
  return absl::OkStatus();
}

std::unique_ptr<HashTable> HashTable::Open(RegionMemory* memory, std::function<int64_t()> cluster_time) {
  if (Load<HashHeader>(memory->at(kHashHeaderOffset)).bucket_bytes == 0) {
    return std::make_unique<CuckooTable>(memory, std::move(cluster_time));
  }
  return std::make_unique<BucketTable>(memory, std::move(cluster_time));
}

HashTable::HashTable(RegionMemory* memory, std::function<int64_t()> cluster_time)
    : PairStore(memory, std::move(cluster_time)),
      geometry_{memory->header().region, memory->header().node_count, hash_header().bucket_bytes,
                memory->header().extents_offset, memory->header().extents_bytes} {
  CELL_CHECK(memory->header().magic == kHashMagic && memory->header().layout_version == kLayoutVersion);
}

absl::Status HashTable::CheckHeader(const RegionMemory& memory, uint32_t region, const RegionShape& shape) {
  const RegionHeader& header = memory.header();
  if (header.magic == kHashMagic && header.layout_version != kLayoutVersion) {
    return OtherLayout(region, header.layout_version);
  }
  const std::optional<HashHeader> hash = ParseHashHeader(memory.at(kHashHeaderOffset), region);
  const bool known = hash.has_value() && header.magic == kHashMagic && header.layout_version == kLayoutVersion &&
                     header.region == region && (hash->bucket_bytes == 0 || ValidBucketBytes(hash->bucket_bytes));
  if (known) {
    const HashGeometry geometry = GeometryOf(region, shape, hash->bucket_bytes);
    if (hash->units == geometry.units && header.node_count == geometry.units && hash->range.first <= hash->range.last &&
        header.extents_offset == geometry.extents_offset && header.extents_bytes == geometry.extents_bytes &&
        header.last_stamp <= kLastStampMax && header.stamp_bound <= kLastStampMax) {
      return absl::OkStatus();
    }
  }
  return absl::DataLossError(fmt::format("the memory of region {} does not contain a table of this shape", region));
}

HashHeader HashTable::hash_header() const { return Load<HashHeader>(memory_->at(kHashHeaderOffset)); }

void HashTable::SetHeader(HashHeader header) {
  header.crc = HeaderCrc(header);
  memory_->Store(kHashHeaderOffset, reinterpret_cast<const std::byte*>(&header), sizeof(header));
}

absl::Status HashTable::CheckKey(std::string_view key) const {
  if (key.empty()) return absl::InvalidArgumentError("a key must have at least one byte");
  if (key.size() <= kKeyBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("key {} is longer than the maximum of {} bytes", ForMessage(key), kKeyBytesMax));
}

absl::Status HashTable::CheckRange(std::string_view key, const KeyHash& hash) const {
  RETURN_IF_ERROR(CheckKey(key));
  if (range().Has(hash)) return absl::OkStatus();
  return absl::OutOfRangeError(
      fmt::format("key {} is not in the range of region {}", ForMessage(key), geometry_.region));
}

absl::Status HashTable::CheckPut(std::string_view key, const KeyHash& hash, std::string_view value,
                                 uint64_t crc) const {
  RETURN_IF_ERROR(CheckRange(key, hash));
  if (value.size() > kValueBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("the value of {} bytes for key {} is larger than the maximum of {} bytes", value.size(),
                    ForMessage(key), kValueBytesMax));
  }
  if (Crc64(value, Crc64(key)) == crc) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("the CRC of key {} and its value is wrong: they were damaged in transit", ForMessage(key)));
}

absl::StatusOr<bool> HashTable::Put(std::string_view key, std::string_view value, uint64_t crc, Pointer,
                                    Expiry expiry) {
  const KeyHash hash = HashKey(key);
  RETURN_IF_ERROR(CheckPut(key, hash, value, crc));
  return PutChecked({key, value, expiry}, hash, crc);
}

absl::StatusOr<bool> HashTable::PutChecked(const HashPair& pair, const KeyHash& hash, uint64_t crc) {
  ASSIGN_OR_RETURN(const Prepared prepared, PreparePair(pair, hash, crc, When::kNow));
  ++counters_.puts;
  if (before_change_) before_change_(pair.key, hash);
  const std::optional<Expiry> replaced = CommitPair(prepared, pair.key, hash);
  WroteAndChanged({RecordKind::kPut, pair.key, pair.value, pair.expiry});
  return replaced.has_value() && !ExpiredBefore(*replaced, pair.expiry);
}

absl::StatusOr<PairStore::Prepared> HashTable::Prepare(std::string_view key, std::string_view value, uint64_t crc,
                                                       const Ahead& ahead, Expiry expiry) {
  const KeyHash hash = HashKey(key);
  RETURN_IF_ERROR(CheckPut(key, hash, value, crc));
  return PreparePair({key, value, expiry}, hash, crc, ahead.of_key ? When::kLater : When::kNext);
}

bool HashTable::Commit(const Prepared& prepared, std::string_view key, Pointer) {
  if (Expired(prepared.expiry)) {
    // A reader whose operation began before the expiry would find the pair, which was never there before it.
    Discard(prepared);
    const absl::StatusOr<bool> existed = CommitDelete(key);
    CELL_CHECK(existed.ok());
    return *existed;
  }
  const KeyHash hash = HashKey(key);
  ++counters_.puts;
  Release(prepared);
  if (before_change_) before_change_(key, hash);
  const std::optional<Expiry> replaced = CommitPair(prepared, key, hash);
  Changed(key);
  return replaced.has_value() && !ExpiredBefore(*replaced, prepared.expiry);
}

void HashTable::Discard(const Prepared& prepared) {
  Release(prepared);
  if (prepared.extent != 0) extents_.Free(prepared.extent);
}

absl::StatusOr<bool> HashTable::Delete(std::string_view key, Pointer) {
  ASSIGN_OR_RETURN(const std::optional<Expiry> deleted, Remove(key));
  if (deleted.has_value()) Wrote({RecordKind::kDelete, key, {}});
  return deleted.has_value() && !Expired(*deleted);
}

absl::StatusOr<bool> HashTable::CommitDelete(std::string_view key, Pointer) {
  ASSIGN_OR_RETURN(const std::optional<Expiry> deleted, Remove(key));
  return deleted.has_value() && !Expired(*deleted);
}

absl::StatusOr<std::optional<Expiry>> HashTable::Remove(std::string_view key) {
  const KeyHash hash = HashKey(key);
  RETURN_IF_ERROR(CheckRange(key, hash));
  ++counters_.deletes;
  if (before_change_) before_change_(key, hash);
  const std::optional<Expiry> deleted = DeleteKey(key, hash);
  deleted_ += deleted.has_value();
  Changed(key);
  return deleted;
}

absl::StatusOr<uint64_t> HashTable::DeleteAll(absl::Span<const std::string> keys) {
  uint64_t deleted = 0;
  for (const std::string& key : keys) {
    ASSIGN_OR_RETURN(const bool existed, Delete(key));
    deleted += existed;
  }
  return deleted;
}

absl::StatusOr<uint64_t> HashTable::CommitDeleteAll(absl::Span<const std::string> keys) {
  uint64_t deleted = 0;
  for (const std::string& key : keys) {
    ASSIGN_OR_RETURN(const bool existed, CommitDelete(key));
    deleted += existed;
  }
  return deleted;
}

absl::StatusOr<PairStore::Expiries> HashTable::ExpiriesAt(const Place& place) const {
  Expiries found;
  const uint64_t now = ClusterTime();
  const auto look = [&](const HashPair& pair) {
    if (!HasExpired(pair.expiry, now)) {
      found.first_left = std::min(found.first_left, pair.expiry);
    } else if (range().Has(HashKey(pair.key))) {  // Otherwise it was split off, and is cleaned.
      found.expired.emplace_back(pair.key);
    }
  };
  const uint32_t end = std::min(geometry_.units, place.unit + UnitsAtOnce());
  for (uint32_t at = place.unit; at < end; ++at) RETURN_IF_ERROR(VisitExpiring(at, look));
  std::sort(found.expired.begin(), found.expired.end());
  if (end < geometry_.units) found.next = Place{{}, end};
  return found;
}

absl::Status HashTable::MoveExtents(ExtentMoves* moves) {
  constexpr uint32_t kBytesVisited = 2048;  // Of slots or buckets.
  const uint64_t enough = moves->bytes + moves->bytes_max;
  uint32_t left = std::max<uint32_t>(1, kBytesVisited / geometry_.unit_bytes());
  for (; left > 0 && moves->next_unit < geometry_.units && moves->bytes < enough; --left) {
    if (MoveExtentsOf(moves->next_unit, moves)) ++moves->next_unit;
  }
  moves->ended = moves->next_unit >= geometry_.units;
  return absl::OkStatus();
}

void HashTable::ShowHeld(std::string_view key, bool held) {
  const KeyHash hash = HashKey(key);
  // Readers of the region from which this one was split off may still find the key there.
  if (held && before_change_ && !Mutated(Mutant::kHeldStillBelow)) before_change_(key, hash);
  for (const uint32_t at : UnitsOf(hash)) {
    uint32_t& keys = held_[at];
    held ? ++keys : --keys;
    const bool changed = keys == (held ? 1 : 0);
    if (keys == 0) held_.erase(at);
    // An invalidated region stays invalid: nothing in it may look whole.
    if (changed && hash_header().invalidated == 0) Republish(at);
  }
}

void HashTable::Invalidate() {
  HashHeader header = hash_header();
  if (header.invalidated != 0) return;
  header.invalidated = 1;
  SetHeader(header);
  SpoilUnits();
}

void HashTable::Restore() {
  HashHeader header = hash_header();
  if (header.invalidated == 0) return;
  SpoilUnits();  // Inverting them again restores them.
  header.invalidated = 0;
  SetHeader(header);
}

// Inverts the word of each unit that holds its CRC.
void HashTable::SpoilUnits() {
  const uint64_t crc = geometry_.bucket_bytes == 0 ? offsetof(HashSlot, crc) : offsetof(BucketHeader, crc);
  for (uint32_t at = 0; at < geometry_.units; ++at) {
    const uint64_t word = geometry_.OffsetOf(at) + crc;
    const uint64_t value = LoadWord(memory_->at(word), std::memory_order_relaxed);
    if (value != 0) memory_->StoreWord(word, ~value);  // 0: never written.
  }
}

absl::StatusOr<std::optional<std::string_view>> HashTable::Get(std::string_view key) const {
  const KeyHash hash = HashKey(key);
  RETURN_IF_ERROR(CheckRange(key, hash));
  const std::optional<Located> located = Locate(key, hash);
  return located.has_value() ? std::optional(located->value) : std::nullopt;
}

std::optional<HashTable::Located> HashTable::Locate(std::string_view key, const KeyHash& hash) const {
  std::optional<Located> located = LocateAny(key, hash);
  if (located.has_value() && Expired(located->expiry)) located.reset();
  return located;
}

std::string_view HashTable::Extent(const HashSlot& slot) const {
  return AsText({memory_->at(geometry_.ExtentOf(slot)), slot.extent_bytes});
}

absl::StatusOr<HashSlot> HashTable::StoreExtent(const HashPair& pair, uint64_t crc) {
  const size_t expiry_bytes = ExpiryBytes(pair.expiry);
  const std::string_view expiry(reinterpret_cast<const char*>(&pair.expiry), expiry_bytes);
  const std::optional<uint64_t> extent = extents_.Store(pair.key, pair.value, expiry);
  if (!extent.has_value() && extents_.damaged()) return DamagedExtents();
  if (!extent.has_value()) {
    return absl::ResourceExhaustedError(
        fmt::format("region {} has no room for a pair of {} bytes; add servers, raise --regions-max, or delete keys",
                    geometry_.region, pair.key.size() + pair.value.size()));
  }
  Prepared stored;
  stored.extent = *extent;
  stored.bytes = static_cast<uint32_t>(pair.key.size() + pair.value.size());
  stored.crc = crc;
  stored.expiry = pair.expiry;
  return SlotFor(stored, pair.key.size());
}

HashSlot HashTable::SlotFor(const Prepared& prepared, size_t key_bytes) const {
  HashSlot slot{};
  slot.extent = WordOf(prepared.extent);
  slot.extent_bytes = prepared.bytes + static_cast<uint32_t>(ExpiryBytes(prepared.expiry));
  slot.extent_crc = ExtentCrc(prepared.crc, prepared.expiry);
  slot.key_bytes = static_cast<uint16_t>(key_bytes) & kSlotKeyBytesMask;
  slot.expires = prepared.expiry != kNeverExpires;
  return slot;
}

void HashTable::SpoilExtent(const HashSlot& slot) {
  const uint64_t at = geometry_.ExtentOf(slot);
  memory_->StoreWord(at, ~Load<uint64_t>(memory_->at(at)));
  memory_->AfterStep();
}

absl::Status HashTable::Full(std::string_view key) {
  ++counters_.full;
  return absl::ResourceExhaustedError(
      fmt::format("region {} is full: {:.0f} % is in use, and no place can be freed for key {}; add servers, raise "
                  "--regions-max, or delete keys",
                  geometry_.region, 100 * unit_fill(), ForMessage(key)));
}

absl::Status HashTable::Damaged(const std::string& what) const {
  return absl::DataLossError(fmt::format("region {}: {}", geometry_.region, what));
}

absl::Status HashTable::Check(const absl::flat_hash_set<uint64_t>& reserved) const {
  HashCheck check;
  HashCheck::Slice slice{*this};
  slice.reserved = [&reserved] { return reserved; };
  return check.Step(slice).status();
}

}  // namespace cell

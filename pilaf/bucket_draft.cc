#include "pilaf/bucket_draft.h"

#include <algorithm>
#include <cstring>

#include "cell/base/bytes.h"
#include "cell/base/check.h"

namespace cell {
namespace {

template <typename T>
void Put(std::string* to, T value) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

void BucketDraft::Begin(const HashRange& range) {
  std::fill_n(bytes_.begin(), sizeof(BucketHeader), std::byte{0});
  header().range = range;
}

void BucketDraft::CopyOf(const RegionMemory& memory) {
  std::memcpy(bytes_.data(), memory.at(offset_), sizeof(BucketHeader));
  std::memcpy(bytes_.data() + sizeof(BucketHeader), memory.at(offset_ + sizeof(BucketHeader)), header().used);
}

void BucketDraft::Append(std::string_view record) {
  CELL_CHECK_LE(record.size(), free_bytes());
  std::memcpy(bytes_.data() + sizeof(BucketHeader) + header().used, record.data(), record.size());
  header().used = static_cast<uint16_t>(header().used + record.size());
  ++header().count;
}

void BucketDraft::Remove(const BucketRecord& record) {
  const size_t bytes = record.bytes.size();
  std::byte* const from = bytes_.data() + (AsBytes(record.bytes).data() - bytes_.data());
  std::byte* const end = bytes_.data() + sizeof(BucketHeader) + header().used;
  std::memmove(from, from + bytes, static_cast<size_t>(end - from) - bytes);
  header().used = static_cast<uint16_t>(header().used - bytes);
  --header().count;
}

void BucketDraft::Repoint(uint32_t from, uint32_t to) {
  view().ForEach([&](const BucketRecord& record) {
    if (!record.in_extent || record.slot.extent != from) return;
    std::byte* const bytes = bytes_.data() + (AsBytes(record.bytes).data() - bytes_.data());
    Store(bytes + kExtentInRecord, to);
  });
}

void BucketDraft::AddAway(uint16_t tag) {
  BucketHeader& h = header();
  h.any |= h.away == kAwayMax;
  if (h.any == 0) h.tags[h.away] = tag;
  ++h.away;
}

void BucketDraft::RemoveAway(uint16_t tag) {
  BucketHeader& h = header();
  CELL_CHECK_GT(h.away, 0);
  if (h.any == 0) {
    uint16_t* const found = std::find(h.tags, h.tags + h.away, tag);
    CELL_CHECK_NE(found, h.tags + h.away);
    std::copy(found + 1, h.tags + h.away, found);
    h.tags[h.away - 1] = 0;
  }
  --h.away;
  if (h.away == 0) {
    h.any = 0;
    std::fill(std::begin(h.tags), std::end(h.tags), uint16_t{0});
  }
}

void BucketDraft::Publish(RegionMemory* memory) {
  ++header().version;
  header().crc = BucketCrc(bytes_.data(), region_, offset_);
  size_t bytes = RoundUp(sizeof(BucketHeader) + header().used, kWordBytes);
  if (memory->zero_freed()) bytes = bucket_bytes_;  // Leaves nothing of what was deleted.
  // Clear the bytes behind the end, so that equal buckets have equal bytes.
  std::fill(bytes_.begin() + static_cast<ptrdiff_t>(sizeof(BucketHeader) + header().used),
            bytes_.begin() + static_cast<ptrdiff_t>(bytes), std::byte{0});
  memory->Store(offset_, bytes_.data(), bytes);
}

std::string PairRecord(const HashPair& pair) {
  const bool expires = pair.expiry != kNeverExpires;
  std::string record;
  record.reserve(kPairHeaderBytes + pair.key.size() + pair.value.size() + ExpiryBytes(pair.expiry));
  Put(&record, static_cast<uint16_t>(pair.key.size() | (expires ? kRecordExpires : 0)));
  Put(&record, static_cast<uint16_t>(pair.value.size()));
  record.append(pair.key).append(pair.value);
  if (expires) Put(&record, pair.expiry);
  return record;
}

std::string ExtentRecord(const KeyHash& hash, const HashSlot& slot) {
  std::string record;
  Put(&record, static_cast<uint16_t>(slot.key_bytes | (slot.expires != 0 ? kRecordExpires : 0)));
  Put(&record, kInExtent);
  Put(&record, hash.position);
  Put(&record, slot.extent);
  Put(&record, slot.extent_bytes);
  Put(&record, slot.extent_crc);
  return record;
}

}  // namespace cell

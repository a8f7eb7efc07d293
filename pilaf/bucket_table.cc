#include "pilaf/bucket_table.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"

namespace cell {

BucketTable::BucketTable(RegionMemory* memory) : HashTable(memory) {
  for (uint32_t at = 0; at < place_.units; ++at) used_bytes_ += View(at).header().used;
}

double BucketTable::fill() const {
  return static_cast<double>(used_bytes_) /
         (static_cast<double>(place_.units) * static_cast<double>(place_.bucket_bytes - sizeof(BucketHeader)));
}

template <typename Edit>
void BucketTable::Change(uint32_t at, Edit edit) {
  BucketDraft draft(place_.region, place_.OffsetOf(at), place_.bucket_bytes);
  draft.CopyOf(*memory_);
  used_bytes_ -= draft.view().header().used;
  edit(&draft);
  used_bytes_ += draft.view().header().used;
  draft.Publish(memory_);
}

std::optional<BucketTable::Found> BucketTable::FindRecord(std::string_view key, const KeyHash& hash) const {
  const std::array<uint32_t, 2> buckets = BucketsOf(hash, place_.units);
  for (int which = 0; which < 2; ++which) {
    std::optional<BucketRecord> record =
        View(buckets[which]).Find(key, hash, [&](const BucketRecord& one) { return KeyOf(one.slot) == key; });
    if (record.has_value()) return Found{which, buckets[which], *record};
    if (which == 0 && !View(buckets[0]).MayBeAway(hash)) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::string_view> BucketTable::Find(std::string_view key, const KeyHash& hash) const {
  const std::optional<Found> found = FindRecord(key, hash);
  if (!found.has_value()) return std::nullopt;
  return found->record.in_extent ? Extent(found->record.slot).substr(key.size()) : found->record.value;
}

absl::StatusOr<bool> BucketTable::PutPair(std::string_view key, const KeyHash& hash, std::string_view value,
                                          uint64_t crc) {
  std::optional<Found> found = FindRecord(key, hash);
  const std::array<uint32_t, 2> buckets = BucketsOf(hash, place_.units);
  const bool is_inline = kPairHeaderBytes + key.size() + value.size() <= inline_bytes_max();
  const size_t bytes = is_inline ? kPairHeaderBytes + key.size() + value.size() : kExtentRecordBytes;
  std::optional<HashSlot> slot;
  if (!is_inline) {
    ASSIGN_OR_RETURN(slot, StoreExtent(key, value, crc));
  }
  const std::string record = is_inline ? PairRecord(key, value) : ExtentRecord(hash, *slot);
  std::optional<uint32_t> at;
  if (found.has_value()) {
    const size_t old_bytes = found->record.bytes.size();
    at = MakeRoom({found->at}, bytes - std::min(bytes, old_bytes), key);
  } else {
    at = MakeRoom({buckets[0], buckets[1]}, bytes, key);
  }
  if (!at.has_value()) {
    if (slot.has_value()) FreeExtent(*slot);
    return Full(key);
  }
  RegionHeader& header = memory_->header();
  if (found.has_value()) {
    found = FindRecord(key, hash);  // Where it lies, after others were moved.
    const BucketRecord old = found->record;
    const size_t old_data = old.in_extent ? old.slot.extent_bytes : old.key.size() + old.value.size();
    Change(*at, [&](BucketDraft* draft) {
      draft->Remove(*draft->view().Find(key, hash, [&](const BucketRecord& one) { return KeyOf(one.slot) == key; }));
      draft->Append(record);
    });
    if (old.in_extent) FreeExtent(old.slot);
    header.data_bytes -= old_data;
  } else {
    Change(*at, [&](BucketDraft* draft) { draft->Append(record); });
    if (*at != buckets[0]) Change(buckets[0], [&](BucketDraft* draft) { draft->AddAway(hash.tag()); });
    ++header.keys;
  }
  header.data_bytes += key.size() + value.size();
  return found.has_value();
}

bool BucketTable::DeleteKey(std::string_view key, const KeyHash& hash) {
  const std::optional<Found> found = FindRecord(key, hash);
  if (!found.has_value()) return false;
  const BucketRecord record = found->record;
  const size_t data = record.in_extent ? record.slot.extent_bytes : record.key.size() + record.value.size();
  if (record.in_extent) SpoilExtent(record.slot);
  Change(found->at, [&](BucketDraft* draft) {
    draft->Remove(
        *draft->view().Find(key, hash, [&](const BucketRecord& one) { return one.slot.extent == record.slot.extent; }));
  });
  if (found->which == 1) {
    Change(BucketsOf(hash, place_.units)[0], [&](BucketDraft* draft) { draft->RemoveAway(hash.tag()); });
  }
  if (record.in_extent) FreeExtent(record.slot);
  memory_->header().data_bytes -= data;
  --memory_->header().keys;
  return true;
}

std::optional<uint32_t> BucketTable::MakeRoom(std::vector<uint32_t> roots, size_t bytes, std::string_view keep) {
  struct Step {
    uint32_t at;
    size_t bytes;  // That must be free there...
    int from;      // ...for a record of this step's bucket; -1: it is a root.
    Move move;
  };
  for (const uint32_t root : roots) {
    if (FreeBytes(root) >= bytes) return root;
  }
  absl::flat_hash_set<uint32_t> seen(roots.begin(), roots.end());
  std::vector<Step> steps;
  for (const uint32_t root : roots) steps.push_back({root, bytes, -1, {}});
  for (size_t i = 0; i < std::min(steps.size(), kKicksMax); ++i) {
    const uint32_t from = steps[i].at;
    const size_t lacking = steps[i].bytes - FreeBytes(from);
    std::optional<Move> last;
    View(from).ForEach([&](const BucketRecord& record) {
      if (last.has_value() || record.bytes.size() < lacking) return;
      const std::string_view key = KeyOfRecord(record);
      if (key == keep) return;
      const KeyHash hash = HashKey(key);
      const std::array<uint32_t, 2> its = BucketsOf(hash, place_.units);
      const uint32_t to = its[0] == from ? its[1] : its[0];
      if (!seen.insert(to).second) return;
      Move move{std::string(record.bytes), hash, from, to};
      if (FreeBytes(to) >= record.bytes.size()) {
        last = std::move(move);
      } else {
        steps.push_back({to, record.bytes.size(), static_cast<int>(i), std::move(move)});
      }
    });
    if (!last.has_value()) continue;
    uint64_t moves = 1;
    Apply(*last);
    int at = static_cast<int>(i);
    for (; steps[static_cast<size_t>(at)].from >= 0; at = steps[static_cast<size_t>(at)].from, ++moves) {
      Apply(steps[static_cast<size_t>(at)].move);
    }
    counters_.kicked += moves;
    counters_.longest_chain = std::max(counters_.longest_chain, moves);
    return steps[static_cast<size_t>(at)].at;
  }
  return std::nullopt;
}

void BucketTable::Apply(const Move& move) {
  const bool comes_home = BucketsOf(move.hash, place_.units)[0] == move.to;
  const auto add = [&] {
    Change(move.to, [&](BucketDraft* draft) {
      draft->Append(move.record);
      if (comes_home) draft->RemoveAway(move.hash.tag());
    });
  };
  const auto remove = [&] {
    Change(move.from, [&](BucketDraft* draft) {
      std::optional<BucketRecord> gone;
      draft->view().ForEach([&](const BucketRecord& record) {
        if (record.bytes == move.record) gone = record;
      });
      draft->Remove(*gone);
      if (!comes_home) draft->AddAway(move.hash.tag());
    });
  };
  if (kick_from_front_) remove();
  add();
  if (!kick_from_front_) remove();
}

void BucketTable::ForEach(const Visit& visit) const {
  for (uint32_t at = 0; at < place_.units; ++at) {
    View(at).ForEach([&](const BucketRecord& record) {
      if (record.in_extent) {
        visit(KeyOf(record.slot), Extent(record.slot).substr(record.key_bytes));
      } else {
        visit(record.key, record.value);
      }
    });
  }
}

std::array<uint64_t, kProbes> BucketTable::KeysByPlace() const {
  std::array<uint64_t, kProbes> keys{};
  for (uint32_t at = 0; at < place_.units; ++at) {
    View(at).ForEach([&](const BucketRecord& record) {
      ++keys[BucketsOf(HashKey(KeyOfRecord(record)), place_.units)[0] == at ? 0 : 1];
    });
  }
  return keys;
}

absl::Status BucketTable::CheckUnit(uint32_t at, const std::function<absl::Status(const Held&)>& held) const {
  const auto wrong = [&](const std::string& what) { return Damaged(fmt::format("bucket {}: {}", at, what)); };
  const std::optional<BucketView> bucket =
      BucketView::Parse({memory_->at(place_.OffsetOf(at)), place_.bucket_bytes}, place_.region, place_.OffsetOf(at));
  if (!bucket.has_value()) return wrong("it is damaged");
  const BucketHeader bucket_header = bucket->header();
  if (bucket_header.range != header().range) return wrong("it has another range than its region");
  size_t used = 0, count = 0;
  absl::Status status;
  bucket->ForEach([&](const BucketRecord& record) {
    used += record.bytes.size();
    ++count;
    if (!status.ok()) return;
    if (record.in_extent) {
      if (!place_.InBounds(record.slot)) {
        status = wrong("a record points out of the region");
        return;
      }
      if (Crc64(Extent(record.slot)) != record.slot.extent_crc) {
        status = wrong("an extent is damaged");
        return;
      }
    }
    const std::string_view key = KeyOfRecord(record);
    const KeyHash hash = HashKey(key);
    const std::array<uint32_t, 2> its = BucketsOf(hash, place_.units);
    if (its[0] != at && (its[1] != at || !View(its[0]).MayBeAway(hash))) {
      status = wrong(fmt::format("key {} does not belong here", ForMessage(key)));
      return;
    }
    status = held({key, record.in_extent ? &record.slot : nullptr});
  });
  RETURN_IF_ERROR(status);
  if (used != bucket_header.used || count != bucket_header.count) return wrong("its records do not add up");
  return absl::OkStatus();
}

absl::Status BucketTable::CheckCounts() const {
  uint64_t away = 0;
  for (uint32_t i = 0; i < place_.units; ++i) away += View(i).header().away;
  if (away != KeysByPlace()[1]) return Damaged("keys are away that no bucket counts, or the other way round");
  return absl::OkStatus();
}

}  // namespace cell

#include "pilaf/bucket_table.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "cell/base/check.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"

namespace cell {

BucketTable::BucketTable(RegionMemory* memory, std::function<int64_t()> cluster_time)
    : HashTable(memory, std::move(cluster_time)) {
  for (uint32_t at = 0; at < geometry_.units; ++at) used_bytes_ += View(at).header().used;
}

size_t BucketTable::FreeBytes(uint32_t at) const {
  const size_t free = geometry_.bucket_bytes - sizeof(BucketHeader) - View(at).header().used;
  if (kept_.empty()) return free;
  const auto kept = kept_.find(at);
  return kept == kept_.end() ? free : free - kept->second;
}

HashTable::Units BucketTable::UnitsOf(const KeyHash& hash) const {
  const std::array<uint32_t, 2> buckets = BucketsOf(hash, geometry_.units);
  return {buckets[0], buckets[1]};
}

void BucketTable::PrefetchUnits(const KeyHash& hash) const {
  Prefetch(memory_->at(geometry_.OffsetOf(BucketsOf(hash, geometry_.units)[0])), geometry_.bucket_bytes);
}

double BucketTable::unit_fill() const {
  return static_cast<double>(used_bytes_) /
         (static_cast<double>(geometry_.units) * static_cast<double>(geometry_.bucket_bytes - sizeof(BucketHeader)));
}

template <typename Edit>
void BucketTable::Change(uint32_t at, Edit edit) {
  BucketDraft draft(geometry_.region, geometry_.OffsetOf(at), geometry_.bucket_bytes);
  draft.CopyOf(*memory_);
  used_bytes_ -= draft.view().header().used;
  draft.SetRange(unit_range());
  draft.SetHeld(IsHeld(at) && !Mutated(Mutant::kHeldUnshown));
  edit(&draft);
  used_bytes_ += draft.view().header().used;
  draft.Publish(memory_);
}

std::optional<BucketTable::Found> BucketTable::FindRecord(std::string_view key, const KeyHash& hash) const {
  const std::array<uint32_t, 2> buckets = BucketsOf(hash, geometry_.units);
  for (int which = 0; which < 2; ++which) {
    std::optional<BucketRecord> record =
        View(buckets[which]).Find(key, hash, [&](const BucketRecord& one) { return KeyOf(one.slot) == key; });
    if (record.has_value()) return Found{which, buckets[which], *record};
    if (which == 0 && !View(buckets[0]).MayBeAway(hash)) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<HashTable::Located> BucketTable::LocateAny(std::string_view key, const KeyHash& hash) const {
  const std::optional<Found> found = FindRecord(key, hash);
  if (!found.has_value()) return std::nullopt;
  const BucketRecord& record = found->record;
  if (record.in_extent) return LocatedAt(record.slot);
  return Located{record.value, std::nullopt, record.expiry};
}

absl::StatusOr<PairStore::Prepared> BucketTable::PreparePair(const HashPair& pair, const KeyHash& hash, uint64_t crc,
                                                             When when) {
  const std::string_view key = pair.key;
  Prepared prepared;
  prepared.bytes = static_cast<uint32_t>(key.size() + pair.value.size());
  prepared.crc = crc;
  prepared.expiry = pair.expiry;
  if (kPairHeaderBytes + prepared.bytes + ExpiryBytes(pair.expiry) <= inline_bytes_max()) {
    prepared.record = PairRecord(pair);
    prepared.value_at = static_cast<uint32_t>(kPairHeaderBytes + key.size());
  } else {
    ASSIGN_OR_RETURN(const HashSlot slot, StoreExtent(pair, crc));
    prepared.extent = geometry_.ExtentOf(slot);
    prepared.record = ExtentRecord(hash, slot);
  }
  const std::optional<Found> found = FindRecord(key, hash);
  std::optional<uint32_t> unit;
  const bool fits = found.has_value() && prepared.record.size() <= found->record.bytes.size();
  if (when == When::kNext && fits) {  // It replaces the old record wherever that is by then.
    prepared.unit = kNoUnit;
    return prepared;
  }
  if (found.has_value() && when == When::kNow) {
    const size_t room = prepared.record.size() - std::min(prepared.record.size(), found->record.bytes.size());
    unit = MakeRoom({found->at}, room, key);
  } else if (found.has_value()) {  // The old record may be moved before it is replaced, or be deleted.
    unit = MakeRoom({found->at}, prepared.record.size(), key);
  } else if (!Full()) {
    const std::array<uint32_t, 2> buckets = BucketsOf(hash, geometry_.units);
    unit = MakeRoom({buckets[0], buckets[1]}, prepared.record.size(), key);
  }
  if (!unit.has_value()) {
    if (prepared.extent != 0) extents_.Free(prepared.extent);
    return HashTable::Full(key);
  }
  prepared.unit = *unit;
  if (when != When::kNow) kept_[*unit] += static_cast<uint32_t>(prepared.record.size());
  return prepared;
}

void BucketTable::Release(const Prepared& prepared) {
  if (prepared.unit == kNoUnit) return;
  const auto kept = kept_.find(prepared.unit);
  kept->second -= static_cast<uint32_t>(prepared.record.size());
  if (kept->second == 0) kept_.erase(kept);
}

std::optional<Expiry> BucketTable::CommitPair(const Prepared& prepared, std::string_view key, const KeyHash& hash) {
  const uint32_t home = BucketsOf(hash, geometry_.units)[0];
  const std::optional<Found> found = FindRecord(key, hash);
  std::optional<HashSlot> old_extent;
  std::optional<Expiry> replaced;
  size_t old_data = 0;
  if (found.has_value()) {
    const BucketRecord& old = found->record;
    old_data = DataBytes(old);
    replaced = PairOfRecord(old).expiry;
    RemoveExpiry(Expires(old));
    if (old.in_extent) old_extent = old.slot;
  }
  const auto remove = [&](BucketDraft* draft) {
    draft->Remove(*draft->view().Find(key, hash, [&](const BucketRecord& one) { return KeyOf(one.slot) == key; }));
  };
  CELL_CHECK(found.has_value() || prepared.unit != kNoUnit);
  const uint32_t unit = prepared.unit == kNoUnit ? found->at : prepared.unit;
  // Readers find a key that is away by the first bucket's entry. That is therefore added last and removed first.
  Change(unit, [&](BucketDraft* draft) {
    if (found.has_value() && found->at == unit) remove(draft);
    draft->Append(prepared.record);
    if (found.has_value() && found->at != home && unit == home) draft->RemoveAway(hash.tag());
  });
  if (found.has_value() && found->at != unit) {
    Change(found->at, [&](BucketDraft* draft) {
      remove(draft);
      if (found->at == home) draft->AddAway(hash.tag());
    });
  } else if (!found.has_value() && unit != home) {
    Change(home, [&](BucketDraft* draft) { draft->AddAway(hash.tag()); });
  }
  if (old_extent.has_value()) FreeExtent(*old_extent);
  RegionHeader& header = memory_->header();
  header.data_bytes += prepared.bytes - old_data;
  header.keys += !found.has_value();
  AddExpiry(prepared.expiry);
  return replaced;
}

void BucketTable::Remove(const Found& found, const KeyHash& hash) {
  const BucketRecord& record = found.record;
  const size_t data = DataBytes(record);
  const bool expires = Expires(record);
  const std::string bytes(record.bytes);
  const HashSlot extent = record.slot;
  const bool in_extent = record.in_extent;
  Change(found.at, [&](BucketDraft* draft) {
    std::optional<BucketRecord> gone;
    draft->view().ForEach([&](const BucketRecord& one) {
      if (one.bytes == bytes) gone = one;
    });
    draft->Remove(*gone);
  });
  if (found.which == 1) {
    Change(BucketsOf(hash, geometry_.units)[0], [&](BucketDraft* draft) { draft->RemoveAway(hash.tag()); });
  }
  if (in_extent) FreeExtent(extent);
  memory_->header().data_bytes -= data;
  --memory_->header().keys;
  RemoveExpiry(expires);
}

std::optional<Expiry> BucketTable::DeleteKey(std::string_view key, const KeyHash& hash) {
  const std::optional<Found> found = FindRecord(key, hash);
  if (!found.has_value()) return std::nullopt;
  const Expiry expiry = PairOfRecord(found->record).expiry;
  if (found->record.in_extent) SpoilExtent(found->record.slot);
  Remove(*found, hash);
  return expiry;
}

// The old extents are not spoiled, unlike that of a pair that is deleted: a reader that has the old bucket finds a pair
// that was true when it read the bucket.
bool BucketTable::MoveExtentsOf(uint32_t at, ExtentMoves* moves) {
  const absl::StatusOr<BucketView> bucket = VerifiedBucket(at);
  if (!bucket.ok()) return true;
  struct Moved {
    HashSlot from;
    uint64_t to;
  };
  std::vector<Moved> moved;
  const uint64_t enough = moves->bytes + moves->bytes_max;
  bool all = true;
  bucket->ForEach([&](const BucketRecord& record) {
    if (!record.in_extent || !geometry_.InBounds(record.slot)) return;
    const uint64_t from = geometry_.ExtentOf(record.slot);
    if (!moves->window.Has(from, record.slot.extent_bytes)) return;
    all &= moves->bytes < enough;
    if (moves->bytes >= enough) return;  // The next call comes to this bucket again.
    const auto is_sound = [&] { return VerifiedPairOf(record.slot).has_value(); };
    const std::optional<uint64_t> to = CopyOutside(from, record.slot.extent_bytes, is_sound, moves);
    if (to.has_value()) moved.push_back({record.slot, *to});
  });
  if (moved.empty()) return true;
  Change(at, [&](BucketDraft* draft) {
    for (const Moved& one : moved) draft->Repoint(one.from.extent, WordOf(one.to));
  });
  for (const Moved& one : moved) FreeExtent(one.from);
  return all;
}

void BucketTable::CleanUnit(uint32_t at) {
  for (bool more = true; more;) {
    more = false;
    std::optional<Found> found;
    KeyHash hash;
    View(at).ForEach([&](const BucketRecord& record) {
      if (found.has_value()) return;
      hash = HashKey(KeyOfRecord(record));
      if (!range().Has(hash)) found = Found{BucketsOf(hash, geometry_.units)[0] == at ? 0 : 1, at, record};
    });
    if (found.has_value()) Remove(*found, hash);
    more = found.has_value();
  }
  WriteRange(at);
}

// Readers of these buckets then see that the key belongs to another region.
void BucketTable::CleanKey(std::string_view, const KeyHash& hash) {
  for (const uint32_t at : BucketsOf(hash, geometry_.units)) WriteRange(at);
}

void BucketTable::WriteRange(uint32_t at) {
  if (View(at).header().range != unit_range()) Change(at, [](BucketDraft*) {});
}

void BucketTable::Republish(uint32_t at) {
  if (VerifiedBucket(at).ok()) Change(at, [](BucketDraft*) {});
}

std::optional<uint32_t> BucketTable::MakeRoom(const std::vector<uint32_t>& roots, size_t bytes, std::string_view keep) {
  std::optional<uint32_t> root = MoveOne(roots, bytes, keep);
  if (root.has_value() || !thorough_) return root;
  // Their records are too small for one move to be enough, or the others cannot move: move several. This is a lot of
  // work if it fails, so a serving region is split instead.
  for (const uint32_t from : roots) {
    std::vector<std::string> keys;
    View(from).ForEach([&](const BucketRecord& record) { keys.emplace_back(KeyOfRecord(record)); });
    for (const std::string& key : keys) {
      if (key == keep) continue;
      const KeyHash hash = HashKey(key);
      const std::array<uint32_t, 2> its = BucketsOf(hash, geometry_.units);
      const uint32_t to = its[0] == from ? its[1] : its[0];
      const std::optional<Found> found = FindRecord(key, hash);
      if (to == from || !found.has_value() || found->at != from) continue;
      const std::string record(found->record.bytes);
      if (!MoveOne({to}, record.size(), keep, from).has_value()) continue;
      Apply({record, key, hash, from, to, PairOfRecord(found->record).expiry});
      ++counters_.kicked;
      if (FreeBytes(from) >= bytes) return from;
    }
  }
  return std::nullopt;
}

std::optional<uint32_t> BucketTable::MoveOne(const std::vector<uint32_t>& roots, size_t bytes, std::string_view keep,
                                             std::optional<uint32_t> closed) {
  struct Step {
    uint32_t at;
    size_t bytes;  // Must be free there...
    int from;      // ...for a record of this step's bucket; -1: it is a root.
    Move move;
  };
  for (const uint32_t root : roots) {
    if (FreeBytes(root) >= bytes) return root;
  }
  absl::flat_hash_set<uint32_t> seen(roots.begin(), roots.end());
  if (closed.has_value()) seen.insert(*closed);
  std::vector<Step> steps;
  steps.reserve(roots.size());
  for (const uint32_t root : roots) steps.push_back({root, bytes, -1, {}});
  for (size_t i = 0; i < (thorough_ ? steps.size() : std::min(steps.size(), kKicksMax)); ++i) {
    const uint32_t from = steps[i].at;
    const size_t lacking = steps[i].bytes - FreeBytes(from);
    std::optional<Move> last;
    View(from).ForEach([&](const BucketRecord& record) {
      if (last.has_value() || record.bytes.size() < lacking) return;
      const std::string_view key = KeyOfRecord(record);
      if (key == keep) return;
      const KeyHash hash = HashKey(key);
      const std::array<uint32_t, 2> its = BucketsOf(hash, geometry_.units);
      const uint32_t to = its[0] == from ? its[1] : its[0];
      if (!seen.insert(to).second) return;
      Move move{std::string(record.bytes), std::string(key), hash, from, to, PairOfRecord(record).expiry};
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
  const bool comes_home = BucketsOf(move.hash, geometry_.units)[0] == move.to;
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
  Moved(move.key, move.expiry, move.from, move.to);
}

absl::StatusOr<BucketView> BucketTable::VerifiedBucket(uint32_t at) const {
  const uint64_t offset = geometry_.OffsetOf(at);
  const std::optional<BucketView> bucket =
      BucketView::Parse({memory_->at(offset), geometry_.bucket_bytes}, geometry_.region, offset);
  if (bucket.has_value()) return *bucket;
  return Damaged(fmt::format("bucket {}: it is damaged", at));
}

absl::Status BucketTable::CheckExtent(uint32_t at, const BucketRecord& record) const {
  if (!record.in_extent) return absl::OkStatus();
  if (!geometry_.InBounds(record.slot)) {
    return Damaged(fmt::format("bucket {}: a record points outside the region", at));
  }
  if (VerifiedPairOf(record.slot).has_value()) return absl::OkStatus();
  return Damaged(fmt::format("bucket {}: an extent is damaged", at));
}

template <typename IsWanted>
absl::Status BucketTable::VisitRecords(uint32_t at, const Visit& visit, IsWanted is_wanted) const {
  ASSIGN_OR_RETURN(const BucketView bucket, VerifiedBucket(at));
  absl::Status status;
  bucket.ForEach([&](const BucketRecord& record) {
    if (!is_wanted(record)) return;
    if (status.ok()) status = CheckExtent(at, record);
    if (status.ok()) visit(PairOfRecord(record));
  });
  return status;
}

absl::Status BucketTable::VisitUnit(uint32_t at, const Visit& visit) const {
  return VisitRecords(at, visit, [](const BucketRecord&) { return true; });
}

absl::Status BucketTable::VisitExpiring(uint32_t at, const Visit& visit) const {
  return VisitRecords(at, visit, Expires);
}

absl::StatusOr<std::optional<HashPair>> BucketTable::FindVerified(std::string_view key, const KeyHash& hash) const {
  const std::optional<Found> found = FindRecord(key, hash);
  if (!found.has_value()) return std::nullopt;
  RETURN_IF_ERROR(VerifiedBucket(found->at).status());
  RETURN_IF_ERROR(CheckExtent(found->at, found->record));
  return PairOfRecord(found->record);
}

std::array<uint64_t, kProbes> BucketTable::KeysByProbe(uint32_t every) const {
  std::array<uint64_t, kProbes> keys{};
  for (uint64_t unit = 0; unit < geometry_.units; unit += every) {
    const auto at = static_cast<uint32_t>(unit);
    View(at).ForEach([&](const BucketRecord& record) {
      ++keys[BucketsOf(HashKey(KeyOfRecord(record)), geometry_.units)[0] == at ? 0 : 1];
    });
  }
  return keys;
}

absl::Status BucketTable::CheckUnit(uint32_t at, bool settled,
                                    const std::function<absl::Status(const Held&)>& held) const {
  const auto wrong = [&](const std::string& what) { return Damaged(fmt::format("bucket {}: {}", at, what)); };
  ASSIGN_OR_RETURN(const BucketView bucket, VerifiedBucket(at));
  const BucketHeader bucket_header = bucket.header();
  if ((bucket_header.held != 0) != (IsHeld(at) && !Mutated(Mutant::kHeldUnshown)))
    return wrong("it is wrong about keys that are held");
  if (settled && bucket_header.range != range()) return wrong("its range differs from its region's range");
  size_t used = 0, count = 0;
  absl::Status status;
  bucket.ForEach([&](const BucketRecord& record) {
    used += record.bytes.size();
    ++count;
    if (!status.ok()) return;
    status = CheckExtent(at, record);
    if (!status.ok()) return;
    const std::string_view key = KeyOfRecord(record);
    const KeyHash hash = HashKey(key);
    const std::array<uint32_t, 2> its = BucketsOf(hash, geometry_.units);
    if (its[0] != at && (its[1] != at || !View(its[0]).MayBeAway(hash))) {
      status = wrong(fmt::format("key {} does not belong here", ForMessage(key)));
      return;
    }
    status = held({key, PairOfRecord(record).expiry, record.in_extent ? &record.slot : nullptr, its[0] != at});
  });
  RETURN_IF_ERROR(status);
  if (used != bucket_header.used || count != bucket_header.count) return wrong("its counts are wrong");
  return absl::OkStatus();
}

}  // namespace cell

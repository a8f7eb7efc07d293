#include "pilaf/hash_check.h"

#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

// Accounts for the cache misses of each pair and block, as bytes that would take as long to verify.
constexpr int64_t kPairBytes = 256;
constexpr int64_t kBlockBytes = 64;

}  // namespace

absl::StatusOr<bool> HashCheck::Step(const Slice& slice) {
  const HashTable& table = slice.table;
  left_ = slice.bytes;
  whole_ &= slice.settled && (!begun_ || table.memory_->stores() == stores_);
  begun_ = true;
  stores_ = table.memory_->stores();
  if (!ParseHashHeader(table.memory_->at(kHashHeaderOffset), table.region()).has_value()) {
    return table.Damaged("its header is damaged");
  }
  for (; unit_ < table.geometry().units; ++unit_) {
    if (left_ <= 0) return false;
    RETURN_IF_ERROR(CheckUnit(slice));
  }
  if (!whole_) return true;
  if (!counted_) {
    RETURN_IF_ERROR(CompareCounts(table));
    reserved_ = slice.reserved();
    counted_ = true;
  }
  if (left_ <= 0) return false;
  const auto visit = [this](uint64_t offset, uint64_t) {
    if (reserved_.contains(offset)) return;
    unowned_ += !pointed_.Has(offset);
    ++blocks_;
  };
  const auto blocks = static_cast<size_t>(left_ / kBlockBytes + 1);
  ASSIGN_OR_RETURN(const bool all, table.extent_allocator().WalkSome(&extents_, blocks, visit));
  if (all && (unowned_ != 0 || blocks_ != pointed_.size())) {
    return table.Damaged(fmt::format("it has {} extents for {} keys, and {} of them belong to no key", blocks_,
                                     pointed_.size(), unowned_));
  }
  return all;
}

absl::Status HashCheck::CheckUnit(const Slice& slice) {
  const HashTable& table = slice.table;
  left_ -= table.geometry().unit_bytes();
  said_away_ += table.AwayCount(unit_);
  const auto held = [&](const HashTable::Held& pair) -> absl::Status {
    const KeyHash hash = HashKey(pair.key);
    left_ -= kPairBytes;
    ++keys_;
    expiring_ += pair.expiry != kNeverExpires;
    away_ += pair.away;
    // What was split off is removed gradually.
    if (slice.settled && !table.range().Has(hash)) {
      return table.Damaged(fmt::format("key {} belongs to another region", ForMessage(pair.key)));
    }
    bool twice = false;
    if (pair.slot != nullptr) {
      left_ -= pair.slot->extent_bytes;
      const uint64_t extent = table.geometry().ExtentOf(*pair.slot);
      const std::optional<uint64_t> room = table.extent_allocator().RoomOf(extent);
      if (!room.has_value() || *room < pair.slot->extent_bytes) {
        return table.Damaged(fmt::format("the extent of key {} is not in use, or too short", ForMessage(pair.key)));
      }
      twice = !pointed_.Mark(extent) && whole_;  // An extent has its key.
    }
    const std::optional<HashTable::Located> first = table.LocateAny(pair.key, hash);
    twice |= first.has_value() && first->value.data() != pair.key.data() + pair.key.size();
    if (twice) return table.Damaged(fmt::format("key {} is stored twice", ForMessage(pair.key)));
    return absl::OkStatus();
  };
  return table.CheckUnit(unit_, slice.settled, held);
}

absl::Status HashCheck::CompareCounts(const HashTable& table) const {
  if (away_ != said_away_) return table.Damaged("the buckets' counts of keys stored in other buckets are wrong");
  if (keys_ != table.keys()) {
    return table.Damaged(fmt::format("it has {} keys, but its header says {}", keys_, table.keys()));
  }
  if (expiring_ != table.expiring()) {
    return table.Damaged(
        fmt::format("it has {} pairs with an expiry, but its header says {}", expiring_, table.expiring()));
  }
  return absl::OkStatus();
}

}  // namespace cell

#include "cell/tree/meganode_builder.h"

#include <algorithm>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"

namespace cell {
namespace {

constexpr size_t kFrameBytes = sizeof(NodeHeader) + kTailVersionBytes;

// Returns how many bytes an entry takes in the heap of a leaf with this prefix.
size_t HeapBytes(size_t key_bytes, size_t prefix_bytes, const LeafPair& pair) {
  const size_t suffix = key_bytes - std::min(key_bytes, prefix_bytes);
  return suffix - std::min(suffix, kKeyHeadBytes) + pair.payload_bytes();
}

// Without such a route a search for keys before the first route would lead nowhere.
absl::Status NoFirstRoute() { return absl::InvalidArgumentError("it has no route to the beginning of its range"); }

}  // namespace

MeganodeBuilder::MeganodeBuilder(Meganode* tree, double fill)
    : tree_(tree),
      range_(tree->range()),
      target_bytes_(static_cast<size_t>(fill * tree->header().node_bytes)),
      low_(range_.low) {
  CELL_CHECK(tree->header().keys == 0 && tree->header().nodes_used == 1);
}

absl::Status MeganodeBuilder::Add(std::string_view key, std::string_view value, Expiry expiry, uint64_t stamp) {
  if ((begun_ && key <= last_key_) || !tree_->Covers(key)) {
    return absl::InvalidArgumentError(fmt::format("key {} is out of order or out of range", ForMessage(key)));
  }
  if (range_.tier != 0 && !begun_ && key != range_.low) return NoFirstRoute();
  begun_ = true;
  last_key_ = key;
  if (range_.tier != 0) {
    if (value.size() != sizeof(Pointer)) return absl::InvalidArgumentError("a route is not a pointer");
    return tree_->InsertRoute(key, Load<Pointer>(AsBytes(value).data())).status();
  }
  const uint64_t crc = Crc64(value, Crc64(key));
  RETURN_IF_ERROR(tree_->CheckPut(key, value, crc, expiry));
  if (entries_.size() == count_) entries_.emplace_back();
  Entry& entry = entries_[count_];
  entry.key = key;
  if (tree_->IsInline(key, value, expiry)) {
    entry.value = value;
    entry.pair = LeafPair::Inline(value, crc, 0);
  } else {
    ASSIGN_OR_RETURN(const uint64_t offset, tree_->StoreExtent(key, value));
    const PairExtent extent{Pointer(tree_->region(), offset), crc};
    entry.pair = LeafPair::Outside(extent, value.size(), 0);
  }
  entry.pair.stamp = stamp;
  if (stamp == 0) {
    entry.pair.stamp = tree_->NextStamp();
  } else {
    tree_->RaiseLastStamp(stamp);
  }
  entry.pair.expiry = expiry;
  tree_->memory_->header().data_bytes += key.size() + value.size();
  tree_->AddExpiry(expiry);
  return TakeNext();
}

absl::Status MeganodeBuilder::TakeNext() {
  const Entry& entry = entries_[count_];
  if (count_ > 0) {
    // The end of a leaf that holds the entries so far.
    const std::string_view high = ShortestSeparator(entries_[count_ - 1].key, entry.key);
    if (cut_ > 0 && !Fits(high, target_bytes_)) return EmitCut(count_ + 1);
    cut_ = count_;
    cut_high_ = high;
  }
  heap_bytes_ += HeapBytes(entry.key.size(), prefix_bytes_, entry.pair);
  ++count_;
  return absl::OkStatus();
}

absl::Status MeganodeBuilder::EmitCut(size_t count) {
  const size_t emitted = cut_;
  RETURN_IF_ERROR(Emit(emitted, cut_high_, false));
  std::rotate(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(emitted), entries_.end());
  for (size_t left = count - emitted; left > 0; --left) RETURN_IF_ERROR(TakeNext());
  return absl::OkStatus();
}

bool MeganodeBuilder::Fits(const std::optional<std::string_view>& high, size_t bytes) {
  size_t prefix = 0;
  size_t fences = low_.size();
  if (high.has_value()) {
    const size_t limit = std::min(low_.size(), high->size());
    while (prefix < limit && low_[prefix] == (*high)[prefix]) ++prefix;
    fences += high->size() - prefix;
  }
  if (prefix != prefix_bytes_) {
    prefix_bytes_ = prefix;
    heap_bytes_ = 0;
    for (size_t i = 0; i < count_; ++i) heap_bytes_ += HeapBytes(entries_[i].key.size(), prefix, entries_[i].pair);
  }
  return kFrameBytes + fences + count_ * (kKeyHeadBytes + sizeof(LeafSlot)) + heap_bytes_ <= bytes;
}

absl::Status MeganodeBuilder::Emit(size_t count, const std::optional<std::string>& high, bool last) {
  ASSIGN_OR_RETURN(const Meganode::NewLeaf leaf, tree_->AllocateLeaf(last, &next_leaf_));
  NodeDraft& draft = tree_->draft_;
  draft.Begin(leaf.self, 0, low_, high, leaf.right);
  for (size_t i = 0; i < count; ++i) {
    Entry& entry = entries_[i];
    if (entry.pair.is_inline) entry.pair.value = entry.value;
    CELL_CHECK(draft.Insert(static_cast<int>(i), entry.key, entry.pair));  // It fits: see TakeNext.
  }
  tree_->Publish(&draft);
  tree_->memory_->header().keys += count;
  tree_->LinkLeaf(leaf, low_);
  count_ = 0;
  cut_ = 0;
  heap_bytes_ = 0;
  if (!last) low_ = *high;
  return absl::OkStatus();
}

absl::Status MeganodeBuilder::Finish() {
  if (range_.tier != 0) return begun_ ? absl::OkStatus() : NoFirstRoute();
  if (!begun_) return absl::OkStatus();
  while (!Fits(range_.high, count_ == 1 ? SIZE_MAX : tree_->header().node_bytes)) RETURN_IF_ERROR(EmitCut(count_));
  return Emit(count_, range_.high, true);
}

}  // namespace cell

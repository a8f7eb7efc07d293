// Has the inserts of a Meganode: of pairs, routes, separators and whole leaves, with the splits of nodes that are full.
#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/tree/meganode.h"
#include "fmt/format.h"

namespace cell {

namespace {

LeafPair SlotAt(const NodeView& node, int i, const LeafPair*) { return node.pair(i); }
InnerSlot SlotAt(const NodeView& node, int i, const InnerSlot*) { return node.inner_slot(i); }

// Returns how many bytes an entry takes in a node, without the prefix that its key may save.
size_t EntryBytes(std::string_view key, const LeafPair& pair) {
  return kKeyHeadBytes + sizeof(LeafSlot) + key.size() + pair.payload_bytes();
}
size_t EntryBytes(std::string_view key, const InnerSlot&) { return kKeyHeadBytes + sizeof(InnerSlot) + key.size(); }

bool SameValue(const LeafPair& a, const LeafPair& b) {
  if (a.is_inline != b.is_inline || a.value_bytes != b.value_bytes) return false;
  return a.is_inline ? a.value == b.value : a.outside.crc == b.outside.crc;
}

}  // namespace

absl::StatusOr<bool> Meganode::PutPair(Descent descent, std::string_view key, LeafPair pair) {
  RegionHeader& h = memory_->header();
  const NodeView leaf = Node(descent.node);
  const std::optional<int> found = leaf.Find(key);
  std::optional<LeafPair> old;
  if (found.has_value()) {
    old = leaf.pair(*found);
    if (Mutated(Mutant::kStampKept) && SameValue(*old, pair)) pair.stamp = old->stamp;
  }
  if (before_change_) [[unlikely]]
    BeforeChangeOf(key, leaf, old);
  ASSIGN_OR_RETURN(const bool stored, StoreAtBottom(descent.node, found, key, pair));
  bool small = false;
  if (stored) {
    small = old.has_value() && pair.payload_bytes() < old->payload_bytes() && IsSmall(Node(descent.node));
    h.data_bytes += key.size() + pair.value_bytes;
    AddExpiry(pair.expiry);
    if (!old.has_value()) {
      ++h.keys;
    } else {
      h.data_bytes -= old->pair_bytes();
      RemoveExpiry(old->expiry != kNeverExpires);
      if (!old->is_inline) extents_.Free(old->outside.extent.offset());
    }
  }
  if (!descent.unfinished.empty()) InsertSeparators(std::move(descent.unfinished));
  if (small) MergeSmall(key);
  return old.has_value() && !ExpiredBefore(old->expiry, pair.expiry);
}

absl::StatusOr<Meganode::NewLeaf> Meganode::AllocateLeaf(bool last, Pointer* next) {
  const RegionHeader& h = header();
  // Two nodes, and what their separators may take.
  if (h.node_count - h.nodes_used < static_cast<uint64_t>(Node(root_).level()) + 5) {
    return absl::ResourceExhaustedError(fmt::format("region {} has no room for one more leaf", region()));
  }
  NewLeaf leaf;
  leaf.first = next->null();
  leaf.self = leaf.first ? AllocateNode() : *next;
  *next = last ? Pointer() : AllocateNode();
  leaf.right = last ? range().right : *next;
  return leaf;
}

void Meganode::LinkLeaf(const NewLeaf& leaf, std::string_view low) {
  if (!leaf.first) {
    std::vector<Separator> pending;
    pending.push_back({1, std::string(low), leaf.self});
    InsertSeparators(std::move(pending));
    return;
  }
  const Range range = this->range();
  draft_.Begin(root_, 1, range.low, range.high, range.right);
  CELL_CHECK(draft_.Insert(0, range.low, SlotOf(leaf.self)));
  Publish(&draft_);
}

absl::Status Meganode::CopyExtents(const Meganode& from, const NodeView& leaf, std::vector<uint64_t>* offsets) {
  std::string key;
  for (int i = 0; i < leaf.count(); ++i) {
    const LeafPair pair = leaf.pair(i);
    leaf.CopyKey(i, &key);
    RETURN_IF_ERROR(from.VerifiedValueOf(key, pair).status());
    if (pair.is_inline) continue;
    const std::optional<uint64_t> offset = extents_.Allocate(pair.pair_bytes());
    if (!offset.has_value()) return NoExtent(pair.pair_bytes());
    offsets->push_back(*offset);
    const std::byte* const extent = from.Extent(pair.outside.extent);
    memory_->Store(*offset, extent, RegionShape::RoundUp(pair.pair_bytes(), kWordBytes));
  }
  return absl::OkStatus();
}

absl::Status Meganode::AppendLeaf(const Meganode& from, const NodeView& leaf, Pointer* next) {
  RegionHeader& h = memory_->header();
  CELL_CHECK(leaf.holds_pairs() && (!next->null() || leaf.low_key() == Node(root_).low_key()));
  std::vector<uint64_t> extents;
  const absl::Status copied = CopyExtents(from, leaf, &extents);
  const absl::StatusOr<NewLeaf> its =
      copied.ok() ? AllocateLeaf(leaf.right().region() != from.region(), next) : absl::StatusOr<NewLeaf>(copied);
  if (!its.ok()) {
    for (const uint64_t offset : extents) extents_.Free(offset);
    return its.status();
  }
  draft_.CopyOf(leaf);
  draft_.Move(its->self, its->right);
  std::string key;
  auto extent = extents.begin();
  for (int i = 0; i < leaf.count(); ++i) {
    const LeafPair pair = leaf.pair(i);
    if (!pair.is_inline) draft_.Repoint(i, Pointer(region(), *extent++));
    h.data_bytes += pair.pair_bytes();
    AddExpiry(pair.expiry);
    leaf.CopyKey(i, &key);
    Wrote({RecordKind::kPut, key, from.ValueOf(pair), pair.expiry, pair.stamp});
  }
  Publish(&draft_);
  h.keys += static_cast<uint64_t>(leaf.count());
  LinkLeaf(*its, leaf.low_key());
  return absl::OkStatus();
}

absl::StatusOr<bool> Meganode::InsertRoute(std::string_view key, Pointer child) {
  if (tier() == 0) return NotHere(Walk::Step::kRestart, key);
  if (!key.empty()) RETURN_IF_ERROR(CheckKey(key));
  if (child != RootOf(child.region()) || child.region() == region()) {
    return absl::InvalidArgumentError(fmt::format("{} is not the root of another meganode", ToString(child)));
  }
  ASSIGN_OR_RETURN(Descent descent, Descend(key, 0));
  const bool found = Node(descent.node).Find(key).has_value();
  if (!found) {
    ASSIGN_OR_RETURN(const bool stored, StoreAtBottom(descent.node, std::nullopt, key, SlotOf(child)));
    if (stored) ++memory_->header().keys;
  }
  if (!descent.unfinished.empty()) InsertSeparators(std::move(descent.unfinished));
  if (!found) {
    WroteAndChanged({RecordKind::kRoute, key, std::string_view(reinterpret_cast<const char*>(&child), sizeof(child))});
  }
  return found;
}

absl::StatusOr<bool> Meganode::RemoveRoute(std::string_view key) {
  if (tier() == 0) return NotHere(Walk::Step::kRestart, key);
  RETURN_IF_ERROR(CheckKey(key));
  ASSIGN_OR_RETURN(Descent descent, Descend(key, 0));
  const NodeView leaf = Node(descent.node);
  const std::optional<int> found = leaf.Find(key);
  if (!found.has_value()) return false;
  if (*found == 0) {
    return absl::FailedPreconditionError(
        fmt::format("the route of key {} is the first in its node, and cannot be removed now", ForMessage(key)));
  }
  draft_.CopyOf(leaf);
  draft_.Remove(*found);
  Publish(&draft_);
  --memory_->header().keys;
  ++deletes_;
  if (!descent.unfinished.empty()) InsertSeparators(std::move(descent.unfinished));
  WroteAndChanged({RecordKind::kDelete, key, {}});
  if (IsSmall(Node(descent.node))) MergeSmall(key);
  return true;
}

template <typename Slot>
absl::StatusOr<bool> Meganode::StoreAtBottom(Pointer pointer, std::optional<int> found, std::string_view key,
                                             const Slot& slot) {
  const NodeView node = Node(pointer);
  const int at = found.has_value() ? *found : node.LowerBound(key);
  draft_.CopyOf(node);
  bool fits = false;
  if constexpr (std::is_same_v<Slot, LeafPair>) {
    fits = found.has_value() ? draft_.Replace(at, slot) : draft_.Insert(at, key, slot);
  } else {
    CELL_CHECK(!found.has_value());
    fits = draft_.Insert(at, key, slot);
  }
  if (fits) {
    Publish(&draft_);
    return true;
  }
  if (!commits_ && !NodesLeftForSplit()) return NoNodes();
  SplitResult split = Split(node, at, found.has_value(), key, slot);
  if (split.separator.has_value()) {
    std::vector<Separator> pending;
    pending.push_back(std::move(*split.separator));
    InsertSeparators(std::move(pending));
  }
  return split.visible;
}

template <typename Slot>
Meganode::SplitResult Meganode::Split(const NodeView& node, int at, bool replaces, std::string_view key,
                                      const Slot& slot) {
  struct Entry {
    std::string key;
    Slot slot;
    size_t bytes;
  };
  std::vector<Entry> entries;
  entries.reserve(static_cast<size_t>(node.count()) + 1);
  size_t total = 0;
  // The values of pairs stay where they are, in the node and at the caller, until both drafts are filled.
  const auto add = [&](std::string entry_key, const Slot& entry_slot) {
    const size_t bytes = EntryBytes(entry_key, entry_slot);
    entries.push_back({std::move(entry_key), entry_slot, bytes});
    total += bytes;
  };
  for (int i = 0; i <= node.count(); ++i) {
    if (i == at) add(std::string(key), slot);
    if (i < node.count() && !(replaces && i == at)) add(node.key(i), SlotAt(node, i, &slot));
  }

  const bool raise = node.self() == root_;
  const std::string low(node.low_key());
  const std::optional<std::string> high = node.has_high() ? std::optional<std::string>(node.high_key()) : std::nullopt;
  const Pointer left_self = raise ? AllocateNode() : node.self();
  const Pointer right_self = AllocateNode();
  const Pointer old_right = node.right();
  const uint8_t level = node.level();
  const uint8_t tier = node.tier();
  const bool rightmost = old_right.region() != header().region;
  std::string separator;

  const auto fill = [](NodeDraft* draft, const Entry* begin, const Entry* end) {
    for (const Entry* entry = begin; entry != end; ++entry) {
      if (!draft->Insert(draft->view().count(), entry->key, entry->slot)) return false;
    }
    return true;
  };
  const auto try_cut = [&](size_t cut) {
    separator =
        node.holds_pairs() ? std::string(ShortestSeparator(entries[cut - 1].key, entries[cut].key)) : entries[cut].key;
    draft_.Begin(left_self, level, low, separator, right_self, tier);
    right_draft_.Begin(right_self, level, separator, high, old_right, tier);
    return fill(&draft_, entries.data(), entries.data() + cut) &&
           fill(&right_draft_, entries.data() + cut, entries.data() + entries.size());
  };
  // Keys that arrive in order leave full nodes behind. Otherwise both sides get half of the bytes. If one side does not
  // fit (long fences), take the nearest cut that fits; KeyBytesMax guarantees that there is one.
  const size_t last = entries.size() - 1;
  size_t middle = last;
  if (!rightmost || at != node.count()) {
    size_t sum = 0;
    middle = 0;
    while (middle < last && sum + entries[middle].bytes <= total / 2) sum += entries[middle++].bytes;
    middle = std::max<size_t>(middle, 1);
  }
  bool fits = try_cut(middle);
  for (size_t distance = 1; !fits && distance <= last; ++distance) {
    fits =
        (middle + distance <= last && try_cut(middle + distance)) || (middle > distance && try_cut(middle - distance));
  }
  CELL_CHECK(fits);

  // The new nodes stay hidden until the node that leads to them is published. Otherwise a reader that knows their
  // locations from former nodes would see this change before others do.
  PublishHidden(&right_draft_);
  if (!Observe(SplitStep::kRightWritten)) return {false, std::nullopt};
  if (!raise) {
    Publish(&draft_);
    Reveal(right_self);
    if (!Observe(SplitStep::kLeftWritten)) return {true, std::nullopt};
    return {true, Separator{static_cast<uint8_t>(level + 1), std::move(separator), right_self}};
  }
  PublishHidden(&draft_);
  if (!Observe(SplitStep::kLeftWritten)) return {false, std::nullopt};

  CELL_CHECK_LT(level + 1, kLevelsMax);
  draft_.Begin(root_, static_cast<uint8_t>(level + 1), low, high, old_right, tier);
  CELL_CHECK(draft_.Insert(0, low, SlotOf(left_self)) && draft_.Insert(1, separator, SlotOf(right_self)));
  Publish(&draft_);
  Reveal(left_self);
  Reveal(right_self);
  Observe(SplitStep::kSeparatorWritten);
  return {true, std::nullopt};
}

void Meganode::InsertSeparators(std::vector<Separator> pending) {
  while (!pending.empty() && !Mutated(Mutant::kLostSeparator)) {
    const Separator separator = std::move(pending.back());
    pending.pop_back();
    if (separator.level > Node(root_).level())
      continue;  // The root was not yet raised that far; raising it will list
                 // this child.
    absl::StatusOr<Descent> descent = Descend(separator.key, separator.level);
    CELL_CHECK(descent.ok());
    const NodeView parent = Node(descent->node);
    if (parent.Find(separator.key).has_value()) continue;  // Another writer finished it before.
    const int at = parent.LowerBound(separator.key);
    const InnerSlot slot = SlotOf(separator.child);
    draft_.CopyOf(parent);
    if (draft_.Insert(at, separator.key, slot)) {
      Publish(&draft_);
      if (!Observe(SplitStep::kSeparatorWritten)) return;
    } else if (header().node_count - header().nodes_used >= 2) {
      SplitResult split = Split(parent, at, /*replaces=*/false, separator.key, slot);
      if (split.separator.has_value()) pending.push_back(std::move(*split.separator));
    }  // Without free nodes the split stays half done, and readers use the right link.
  }
}

}  // namespace cell

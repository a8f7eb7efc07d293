// Has the inserts of a Meganode: of pairs, routes, separators and whole leaves, with the splits of nodes that are full.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/tree/meganode.h"
#include "fmt/format.h"

namespace cell {

absl::StatusOr<bool> Meganode::PutSlot(Descent descent, std::string_view key, const LeafSlot& slot) {
  RegionHeader& h = memory_->header();
  const NodeView leaf = Node(descent.node);
  const std::optional<int> found = leaf.Find(key);
  if (found.has_value()) {
    const LeafSlot old = leaf.leaf_slot(*found);
    draft_.CopyOf(leaf);
    draft_.Repoint(*found, slot.extent, slot.extent_bytes, slot.crc);
    Publish(&draft_);
    extents_.Free(old.extent.offset());
    h.data_bytes -= old.extent_bytes;
  } else {
    RETURN_IF_ERROR(InsertAtBottom(descent.node, key, slot));
    ++h.keys;
  }
  h.data_bytes += slot.extent_bytes;
  if (!descent.unfinished.empty()) InsertSeparators(std::move(descent.unfinished));
  return found.has_value();
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

absl::Status Meganode::AppendLeaf(const Meganode& from, const NodeView& leaf, Pointer* next) {
  RegionHeader& h = memory_->header();
  CELL_CHECK(leaf.holds_pairs() && (!next->null() || leaf.low_key() == Node(root_).low_key()));
  ASSIGN_OR_RETURN(const NewLeaf its, AllocateLeaf(leaf.right().region() != from.region(), next));
  draft_.CopyOf(leaf);
  draft_.Move(its.self, its.right);
  for (int i = 0; i < leaf.count(); ++i) {
    const LeafSlot slot = leaf.leaf_slot(i);
    const std::optional<uint64_t> offset = extents_.Allocate(slot.extent_bytes);
    if (!offset.has_value()) return NoExtent(slot.extent_bytes);
    memory_->Store(*offset, from.Extent(slot.extent), RegionShape::RoundUp(slot.extent_bytes, kWordBytes));
    draft_.Repoint(i, Pointer(region(), *offset), slot.extent_bytes, slot.crc);
    h.data_bytes += slot.extent_bytes;
    const std::string_view pair = AsText(ConstBytes(from.Extent(slot.extent), slot.extent_bytes));
    const size_t key_bytes = leaf.key_bytes(i);
    Wrote(RecordKind::kPut, pair.substr(0, key_bytes), pair.substr(key_bytes));
  }
  Publish(&draft_);
  h.keys += static_cast<uint64_t>(leaf.count());
  LinkLeaf(its, leaf.low_key());
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
    RETURN_IF_ERROR(InsertAtBottom(descent.node, key, SlotOf(child)));
    ++memory_->header().keys;
  }
  if (!descent.unfinished.empty()) InsertSeparators(std::move(descent.unfinished));
  if (!found) {
    WroteAndChanged(RecordKind::kRoute, key, std::string_view(reinterpret_cast<const char*>(&child), sizeof(child)));
  }
  return found;
}

template <typename Slot>
absl::Status Meganode::InsertAtBottom(Pointer pointer, std::string_view key, const Slot& slot) {
  const NodeView node = Node(pointer);
  const int at = node.LowerBound(key);
  draft_.CopyOf(node);
  if (draft_.Insert(at, key, slot)) {
    Publish(&draft_);
    return absl::OkStatus();
  }
  if (!NodesLeftForSplit()) return NoNodes();
  if (std::optional<Separator> separator = Split(node, at, key, slot)) {
    std::vector<Separator> pending;
    pending.push_back(std::move(*separator));
    InsertSeparators(std::move(pending));
  }
  return absl::OkStatus();
}

// Distributes the content of `node`, with (key, slot) inserted before slot `at`, over two nodes. Returns the separator
// for the parent. Returns nullopt if the root was raised, or if the observer abandoned the split.
template <typename Slot>
std::optional<Meganode::Separator> Meganode::Split(const NodeView& node, int at, std::string_view key,
                                                   const Slot& slot) {
  struct Entry {
    std::string key;
    Slot slot;
    size_t bytes;
  };
  std::vector<Entry> entries;
  entries.reserve(static_cast<size_t>(node.count()) + 1);
  size_t total = 0;
  const auto add = [&](std::string entry_key, const Slot& entry_slot) {
    const size_t bytes = entry_key.size() + sizeof(Slot) + kKeyHeadBytes;
    entries.push_back({std::move(entry_key), entry_slot, bytes});
    total += bytes;
  };
  for (int i = 0; i <= node.count(); ++i) {
    if (i == at) add(std::string(key), slot);
    if (i < node.count()) add(node.key(i), Load<Slot>(node.slot(i)));
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

  Publish(&right_draft_);
  if (!Observe(SplitStep::kRightWritten)) return std::nullopt;
  Publish(&draft_);
  if (!Observe(SplitStep::kLeftWritten)) return std::nullopt;
  if (!raise) return Separator{static_cast<uint8_t>(level + 1), std::move(separator), right_self};

  CELL_CHECK_LT(level + 1, kLevelsMax);
  draft_.Begin(root_, static_cast<uint8_t>(level + 1), low, high, old_right, tier);
  CELL_CHECK(draft_.Insert(0, low, SlotOf(left_self)) && draft_.Insert(1, separator, SlotOf(right_self)));
  Publish(&draft_);
  Observe(SplitStep::kSeparatorWritten);
  return std::nullopt;
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
      if (std::optional<Separator> next = Split(parent, at, separator.key, slot)) pending.push_back(std::move(*next));
    }  // Without free nodes the split stays half done, and readers use the right link.
  }
}

}  // namespace cell

#include "cell/tree/meganode.h"

#include <algorithm>
#include <array>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status GaveUp(std::string_view key) {
  return absl::UnavailableError(
      fmt::format("the search for key {} found no valid node in {} visits: the tree is damaged (run cellctl check)",
                  ForMessage(key), Walk::kVisitsMax));
}

}  // namespace

absl::Status Meganode::Format(RegionMemory* memory, uint32_t region, const RegionShape& shape, const Range& range) {
  if (!ValidNodeBytes(shape.node_bytes)) {
    return absl::InvalidArgumentError(
        fmt::format("a node size of {} is invalid: it must be a power of two from {} to {}", shape.node_bytes,
                    kNodeBytesMin, kNodeBytesMax));
  }
  if (shape.meganode_bytes % shape.node_bytes != 0 || shape.meganode_bytes / shape.node_bytes < 4 ||
      shape.meganode_bytes / shape.node_bytes > UINT32_MAX) {
    return absl::InvalidArgumentError(
        fmt::format("a meganode size of {} is invalid: it must be a multiple of the node size, at least 4 nodes",
                    shape.meganode_bytes));
  }
  if (shape.extents_bytes % 4096 != 0 || shape.extents_bytes > kExtentsBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("an extents size of {} is invalid: it must be a multiple of 4096, up to {}", shape.extents_bytes,
                    kExtentsBytesMax));
  }
  if (region == 0 || region > Pointer::kRegionMax || memory->bytes() < shape.region_bytes()) {
    return absl::InvalidArgumentError(
        fmt::format("region {}: the id is invalid, or there is too little memory", region));
  }
  const size_t key_max = KeyBytesMax(shape.node_bytes);
  if (range.low.size() > key_max ||
      (range.high.has_value() && (range.high->size() > key_max || *range.high <= range.low))) {
    return absl::InvalidArgumentError(fmt::format("region {}: the range is not valid for a meganode", region));
  }
  RegionHeader& header = memory->header();
  header = {};
  header.magic = kRegionMagic;
  header.layout_version = kLayoutVersion;
  header.region = region;
  header.node_bytes = shape.node_bytes;
  header.node_count = static_cast<uint32_t>(shape.meganode_bytes / shape.node_bytes);
  header.nodes_offset = kRegionHeaderBytes;
  header.extents_offset = kRegionHeaderBytes + RegionShape::RoundUp(shape.meganode_bytes, 4096);
  header.extents_bytes = shape.extents_bytes;
  header.nodes_used = 1;
  header.nodes_end = 1;
  ExtentAllocator(memory).Format();
  NodeDraft root(shape.node_bytes);
  root.Begin(RootOf(region), 0, range.low, range.high, range.right, range.tier);
  root.Publish(memory, header.nodes_offset);
  return absl::OkStatus();
}

Meganode::Meganode(RegionMemory* memory)
    : PairStore(memory),
      root_(RootOf(memory->header().region)),
      draft_(memory->header().node_bytes),
      right_draft_(memory->header().node_bytes) {
  CELL_CHECK(memory->header().magic == kRegionMagic && memory->header().layout_version == kLayoutVersion);
}

NodeView Meganode::Node(Pointer pointer) const {
  return NodeView::Trusted(memory_->at(pointer.offset()), header().node_bytes);
}

absl::Status Meganode::CheckKey(std::string_view key) const {
  if (key.empty()) return absl::InvalidArgumentError("a key must have at least one byte");
  if (key.size() > key_bytes_max()) {
    return absl::InvalidArgumentError(fmt::format("key {} is longer than {} bytes, the maximum for nodes of {} bytes",
                                                  ForMessage(key), key_bytes_max(), header().node_bytes));
  }
  return absl::OkStatus();
}

Meganode::Range Meganode::range() const {
  const NodeView root = Node(root_);
  return {root.tier(), std::string(root.low_key()),
          root.has_high() ? std::optional<std::string>(root.high_key()) : std::nullopt, root.right()};
}

absl::Status Meganode::NotHere(Walk::Step step, std::string_view key) const {
  if (step == Walk::Step::kGaveUp) return GaveUp(key);
  return absl::OutOfRangeError(fmt::format("key {} is not in the range of region {}", ForMessage(key), region()));
}

Meganode::Route Meganode::RouteOf(std::string_view key) const {
  const NodeView root = Node(root_);
  if (root.BelowLow(key)) return {Route::Kind::kRestart, {}, {}, {}};
  if (root.PastHigh(key)) return {Route::Kind::kRight, root.right(), {}, {}};
  if (root.tier() == 0) return {Route::Kind::kHere, root_, {}, {}};
  const absl::StatusOr<NodeView> bottom = LeafOf(key);
  const int slot = bottom.ok() ? bottom->ChildSlot(key) : -1;
  if (slot < 0) return {Route::Kind::kRestart, {}, {}, {}};
  Route route{Route::Kind::kChild, bottom->inner_slot(slot).child(), bottom->key(slot), {}};
  if (slot + 1 < bottom->count()) {
    route.high = bottom->key(slot + 1);
  } else if (bottom->has_high()) {
    route.high = bottom->high_key();
  }
  return route;
}

absl::StatusOr<NodeView> Meganode::LeafOf(std::string_view key) const {
  Walk walk(key, root_, 0, tier());
  for (;;) {
    const NodeView node = Node(walk.wants());
    Prefetch(node.bytes(), node.node_bytes());  // Cache misses of the node overlap, instead of following each other.
    const Walk::Step step = walk.Visit(node);
    if (step == Walk::Step::kArrived) return node;
    if (step != Walk::Step::kRead) return NotHere(step, key);
  }
}

absl::StatusOr<Meganode::Location> Meganode::Find(std::string_view key) const {
  ASSIGN_OR_RETURN(const NodeView leaf, LeafOf(key));
  Location location{leaf.self(), std::nullopt};
  if (!leaf.holds_pairs()) return NotHere(Walk::Step::kElsewhere, key);
  if (const std::optional<int> slot = leaf.Find(key)) location.slot = leaf.leaf_slot(*slot);
  return location;
}

void Meganode::FindBatch(absl::Span<Lookup> lookups, bool prefetch_extents) {
  // Header, heads, and some slots of inner nodes: what is read first.
  constexpr size_t kPrefetchedBytes = 320;
  for (size_t begin = 0; begin < lookups.size(); begin += kBatchMax) {
    const absl::Span<Lookup> batch = lookups.subspan(begin, kBatchMax);
    std::array<Walk, kBatchMax> walks;
    std::array<uint8_t, kBatchMax> active;
    size_t left = batch.size();
    for (size_t i = 0; i < left; ++i) {
      walks[i] = Walk(batch[i].key, batch[i].tree->root_);
      active[i] = static_cast<uint8_t>(i);
    }
    while (left > 0) {
      for (size_t i = 0; i < left;) {
        Lookup& lookup = batch[active[i]];
        Walk& walk = walks[active[i]];
        const NodeView node = lookup.tree->Node(walk.wants());
        const Walk::Step step = walk.Visit(node);
        if (step == Walk::Step::kRead) {
          const std::byte* next = lookup.tree->memory_->at(walk.wants().offset());
          Prefetch(next, node.level() == 1 ? node.node_bytes() : kPrefetchedBytes);
          ++i;
          continue;
        }
        if (step == Walk::Step::kArrived) {
          lookup.status = absl::OkStatus();
          lookup.location = {node.self(), std::nullopt};
          if (const std::optional<int> slot = node.Find(lookup.key)) {
            const LeafSlot found = node.leaf_slot(*slot);
            lookup.location.slot = found;
            if (prefetch_extents)
              Prefetch(lookup.tree->Extent(found.extent), std::min<size_t>(found.extent_bytes, 512));
          }
        } else {
          lookup.status = lookup.tree->NotHere(step, lookup.key);
        }
        active[i] = active[--left];
      }
    }
  }
}

absl::StatusOr<Meganode::Descent> Meganode::Descend(std::string_view key, uint8_t level) const {
  Walk walk(key, root_, level, tier());
  Descent descent;
  for (;;) {
    const NodeView node = Node(walk.wants());
    const Walk::Step step = walk.Visit(node);
    if (step != Walk::Step::kRead && step != Walk::Step::kArrived) return NotHere(step, key);
    if (step == Walk::Step::kArrived) {
      descent.node = node.self();
      return descent;
    }
    if (walk.moved_right()) {
      const NodeView right = Node(walk.wants());
      descent.unfinished.push_back(
          {static_cast<uint8_t>(node.level() + 1), std::string(right.low_key()), right.self()});
    }
  }
}

bool Meganode::HintIsRight(Pointer hint, std::string_view key) const {
  const uint64_t begin = header().nodes_offset;
  if (hint.region() != header().region || hint.offset() < begin ||
      hint.offset() >= begin + header().nodes_end * header().node_bytes ||
      (hint.offset() - begin) % header().node_bytes != 0) {
    return false;
  }
  const NodeView node = Node(hint);
  return !node.gone() && node.holds_pairs() && node.Covers(key);
}

// Returns whether there are enough free nodes for a write and for `ahead` earlier ones. Each may split every level, and
// the root into two more nodes. Earlier writes may raise the root as well.
bool Meganode::NodesLeftForSplit(size_t ahead) const {
  const uint64_t left = header().node_count - header().nodes_used;
  const uint64_t levels = static_cast<uint64_t>(Node(root_).level());
  const uint64_t one = levels + 3;  // One node on each level, and two if the root is raised.
  // Some nodes always stay free: when the tree is recovered from its log, its content must fit into another tree that
  // is built leaf by leaf (AllocateLeaf).
  return left >= (ahead + 1) * one + levels + 6;
}

Pointer Meganode::AllocateNode() {
  RegionHeader& h = memory_->header();
  CELL_CHECK_LT(h.nodes_used, h.node_count);
  ++h.nodes_used;
  if (h.free_node != 0) {
    const Pointer node(h.region, h.free_node);
    h.free_node = Node(node).right().raw();
    return node;
  }
  return Pointer(h.region, h.nodes_offset + h.nodes_end++ * h.node_bytes);
}

void Meganode::MarkGone(Pointer node) {
  memory_->StoreWord(node.offset(), kVersionGone);
  memory_->AfterStep();
}

void Meganode::Invalidate() {
  for (uint64_t i = 0; i < header().nodes_end; ++i) {
    MarkGone(Pointer(region(), header().nodes_offset + i * header().node_bytes));
  }
}

void Meganode::Restore() {
  for (uint64_t i = 0; i < header().nodes_end; ++i) {
    const uint64_t node = header().nodes_offset + i * header().node_bytes;
    memory_->StoreWord(node, LoadWord(memory_->at(node + header().node_bytes - kTailVersionBytes)));
  }
  for (uint64_t free = header().free_node; free != 0; free = Node(Pointer(region(), free)).right().raw()) {
    MarkGone(Pointer(region(), free));
  }
}

absl::Status Meganode::CheckHeader(const RegionHeader& header, uint32_t region, const RegionShape& shape) {
  const bool good = header.magic == kRegionMagic && header.layout_version == kLayoutVersion &&
                    header.region == region && header.node_bytes == shape.node_bytes &&
                    header.node_count == shape.meganode_bytes / shape.node_bytes &&
                    header.nodes_offset == kRegionHeaderBytes &&
                    header.extents_offset == kRegionHeaderBytes + RegionShape::RoundUp(shape.meganode_bytes, 4096) &&
                    header.extents_bytes == shape.extents_bytes && header.nodes_used >= 1 &&
                    header.nodes_used <= header.nodes_end && header.nodes_end <= header.node_count;
  if (good) return absl::OkStatus();
  return absl::DataLossError(fmt::format("the received data is not region {} with this cluster's sizes", region));
}

void Meganode::FreeNode(Pointer node) {
  RegionHeader& h = memory_->header();
  memory_->StoreWord(node.offset() + offsetof(NodeHeader, right), h.free_node);
  h.free_node = node.offset();
  --h.nodes_used;
}

absl::Status Meganode::NoNodes() const {
  return absl::ResourceExhaustedError(
      fmt::format("region {} has used {} of {} nodes: the meganode is full and was not split: make room for a split "
                  "(--regions-max, more servers), delete keys, or use a larger --meganode-bytes",
                  header().region, header().nodes_used, header().node_count));
}

absl::Status Meganode::NoExtent(size_t bytes) const {
  return absl::ResourceExhaustedError(
      fmt::format("region {} has no room for an extent of {} bytes ({} of {} used) and was not split: make room for a "
                  "split (--regions-max, more servers), delete keys, or use a larger --extents-bytes",
                  header().region, bytes, extents_.usage().bytes_used, header().extents_bytes));
}

absl::StatusOr<uint64_t> Meganode::StoreExtent(std::string_view key, std::string_view value) {
  const std::optional<uint64_t> offset = extents_.Store(key, value);
  if (!offset.has_value()) return NoExtent(key.size() + value.size());
  return *offset;
}

absl::Status Meganode::CheckPut(std::string_view key, std::string_view value, uint64_t crc) const {
  RETURN_IF_ERROR(CheckKey(key));
  if (tier() != 0) return NotHere(Walk::Step::kElsewhere, key);
  if (value.size() > kValueBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("the value of {} bytes for key {} is larger than the maximum of {} bytes", value.size(),
                    ForMessage(key), kValueBytesMax));
  }
  if (Crc64(value, Crc64(key)) != crc) {
    return absl::InvalidArgumentError(
        fmt::format("the CRC of key {} and its value is wrong: they were damaged in transit", ForMessage(key)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Meganode::Put(std::string_view key, std::string_view value, uint64_t crc, Pointer hint) {
  RETURN_IF_ERROR(CheckPut(key, value, crc));
  Descent descent;
  if (HintIsRight(hint, key)) {
    descent.node = hint;
  } else {
    ASSIGN_OR_RETURN(descent, Descend(key, 0));
  }
  ASSIGN_OR_RETURN(const uint64_t offset, StoreExtent(key, value));
  const LeafSlot slot{{}, static_cast<uint32_t>(key.size() + value.size()), Pointer(region(), offset), crc};
  const absl::StatusOr<bool> existed = PutSlot(std::move(descent), key, slot);
  if (!existed.ok()) {
    extents_.Free(offset);
    return existed.status();
  }
  WroteAndChanged(RecordKind::kPut, key, value);
  return *existed;
}

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

absl::StatusOr<Meganode::Prepared> Meganode::Prepare(std::string_view key, std::string_view value, uint64_t crc,
                                                     const Ahead& ahead) {
  RETURN_IF_ERROR(CheckPut(key, value, crc));
  if (!Covers(key)) return NotHere(Walk::Step::kElsewhere, key);
  if (!NodesLeftForSplit(ahead.writes)) {
    // A key that is stored, and stays, is replaced without more nodes.
    if (ahead.of_key) return NoNodes();
    ASSIGN_OR_RETURN(const Location location, Find(key));
    if (!location.slot.has_value()) return NoNodes();
  }
  ASSIGN_OR_RETURN(const uint64_t offset, StoreExtent(key, value));
  return Prepared{offset, static_cast<uint32_t>(key.size() + value.size()), crc, 0, {}};
}

bool Meganode::Commit(const Prepared& prepared, std::string_view key, Pointer hint) {
  Descent descent;
  if (HintIsRight(hint, key)) {
    descent.node = hint;
  } else {
    absl::StatusOr<Descent> found = Descend(key, 0);
    CELL_CHECK(found.ok());
    descent = *std::move(found);
  }
  const Pointer extent(region(), prepared.extent);
  const absl::StatusOr<bool> existed = PutSlot(std::move(descent), key, {{}, prepared.bytes, extent, prepared.crc});
  CELL_CHECK(existed.ok());
  Changed(key);
  return *existed;
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

absl::StatusOr<bool> Meganode::Delete(std::string_view key, Pointer hint) {
  absl::StatusOr<bool> existed = CommitDelete(key, hint);
  if (existed.ok() && *existed) Wrote(RecordKind::kDelete, key, {});
  return existed;
}

absl::StatusOr<bool> Meganode::CommitDelete(std::string_view key, Pointer hint) {
  RETURN_IF_ERROR(CheckKey(key));
  if (tier() != 0) return NotHere(Walk::Step::kElsewhere, key);
  Descent descent;
  if (HintIsRight(hint, key)) {
    descent.node = hint;
  } else {
    ASSIGN_OR_RETURN(descent, Descend(key, 0));
  }
  const NodeView leaf = Node(descent.node);
  const std::optional<int> found = leaf.Find(key);
  if (found.has_value()) {
    const LeafSlot old = leaf.leaf_slot(*found);
    draft_.CopyOf(leaf);
    draft_.Remove(*found);
    Publish(&draft_);
    extents_.Free(old.extent.offset());
    RegionHeader& h = memory_->header();
    --h.keys;
    h.data_bytes -= old.extent_bytes;
  }
  if (!descent.unfinished.empty()) InsertSeparators(std::move(descent.unfinished));
  if (found.has_value()) Changed(key);
  return found.has_value();
}

}  // namespace cell

#include "cell/tree/tree_check.h"

#include <utility>

#include "cell/base/crc64.h"
#include "cell/tree/walk.h"
#include "fmt/format.h"

namespace cell {
namespace {

// Accounts for the cache misses of each pair and block, as bytes that would take as long to verify.
constexpr int64_t kPairBytes = 128;
constexpr int64_t kBlockBytes = 64;

}  // namespace

bool TreeCheck::Step(const Slice& slice) {
  RegionMemory memory = slice.memory;
  const ExtentAllocator allocator(&memory);
  slice_ = &slice;
  allocator_ = &allocator;
  changed_ = phase_ != Phase::kBegin && slice.memory.stores() != stores_;
  whole_ &= !changed_ && slice.settled;
  if (phase_ == Phase::kBegin) {
    if (!CheckHeader()) phase_ = Phase::kEnd;
    report_.region = header().region;
  }
  if (phase_ != Phase::kEnd && !ReadRoot()) phase_ = Phase::kEnd;
  left_ = slice.bytes;  // So that each slice checks one node at least.
  if (phase_ == Phase::kBegin) {
    phase_ = Phase::kLevels;
    level_ = root_level_;
    key_ = report_.range.low;
  }
  while (phase_ == Phase::kLevels && left_ > 0) {
    if (!CheckLevel()) break;
    key_ = report_.range.low;
    next_ = {};
    nodes_of_level_ = 0;
    if (--level_ >= 0) continue;
    report_.nodes_used = header().nodes_used;
    report_.extents = header().extents.blocks;
    phase_ = whole_ ? Phase::kExtents : Phase::kEnd;
    if (!whole_) break;
    CompareCounts();
    reserved_ = slice.reserved();
  }
  if (phase_ == Phase::kExtents && (!whole_ || (left_ > 0 && CompareExtents()))) phase_ = Phase::kEnd;
  stores_ = slice.memory.stores();
  slice_ = nullptr;
  allocator_ = nullptr;
  return phase_ == Phase::kEnd;
}

void TreeCheck::Note(std::string_view where, std::string_view what) {
  if (++report_.error_count <= TreeReport::kErrorsMax) report_.errors.push_back(fmt::format("{}: {}", where, what));
}

bool TreeCheck::CheckHeader() {
  const RegionMemory& memory = slice_->memory;
  if (memory.bytes() < kRegionHeaderBytes || header().magic != kRegionMagic) {
    Expect(false, "header", "not a region (wrong magic number, or too short)");
    return false;
  }
  if (header().layout_version != kLayoutVersion) {
    Note("header", std::string(OtherLayout(header().region, header().layout_version).message()));
    return false;
  }
  const RegionHeader& h = header();
  const bool sane = ValidNodeBytes(h.node_bytes) && h.last_stamp <= kLastStampMax && h.stamp_bound <= kLastStampMax &&
                    h.nodes_offset == kRegionHeaderBytes && h.nodes_used >= 1 && h.nodes_used <= h.nodes_end &&
                    h.nodes_end <= h.node_count && h.extents_offset <= memory.bytes() &&
                    h.extents_bytes <= memory.bytes() - h.extents_offset &&
                    h.nodes_offset + uint64_t{h.node_count} * h.node_bytes <= h.extents_offset;
  Expect(sane, "header", "its sizes are inconsistent, or its last stamp is impossible");
  return sane;
}

bool TreeCheck::ReadRoot() {
  const std::optional<NodeView> root = Read(RootOf(header().region));
  if (!root.has_value()) return false;
  root_ = root->self();
  root_level_ = root->level();
  report_.levels = root_level_ + 1;
  report_.range = {root->tier(), std::string(root->low_key()), std::nullopt, root->right()};
  if (root->has_high()) report_.range.high = root->high_key();
  return true;
}

std::optional<NodeView> TreeCheck::Read(Pointer pointer) {
  const RegionHeader& h = header();
  const auto where = [pointer] { return fmt::format("node {}", ToString(pointer)); };
  const uint64_t begin = h.nodes_offset;
  if (pointer.region() != h.region || pointer.offset() < begin ||
      pointer.offset() >= begin + h.nodes_end * h.node_bytes || (pointer.offset() - begin) % h.node_bytes != 0) {
    Note(where(), "the pointer is not to a node of this region");
    return std::nullopt;
  }
  left_ -= h.node_bytes;
  NodeView node;
  const ConstBytes bytes(slice_->memory.at(pointer.offset()), h.node_bytes);
  const NodeFault fault = NodeView::Parse(bytes, pointer, &node);
  if (fault == NodeFault::kNone) return node;
  Note(where(), fault == NodeFault::kTorn      ? "its versions or CRC are wrong"
                : fault == NodeFault::kForeign ? "carries another node's pointer"
                : fault == NodeFault::kGone    ? "was invalidated"
                                               : "is malformed");
  return std::nullopt;
}

TreeCheck::Arrival TreeCheck::Find(std::string_view key, int level) {
  Walk walk(key, root_, static_cast<uint8_t>(level), report_.range.tier);
  Arrival arrival;
  for (Walk::Step step = Walk::Step::kRead; step == Walk::Step::kRead;) {
    arrival.by_right_link = walk.moved_right();
    arrival.node = Read(walk.wants());
    step = arrival.node.has_value() ? walk.Visit(*arrival.node) : Walk::Step::kGaveUp;
    if (step != Walk::Step::kRead && step != Walk::Step::kArrived) arrival.node.reset();
  }
  return arrival;
}

bool TreeCheck::CheckLevel() {
  if (level_ > root_level_) return true;  // The root was lowered.
  const MeganodeRange& range = report_.range;
  if (range.high.has_value() && key_ >= *range.high) return true;  // The rest was split off.
  std::optional<NodeView> node = changed_ || next_.null() ? Find(key_, level_).node : Read(next_);
  const std::string where = fmt::format("level {}", level_);
  Expect(node.has_value(), where, "does not reach the end of the meganode");
  bool after_change = changed_;
  while (node.has_value()) {
    if (!CheckNode(*node, std::exchange(after_change, false))) return true;
    if (left_ <= 0) return false;
    node = Read(next_);
    Expect(node.has_value(), where, "does not reach the end of the meganode");
  }
  return true;
}

bool TreeCheck::CheckNode(const NodeView& node, bool after_change) {
  const std::string where = fmt::format("node {} (level {})", ToString(node.self()), level_);
  const MeganodeRange& range = report_.range;
  // A region that is written may get new nodes for ever, but not more than it has room for without an end.
  if (++nodes_of_level_ > header().node_count && whole_) {
    Expect(false, where, "the right links form a cycle");
    return false;
  }
  ++report_.nodes;
  Expect(node.level() == level_, where, [&] { return fmt::format("its level is {}", node.level()); });
  Expect(node.tier() == range.tier, where, [&] { return fmt::format("its tier is {}", node.tier()); });
  if (node.level() != level_ || node.tier() != range.tier) return false;
  // Since the last slice, the node may have been merged with its left neighbour.
  const bool follows = after_change ? node.low_key() <= key_ : node.low_key() == key_;
  Expect(follows, where, [&] {
    return fmt::format("its low key {} is not the left neighbour's high key {}", ForMessage(node.low_key()),
                       ForMessage(key_));
  });
  const Arrival arrival = Find(node.low_key(), level_);
  Expect(arrival.node.has_value() && arrival.node->self() == node.self(), where,
         "a search for its low key ends at another node");
  report_.half_splits += arrival.by_right_link;
  CheckSlots(node, where);
  if (node.right() == range.right) {
    Expect(node.has_high() == range.high.has_value() && (!node.has_high() || node.high_key() == *range.high), where,
           "it ends its level, but its high key is not the root's");
    return false;
  }
  const bool goes_on = node.has_high() && !node.right().null() && node.high_key() > node.low_key();
  Expect(goes_on, where, "its high key and right link disagree");
  if (!goes_on) return false;
  key_ = node.high_key();
  next_ = node.right();
  return true;
}

void TreeCheck::CheckSlots(const NodeView& node, std::string_view where) {
  report_.leaves += node.level() == 0;
  Expect(node.count() > 0 || node.holds_pairs(), where, "it is an inner node without children");
  std::string last;
  for (int i = 0; i < node.count(); ++i) {
    const std::string key = node.key(i);
    Expect(i == 0 || key > last, where,
           [&] { return fmt::format("key {} is not greater than the previous key", ForMessage(key)); });
    Expect(node.Covers(key), where, [&] { return fmt::format("key {} is outside the fences", ForMessage(key)); });
    last = key;
    if (node.holds_pairs()) {
      CheckPair(node.pair(i), key, where);
      continue;
    }
    Expect(i != 0 || key == node.low_key(), where, "its first separator is not its low key");
    const Pointer child = node.inner_slot(i).child();
    if (node.level() > 0) {
      const std::optional<NodeView> its = Read(child);
      const bool right = !its.has_value() || (its->level() + 1 == node.level() && its->low_key() == key);
      Expect(right, where, [&] { return fmt::format("separator {} is not its child's low key", ForMessage(key)); });
      continue;
    }
    Expect(child == RootOf(child.region()) && child.region() != header().region, where,
           [&] { return fmt::format("route {} is not to another meganode's root", ForMessage(key)); });
    report_.routes.emplace_back(key, child);
    ++report_.keys;
  }
}

void TreeCheck::CheckPair(const LeafPair& pair, const std::string& key, std::string_view where) {
  ++report_.keys;
  left_ -= kPairBytes + pair.pair_bytes();
  report_.data_bytes += pair.pair_bytes();
  report_.expiring += pair.expiry != kNeverExpires;
  Expect(pair.stamp != 0 && pair.stamp <= header().last_stamp, where, [&] {
    return fmt::format("stamp {} of key {} was not given here: the last one is {}", pair.stamp, ForMessage(key),
                       header().last_stamp);
  });
  if (pair.is_inline) {
    ++report_.inline_pairs;
    Expect(pair.Matches(Crc64(pair.value, Crc64(key))), where,
           [&] { return fmt::format("inline pair of key {} has a wrong check", ForMessage(key)); });
    return;
  }
  const auto [pointer, crc] = pair.outside;
  const uint64_t begin = header().extents_offset;
  const uint64_t end = begin + header().extents_bytes;
  if (pointer.region() != header().region || pointer.offset() < begin || pointer.offset() > end ||
      pair.pair_bytes() > end - pointer.offset()) {
    Expect(false, where, [&] { return fmt::format("extent of key {} is out of bounds", ForMessage(key)); });
    return;
  }
  const ConstBytes extent(slice_->memory.at(pointer.offset()), pair.pair_bytes());
  Expect(AsText(extent.subspan(0, key.size())) == key, where,
         [&] { return fmt::format("extent of key {} holds another key", ForMessage(key)); });
  Expect(Crc64(extent) == crc, where, [&] { return fmt::format("extent of key {} has a wrong CRC", ForMessage(key)); });
  const std::optional<uint64_t> room = allocator_->RoomOf(pointer.offset());
  Expect(room.has_value(), where, [&] { return fmt::format("extent of key {} is not in use", ForMessage(key)); });
  Expect(!room.has_value() || pair.pair_bytes() <= *room, where,
         [&] { return fmt::format("extent of key {} is shorter than its leaf says", ForMessage(key)); });
  Expect(pointed_.Mark(pointer.offset()) || !whole_, where,
         [&] { return fmt::format("extent of key {} is shared with another key", ForMessage(key)); });
}

void TreeCheck::CompareCounts() {
  const RegionHeader& h = header();
  Expect(report_.keys == h.keys, "header",
         [&] { return fmt::format("says {} keys, but {} were found", h.keys, report_.keys); });
  Expect(report_.data_bytes == h.data_bytes, "header",
         [&] { return fmt::format("says {} bytes of data, but {} were found", h.data_bytes, report_.data_bytes); });
  Expect(report_.expiring == h.expiring, "header",
         [&] { return fmt::format("says {} pairs with an expiry, but {} were found", h.expiring, report_.expiring); });
}

bool TreeCheck::CompareExtents() {
  const auto blocks = static_cast<size_t>(left_ / kBlockBytes + 1);
  const absl::StatusOr<bool> all = allocator_->WalkSome(&extents_, blocks, [this](uint64_t offset, uint64_t) {
    if (pointed_.Has(offset) || reserved_.contains(offset)) return;
    Note(fmt::format("extent at {:#x}", offset), "it is in use, but no leaf points to it");
  });
  if (!all.ok()) Note("extents", std::string(all.status().message()));
  return !all.ok() || *all;
}

TreeReport CheckTree(const RegionMemory& memory, const ReservedExtents& reserved) {
  TreeCheck check;
  TreeCheck::Slice slice{memory};
  slice.reserved = [&reserved] { return reserved; };
  while (!check.Step(slice)) {
  }
  return check.report();
}

}  // namespace cell

#include "cell/tree/tree_check.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cell/base/crc64.h"
#include "cell/region/extent_allocator.h"
#include "cell/tree/node_view.h"
#include "cell/tree/walk.h"
#include "fmt/format.h"

namespace cell {
namespace {

class TreeCheck {
 public:
  TreeCheck(const RegionMemory& memory, const absl::flat_hash_set<uint64_t>& reserved)
      : memory_(memory), header_(memory.header()), reserved_(reserved) {}

  TreeReport Run() {
    if (!CheckHeader()) return report_;
    report_.region = header_.region;
    const std::optional<NodeView> root = Read(RootOf(header_.region));
    if (!root.has_value()) return report_;
    root_ = root->self();
    report_.levels = root->level() + 1;
    MeganodeRange& range = report_.range;
    range = {root->tier(), std::string(root->low_key()), std::nullopt, root->right()};
    if (root->has_high()) range.high = root->high_key();
    std::vector<Child> expected = {{range.low, root_}};
    for (int level = root->level(); level >= 0 && !expected.empty(); --level) expected = CheckLevel(level, expected);
    CheckExtents();
    Expect(report_.keys == header_.keys, "header",
           fmt::format("says {} keys, but {} were found", header_.keys, report_.keys));
    Expect(report_.data_bytes == header_.data_bytes, "header",
           fmt::format("says {} bytes of data, but {} were found", header_.data_bytes, report_.data_bytes));
    Expect(report_.expiring == header_.expiring, "header",
           fmt::format("says {} pairs with an expiry, but {} were found", header_.expiring, report_.expiring));
    return report_;
  }

 private:
  struct Child {
    std::string low_key;
    Pointer node;
  };

  void Expect(bool good, std::string_view where, std::string_view what) {
    if (good) return;
    if (++report_.error_count <= TreeReport::kErrorsMax) report_.errors.push_back(fmt::format("{}: {}", where, what));
  }

  bool CheckHeader() {
    if (memory_.bytes() < kRegionHeaderBytes || header_.magic != kRegionMagic) {
      Expect(false, "header", "not a region (wrong magic number, or too short)");
      return false;
    }
    if (header_.layout_version != kLayoutVersion) {
      Expect(false, "header", std::string(OtherLayout(header_.region, header_.layout_version).message()));
      return false;
    }
    const bool sane =
        ValidNodeBytes(header_.node_bytes) && header_.last_stamp <= kLastStampMax &&
        header_.nodes_offset == kRegionHeaderBytes && header_.nodes_used >= 1 &&
        header_.nodes_used <= header_.nodes_end && header_.nodes_end <= header_.node_count &&
        header_.extents_offset <= memory_.bytes() &&
        header_.extents_bytes <= memory_.bytes() - header_.extents_offset &&
        header_.nodes_offset + uint64_t{header_.node_count} * header_.node_bytes <= header_.extents_offset;
    Expect(sane, "header", "its sizes are inconsistent, or its last stamp is impossible");
    return sane;
  }

  std::optional<NodeView> Read(Pointer pointer) {
    const std::string where = fmt::format("node {}", ToString(pointer));
    const uint64_t begin = header_.nodes_offset;
    if (pointer.region() != header_.region || pointer.offset() < begin ||
        pointer.offset() >= begin + header_.nodes_end * header_.node_bytes ||
        (pointer.offset() - begin) % header_.node_bytes != 0) {
      Expect(false, where, "the pointer is not to a node of this region");
      return std::nullopt;
    }
    NodeView node;
    const NodeFault fault =
        NodeView::Parse(ConstBytes(memory_.at(pointer.offset()), header_.node_bytes), pointer, &node);
    Expect(fault == NodeFault::kNone, where,
           fault == NodeFault::kTorn      ? "its versions or CRC are wrong"
           : fault == NodeFault::kForeign ? "carries another node's pointer"
           : fault == NodeFault::kGone    ? "was invalidated"
                                          : "is malformed");
    if (fault != NodeFault::kNone) return std::nullopt;
    return node;
  }

  // Checks one level from its left end. `expected` holds the children that the level above lists, in order.
  std::vector<Child> CheckLevel(int level, const std::vector<Child>& expected) {
    std::vector<Child> below;
    size_t listed = 0;
    std::string last_high = report_.range.low;
    bool ended = false;
    Pointer next = expected.front().node;
    for (uint64_t steps = 0; !next.null(); ++steps) {
      const std::string where = fmt::format("node {} (level {})", ToString(next), level);
      if (steps == header_.nodes_used) {
        Expect(false, where, "the right links form a cycle");
        break;
      }
      const std::optional<NodeView> node = Read(next);
      if (!node.has_value()) break;
      ++report_.nodes;
      Expect(node->level() == level, where, fmt::format("its level is {}", node->level()));
      Expect(node->tier() == report_.range.tier, where, fmt::format("its tier is {}", node->tier()));
      if (node->level() != level || node->tier() != report_.range.tier) break;
      Expect(node->low_key() == last_high, where,
             fmt::format("its low key {} is not the left neighbour's high key {}", ForMessage(node->low_key()),
                         ForMessage(last_high)));
      if (listed < expected.size() && expected[listed].node == next) {
        Expect(expected[listed].low_key == node->low_key(), where, "the parent's separator is not its low key");
        ++listed;
      } else {
        ++report_.half_splits;
      }
      CheckSlots(*node, where, &below);
      ended = node->right() == report_.range.right;
      if (ended) {
        Expect(node->has_high() == report_.range.high.has_value() &&
                   (!node->has_high() || node->high_key() == *report_.range.high),
               where, "it ends its level, but its high key is not the root's");
        break;
      }
      Expect(node->has_high() && !node->right().null(), where, "its high key and right link disagree");
      last_high = node->has_high() ? node->high_key() : "";
      next = node->right();
    }
    const std::string where = fmt::format("level {}", level);
    Expect(ended, where, "does not reach the end of the meganode");
    Expect(listed == expected.size(), where,
           fmt::format("only {} of the {} children that parents list are in it", listed, expected.size()));
    return below;
  }

  void CheckSlots(const NodeView& node, std::string_view where, std::vector<Child>* below) {
    std::string last;
    if (node.level() == 0) {
      ++report_.leaves;
      Walk walk(node.low_key(), root_, 0, node.tier());
      Walk::Step step = Walk::Step::kRead;
      while (step == Walk::Step::kRead) {
        const std::optional<NodeView> visited = Read(walk.wants());
        step = visited.has_value() ? walk.Visit(*visited) : Walk::Step::kGaveUp;
      }
      Expect(step == Walk::Step::kArrived && walk.path(0) == node.self(), where,
             "a search for its low key ends at another node");
    }
    Expect(node.count() > 0 || node.holds_pairs(), where, "it is an inner node without children");
    for (int i = 0; i < node.count(); ++i) {
      const std::string key = node.key(i);
      Expect(i == 0 || key > last, where, fmt::format("key {} is not greater than the previous key", ForMessage(key)));
      Expect(node.Covers(key), where, fmt::format("key {} is outside the fences", ForMessage(key)));
      if (node.holds_pairs()) {
        CheckPair(node.pair(i), key, where);
      } else {
        Expect(i != 0 || key == node.low_key(), where, "its first separator is not its low key");
        const Pointer child = node.inner_slot(i).child();
        if (node.level() > 0) {
          below->push_back({key, child});
        } else {
          Expect(child == RootOf(child.region()) && child.region() != header_.region, where,
                 fmt::format("route {} is not to another meganode's root", ForMessage(key)));
          report_.routes.emplace_back(key, child);
          ++report_.keys;
        }
      }
      last = key;
    }
  }

  void CheckPair(const LeafPair& pair, const std::string& key, std::string_view where) {
    ++report_.keys;
    report_.data_bytes += pair.pair_bytes();
    report_.expiring += pair.expiry != kNeverExpires;
    Expect(pair.stamp != 0 && pair.stamp <= header_.last_stamp, where,
           fmt::format("stamp {} of key {} was not given here: the last one is {}", pair.stamp, ForMessage(key),
                       header_.last_stamp));
    if (pair.is_inline) {
      ++report_.inline_pairs;
      Expect(pair.Matches(Crc64(pair.value, Crc64(key))), where,
             fmt::format("inline pair of key {} has a wrong check", ForMessage(key)));
      return;
    }
    const auto [pointer, crc] = pair.outside;
    const uint64_t begin = header_.extents_offset;
    const uint64_t end = begin + header_.extents_bytes;
    if (pointer.region() != header_.region || pointer.offset() < begin || pointer.offset() > end ||
        pair.pair_bytes() > end - pointer.offset()) {
      Expect(false, where, fmt::format("extent of key {} is out of bounds", ForMessage(key)));
      return;
    }
    const ConstBytes extent(memory_.at(pointer.offset()), pair.pair_bytes());
    Expect(AsText(extent.subspan(0, key.size())) == key, where,
           fmt::format("extent of key {} holds another key", ForMessage(key)));
    Expect(Crc64(extent) == crc, where, fmt::format("extent of key {} has a wrong CRC", ForMessage(key)));
    Expect(pointed_.emplace(pointer.offset(), pair.pair_bytes()).second, where,
           fmt::format("extent of key {} is shared with another key", ForMessage(key)));
  }

  void CheckExtents() {
    RegionMemory memory = memory_;
    const absl::Status status = ExtentAllocator(&memory).Walk([this](uint64_t offset, uint64_t room) {
      ++report_.extents;
      const std::string where = fmt::format("extent at {:#x}", offset);
      const auto it = pointed_.find(offset);
      if (it == pointed_.end()) {
        Expect(reserved_.contains(offset), where, "it is in use, but no leaf points to it");
        return;
      }
      Expect(it->second <= room, where, "it is shorter than its leaf says");
      pointed_.erase(it);
    });
    Expect(status.ok(), "extents", std::string(status.message()));
    for (const auto& [offset, bytes] : pointed_) {
      Expect(false, fmt::format("extent at {:#x}", offset), "a leaf points to it, but it is not in use");
    }
    report_.nodes_used = header_.nodes_used;
  }

  const RegionMemory& memory_;
  const RegionHeader& header_;
  const absl::flat_hash_set<uint64_t>& reserved_;
  Pointer root_;
  absl::flat_hash_map<uint64_t, uint32_t> pointed_;  // Extent offset to bytes, from the leaves.
  TreeReport report_;
};

}  // namespace

TreeReport CheckTree(const RegionMemory& memory, const absl::flat_hash_set<uint64_t>& reserved) {
  return TreeCheck(memory, reserved).Run();
}

}  // namespace cell

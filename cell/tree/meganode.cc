#include "cell/tree/meganode.h"

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {

absl::Status CheckInlineMax(size_t inline_max, uint32_t node_bytes) {
  if (inline_max <= InlineBytesMax(node_bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "--inline-max {} is too large: nodes of {} bytes hold pairs of up to {} bytes, key and value together",
      inline_max, node_bytes, InlineBytesMax(node_bytes)));
}

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
  header.stamp_bound = kLastStampMax;
  ExtentAllocator(memory).Format();
  NodeDraft root(shape.node_bytes);
  root.Begin(RootOf(region), 0, range.low, range.high, range.right, range.tier);
  root.Publish(memory, header.nodes_offset);
  return absl::OkStatus();
}

Meganode::Meganode(RegionMemory* memory, const PairSettings& settings)
    : PairStore(memory, settings.cluster_time),
      root_(RootOf(memory->header().region)),
      node_bytes_(memory->header().node_bytes),
      nodes_bytes_(uint64_t{memory->header().node_count} * node_bytes_),
      draft_(memory->header().node_bytes),
      right_draft_(memory->header().node_bytes),
      inline_max_(std::min(settings.inline_max, InlineBytesMax(memory->header().node_bytes))) {
  CELL_CHECK(memory->header().magic == kRegionMagic && memory->header().layout_version == kLayoutVersion);
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
  const NodeView root = Root();
  return {root.tier(), std::string(root.low_key()),
          root.has_high() ? std::optional<std::string>(root.high_key()) : std::nullopt, root.right()};
}

// How many nodes each prepared write may need for splits.
constexpr uint64_t kNodesPerKept = 3;

// Returns whether there are enough free nodes for a write and for `ahead` earlier ones. Each may split every level, and
// the root into two more nodes. Earlier writes may raise the root as well.
bool Meganode::NodesLeftForSplit(size_t ahead) const {
  const uint64_t left = header().node_count - header().nodes_used;
  const uint64_t levels = static_cast<uint64_t>(Node(root_).level());
  const uint64_t one = levels + 3;  // One node on each level, and two if the root is raised.
  // Writes that are kept may come after others that have raised the root, so what they need does not depend on its
  // level: together they split at most one leaf each, their parents less often than that, and the root seldom.
  const uint64_t kept = kNodesPerKept * writes_kept_;
  // Some nodes always stay free: when the tree is recovered from its log, its content must fit into another tree that
  // is built leaf by leaf (AllocateLeaf).
  return left >= (ahead + 1) * one + levels + 6 + kept;
}

bool Meganode::NodesLeftForKept(uint64_t writes) const {
  const uint64_t one = static_cast<uint64_t>(Node(root_).level()) + 3;  // Of one, as in NodesLeftForSplit.
  return header().node_count - header().nodes_used >= kNodesPerKept * writes + one;
}

bool Meganode::IsLocked(const NodeView& node) const {
  if (locks_ == nullptr || locks_->hides_nothing() || !node.holds_pairs()) return false;
  return node.has_high() ? locks_->HidesAny(node.low_key(), node.high_key()) : locks_->HidesAny(node.low_key());
}

void Meganode::ShowHeld(std::string_view key, bool) {
  const absl::StatusOr<Descent> descent = Descend(key, 0);
  if (!descent.ok() || tier() != 0) return;
  const NodeView leaf = Node(descent->node);
  if (leaf.locked() == IsLocked(leaf)) return;
  draft_.CopyOf(leaf);
  Publish(&draft_);
}

Pointer Meganode::AllocateNode() {
  RegionHeader& h = memory_->header();
  CELL_CHECK_LT(h.nodes_used, h.node_count);
  // Free nodes rest while there are few of them, and the one that was freed first is used first: a reader may still be
  // on its way to a node that was freed lately, and would have to start over.
  constexpr uint64_t kRestingNodes = 64;
  const uint64_t free = h.nodes_end - h.nodes_used++;
  if (h.free_node != 0 && (free > kRestingNodes || h.nodes_end == h.node_count)) {
    const Pointer node(h.region, h.free_node);
    h.free_node = Node(node).right().raw();
    if (h.free_node == 0) free_last_ = 0;
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
  // A free node stays invalid all the time: its content is from before its keys went to others.
  std::vector<bool> free_nodes(header().nodes_end);
  for (uint64_t free = header().free_node; free != 0; free = Node(Pointer(region(), free)).right().raw()) {
    const uint64_t i = (free - header().nodes_offset) / node_bytes_;
    if (i >= free_nodes.size() || free_nodes[i]) break;  // The list is damaged.
    free_nodes[i] = true;
  }
  for (uint64_t i = 0; i < header().nodes_end; ++i) {
    if (!free_nodes[i]) Reveal(Pointer(region(), header().nodes_offset + i * node_bytes_));
  }
  unmerged_ = true;  // Perhaps: the owner before may not have come to it.
}

absl::Status Meganode::CheckHeader(const RegionHeader& header, uint32_t region, const RegionShape& shape) {
  if (header.magic == kRegionMagic && header.layout_version != kLayoutVersion) {
    return OtherLayout(region, header.layout_version);
  }
  const bool good = header.magic == kRegionMagic && header.layout_version == kLayoutVersion &&
                    header.region == region && header.node_bytes == shape.node_bytes &&
                    header.node_count == shape.meganode_bytes / shape.node_bytes &&
                    header.nodes_offset == kRegionHeaderBytes &&
                    header.extents_offset == kRegionHeaderBytes + RegionShape::RoundUp(shape.meganode_bytes, 4096) &&
                    header.extents_bytes == shape.extents_bytes && header.nodes_used >= 1 &&
                    header.nodes_used <= header.nodes_end && header.nodes_end <= header.node_count &&
                    header.last_stamp <= kLastStampMax && header.stamp_bound <= kLastStampMax;
  if (good) return absl::OkStatus();
  return absl::DataLossError(fmt::format("the received data is not region {} with this cluster's sizes", region));
}

void Meganode::FreeNode(Pointer node) {
  RegionHeader& h = memory_->header();
  memory_->StoreWord(node.offset() + offsetof(NodeHeader, right), 0);
  if (memory_->zero_freed()) {  // A reader that is still there finds a wrong CRC, or that the node is invalid.
    memory_->Zero(node.offset() + sizeof(NodeHeader), node_bytes_ - sizeof(NodeHeader) - kTailVersionBytes);
  }
  if (h.free_node == 0) {
    h.free_node = node.offset();
  } else {
    if (free_last_ == 0) {  // This meganode was opened with free nodes.
      free_last_ = h.free_node;
      for (uint64_t i = 1; i < h.node_count; ++i) {
        const uint64_t next = Node(Pointer(h.region, free_last_)).right().raw();
        if (next == 0) break;
        free_last_ = next;
      }
    }
    memory_->StoreWord(free_last_ + offsetof(NodeHeader, right), node.offset());
  }
  free_last_ = node.offset();
  --h.nodes_used;
}

absl::Status Meganode::NoNodes() const {
  return absl::ResourceExhaustedError(
      fmt::format("region {} has used {} of {} nodes: the meganode is full and was not split: make room for a split "
                  "(--regions-max, more servers), delete keys, or use a larger --meganode-bytes",
                  header().region, header().nodes_used, header().node_count));
}

absl::Status Meganode::NoExtent(size_t bytes) const {
  if (extents_.damaged()) return DamagedExtents();
  const ExtentAllocator::Usage usage = extents_.usage();
  const bool scattered = usage.bytes_used + bytes <= header().extents_bytes;
  return absl::ResourceExhaustedError(fmt::format(
      "region {} has no room for an extent of {} bytes ({} of {} used{}) and was not split: make room for a split "
      "(--regions-max, more servers), delete keys, or use a larger --extents-bytes",
      header().region, bytes, usage.bytes_used, header().extents_bytes,
      scattered ? fmt::format(", and the largest free piece has {}", usage.largest_free_bytes) : ""));
}

absl::StatusOr<uint64_t> Meganode::StoreExtent(std::string_view key, std::string_view value) {
  const std::optional<uint64_t> offset = extents_.Store(key, value);
  if (!offset.has_value()) return NoExtent(key.size() + value.size());
  return *offset;
}

absl::Status Meganode::CheckPut(std::string_view key, std::string_view value, uint64_t crc, Expiry expiry) const {
  RETURN_IF_ERROR(CheckKey(key));
  if (key.size() + ExpiryBytes(expiry) > key_bytes_max()) {
    return absl::InvalidArgumentError(
        fmt::format("key {} is longer than {} bytes, the maximum for a pair with an expiry", ForMessage(key),
                    key_bytes_max() - sizeof(Expiry)));
  }
  if (expiry > kExpiryMax) return absl::InvalidArgumentError("the expiry is beyond the clock's range");
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

absl::StatusOr<bool> Meganode::Put(std::string_view key, std::string_view value, uint64_t crc, Pointer hint,
                                   Expiry expiry) {
  RETURN_IF_ERROR(CheckPut(key, value, crc, expiry));
  RETURN_IF_ERROR(CheckStamps());
  return PutChecked(key, value, crc, hint, std::nullopt, expiry);
}

absl::StatusOr<bool> Meganode::PutChecked(std::string_view key, std::string_view value, uint64_t crc, Pointer hint,
                                          std::optional<uint64_t> stamp, Expiry expiry) {
  Descent descent;
  if (HintIsRight(hint, key)) {
    descent.node = hint;
  } else {
    ASSIGN_OR_RETURN(descent, Descend(key, 0));
  }
  LeafPair pair = LeafPair::Inline(value, crc, 0);
  if (!IsInline(key, value, expiry)) {
    ASSIGN_OR_RETURN(const uint64_t offset, StoreExtent(key, value));
    pair = LeafPair::Outside({Pointer(region(), offset), crc}, value.size(), 0);
  }
  pair.stamp = stamp.has_value() ? *stamp : NextStamp();
  pair.expiry = expiry;
  const absl::StatusOr<bool> existed = PutPair(std::move(descent), key, pair);
  if (!existed.ok()) {
    if (!pair.is_inline) extents_.Free(pair.outside.extent.offset());
    return existed.status();
  }
  WroteAndChanged({RecordKind::kPut, key, value, expiry, pair.stamp});
  return *existed;
}

absl::StatusOr<Meganode::Prepared> Meganode::Prepare(std::string_view key, std::string_view value, uint64_t crc,
                                                     const Ahead& ahead, Expiry expiry) {
  RETURN_IF_ERROR(CheckPut(key, value, crc, expiry));
  RETURN_IF_ERROR(CheckStamps());
  if (!Covers(key)) return NotHere(Walk::Step::kElsewhere, key);
  const bool is_inline = IsInline(key, value, expiry);
  if (!(ahead.again ? NodesLeftForKept(writes_kept_ + 1) : NodesLeftForSplit(ahead.writes))) {
    // A pair that is stored, and stays, is replaced without more nodes unless its entry grows. The writes ahead of this
    // one change other entries, and may move this one to another leaf, but leave its size as it is.
    if (ahead.of_key) return NoNodes();
    ASSIGN_OR_RETURN(const Location location, Find(key));
    const size_t payload_bytes = ExpiryBytes(expiry) + (is_inline ? value.size() : sizeof(PairExtent));
    if (!location.pair.has_value() || payload_bytes > location.pair->payload_bytes()) return NoNodes();
  }
  Prepared prepared;
  prepared.bytes = static_cast<uint32_t>(key.size() + value.size());
  prepared.crc = crc;
  prepared.expiry = expiry;
  if (is_inline) {
    prepared.record = value;
  } else {
    ASSIGN_OR_RETURN(prepared.extent, StoreExtent(key, value));
  }
  prepared.stamp = NextStamp();
  return prepared;
}

bool Meganode::Commit(const Prepared& prepared, std::string_view key, Pointer hint) {
  if (Expired(prepared.expiry)) {
    // A reader whose operation began before the expiry would find the pair, which was never there before it.
    Discard(prepared);
    const absl::StatusOr<bool> existed = CommitDelete(key, hint);
    CELL_CHECK(existed.ok());
    return *existed;
  }
  Descent descent;
  if (HintIsRight(hint, key)) {
    descent.node = hint;
  } else {
    absl::StatusOr<Descent> found = Descend(key, 0);
    CELL_CHECK(found.ok());
    descent = *std::move(found);
  }
  LeafPair pair = prepared.extent == 0 ? LeafPair::Inline(prepared.record, prepared.crc, prepared.stamp)
                                       : LeafPair::Outside({Pointer(region(), prepared.extent), prepared.crc},
                                                           prepared.bytes - key.size(), prepared.stamp);
  pair.expiry = prepared.expiry;
  commits_ = true;
  const absl::StatusOr<bool> existed = PutPair(std::move(descent), key, pair);
  commits_ = false;
  CELL_CHECK(existed.ok());
  Changed(key);
  return *existed;
}

absl::StatusOr<bool> Meganode::Delete(std::string_view key, Pointer hint) {
  absl::StatusOr<bool> existed = CommitDelete(key, hint);
  if (existed.ok() && !deleted_.empty()) Wrote({RecordKind::kDelete, key, {}});
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
  DeleteFromLeaf<std::string_view>(descent.node, {&key, 1});
  const bool found = !deleted_.empty();
  if (!descent.unfinished.empty()) InsertSeparators(std::move(descent.unfinished));
  if (found) Changed(key);
  if (found && IsSmall(Node(descent.node))) MergeSmall(key);
  return deleted_alive_ > 0;
}

absl::StatusOr<uint64_t> Meganode::DeleteAll(absl::Span<const std::string> keys) { return DeleteEach(keys, true); }

absl::StatusOr<uint64_t> Meganode::CommitDeleteAll(absl::Span<const std::string> keys) {
  return DeleteEach(keys, false);
}

absl::StatusOr<uint64_t> Meganode::DeleteEach(absl::Span<const std::string> keys, bool logs) {
  uint64_t deleted = 0;
  for (bool first = true; !keys.empty(); first = false) {
    const std::string& key = keys.front();
    RETURN_IF_ERROR(CheckKey(key));
    if (tier() != 0) return NotHere(Walk::Step::kElsewhere, key);
    ASSIGN_OR_RETURN(Descent descent, Descend(key, 0));
    const NodeView leaf = Node(descent.node);
    size_t here = 1;
    while (here < keys.size() && leaf.Covers(keys[here])) ++here;
    DeleteFromLeaf(descent.node, keys.subspan(0, here));
    deleted += deleted_alive_;
    // Writes that were prepared rely on free nodes. Like a single delete, all of these finish what one descent passed.
    if (first && !descent.unfinished.empty()) InsertSeparators(std::move(descent.unfinished));
    for (const size_t i : deleted_) {
      if (logs) Wrote({RecordKind::kDelete, keys[i], {}});
      Changed(keys[i]);
    }
    if (!deleted_.empty() && IsSmall(Node(descent.node))) MergeSmall(key);
    keys.remove_prefix(here);
  }
  return deleted;
}

template <typename Key>
void Meganode::DeleteFromLeaf(Pointer pointer, absl::Span<const Key> keys) {
  const NodeView leaf = Node(pointer);
  deleted_.clear();
  deleted_slots_.clear();
  deleted_extents_.clear();
  deleted_alive_ = 0;
  uint64_t bytes = 0;
  uint64_t expiring = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::optional<int> found = leaf.Find(keys[i]);
    // In a leaf whose order was damaged in memory, a slot may be found twice.
    if (!found.has_value() || (!deleted_slots_.empty() && *found <= deleted_slots_.back())) continue;
    const LeafPair old = leaf.pair(*found);
    if (before_change_) [[unlikely]]
      BeforeChangeOf(keys[i], leaf, old);
    deleted_.push_back(i);
    deleted_slots_.push_back(*found);
    if (!old.is_inline) deleted_extents_.emplace_back(old.outside.extent.offset(), old.pair_bytes());
    bytes += old.pair_bytes();
    expiring += old.expiry != kNeverExpires;
    deleted_alive_ += !Expired(old.expiry);
  }
  if (deleted_.empty()) return;
  deletes_ += deleted_.size();
  draft_.CopyOf(leaf);
  for (auto slot = deleted_slots_.rbegin(); slot != deleted_slots_.rend(); ++slot) draft_.Remove(*slot);
  Publish(&draft_);
  if (deleted_extents_.size() > 1) {
    for (const auto& [offset, extent_bytes] : deleted_extents_) extents_.PrefetchFree(offset, extent_bytes);
    for (const auto& [offset, extent_bytes] : deleted_extents_) extents_.PrefetchNeighbours(offset);
  }
  for (const auto& [offset, extent_bytes] : deleted_extents_) extents_.Free(offset);
  RegionHeader& h = memory_->header();
  h.keys -= deleted_.size();
  h.data_bytes -= bytes;
  h.expiring -= expiring;
}

}  // namespace cell

// Meganode gives a region's writing thread access to the B-link tree in that region.
//
// It implements Sagiv's algorithm as the thesis uses it (4.2). A split writes the right sibling first, then the left
// node, and inserts the separator into the parent as a later step. Until then readers reach the sibling by the right
// link, and the next writer that passes finishes the split. Nodes that deletes leave small are merged with a neighbour.
// Every step publishes one node. See README.md.
//
// A meganode of tier 0 holds pairs. A meganode of a higher tier holds routes: the roots of meganodes one tier below, by
// their low keys. Its range is [low key, high key). Operations on keys outside fail with OutOfRange; RouteOf then says
// where to continue.
//
// Thread-safety: one thread calls it. Others may read the region's nodes and extents at any time.
//
// Invariants
//   1. TreeCheck accepts a region's nodes and extents at every moment; half splits are allowed.
//   2. An operation that fails has changed nothing.
//   3. An extent is complete before a leaf points at it, and freed only after no leaf does.
//   4. Each put gives its pair a stamp above all stamps that the region has given before, also under other owners. A
//      copy of a pair keeps it, and its expiry.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cell/layout/region.h"
#include "cell/region/key_locks.h"
#include "cell/region/pair_store.h"
#include "cell/region/region_memory.h"
#include "cell/tree/node_draft.h"
#include "cell/tree/walk.h"

namespace cell {

// How a meganode stores the pairs that are put from now on. Each of its owners has a setting of its own.
struct PairSettings {
  // See Meganode::set_inline_max. InlineBytesMax of the nodes is used if that is less.
  size_t inline_max = kInlineMaxDefault;
  // See PairStore::set_cluster_time. Thread-safe, because a region may be rebuilt in another thread.
  std::function<int64_t()> cluster_time = nullptr;
};

// Returns InvalidArgument if pairs of this size cannot be inline in nodes of this size.
absl::Status CheckInlineMax(size_t inline_max, uint32_t node_bytes);

// An invalidated node without content: its first word is its head version.
alignas(64) inline constexpr std::array<uint64_t, kNodeBytesMax / kWordBytes> kNoNode = {kVersionGone};

class Meganode : public PairStore {
 public:
  using Range = MeganodeRange;

  // Makes an empty meganode in `memory`, which is at least shape.region_bytes() long and holds zeros or a former
  // region.
  static absl::Status Format(RegionMemory* memory, uint32_t region, const RegionShape& shape, const Range& range);
  static absl::Status Format(RegionMemory* memory, uint32_t region, const RegionShape& shape) {
    return Format(memory, region, shape, Range());
  }

  // Opens a formatted region. `memory` must outlive this.
  explicit Meganode(RegionMemory* memory, const PairSettings& settings = {});

  Pointer root() const { return root_; }
  Range range() const;
  uint8_t tier() const { return Root().tier(); }
  bool Covers(std::string_view key) const { return Root().Covers(key); }
  size_t key_bytes_max() const { return KeyBytesMax(header().node_bytes); }
  double unit_fill() const override {
    return static_cast<double>(header().nodes_used) / static_cast<double>(header().node_count);
  }

  // Stores pairs of at most this size, key and value together, inline from now on, and others outside. 0: all go
  // outside, as in the thesis. Pairs that are stored already stay as they are. REQUIRES: `bytes` is at most
  // InlineBytesMax(node_bytes).
  void set_inline_max(size_t bytes) {
    CELL_CHECK(bytes <= InlineBytesMax(header().node_bytes));
    inline_max_ = bytes;
  }
  size_t inline_max() const { return inline_max_; }
  // Returns how many nodes were merged into a neighbour since this was constructed.
  uint64_t merges() const { return merges_; }
  // Returns whether there may be small leaves beside each other, which no delete will come to any more: deletes left
  // them while no nodes were merged, a split or a join has copied them, or the region has come from another owner.
  bool unmerged() const { return unmerged_; }
  // Says so: a run of MergeFrom does not go on.
  void set_unmerged() { unmerged_ = true; }
  // Merges small leaves as deletes do, among the next `leaves` from `key` on. Returns where to go on: the low key of a
  // leaf, or nullopt at the end, or if no nodes are merged for now (BordersKept). A run from the low key to the end
  // ends `unmerged`, if nothing has set it meanwhile.
  std::optional<std::string> MergeFrom(std::string_view key, int leaves);
  // Returns how many entries were deleted since this was constructed, or last split.
  uint64_t deleted() const { return deletes_; }

  // Sets a function that is called with the key before its pair changes or is deleted, and with the pair if there is
  // one, whether or not it has expired; with DataLoss if the leaf was damaged in memory. The pair's value is valid
  // until the call ends. The change may still fail. Not for pairs that come with a whole leaf (AppendLeaf), or go with
  // all others (MeganodeClear). Null: none.
  using PairAbout = absl::StatusOr<std::optional<LeafPair>>;
  using BeforeChange = std::function<void(std::string_view key, const PairAbout& pair)>;
  void set_before_change(BeforeChange before_change) { before_change_ = std::move(before_change); }

  // Sets the locks of transactions, which must outlive this. Leaves whose range has a key that one of them may write
  // are published as locked (kNodeLocked) from now on. After each change of `locks`, call ShowHeld with the keys.
  void set_locks(const KeyLocks* locks) { locks_ = locks; }
  // Publishes the leaf of the key as the locks say, unless it is so already.
  void ShowHeld(std::string_view key, bool held) override;
  // Sets how many writes there must be free nodes for; others leave these nodes free.
  void set_writes_kept(size_t writes) override { writes_kept_ = writes; }

  // Names a key's leaf, and the pair there if the key is stored and its pair has not expired. The pair's value is valid
  // until the next change.
  struct Location {
    Pointer leaf;
    std::optional<LeafPair> pair;
  };
  absl::StatusOr<Location> Find(std::string_view key) const;

  // What a search prefetches of the pair that it finds.
  enum class Prefetches : uint8_t {
    kNothing,
    kPair,  // The pair, which is read next.
    kFree,  // What is read when the pair's extent is freed, because the pair is replaced or deleted next.
  };

  // Executes many searches at once, in any of the thread's meganodes. Interleaves them with prefetches, so that their
  // cache misses overlap (see README.md). The results equal those of single calls of Find.
  struct Lookup {
    const Meganode* tree;
    std::string_view key;
    absl::Status status;
    Location location;
    Prefetches prefetches = Prefetches::kNothing;
  };
  static constexpr size_t kBatchMax = 16;
  static void FindBatch(absl::Span<Lookup> lookups);

  // Says where the search for a key continues.
  struct Route {
    enum class Kind : uint8_t {
      kHere,     // This meganode covers the key.
      kChild,    // In the child `next`, which covers [low, high).
      kRight,    // In the neighbour `next` or beyond it: the key is past this meganode's end.
      kRestart,  // The key is below this meganode.
    };
    Kind kind = Kind::kHere;
    Pointer next;
    std::string low;
    std::optional<std::string> high;
  };
  Route RouteOf(std::string_view key) const;

  // Returns the leaf that covers `key`, for scans. Above tier 0 it is the node whose slots are routes. Valid until the
  // next change.
  absl::StatusOr<NodeView> LeafOf(std::string_view key) const;
  // Returns the value of a pair in a leaf of this meganode, wherever it is. Valid until the next change.
  std::string_view ValueOf(const LeafPair& pair) const {
    if (pair.is_inline) return pair.value;
    return AsText({Extent(pair.outside.extent) + pair.key_bytes, pair.value_bytes});
  }
  // Returns the value of `key`'s pair like ValueOf, if key and value are those that were stored. Returns DataLoss with
  // region and key if they were damaged in memory. A copy of a pair has a new check, so what copies one calls this.
  absl::StatusOr<std::string_view> VerifiedValueOf(std::string_view key, const LeafPair& pair) const;
  // Return the leaf of a key like LeafOf, or the node at `node` like Node. Return DataLoss if it was damaged in memory.
  // For what takes a whole leaf.
  absl::StatusOr<NodeView> VerifiedLeafOf(std::string_view key) const;
  absl::StatusOr<NodeView> VerifiedNode(Pointer node) const;
  // Returns the node there. Returns one that was invalidated if no node can be there, because memory was damaged: a
  // walk goes back then, and gives up in the end. Does not read the node.
  NodeView Node(Pointer pointer) const {
    const uint64_t offset = pointer.offset() - kRegionHeaderBytes;
    if (offset >= nodes_bytes_ || (offset & (node_bytes_ - 1)) != 0) [[unlikely]]
      return NodeView::Trusted(no_node(), node_bytes_);
    return NodeView::Trusted(memory_->at(pointer.offset()), node_bytes_);
  }
  // `hint` of Put, Commit and Delete is the leaf that the client found, or null. It is used only if it is right.
  //
  // Put and Prepare return InvalidArgument if a key is too long for a pair with an expiry: its expiry counts as 8 bytes
  // of it.
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, uint64_t crc, Pointer hint = {},
                           Expiry expiry = kNeverExpires) override;
  absl::StatusOr<Prepared> Prepare(std::string_view key, std::string_view value, uint64_t crc, const Ahead& ahead,
                                   Expiry expiry = kNeverExpires) override;
  bool Commit(const Prepared& prepared, std::string_view key, Pointer hint = {}) override;
  void Discard(const Prepared& prepared) override {
    if (prepared.extent != 0) extents_.Free(prepared.extent);
  }

  // Appends a copy of `leaf` of `from`, and of its extents, to a meganode that is being filled leaf by leaf, in order
  // from its own low key on. The pairs keep their stamps, and the extents their CRCs, which readers check. *next is
  // null for the first leaf; the call sets it to the location of the next one. Returns ResourceExhausted if there is no
  // room, and DataLoss if a pair was damaged in memory, so that it is not logged as if it were right.
  absl::Status AppendLeaf(const Meganode& from, const NodeView& leaf, Pointer* next);

  // Inserts a route: keys from `key` on, up to the next route's key, are in `child`. REQUIRES: this is above tier 0.
  // Returns true if there is a route of this key already, which stays as it is. The key of the first route may be
  // empty. Returns InvalidArgument if the key is too long, or if `child` is not the root of another region, and
  // ResourceExhausted if there is no room.
  absl::StatusOr<bool> InsertRoute(std::string_view key, Pointer child);

  // Removes a route: its keys belong to the child of the route before it from then on. Returns false if there is none.
  // REQUIRES: this is above tier 0. Returns FailedPrecondition if it is the first of its node, because a search for its
  // keys would not find the one before. Deletes of the others let the node be merged, and then it is not the first.
  absl::StatusOr<bool> RemoveRoute(std::string_view key);

  absl::StatusOr<bool> Delete(std::string_view key, Pointer hint = {}) override;
  absl::StatusOr<bool> CommitDelete(std::string_view key, Pointer hint = {}) override;

  // All keys that are in one leaf are deleted by one publication of it: a reader finds all of them, or none.
  absl::StatusOr<uint64_t> DeleteAll(absl::Span<const std::string> keys) override;
  absl::StatusOr<uint64_t> CommitDeleteAll(absl::Span<const std::string> keys) override;

  Place FirstPlace() const override { return {range().low}; }
  absl::StatusOr<Expiries> ExpiriesAt(const Place& place) const override;

  absl::Status CheckKey(std::string_view key) const override;

  // Publishes a leaf once for all of its extents that one call moves.
  absl::Status MoveExtents(ExtentMoves* moves) override;

  // While it exists, no nodes are merged, and so borders of leaves stay: from the choice of the key at which a region
  // is split until the split has ended. `tree` may be null, and must outlive this.
  class BordersKept {
   public:
    explicit BordersKept(Meganode* tree) : tree_(tree) {
      if (tree_ != nullptr) ++tree_->borders_kept_;
    }
    BordersKept(const BordersKept&) = delete;
    BordersKept& operator=(const BordersKept&) = delete;
    ~BordersKept() {
      if (tree_ != nullptr) --tree_->borders_kept_;
    }

   private:
    Meganode* const tree_;
  };

  // Invalidates all nodes.
  void Invalidate() override;
  void Restore() override;
  // Checks that `header` belongs to a region of this shape and is consistent, before a copy is trusted.
  static absl::Status CheckHeader(const RegionHeader& header, uint32_t region, const RegionShape& shape);

  // Names the steps of a split. The observer runs right after each.
  enum class SplitStep { kRightWritten, kLeftWritten, kSeparatorWritten };
  // Sets an observer for tests. If it returns false, the split is abandoned at that step, as if the writer had died.
  void set_split_observer(std::function<bool(SplitStep)> observer) { split_observer_ = std::move(observer); }

 private:
  friend class InvalidNodes;
  friend class MeganodeClear;
  friend class MeganodeJoin;
  friend class MeganodeSplit;
  friend class MeganodeBuilder;

  // Describes a split that the parent does not know yet.
  struct Separator {
    uint8_t level;  // Level of the node that must hold it.
    std::string key;
    Pointer child;
  };

  struct Descent {
    Pointer node;
    std::vector<Separator> unfinished;
  };

  const std::byte* no_node() const { return reinterpret_cast<const std::byte*>(kNoNode.data()); }
  // Returns the root, or an invalidated node if its header was damaged in memory.
  NodeView Root() const {
    const NodeView root = Node(root_);
    return root.InBounds() ? root : NodeView::Trusted(no_node(), node_bytes_);
  }
  absl::Status NotHere(Walk::Step step, std::string_view key) const;
  absl::StatusOr<Descent> Descend(std::string_view key, uint8_t level) const;
  bool HintIsRight(Pointer hint, std::string_view key) const;
  bool IsInline(std::string_view key, std::string_view value, Expiry expiry) const {
    return key.size() + value.size() + ExpiryBytes(expiry) <= inline_max_;
  }
  absl::StatusOr<uint64_t> StoreExtent(std::string_view key, std::string_view value);
  absl::Status NoNodes() const;
  absl::Status NoExtent(size_t bytes) const;
  // Slot is a LeafPair or an InnerSlot. StoreAtBottom stores it in a node of level 0, in place of slot `found` or as a
  // new one. Returns false if the observer abandoned a split before anyone could see the change.
  template <typename Slot>
  absl::StatusOr<bool> StoreAtBottom(Pointer node, std::optional<int> found, std::string_view key, const Slot& slot);
  void InsertSeparators(std::vector<Separator> pending);
  struct SplitResult {
    bool visible;                        // The change can be seen: the observer did not abandon the split before.
    std::optional<Separator> separator;  // What the parent must learn. Not set if the root was raised.
  };
  // Distributes the content of `node` over two nodes, with (key, slot) before slot `at`, or in its place if `replaces`.
  template <typename Slot>
  SplitResult Split(const NodeView& node, int at, bool replaces, std::string_view key, const Slot& slot);
  void BeforeChangeOf(std::string_view key, const NodeView& leaf, const std::optional<LeafPair>& pair) const {
    const absl::Status sound = VerifiedNode(leaf.self()).status();
    before_change_(key, sound.ok() ? PairAbout(pair) : PairAbout(sound));
  }
  bool Observe(SplitStep step) { return !split_observer_ || split_observer_(step); }

  absl::Status CheckPut(std::string_view key, std::string_view value, uint64_t crc, Expiry expiry) const;
  // Stores a pair that was checked, with the next stamp or with that of the pair that it is a copy of.
  absl::StatusOr<bool> PutChecked(std::string_view key, std::string_view value, uint64_t crc, Pointer hint,
                                  std::optional<uint64_t> stamp, Expiry expiry);
  // Puts the pair into the leaf. Returns true if the key was there.
  absl::StatusOr<bool> PutPair(Descent descent, std::string_view key, LeafPair pair);
  // Gives the location and neighbours of a leaf that is being appended. AllocateLeaf chooses it and LinkLeaf links the
  // written leaf. For *next see AppendLeaf.
  struct NewLeaf {
    bool first;
    Pointer self;
    Pointer right;
  };
  absl::StatusOr<NewLeaf> AllocateLeaf(bool last, Pointer* next);
  // Copies the extents of a leaf of `from`, in order, and verifies its pairs. Appends the new offsets to *offsets,
  // which after an error are those that the caller frees.
  absl::Status CopyExtents(const Meganode& from, const NodeView& leaf, std::vector<uint64_t>* offsets);
  void LinkLeaf(const NewLeaf& leaf, std::string_view low);

  // Deletes the pairs of `keys` from a leaf by one publication, and frees their extents. Sets deleted_ to the positions
  // of those that it had, in `keys`, which are in order, and deleted_alive_ to how many of them had not expired.
  template <typename Key>
  void DeleteFromLeaf(Pointer leaf, absl::Span<const Key> keys);
  absl::StatusOr<uint64_t> DeleteEach(absl::Span<const std::string> keys, bool logs);

  // Returns whether the entries of a node take less than a quarter of their room.
  static bool IsSmall(const NodeView& node);
  // Merges the leaf of `key` with a neighbour if it is small, and then its ancestors. See README.md.
  void MergeSmall(std::string_view key);
  // Merges the children of `slot` and of the next one into the first, if they fit well into one node. Returns whether
  // it did.
  bool MergeChildren(const NodeView& parent, int slot);
  // Takes the content of the root's only child into the root. Returns false if the root has others.
  bool LowerRoot();

  Pointer AllocateNode();
  // Invalidates a node: readers that come to it go back. Its bytes stay until FreeNode.
  void MarkGone(Pointer node);
  // Appends an invalidated node to the list of free ones.
  void FreeNode(Pointer node);
  // Returns whether the free nodes are enough for `writes` writes of set_writes_kept.
  bool NodesLeftForKept(uint64_t writes) const;
  bool NodesLeftForSplit(size_t ahead = 0) const;
  bool IsLocked(const NodeView& node) const;
  void Publish(NodeDraft* draft) {
    draft->set_locked(IsLocked(draft->view()));
    draft->Publish(memory_, draft->view().self().offset());
  }
  void PublishHidden(NodeDraft* draft) {
    draft->set_locked(IsLocked(draft->view()));
    draft->PublishHidden(memory_, draft->view().self().offset());
  }
  void Reveal(Pointer node) { NodeDraft::Reveal(memory_, node.offset(), node_bytes_); }

  Pointer root_;
  const uint32_t node_bytes_;  // Copies of what is constant in the header, which may be damaged.
  const uint64_t nodes_bytes_;
  uint64_t merges_ = 0;
  uint64_t deletes_ = 0;
  bool unmerged_ = false;
  int borders_kept_ = 0;  // Number of BordersKept.
  const KeyLocks* locks_ = nullptr;
  BeforeChange before_change_;
  size_t writes_kept_ = 0;
  bool commits_ = false;    // A write is applied that was prepared, and has nodes in reserve.
  uint64_t free_last_ = 0;  // Offset of the last free node. 0: not known, or there is none.
  NodeDraft draft_;
  NodeDraft right_draft_;
  // Set by DeleteFromLeaf.
  std::vector<size_t> deleted_;
  uint64_t deleted_alive_ = 0;
  std::vector<int> deleted_slots_;
  std::vector<std::pair<uint64_t, uint32_t>> deleted_extents_;  // Offsets and sizes.
  size_t inline_max_;
  std::function<bool(SplitStep)> split_observer_;
};

}  // namespace cell

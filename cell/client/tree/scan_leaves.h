// ScanLeaves scans by one-sided reads, leaf by leaf. Internal to cell/client. Not thread-safe.
//
// Inline pairs are taken from the images of their leaves. A round of reads brings the extents of the other pairs of the
// leaves that are there, and the next leaves: as many as the batch probably needs. The right link of the last leaf, or
// downwards the parent that the walk came through, names the first of them, and the parent the others (LeavesAhead).
// All of these are guesses, which the walk verifies as it verifies every node.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cell/client/route/key_router.h"
#include "cell/client/session/session.h"
#include "cell/client/tree/leaves_ahead.h"
#include "cell/client/tree/scan_batch.h"
#include "cell/tree/scan_position.h"

namespace cell {

class ScanLeaves final : private LeafNeighbours {
 public:
  // Says why a leg of the scan ended: the batch is full, the range has ended, or the meganode has.
  struct Leg {
    enum class End { kBatch, kRange, kMeganode };
    End end;
    Pointer next;  // For kMeganode, the root of the neighbour, or null if it must be searched for by key.
  };

  ScanLeaves(Session* session, bool keys_only)
      : session_(session),
        keys_only_(keys_only),
        walked_(session->tree()->pool()),
        ahead_(session->tree()->pool(), session->node_bytes()) {
    walked_.keeps_parent = true;
  }

  // Adds entries from *position on, until the batch has `wanted` entries (`left` is how many the whole scan still
  // wants), the range ends, or the meganode that the router is at ends. `from_here` says that earlier entries of the
  // batch came from this meganode. The leg also ends, with kBatch, when the router moved to another region, after a
  // number of leaves, and at the deadline; the batch may hold fewer entries then. Returns Aborted if a leaf kept
  // changing while it was read, and DataLoss if the entry at *position, or its leaf, was damaged in its server's
  // memory; a leg ends before such an entry. After an error the batch and *position are as they were after the last
  // complete leaf.
  //
  // Whether a pair has expired is decided as of the beginning of `context`'s operation, before its leaf was read. If
  // that stays open, Aborted is returned as for a leaf that kept changing, because the server can tell.
  Task<absl::StatusOr<Leg>> Fill(KeyRouter* router, ScanPosition* position, bool from_here, size_t wanted,
                                 uint64_t left, CallContext context, ScanBatch* batch);
  // Forgets the current leaf. Call it after the position was moved by others.
  void Forget() {
    leaf_ready_ = walk_goes_on_ = false;
    ahead_.Clear();
  }

 private:
  // The entries that one leaf has given to the batch, until their extents have been verified.
  struct Taken {
    std::string from;                // The position before.
    size_t entries, bytes, outside;  // The sizes of the batch, and of outside_, before.
  };
  // An entry of taken_ whose pair is in an extent.
  struct OutsidePair {
    PairExtent where;
    uint32_t bytes;
    size_t entry;  // In the batch.
  };
  // The arguments and the progress of a call of Fill.
  struct Filling {
    KeyRouter* router;
    ScanPosition* position;
    size_t wanted;
    uint64_t left;
    ScanBatch* batch;
    Leg leg{Leg::End::kBatch, {}};
    CallContext context;
    bool ended = false;  // leg.end is final.
    int leaves = 0;
  };

  static bool Full(const Filling& filling);
  // Takes what the scan wants of the current leaf, and of the leaves behind it whose images are there. Then plans which
  // leaves to read next.
  void TakeLeaves(Filling* filling, bool one_leaf);
  // Adds the leaf's entries that the scan wants to the batch, and to outside_ those that must be read. Returns the slot
  // where it stopped. Sets damaged_ if the pair there does not match its check.
  // Sets open_ to the expiry of that pair if it is not known whether it has expired.
  int TakeEntries(const ScanPosition& position, const Filling& filling);
  // Returns the leaf beside the current one, or null if the walk must start over from the meganode's root.
  Pointer Beside(const ScanPosition& position) const;
  // Returns how many leaves behind the next one the batch probably needs.
  size_t LeavesBehind(const Filling& filling) const;
  // Makes the next image the current leaf if it is the position's.
  void VisitAhead(const ScanPosition& position);
  // Reads the extents of outside_, and the leaves that are planned.
  Task<absl::Status> ReadPlanned(WorkerConnection* worker, ScanBatch* batch, int64_t deadline_ns, SearchReads* reads);
  // Returns which of taken_ is the first with an extent that is not as its leaf says; taken_.size() if none is.
  size_t FirstWrong(ScanBatch* batch) const;
  // Gives back what was taken from taken_[from] on.
  void GiveBack(Filling* filling, size_t from);
  absl::Span<const ReadPart> ReadsWith(const ReadPart& leaf, const NodeView& parent) override;

  Session* session_;
  const bool keys_only_;

  // The leaf at the position, valid if leaf_ready_.
  Walk walk_;
  bool walk_goes_on_ = false;
  bool leaf_ready_ = false;
  WalkedLeaf walked_;
  LeavesAhead ahead_;
  bool kept_ = false;          // The leaf, and those ahead of it, were read by an earlier call of Fill.
  bool one_leaf_ = false;      // A round has missed its deadline: read one leaf a round, so that the scan gets on.
  int entries_per_leaf_ = 16;  // As the last leaf had, or a guess.

  const Filling* filling_ = nullptr;  // During Fill.
  std::vector<Taken> taken_;
  std::vector<OutsidePair> outside_;  // None if only keys are wanted.
  std::optional<Expiry> open_;
  absl::Status damaged_;  // The pair or leaf behind what was taken was damaged in its server's memory.
  std::vector<ReadPart> parts_;
  std::string key_;
};

}  // namespace cell

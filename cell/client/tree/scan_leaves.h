// ScanLeaves scans by one-sided reads, leaf by leaf. Internal to cell/client. Not thread-safe.
//
// A leaf's extents and the next leaf are read together. An ascending scan finds the next leaf by the right link, a
// descending one as the left neighbour in the parent that the walk came through. Both are guesses, which the walk
// verifies as it verifies every node.
#pragma once

#include <vector>

#include "cell/client/route/key_router.h"
#include "cell/client/session/session.h"
#include "cell/client/tree/scan_batch.h"
#include "cell/tree/scan_position.h"

namespace cell {

class ScanLeaves {
 public:
  // Says why a leg of the scan ended: the batch is full, the range has ended, or the meganode has.
  struct Leg {
    enum class End { kBatch, kRange, kMeganode };
    End end;
    Pointer next;  // For kMeganode, the root of the neighbour, or null if it must be searched for by key.
  };

  ScanLeaves(Session* session, bool keys_only)
      : session_(session), keys_only_(keys_only), walked_(session->tree()->pool()), beside_(session->tree()->pool()) {}

  // Adds entries from *position on, until the batch has `wanted` entries (`left` is how many the whole scan still
  // wants), the range ends, or the meganode that the router is at ends. `from_here` says that earlier entries of the
  // batch came from this meganode. The leg also ends, with kBatch, when the router moved to another region, after a
  // number of leaves, and at the deadline; the batch may hold fewer entries then. Returns Aborted if a leaf kept
  // changing while it was read. After an error the batch and *position are as they were after the last complete leaf.
  Task<absl::StatusOr<Leg>> Fill(KeyRouter* router, ScanPosition* position, bool from_here, size_t wanted,
                                 uint64_t left, CallContext context, ScanBatch* batch);
  // Forgets the current leaf. Call it after the position was moved by others.
  void Forget() { leaf_ready_ = walk_goes_on_ = false; }

 private:
  // Adds the leaf's entries that the scan wants to the batch, and their slots to slots_. Returns the slot where it
  // stopped.
  absl::StatusOr<int> TakeEntries(const ScanPosition& position, size_t wanted, ScanBatch* batch);
  Pointer Beside(const ScanPosition& position) const;
  bool ExtentsAreRight(ScanBatch* batch, size_t first) const;
  // Makes the node in beside_, which was read as `leaf`, the current leaf, and returns the walk's verdict on it.
  Walk::Step Visit(Pointer leaf);

  Session* session_;
  const bool keys_only_;

  // The leaf at the position, valid if leaf_ready_.
  Walk walk_;
  bool walk_goes_on_ = false;
  bool leaf_ready_ = false;
  WalkedLeaf walked_;
  NodeBuffer beside_;

  std::vector<LeafSlot> slots_;
  std::vector<ReadPart> parts_;
  std::string key_;
};

}  // namespace cell

// ScanLeaves: scanning by one-sided reads, leaf by leaf. Internal to cell/client.
//
// A leaf's extents and the leaf beside it are read together. Upwards that is where its right link leads; downwards, its
// left neighbour in the parent that the walk came by. Either is only a guess at the next key's place, which the walk
// checks as it checks every node.
#pragma once

#include <vector>

#include "cell/client/key_router.h"
#include "cell/client/scan_batch.h"
#include "cell/tree/scan_position.h"

namespace cell {

class ScanLeaves {
 public:
  // What ended a leg of the scan.
  struct Leg {
    enum class End { kBatch, kRange, kMeganode };
    End end;
    Pointer next;  // kMeganode: the neighbour's root; null: where the keys lead.
  };

  ScanLeaves(Session* session, bool keys_only)
      : session_(session), keys_only_(keys_only), walked_(session), beside_(session) {}

  // Adds entries from *position on, until the batch has `wanted` (with `left` still to come), the range ends, or the
  // meganode that the router is at does. `from_here`: the entries before came from it. The router may have gone on
  // elsewhere; then the leg ended with the batch, however little is in it. So it does after a number of leaves, and at
  // the deadline. Aborted: a leaf kept changing while it was read. With any error, the batch and *position are as of
  // the leaf before.
  Task<absl::StatusOr<Leg>> Fill(KeyRouter* router, ScanPosition* position, bool from_here, size_t wanted,
                                 uint64_t left, CallContext context, ScanBatch* batch);
  // The position was moved by others.
  void Forget() { leaf_ready_ = walk_goes_on_ = false; }

 private:
  // The leaf's entries that are wanted; their slots, for slots_. Returns the slot where it stopped.
  absl::StatusOr<int> TakeEntries(const ScanPosition& position, size_t wanted, ScanBatch* batch);
  Pointer Beside(const ScanPosition& position) const;
  bool ExtentsAreRight(ScanBatch* batch, size_t first) const;
  // What walk_ says of the node in beside_, which was read as `leaf` and becomes the leaf.
  Walk::Step Visit(Pointer leaf);

  Session* session_;
  const bool keys_only_;

  // The leaf at the position, when ready.
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

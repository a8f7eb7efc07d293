// MeganodeClear deletes all pairs of a meganode at once, whatever their number.
//
// A one-sided reader must not find a pair once another reader has seen that it is gone. In one turn, each node but the
// root is therefore invalidated, and only then the root becomes an empty leaf. A search that comes to an invalidated
// node meanwhile goes back, at last to the root, and ends when that is published. The nodes and extents are freed
// afterwards, and the CRC catches readers with an old slot, as after a split (meganode_split.h).
//
// Must be destroyed before the meganode. Not thread-safe: only the thread that writes the meganode may call it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cell/tree/invalid_nodes.h"
#include "cell/tree/meganode.h"

namespace cell {

class MeganodeClear {
 public:
  // Returns whether the meganode has more than one leaf. From one, deletes are as fast.
  static bool Pays(const Meganode& tree);

  // Deletes all pairs. Does not call on_write. REQUIRES: tier 0, and the meganode is not being split or joined.
  explicit MeganodeClear(Meganode* tree);

  // Returns how many pairs were deleted.
  uint64_t pairs() const { return pairs_; }
  // Frees what `nodes` more invalidated nodes used. Returns true if nothing is left to free.
  bool Free(size_t nodes) { return nodes_.Free(nodes); }

 private:
  InvalidNodes nodes_;
  const uint64_t pairs_;
};

}  // namespace cell

// ExpirySweep finds the pairs of a meganode that have expired, leaf by leaf, while the meganode is used. Pure.
//
// A sweep is one pass over the leaves. It takes what it finds from a leaf as that is at this moment. The caller deletes
// the keys before anything else is written, so that no newer pair of a key is deleted. A sweep that has seen all leaves
// tells the meganode when the first pair expires that is left, so that nobody looks for expired pairs before.
//
// The meganode may go while it is swept; the sweep then has no further use. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/tree/meganode.h"

namespace cell {

class ExpirySweep {
 public:
  // Returns whether a sweep of this meganode may find something.
  static bool Pays(const Meganode& tree) { return tree.expiring() > 0 && tree.first_expiry() <= tree.ClusterTime(); }

  // Begins a sweep of `tree`, the meganode that all calls get.
  explicit ExpirySweep(Meganode* tree);

  // Returns the keys in the next leaf whose pairs have expired, in order. Returns DataLoss if the leaf was damaged in
  // memory: the sweep cannot go on then. REQUIRES: not ended().
  absl::StatusOr<std::vector<std::string>> NextLeaf(Meganode* tree);
  // Returns whether the sweep has seen all leaves.
  bool ended() const { return !next_.has_value(); }
  // Makes the meganode be swept again soon: a key that was found could not be deleted, or the sweep does not go on.
  static void Repeat(Meganode* tree) { tree->first_expiry_ = 0; }

 private:
  std::optional<std::string> next_;  // Low key of the next leaf.
  Expiry first_left_ = UINT64_MAX;   // When the first of the pairs expires that were seen and left.
};

}  // namespace cell

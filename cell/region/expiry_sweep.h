// ExpirySweep finds the pairs of a region that have expired, place by place (PairStore::Place), while the region is
// used. Pure.
//
// A sweep is one pass over the region. It takes what it finds in a place as that is at this moment. The caller deletes
// the keys before anything else is written, so that no newer pair of a key is deleted. A sweep that has seen all places
// tells the region when the first pair expires that is left, so that nobody looks for expired pairs before. A table
// that moves a pair past the sweep notes its expiry, and so the next sweep finds it.
//
// The region may go while it is swept; the sweep then has no further use. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/region/pair_store.h"

namespace cell {

class ExpirySweep {
 public:
  // Returns whether a sweep of this region may find something.
  static bool Pays(const PairStore& store) {
    return store.expiring() > 0 && store.first_expiry() <= store.ClusterTime();
  }

  // Begins a sweep of `store`, the region that all calls get.
  explicit ExpirySweep(PairStore* store);

  // Returns the keys in the next place whose pairs have expired, in order. Returns DataLoss if the place was damaged in
  // memory: the sweep cannot go on then. REQUIRES: not ended().
  absl::StatusOr<std::vector<std::string>> Next(PairStore* store);
  // Returns whether the sweep has seen all places.
  bool ended() const { return !next_.has_value(); }
  // Makes the region be swept again soon: a key that was found could not be deleted, or the sweep does not go on.
  static void Repeat(PairStore* store) { store->first_expiry_ = 0; }

 private:
  std::optional<PairStore::Place> next_;
  Expiry first_left_ = UINT64_MAX;  // When the first of the pairs expires that were seen and left.
};

}  // namespace cell

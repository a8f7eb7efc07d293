// PrepareAgain finds room once more for the puts that transactions had prepared with a region's former owner. Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/transaction.h"
#include "cell/region/pair_store.h"

namespace cell {

struct PutAgain {
  PartOperation operation;
  PairStore::Prepared prepared = {};
};

// Prepares all of them. There was room for all, but in a table what is prepared is not moved, so that the first ones
// may take the places that a later one needs: one that finds no room comes first in the next try. Returns the errors of
// PairStore::Prepare; none is prepared then. REQUIRES: no write of the region is prepared.
inline absl::Status PrepareAgain(std::vector<PutAgain*> order, PairStore* store) {
  constexpr int kTriesMax = 64;
  absl::Status status;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    size_t done = 0;
    for (; done < order.size(); ++done) {
      const PartOperation& put = order[done]->operation;
      store->set_writes_kept(done);
      absl::StatusOr<PairStore::Prepared> prepared =
          store->Prepare(put.key, put.value, put.digest, {0, /*of_key=*/false, /*again=*/true}, put.expires);
      status = prepared.status();
      if (!status.ok()) break;
      order[done]->prepared = *std::move(prepared);
    }
    store->set_writes_kept(done);
    if (done == order.size()) return absl::OkStatus();
    for (size_t i = 0; i < done; ++i) store->Discard(order[i]->prepared);
    store->set_writes_kept(0);
    if (done == 0 || !absl::IsResourceExhausted(status)) break;
    const auto failed = order.begin() + static_cast<ptrdiff_t>(done);
    std::rotate(order.begin(), failed, failed + 1);
  }
  return status;
}

}  // namespace cell

#include "cell/cluster/region_ids.h"

#include "absl/status/status.h"
#include "cell/base/mutant.h"

namespace cell {

void RegionIds::Advance() {
  if (next >= max) {
    next = 1;
    around = true;
  } else {
    ++next;
  }
  // At least one of these comes between the removal of a region and its id's next turn.
  if ((next % rest() == 0 || next == 1) && !Mutated(Mutant::kEpochsBeginAgain))
    epoch = std::max(epoch, removed_epoch + 1);
}

absl::StatusOr<uint32_t> RegionIds::Take(const std::function<bool(uint32_t)>& in_use) {
  for (uint64_t tried = 0; tried < 2 * uint64_t{max}; ++tried) {  // Twice, because all that are free may rest.
    if (epoch + 1 >= kEpochEnd) return absl::ResourceExhaustedError("all epochs of regions have been used");
    const uint32_t id = next;
    Advance();
    const auto rests = std::lower_bound(resting.begin(), resting.end(), id);
    if (rests != resting.end() && *rests == id) {
      resting.erase(rests);
    } else if (!in_use(id)) {
      return id;
    }
  }
  return absl::ResourceExhaustedError("all region ids are in use");
}

void RegionIds::GiveBack(uint32_t region, uint64_t last_epoch) {
  removed_epoch = std::max(removed_epoch, last_epoch);
  const uint32_t ids_before = region >= next ? region - next : max - next + region;
  if (ids_before >= rest()) return;
  const auto at = std::lower_bound(resting.begin(), resting.end(), region);
  if (at == resting.end() || *at != region) resting.insert(at, region);
}

}  // namespace cell

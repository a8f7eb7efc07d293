// The part of Meganode that moves extents, for ExtentCompaction (cell/region/extent_compaction.h).
#include <optional>
#include <utility>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/tree/meganode.h"

namespace cell {

absl::Status Meganode::MoveExtents(ExtentMoves* moves) {
  if (tier() != 0) {
    moves->ended = true;  // Routes have no extents.
    return absl::OkStatus();
  }
  if (moves->next_key.empty()) moves->next_key = range().low;
  if (!Covers(moves->next_key)) {  // It was split, or joined.
    moves->ended = true;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const NodeView leaf, VerifiedLeafOf(moves->next_key));
  struct Moved {
    int slot;
    uint64_t from, to;
  };
  std::vector<Moved> moved;
  const uint64_t enough = moves->bytes + moves->bytes_max;
  int slot = std::max(0, leaf.LowerBound(moves->next_key));
  for (; slot < leaf.count() && moves->bytes < enough; ++slot) {
    const LeafPair pair = leaf.pair(slot);
    if (pair.is_inline || !ExtentInBounds(pair.outside.extent, pair.pair_bytes())) continue;
    const uint64_t from = pair.outside.extent.offset();
    if (!moves->window.Has(from, pair.pair_bytes())) continue;
    const auto is_sound = [&] {
      return Crc64(ConstBytes(Extent(pair.outside.extent), pair.pair_bytes())) == pair.outside.crc;
    };
    const std::optional<uint64_t> to = CopyOutside(from, pair.pair_bytes(), is_sound, moves);
    if (to.has_value()) moved.push_back({slot, from, *to});
  }
  std::string next;
  if (slot < leaf.count()) {
    next = leaf.key(slot);
  } else if (leaf.has_high() && Covers(leaf.high_key())) {
    next = leaf.high_key();
  } else {
    moves->ended = true;
  }
  moves->next_key = std::move(next);
  if (moved.empty()) return absl::OkStatus();
  draft_.CopyOf(leaf);
  for (const Moved& one : moved) draft_.Repoint(one.slot, Pointer(region(), one.to));
  if (!Mutated(Mutant::kMovedFromLeaf)) Publish(&draft_);
  for (const Moved& one : moved) extents_.Free(one.from);
  return absl::OkStatus();
}

}  // namespace cell

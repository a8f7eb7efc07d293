// Evictor chooses which pairs of a worker go when a put finds no room, by the rules in the region table. It deletes
// nothing itself.
//
// A put needs room in one leaf, the leaf of its key, or a node for splitting it. So the evictor compares
//
//   the pair of that leaf that was not used for longest, which makes room right there, and
//   some leaves of the region, chosen at random, by the pair of each that was used last: one that is emptied becomes a
//   free node.
//
// Keys that are used at random have the first in each leaf, and so the eviction comes close to that of a
// set-associative cache. Keys that come in order, and are not used any more once they are old, have the second.
//
// If the region has fewer extents left than nodes, only pairs that have extents count.
//
// In a part of a Pilaf table, the pairs count that are in the slots or buckets of the put's key, of which a quarter
// goes. If the part has fewer extents left, those count that are in some slots or buckets chosen at random.
//
// If the worker holds as many regions as it may, and a leaf of another region was not used for much longer still, that
// one is emptied, too, and then others of that region. A region that is emptied is joined (Joiner), and then the full
// one can be split.
//
// It knows of the uses that the worker serves: gets, lookups and puts, of a key in the tree or in any table. What
// clients read themselves it does not see, and so clients send some of their gets to the server where rules need it
// (Session). Scans do not count. What a region's pairs were used for does not move with the region.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cell/base/clock.h"
#include "cell/base/random.h"
#include "cell/cluster/membership.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/regions.h"
#include "cell/server/request/use_times.h"
#include "cell/tree/meganode.h"

namespace cell {

class Evictor {
 public:
  static constexpr int kSampledLeaves = 8;       // Of the full region.
  static constexpr int kSampledIfNone = 200;     // If those had no pair that may go.
  static constexpr int kSampledElsewhere = 4;    // Of other regions.
  static constexpr double kElsewhereFactor = 2;  // A leaf elsewhere goes if it was idle for longer by this factor.

  struct Options {
    int use_unit_shift = 24;  // UseTimes are kept in units of 2^24 ns, 17 ms, and so for two years.
  };

  // Everything in `context` must outlive this.
  Evictor(const WorkerContext& context, const Options& options);

  // Returns whether some rule says that pairs may be evicted.
  bool on() const { return rules().on(); }

  // Notes that a key was used.
  void Touch(std::string_view key) {
    if (rules().needs_use()) [[unlikely]]
      Times()->Touch(key, clock_->NowNs());
  }

  // Keys of one leaf, in order.
  struct Victims {
    uint32_t region;
    std::vector<std::string> keys;
  };
  // Chooses pairs to evict from a full region, so that a put of `key` may find room. `pair_bytes`: the size of its key
  // and value. The put may need several calls. Returns nothing if no rule allows any of those that it has looked at.
  // REQUIRES: the region is a meganode of tier 0 that covers the key, or a part of a table.
  std::vector<Victims> Choose(const HeldRegion& region, std::string_view key, uint64_t pair_bytes);

 private:
  enum class Shortage : uint8_t { kNodes, kExtents };
  // The pairs of a leaf that may go.
  struct Candidates {
    uint32_t region = 0;
    std::vector<std::string> keys;
    std::vector<double> ranks;  // Of `keys`: those with the highest go first.
    bool gives_room = false;    // If all of these go. A leaf with others is no free node then.

    double Lowest() const { return *std::min_element(ranks.begin(), ranks.end()); }
    double Highest() const { return *std::max_element(ranks.begin(), ranks.end()); }
  };

  const EvictionRules& rules() const { return membership_->state().table.evictions; }
  UseTimes* Times();
  // Returns whether a put of a pair of this size fails for lack of extents or of nodes, slots or buckets.
  static Shortage ShortageOf(const HeldRegion& region, uint64_t pair_bytes);
  std::vector<Victims> ChooseInTree(const HeldRegion& region, std::string_view key, Shortage shortage);
  std::vector<Victims> ChooseInTable(const HeldRegion& region, std::string_view key, Shortage shortage);
  // Returns a quarter of the candidates, at least one: those with the highest ranks.
  static Victims QuarterOf(Candidates candidates);
  // Adds a pair to `candidates` if the rule lets it go. Its rank is how long it was idle, or for the rule `ttl` how
  // much time it has left, as a negative number.
  void Consider(Eviction eviction, std::string_view key, Expiry expiry, uint64_t time, Candidates* candidates);
  Candidates CandidatesOf(const Meganode& tree, const NodeView& leaf, Shortage shortage);
  // Returns the best of `leaves` leaves that are sampled from a region.
  std::optional<Candidates> Sample(const Meganode& tree, int leaves, Shortage shortage);
  // Returns the meganode of a region that may be emptied for the full one, or null.
  const Meganode* OtherTree(uint32_t region, uint32_t full) const;
  // Returns a leaf of another region that was idle for longer than `rank` by kElsewhereFactor.
  std::optional<Candidates> SampleElsewhere(uint32_t full, double rank);

  const Clock* const clock_;
  const Membership* const membership_;
  const Regions* const regions_;
  const Options options_;
  Random random_;
  std::optional<UseTimes> times_;
  uint32_t emptied_ =
      0;  // The region that was chosen last by SampleElsewhere, so that one becomes empty after the other.
};

}  // namespace cell

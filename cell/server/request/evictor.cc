#include "cell/server/request/evictor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cell/base/mutant.h"
#include "cell/tree/leaf_sample.h"
#include "pilaf/bucket.h"

namespace cell {
namespace {

// UseTimes has room for a key per this many bytes of nodes, so that it takes a sixteenth of their size.
constexpr size_t kNodeBytesPerUse = 16 * UseTimes::kBytesPerKey;
constexpr size_t kUsesMax = 1 << 24;  // So many take 128 MB.
constexpr size_t kShareThatGoes = 4;  // So much of the full leaf, slots or buckets goes at once.

}  // namespace

Evictor::Evictor(const WorkerContext& context, const Options& options)
    : clock_(context.clock),
      membership_(context.membership),
      regions_(context.regions),
      options_(options),
      random_(context.seed) {}

UseTimes* Evictor::Times() {
  if (!times_.has_value()) {
    const size_t bytes = regions_->regions_max() * regions_->shape().meganode_bytes;
    times_.emplace(std::min(bytes / kNodeBytesPerUse, kUsesMax), options_.use_unit_shift, clock_->NowNs());
  }
  return &*times_;
}

void Evictor::Consider(Eviction eviction, std::string_view key, Expiry expiry, uint64_t time, Candidates* candidates) {
  if (Mutated(Mutant::kEvictsAll)) eviction = Eviction::kLru;
  if (eviction == Eviction::kLru) {
    candidates->ranks.push_back(static_cast<double>(Times()->IdleNs(key, clock_->NowNs())));
  } else if (eviction == Eviction::kTtl && expiry != kNeverExpires) {
    candidates->ranks.push_back(static_cast<double>(time) - static_cast<double>(expiry));
  } else {
    return;
  }
  candidates->keys.emplace_back(key);
}

Evictor::Candidates Evictor::CandidatesOf(const Meganode& tree, const NodeView& leaf, Shortage shortage) {
  Candidates candidates;
  candidates.region = tree.region();
  const uint64_t time = tree.ClusterTime();
  std::string key;
  for (int i = 0; i < leaf.count(); ++i) {
    if (shortage == Shortage::kExtents && !leaf.leaf_slot(i).outside()) continue;
    leaf.CopyKey(i, &key);
    const Expiry expiry = leaf.leaf_slot(i).expires() ? leaf.pair(i).expiry : kNeverExpires;
    Consider(rules().Of(key), key, expiry, time, &candidates);
  }
  const bool all = candidates.keys.size() == static_cast<size_t>(leaf.count());
  candidates.gives_room = all || shortage == Shortage::kExtents;
  return candidates;
}

std::optional<Evictor::Candidates> Evictor::Sample(const Meganode& tree, int leaves, Shortage shortage) {
  std::optional<Candidates> best;
  std::vector<std::string> prefixes;
  for (const auto& [prefix, eviction] : rules().by_prefix()) {
    if (eviction != Eviction::kNone) prefixes.push_back(prefix);
  }
  for (int i = 0; i < leaves && !prefixes.empty(); ++i) {
    const std::string& prefix = prefixes[random_.Below(prefixes.size())];
    const auto leaf = SampleLeaf(tree, prefix, EndOfPrefix(prefix), &random_);
    if (!leaf.ok() || !leaf->has_value()) continue;
    Candidates sampled = CandidatesOf(tree, **leaf, shortage);
    const auto order = [](const Candidates& one) { return std::pair(one.gives_room, one.Lowest()); };
    if (!sampled.keys.empty() && (!best.has_value() || order(sampled) > order(*best))) best = std::move(sampled);
  }
  return best;
}

const Meganode* Evictor::OtherTree(uint32_t region, uint32_t full) const {
  const HeldRegion* const held = region == full ? nullptr : regions_->Find(region);
  const bool serves = held != nullptr && held->tree != nullptr && held->tree->tier() == 0 &&
                      held->state() == RegionState::kServing && held->tree->keys() > 0;
  return serves ? held->tree : nullptr;
}

std::optional<Evictor::Candidates> Evictor::SampleElsewhere(uint32_t full, double rank) {
  const auto worth = [rank](const std::optional<Candidates>& one) {
    return one.has_value() && one->Lowest() > kElsewhereFactor * rank;
  };
  if (const Meganode* const same = OtherTree(emptied_, full); same != nullptr) {
    std::optional<Candidates> sampled = Sample(*same, 1, Shortage::kNodes);
    if (worth(sampled)) return sampled;
  }
  std::vector<const Meganode*> others;
  regions_->ForEach([&](const HeldRegion* held) {
    if (const Meganode* const tree = OtherTree(held->region(), full); tree != nullptr) others.push_back(tree);
  });
  std::optional<Candidates> best;
  for (int i = 0; i < kSampledElsewhere && !others.empty(); ++i) {
    std::optional<Candidates> sampled = Sample(*others[random_.Below(others.size())], 1, Shortage::kNodes);
    if (sampled.has_value() && (!best.has_value() || sampled->Lowest() > best->Lowest())) best = std::move(sampled);
  }
  if (!worth(best)) return std::nullopt;
  emptied_ = best->region;
  return best;
}

Evictor::Victims Evictor::QuarterOf(Candidates candidates) {
  std::vector<size_t> order(candidates.keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return candidates.ranks[a] > candidates.ranks[b]; });
  order.resize((order.size() + kShareThatGoes - 1) / kShareThatGoes);
  Victims victims{candidates.region, {}};
  for (const size_t i : order) victims.keys.push_back(std::move(candidates.keys[i]));
  std::sort(victims.keys.begin(), victims.keys.end());
  return victims;
}

Evictor::Shortage Evictor::ShortageOf(const HeldRegion& region, uint64_t pair_bytes) {
  const uint64_t inline_max =
      region.tree != nullptr ? region.tree->inline_max() : BucketInlineMax(region.hash->geometry().bucket_bytes);
  const ExtentAllocator* const extents = region.store->extent_allocator();
  const bool lacks_extents = pair_bytes > inline_max && !extents->Fits(pair_bytes + sizeof(Expiry));
  return lacks_extents ? Shortage::kExtents : Shortage::kNodes;
}

std::vector<Evictor::Victims> Evictor::Choose(const HeldRegion& region, std::string_view key, uint64_t pair_bytes) {
  const Shortage shortage = ShortageOf(region, pair_bytes);
  return region.tree != nullptr ? ChooseInTree(region, key, shortage) : ChooseInTable(region, key, shortage);
}

std::vector<Evictor::Victims> Evictor::ChooseInTable(const HeldRegion& region, std::string_view key,
                                                     Shortage shortage) {
  const RegionTable& regions = membership_->state().table;
  const auto of = regions.TableOf(region.region());
  if (of == regions.tables.end()) return {};
  const HashTable& table = *region.hash;
  const Eviction eviction = rules().OfTable(of->first);
  const HashRange range = table.range();
  const uint64_t time = table.ClusterTime();
  const bool lacks_extents = shortage == Shortage::kExtents;
  Candidates candidates;
  candidates.region = region.region();
  const auto consider = [&](const HashPair& pair) {
    const bool counts = pair.outside || !lacks_extents;
    if (counts && range.Has(HashKey(pair.key))) Consider(eviction, pair.key, pair.expiry, time, &candidates);
  };
  // Slots and buckets that were damaged in memory give no candidates.
  if (lacks_extents) {
    for (int i = 0; i < kSampledIfNone && (i < kSampledLeaves || candidates.keys.empty()); ++i) {
      uint32_t at = static_cast<uint32_t>(random_.Below(table.geometry().units));
      const uint32_t end = std::min(at + table.UnitsAtOnce(), table.geometry().units);
      for (; at < end; ++at) (void)table.VisitUnit(at, consider);
    }
  } else {
    for (const uint32_t at : table.UnitsOf(HashKey(key))) (void)table.VisitUnit(at, consider);
  }
  if (candidates.keys.empty()) return {};
  Victims victims = QuarterOf(std::move(candidates));
  // A place may have been looked at twice.
  victims.keys.erase(std::unique(victims.keys.begin(), victims.keys.end()), victims.keys.end());
  return {std::move(victims)};
}

std::vector<Evictor::Victims> Evictor::ChooseInTree(const HeldRegion& region, std::string_view key, Shortage shortage) {
  std::vector<Victims> victims;
  // Pairs in leaves give no extents back, and many may go for one large value.
  Candidates own;
  if (const auto leaf = region.tree->VerifiedLeafOf(key); leaf.ok()) own = CandidatesOf(*region.tree, *leaf, shortage);
  std::optional<Candidates> sampled = Sample(*region.tree, kSampledLeaves, shortage);
  if (own.keys.empty() && !sampled.has_value()) sampled = Sample(*region.tree, kSampledIfNone, shortage);
  double rank = 0;
  const bool own_is_better =
      !sampled.has_value() || !sampled->gives_room || (!own.keys.empty() && own.Highest() >= sampled->Lowest());
  if (!own.keys.empty() && own_is_better) {
    rank = own.Highest();
    victims.push_back(QuarterOf(std::move(own)));
  } else if (sampled.has_value()) {
    rank = sampled->Lowest();
    victims.push_back({sampled->region, std::move(sampled->keys)});
  } else {
    return victims;
  }
  if (rank < 0 || regions_->size() < regions_->regions_max()) return victims;
  std::optional<Candidates> elsewhere = SampleElsewhere(region.region(), rank);
  if (elsewhere.has_value()) victims.push_back({elsewhere->region, std::move(elsewhere->keys)});
  return victims;
}

}  // namespace cell

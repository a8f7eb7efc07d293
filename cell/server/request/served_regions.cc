#include "cell/server/request/served_regions.h"

#include "cell/base/mutant.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kRouteOrdersMin = 1'000;

}  // namespace

HeldRegion* ServedRegions::FindReadable(uint32_t region) const {
  HeldRegion* const held = regions_->Find(region);
  return held != nullptr && Readable(*held) ? held : nullptr;
}

Target ServedRegions::Find(Pointer root, std::string_view key) const {
  Target target;
  target.region = regions_->Find(root.region());
  if (target.region == nullptr || !Readable(*target.region)) return target;
  const bool of_table = target.region->hash != nullptr;
  if (root != (of_table ? HashRootOf(root.region()) : RootOf(root.region())) && !Mutated(Mutant::kRootUnchecked)) {
    return target;
  }
  if (of_table) {  // According to the newest table, another region has the keys outside of its
                   // range.
    if (target.region->hash->range().Has(HashKey(key))) target.store = target.region->hash;
    return target;
  }
  Meganode* const tree = target.region->tree;
  if (tree->tier() == 0 && tree->Covers(key)) {
    target.store = tree;
  } else {
    target.leads_on = tree;
  }
  return target;
}

Target ServedRegions::FindAny(uint32_t region) const {
  Target target;
  target.region = regions_->Find(region);
  if (target.region != nullptr && Readable(*target.region)) target.store = target.region->store.get();
  return target;
}

bool ServedRegions::TakesRoute(uint32_t child, uint64_t order) {
  const RegionTable& table = membership_->state().table;
  const RegionTable::Entry* entry = table.Find(child);
  if (entry != nullptr && order < RouteOrder(entry->epoch, 0)) return false;
  if (route_orders_.size() > 2 * table.regions.size() + kRouteOrdersMin) {
    std::erase_if(route_orders_, [this](const auto& one) { return IsGone(one.first); });
  }
  uint64_t& last = route_orders_[child];
  if (order < last) return false;
  last = order;
  return true;
}

absl::Status NoMeganode(const HeldRegion& region) {
  return absl::InvalidArgumentError(
      fmt::format("region {} is part of a hash table, which has no order and cannot be scanned", region.region()));
}

size_t WriteRoute(MutableBytes to, const Target& target, std::string_view key) {
  if (target.locked) return WriteLocked(to);
  if (target.leads_on == nullptr) return WriteRouteReply(to, {RouteKind::kNotHeld, {}, {}, {}, false, false});
  using Kind = Meganode::Route::Kind;
  const Meganode::Route route = target.leads_on->RouteOf(key);
  const RouteKind kind = route.kind == Kind::kChild   ? RouteKind::kChild
                         : route.kind == Kind::kRight ? RouteKind::kRight
                                                      : RouteKind::kRestart;
  RouteView view{kind, route.next, route.low, {}, kind == RouteKind::kChild, false};
  if (route.high.has_value()) {
    view.high_key = *route.high;
    view.has_high = true;
  }
  return WriteRouteReply(to, view);
}

}  // namespace cell

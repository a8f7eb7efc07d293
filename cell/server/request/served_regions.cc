#include "cell/server/request/served_regions.h"

#include "fmt/format.h"

namespace cell {

HeldRegion* ServedRegions::FindReadable(uint32_t region) const {
  HeldRegion* const held = regions_->Find(region);
  return held != nullptr && Readable(*held) ? held : nullptr;
}

Target ServedRegions::Find(Pointer root, std::string_view key) const {
  Target target;
  target.region = regions_->Find(root.region());
  if (target.region == nullptr || RootOf(target.region->region()) != root || !Readable(*target.region)) return target;
  if (target.region->hash != nullptr) {  // According to the newest table, another region has the keys outside of its
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

absl::Status NoMeganode(const HeldRegion& region) {
  return absl::InvalidArgumentError(
      fmt::format("region {} is part of a hash table, which has no order and cannot be scanned", region.region()));
}

size_t WriteRoute(MutableBytes to, const Target& target, std::string_view key) {
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

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
  const Meganode& tree = *target.region->tree;
  if (tree.tier() == 0 && tree.Covers(key)) {
    target.store = target.region->tree;
    return target;
  }
  target.route = tree.RouteOf(key);
  using Kind = Meganode::Route::Kind;
  target.kind = target.route.kind == Kind::kChild   ? RouteKind::kChild
                : target.route.kind == Kind::kRight ? RouteKind::kRight
                                                    : RouteKind::kRestart;
  return target;
}

absl::Status NoMeganode(const HeldRegion& region) {
  return absl::InvalidArgumentError(
      fmt::format("region {} is part of a hash table, which has no order and cannot be scanned", region.region()));
}

size_t WriteRoute(MutableBytes to, const Target& target) {
  RouteView view{target.kind, target.route.next, target.route.low, {}, target.kind == RouteKind::kChild, false};
  if (target.route.high.has_value()) {
    view.high_key = *target.route.high;
    view.has_high = true;
  }
  return WriteRouteReply(to, view);
}

}  // namespace cell

// ServedRegions finds the regions that requests may use now, and where a request continues that names the wrong one.
//
// A region that has a log is used only while this worker's lease is valid. Afterwards it may have been recovered
// elsewhere. Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "cell/cluster/membership.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"
#include "cell/server/region/regions.h"

namespace cell {

// The target of a request. Valid until the worker serves a step of a migration, or runs its other tasks.
struct Target {
  HeldRegion* region = nullptr;        // The region that the request names, in any state. Null: it is not held here.
  PairStore* store = nullptr;          // The store of `region`, if it covers the key.
  const Meganode* leads_on = nullptr;  // Set if `store` is not: the meganode that has the key's route, if any.
  bool locked = false;                 // Set if `store` is not, because a transaction holds the key.
};

class ServedRegions {
 public:
  // All arguments must outlive this.
  ServedRegions(const Clock* clock, Regions* regions, const Membership* membership)
      : clock_(clock), regions_(regions), membership_(membership) {}

  // Checks whether the lease is still valid. Call it before each batch of requests.
  void CheckLease() {
    const int64_t until_ns = membership_->LeaseUntilNs();
    leased_ = until_ns == INT64_MAX || clock_->NowNs() <= until_ns;
  }
  bool leased() const { return leased_; }

  // Returns the target of a request that names `root`: RootOf a region, or HashRootOf one if it is for a table. It has
  // no store if the region is used for something else: ids are used again.
  Target Find(Pointer root, std::string_view key) const;
  // Returns the target of a request to a region whatever it is now.
  Target FindAny(uint32_t region) const;
  // Returns null if the region is not held here, or must not be read now.
  HeldRegion* FindReadable(uint32_t region) const;
  // Returns whether a region has had this id and none has it now. This worker may not know the newest region table yet.
  bool IsGone(uint32_t region) const {
    const RegionTable& table = membership_->state().table;
    return table.ids.Given(region) && table.Find(region) == nullptr;
  }
  // Returns whether a request about the route to `child` is to be served: false if a later one was served here, or if
  // its sender does not own the child any more (RouteRequest::order).
  bool TakesRoute(uint32_t child, uint64_t order);
  // Returns the region in any state, or null if it is not held here.
  HeldRegion* FindHeld(uint32_t region) const { return regions_->Find(region); }

 private:
  // A region that is being filled has half-made nodes. Nothing leads to it yet, but any peer can name it, and a client
  // may know an earlier region with its id.
  bool Readable(const HeldRegion& region) const {
    return region.readable() && region.state() != RegionState::kFilling && (leased_ || region.log == nullptr);
  }

  const Clock* const clock_;
  Regions* const regions_;
  const Membership* const membership_;
  bool leased_ = true;
  std::map<uint32_t, uint64_t> route_orders_;  // Of the last request about the route to each region.
};

// Makes a target one to ask again later if a transaction holds the key so that it cannot be read, or written.
inline void RespectLocks(std::string_view key, bool writes, Target* target) {
  if (target->store == nullptr || target->region->transactions.locks.empty()) return;
  const KeyLocks& locks = target->region->transactions.locks;
  if (writes ? locks.MayWrite(key) : locks.MayRead(key)) return;
  target->store = nullptr;
  target->locked = true;
}

// Returns the error of a request that only a meganode can serve.
absl::Status NoMeganode(const HeldRegion& region);

// Writes the reply that asks a client to come again a little later, because a transaction holds what it asks for.
// Returns its size.
inline size_t WriteLocked(MutableBytes to) {
  return WriteRouteReply(to, {RouteKind::kLocked, {}, {}, {}, false, false});
}

// Writes the reply that leads a request for `key` on. Returns its size.
size_t WriteRoute(MutableBytes to, const Target& target, std::string_view key);

}  // namespace cell

// RoutePublisher adds the route of a new meganode to the tier above, wherever that is, and removes that of one that is
// about to go. If there is no tier above, it creates a meganode of routes, which becomes the new root of the tree
// (thesis, 4.2). Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/random.h"
#include "cell/base/task.h"
#include "cell/layout/pointer.h"
#include "cell/layout/wire.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/region_allocator.h"
#include "cell/server/request/served_regions.h"

namespace cell {

class RoutePublisher {
 public:
  // All arguments must outlive this.
  RoutePublisher(const WorkerContext& context, RegionAllocator* allocator, ServedRegions* served);

  // Adds the route `key` to a meganode of `tier`. It leads to the claimed region, which stays claimed until then. Tries
  // until it succeeds, or the region is lost, or the worker ends. Returns whether it succeeded. While that tier has no
  // room, another may take the claim over (ClaimPurpose::kRouteBlocked), with the duty to publish the route.
  Task<bool> Publish(uint8_t tier, std::string key, RegionClaim claim);

  // Removes the route `key` from a meganode of `tier` if it leads to `child`, which stays claimed. On OK it is gone
  // from the disk, too; that includes a tree without such a tier. After any other result it may be there or not, and
  // Publish brings it back. Returns FailedPrecondition if that meganode cannot be without it for now.
  Task<absl::Status> Withdraw(uint8_t tier, std::string key, const HeldRegion* child);

  // Sets what is called when there is no room for a new root. The root is tried again after that.
  void set_on_no_room(std::function<void()> on_no_room) { on_no_room_ = std::move(on_no_room); }

  struct Counters {
    uint64_t added = 0, removed = 0, roots_made = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  // Sends a request to the meganode of `tier` that covers `key`. Returns nullopt if the tree has no such tier.
  Task<std::optional<absl::Status>> TryRequest(MessageKind kind, uint32_t root, uint8_t tier, const std::string& key,
                                               const HeldRegion* child);
  Task<absl::Status> TryPublish(uint8_t tier, const std::string& key, const HeldRegion* child);
  Task<absl::Status> MakeRoot(uint32_t old_root, uint8_t tier, const std::string& key, uint32_t child, uint64_t epoch);
  // Sends a request to the worker that holds `region`, which may be this one. Returns its reply.
  Task<absl::StatusOr<std::string>> CallOwner(uint32_t region, std::string request);

  const WorkerId self_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  LogFlusher* const logs_;
  Peers* const peers_;
  const SyncPoints* const sync_points_;
  RegionAllocator* const allocator_;
  ServedRegions* const served_;
  std::function<void()> on_no_room_ = [] {};
  uint32_t requests_ = 0;
  Random random_;
  Counters counters_;
};

}  // namespace cell

// Permissions says what the peers of a worker may do with pairs, by the grants of the region table, and refuses the
// rest.
//
// As long as grants are not enforced, everybody may do everything, and a request costs one comparison. Operators and
// servers always may. A change of grants counts for all requests that are parsed after this worker has seen it.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cell/base/crc64.h"
#include "cell/cluster/grants.h"
#include "cell/cluster/membership.h"
#include "cell/io/fabric/fabric.h"
#include "cell/server/request/keyed_request.h"

namespace cell {

// Returns what is remembered of requests instead of the name of their user.
inline uint32_t UserOf(const IncomingCall& call) { return static_cast<uint32_t>(Crc64(call.from->name)); }

class Permissions {
 public:
  // Both must outlive this.
  Permissions(Fabric* fabric, const Membership* membership) : fabric_(fabric), membership_(membership) {}

  // Follows changes of the grants: tells the fabric who may read regions. Call it in each turn of the worker, and not
  // while calls are served.
  void Step() {
    if (grants().version() != version_ || !followed_) Follow();
  }
  // Forgets a peer whose connection has ended.
  void Disconnected(ConnectionId peer) { by_peer_.erase(peer); }

  // Return PermissionDenied if the peer may not make this request.
  //
  // Sets *gone if the request is for a region that is part of no table, or no longer: such a request must get no pair,
  // and is to be led on.
  absl::Status CheckKeyed(const IncomingCall& call, const KeyedRequest& request, bool* gone);
  // For a part of a transaction (transaction.h). Returns InvalidArgument if it is not valid.
  absl::Status CheckPart(const IncomingCall& call, Pointer root, std::string_view part);
  // For a count of the keys from `from` to `to`; an empty `to` is the end of the tree.
  absl::Status CheckCount(const IncomingCall& call, Pointer root, std::string_view from, std::string_view to);
  absl::Status CheckUpload(const IncomingCall& call);
  // For reading memory of regions by calls: kFetch of an extent.
  absl::Status CheckMemory(const IncomingCall& call);
  // Returns whether the peer may know what memory of regions has, beside the keys that it asks for.
  bool MayReadMemory(const IncomingCall& call) {
    const UserRights* const rights = Of(call);
    return rights == nullptr || rights->OfMemory();
  }
  // For a scan that begins at `from`. Sets *span to the keys that it may see, or to null if it may see all.
  absl::Status CheckScan(const IncomingCall& call, Pointer root, std::string_view from, const KeySpan** span);

  // Returns how many requests were refused.
  uint64_t refused() const { return refused_; }

 private:
  const Grants& grants() const { return membership_->state().table.grants; }
  void Follow();
  // Returns what a peer may do, or null if that is everything.
  const UserRights* Of(const IncomingCall& call) {
    if (!enforced_ || call.from->role != Role::kClient) return nullptr;
    return Look(call);
  }
  const UserRights* Look(const IncomingCall& call);
  // Returns the table that a region is part of, or nullopt if it is part of none.
  std::optional<std::string_view> TableOf(uint32_t region);
  absl::Status Refuse(const IncomingCall& call, Right right, const std::string& what);
  // For CheckKeyed: one right that the request needs.
  absl::Status CheckRight(const IncomingCall& call, const UserRights& rights, const KeyedRequest& request, Right right,
                          bool* gone);
  absl::Status CheckRange(const IncomingCall& call, Pointer root, Right right, std::string_view from,
                          std::string_view to);

  Fabric* const fabric_;
  const Membership* const membership_;
  bool followed_ = false;
  bool enforced_ = false;
  uint64_t version_ = 0;  // Of the grants that it follows.
  absl::flat_hash_map<ConnectionId, UserRights> by_peer_;
  // The tables that have regions, as of `tables_version_` of the region table.
  absl::flat_hash_map<uint32_t, std::string> tables_;
  uint64_t tables_version_ = UINT64_MAX;
  uint64_t refused_ = 0;
};

}  // namespace cell

// Serves kAddRoute, by which a worker tells a meganode of routes about a new meganode below it, and kRemoveRoute, by
// which it takes that back before the meganode goes.
//
// These are writes, but not by WritePipeline, for these reasons:
//   - The caller is a worker that repeats the request (RoutePublisher), and a route that is already as it should be is
//     not changed. So the request is never held. A region that cannot take it now answers so at once.
//   - A worker also asks itself, from a coroutine (AnswerRouteRequest), where there is no call to answer later.
//   - A route takes no extent, and has no Prepare and Commit. It is applied at once, even with `sync`. A search that
//     follows it before it is on disk finds a meganode that is already served->
//   - It needs no lease. It is acknowledged only when the whole log is on disk, and a former owner's log is fenced.
//
// As with WritePipeline, the store itself appends the route to the log (HeldRegion::SetLog), LogFlusher flushes it, and
// a region whose log has failed refuses it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/server/request/served_regions.h"

namespace cell {

// Adds or removes the route, or leads on to the meganode where it belongs. Writes the reply to `to` and returns its
// size. Returns Unavailable if the change is not on disk yet; the caller must ask again. Returns FailedPrecondition if
// the route cannot be removed for now (Meganode::RemoveRoute), and if it cannot be added because its meganode is gone.
absl::StatusOr<size_t> ServeRouteRequest(ServedRegions* served, ConstBytes request, MutableBytes to);

// Does the same for a request of this worker to itself. Returns the reply, which may be an error's.
std::string AnswerRouteRequest(ServedRegions* served, ConstBytes request);

}  // namespace cell

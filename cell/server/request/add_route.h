// Serves kAddRoute, by which a worker tells a meganode of routes about a new meganode below it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/server/request/served_regions.h"

namespace cell {

// Adds the route, or leads on to the meganode where it belongs. Writes the reply to `to` and returns its size. Returns
// Unavailable if the route is not on disk yet; the caller must ask again.
absl::StatusOr<size_t> ServeAddRoute(const ServedRegions& served, ConstBytes request, MutableBytes to);

// Does the same for a request of this worker to itself. Returns the reply, which may be an error's.
std::string AnswerAddRoute(const ServedRegions& served, ConstBytes request);

}  // namespace cell

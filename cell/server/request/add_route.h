// kAddRoute: a worker asks that a meganode of routes learn of a new one below it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/server/request/served_regions.h"

namespace cell {

// Adds the route, or leads on to the meganode where it belongs. Writes the reply to `to`, and returns its size. Returns
// Unavailable if the route is not on disk yet: the caller is to ask again.
absl::StatusOr<size_t> ServeAddRoute(const ServedRegions& served, ConstBytes request, MutableBytes to);

// The same, of a request by this worker to itself. Returns the reply, be it an error's.
std::string AnswerAddRoute(const ServedRegions& served, ConstBytes request);

}  // namespace cell

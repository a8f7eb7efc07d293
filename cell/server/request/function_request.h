// Serves requests to evaluate a function: what it finds in a key's value as the region's store has it. Nothing is
// changed.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "cell/io/fabric/fabric.h"
#include "cell/server/request/keyed_request.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/value_copies.h"

namespace cell {

// Writes the reply, or a route, and returns its size. A result that is too large for the reply is kept in `copies` if
// the request has a number for it.
absl::StatusOr<size_t> Evaluate(const IncomingCall& call, const KeyedRequest& request, Target target,
                                ValueCopies* copies, MutableBytes to);

}  // namespace cell

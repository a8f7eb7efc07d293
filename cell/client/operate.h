// The loop of every operation on one key, from region to region until one covers the key. Internal to cell/client. Not
// thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "cell/client/calls.h"

namespace cell {

// Calls `here` with the router, region after region, until it returns a result or an error. `table` is null for the
// tree.
template <typename T, typename Here>
Task<absl::StatusOr<T>> Operate(Session* session, const std::string* table, std::string_view key, CallContext context,
                                Here here) {
  if (session->closed()) co_return Session::Closed();
  absl::Status status = table == nullptr ? CheckKey(key, KeyBytesMax(session->node_bytes()), "this cluster's nodes")
                                         : CheckKey(key, kHashKeyBytesMax, "Pilaf tables");
  if (!status.ok()) co_return status;
  // Reads under an expired lease could not be trusted, and would have to be repeated.
  if (context.path == Path::kClient && context.started_ns > session->LeaseUntilNs()) {
    co_await session->Refresh(context.deadline_ns);
    if (session->NowNs() >= context.deadline_ns) {
      co_return absl::UnavailableError("the region table could not be asked for in time");
    }
  }
  KeyRouter router(session, key, context, table);
  for (;;) {
    if (router.server() == nullptr) {
      status = co_await router.Find();
      if (!status.ok()) co_return status;
    }
    Maybe<T> result = co_await here(&router);
    if (!result.ok()) co_return result.status();
    if (result->has_value()) co_return **std::move(result);
    if (session->NowNs() >= context.deadline_ns) {
      if (!router.refused().ok()) co_return router.refused();
      co_return absl::DeadlineExceededError(fmt::format("no way to {} in time", ForMessage(key)));
    }
  }
}

}  // namespace cell

// Runs the loop of every operation on one key, from region to region until one covers the key. Internal to cell/client.
// Not thread-safe.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cell/client/call/calls.h"
#include "fmt/format.h"

namespace cell {

// Returns Unavailable with `what`, and why the region table could not be read, if it could not.
inline absl::Status WithFailure(std::string what, const absl::Status& failure) {
  if (!failure.ok()) what += fmt::format(": {}", std::string(failure.message()));
  return absl::UnavailableError(what);
}

// Calls `here` with the router and the context, region after region, until it returns a result or an error. `table` is
// null for the tree.
template <typename T, typename Here>
Task<absl::StatusOr<T>> Operate(Session* session, const std::string* table, std::string_view key, CallContext context,
                                Here here) {
  if (session->closed()) co_return ClientLoop::Closed();
  absl::Status status = table == nullptr ? CheckKey(key, KeyBytesMax(session->node_bytes()), "this cluster's nodes")
                                         : CheckKey(key, kHashKeyBytesMax, "Pilaf tables");
  if (!status.ok()) co_return status;
  // Reads under an expired lease could not be trusted, and would have to be repeated.
  if (context.path == Path::kClient && context.started_ns > session->view()->LeaseUntilNs()) {
    co_await session->view()->Refresh(context.deadline_ns);
    const absl::Status failure = session->view()->failure();
    if (absl::IsFailedPrecondition(failure)) co_return failure;
    if (session->NowNs() >= context.deadline_ns) {
      co_return WithFailure("the region table could not be read within the call's timeout", failure);
    }
  }
  if (table != nullptr && session->view()->IsOld(context.started_ns)) {
    co_await session->view()->Refresh(context.deadline_ns);
    if (session->view()->IsOld(context.started_ns)) {
      co_return WithFailure("the region table could not be read for ten minutes", session->view()->failure());
    }
  }
  KeyRouter router(session, key, context, table);
  for (;;) {
    if (router.worker() == nullptr) {
      status = co_await router.FindConnection();
      if (!status.ok()) co_return status;
    }
    Attempt<T> result = co_await here(&router, context);
    if (!result.ok()) co_return result.status();
    if (result->has_value()) co_return **std::move(result);
    if (const int64_t pause_ns = router.TakePauseNs(); pause_ns > 0) {
      co_await session->loop()->SleepUntil(std::min(context.deadline_ns, session->NowNs() + pause_ns));
    }
    if (session->NowNs() >= context.deadline_ns) {
      if (!router.refused().ok()) co_return router.refused();
      if (router.locked()) {
        co_return absl::DeadlineExceededError(
            fmt::format("a transaction that has not ended holds key {}, or one beside it", ForMessage(key)));
      }
      const absl::Status failure = session->view()->failure();
      if (!failure.ok()) {
        co_return WithFailure(fmt::format("key {} could not be reached within the call's timeout, and the region table "
                                          "could not be read",
                                          ForMessage(key)),
                              failure);
      }
      co_return absl::DeadlineExceededError(
          fmt::format("key {} could not be reached within the call's timeout", ForMessage(key)));
    }
  }
}

// Runs a read of one key, from its Begin to its End.
template <typename T, typename Here>
Task<absl::StatusOr<T>> RunRead(Session* session, const std::string* table, OperationKind kind, std::string_view key,
                                CallOptions options, Here here) {
  const CallContext context = session->Begin(options, kind);
  absl::StatusOr<T> result = co_await Operate<T>(session, table, key, context, std::move(here));
  if (!result.ok()) result = ReadOutcome(result.status());
  session->End(context, result.status());
  co_return result;
}

// Runs a write of one key, from its Begin to its End. For the result see WriteHere.
template <typename Result, typename Here>
Task<absl::StatusOr<Result>> RunWrite(Session* session, const std::string* table, KeyWrite write, CallOptions options,
                                      Here here) {
  const CallContext context = session->Begin(options, OperationKind::kWrite);
  absl::StatusOr<Result> result = Result{};
  if (const absl::Status status = CheckWrite(write); !status.ok()) {
    result = status;
  } else {
    result = co_await Operate<Result>(session, table, write.key, context, std::move(here));
  }
  session->End(context, result.status());
  co_return result;
}

}  // namespace cell

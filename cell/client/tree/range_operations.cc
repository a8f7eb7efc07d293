#include "cell/client/tree/range_operations.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cell/base/status_macros.h"
#include "cell/client/call/operate.h"
#include "fmt/format.h"

namespace cell {
namespace {

// What is done with the pairs of a range.
struct Work {
  OperationKind kind;
  std::string_view done;  // For messages.
  Task<Attempt<RangeSlice>> (*here)(Session*, KeyRouter*, std::string_view from, std::string_view to, CallContext);
};

constexpr Work kCounting{OperationKind::kScan, "counted", &CountHere};
constexpr Work kDeletion{OperationKind::kWrite, "deleted", &DeleteRangeHere};

absl::Status CheckRange(std::string_view from, std::optional<std::string_view> to, size_t key_bytes_max) {
  if (std::max(from.size(), to.value_or("").size()) > key_bytes_max) {
    return absl::InvalidArgumentError(fmt::format("the bounds of a range can have at most {} bytes", key_bytes_max));
  }
  if (to.has_value() && from > *to) {
    return absl::InvalidArgumentError(
        fmt::format("a range cannot begin at {} and end at {}, which is below", ForMessage(from), ForMessage(*to)));
  }
  return absl::OkStatus();
}

// Adds to an error how far the call has come.
absl::Status WithProgress(const absl::Status& status, const Work& work, const RangeProgress& progress) {
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()),
                                                  fmt::format("; {} pairs below key {} were {}", progress.pairs,
                                                              ForMessage(progress.reached), work.done)));
}

Task<absl::StatusOr<uint64_t>> EachSlice(Session* session, std::string_view from, std::optional<std::string_view> to,
                                         RangeOptions options, const Work& work) {
  if (session->closed()) co_return ClientLoop::Closed();
  const absl::Status status = CheckRange(from, to, KeyBytesMax(session->node_bytes()));
  if (!status.ok()) co_return status;
  if (from == to) co_return 0;
  CallOptions call;
  call.timeout_us = options.timeout_us.value_or(INT64_MAX);
  const int64_t deadline_ns = session->ContextOf(call).deadline_ns;
  call.timeout_us.reset();
  call.path = Path::kServer;
  const std::string first(1, '\0');
  std::string at(from.empty() ? first : from);
  for (uint64_t pairs = 0;;) {
    CallContext context = session->Begin(call, work.kind);
    context.deadline_ns = std::min(context.deadline_ns, deadline_ns);
    absl::StatusOr<RangeSlice> slice = absl::DeadlineExceededError("the call's time is over");
    if (context.started_ns < deadline_ns) {
      slice = co_await Operate<RangeSlice>(
          session, nullptr, at, context,
          [session, &work, &at, end = to.value_or("")](KeyRouter* router, const CallContext& its) {
            (void)session->ChoosePath(router->selector(), its);  // Counts it.
            return work.here(session, router, at, end, its);
          });
    }
    session->End(context, slice.status());
    if (!slice.ok()) co_return WithProgress(slice.status(), work, {pairs, at});
    pairs += slice->pairs;
    if (slice->next.empty()) co_return pairs;
    at = std::move(slice->next);
    if (options.progress != nullptr && !options.progress({pairs, at})) {
      co_return WithProgress(absl::CancelledError("stopped by the caller"), work, {pairs, at});
    }
  }
}

}  // namespace

Task<absl::StatusOr<uint64_t>> CountInTree(Session* session, std::string_view from, std::optional<std::string_view> to,
                                           RangeOptions options) {
  return EachSlice(session, from, to, std::move(options), kCounting);
}

Task<absl::StatusOr<uint64_t>> DeleteRangeInTree(Session* session, std::string_view from,
                                                 std::optional<std::string_view> to, RangeOptions options) {
  return EachSlice(session, from, to, std::move(options), kDeletion);
}

}  // namespace cell

#include "cell/client/call/apply.h"

#include <optional>
#include <utility>

#include "cell/client/call/operate.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kSlotPauseNs = 100'000;

// The state of one call of Apply.
struct Tries {
  KeyWrite write;         // Its `again` is set once the answer to a request was lost.
  absl::Status why = {};  // How the last such answer was lost.
};

// Tries once at the region that the router is at. A function with an id is tried again if its answer is lost: wherever
// its key is by then, it is not applied a second time.
Task<Attempt<Applied>> ApplyHere(Session* session, KeyRouter* router, Tries* tries, CallContext context) {
  WorkerConnection* const worker = router->worker();
  const bool has_id = tries->write.id.client != 0;
  const int64_t sent_ns = session->NowNs();
  // All tries that may have been applied must have the same limit.
  if (has_id && !tries->write.again) tries->write.id.until = worker->stamp.Until(sent_ns);
  Attempt<Applied> result = co_await WriteHere<Applied>(session, router, tries->write, {}, context);
  if (!has_id) co_return result;
  if (result.ok() && result->has_value()) {
    // The stamp of a pair that the function has not changed may be old.
    if ((*result)->changed || (*result)->untimely) worker->stamp.Note((*result)->stamp, sent_ns);
    if (!(*result)->untimely) co_return result;
    if (tries->write.again) co_return tries->why;
    co_return std::nullopt;
  }
  if (!IsMaybeApplied(result.status()) || session->closed()) co_return result;
  tries->write.again = true;
  tries->why = result.status();
  const int64_t again_ns = session->now_ns() + session->options().refused_pause_us * 1000;
  if (again_ns >= context.deadline_ns) co_return result;
  co_await session->loop()->SleepUntil(again_ns);
  (void)router->Restart();
  co_return std::nullopt;
}

}  // namespace

Task<absl::StatusOr<ApplyResult>> ApplyToKey(Session* session, const std::string* table, std::string_view key,
                                             const FunctionCall& function, CallOptions options) {
  Tries tries{{key, function.argument, kNeverExpires, std::nullopt, function.name}};
  std::optional<RequestId> id;
  const int64_t deadline_ns = session->ContextOf(options).deadline_ns;
  while (table == nullptr && !session->closed() && !id.has_value()) {
    id = session->TakeSlot();
    if (id.has_value()) break;
    if (session->NowNs() >= deadline_ns) co_return absl::DeadlineExceededError("waited too long for other functions");
    co_await session->loop()->SleepUntil(session->NowNs() + kSlotPauseNs);
  }
  if (id.has_value()) tries.write.id = *id;
  absl::StatusOr<Applied> applied = co_await RunWrite<Applied>(
      session, table, tries.write, options, [session, &tries](KeyRouter* router, const CallContext& context) {
        return ApplyHere(session, router, &tries, context);
      });
  if (id.has_value()) session->slots()->Give(*id);
  if (applied.ok()) co_return ApplyResult(*std::move(applied));
  // An error of the last request does not tell whether an earlier request was applied.
  if (tries.write.again && !IsMaybeApplied(applied.status())) co_return tries.why;
  co_return applied.status();
}

Task<absl::StatusOr<std::string>> EvaluateKey(Session* session, const std::string* table, std::string_view key,
                                              const FunctionCall& function, CallOptions options) {
  if (const absl::Status status = CheckEvaluation(function); !status.ok()) co_return status;
  co_return co_await RunRead<std::string>(session, table, OperationKind::kGet, key, options,
                                          [session, key, &function](KeyRouter* router, const CallContext& context) {
                                            return EvaluateByCall(session, router, key, function, context);
                                          });
}

}  // namespace cell

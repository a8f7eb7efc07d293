#include "cell/client/call/transact_steps.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace cell {
namespace {

constexpr int64_t kPauseNsMax = 50'000'000;
constexpr int kFinishTries = 10;

class Finishing : public DetachedTask {
 public:
  Finishing(Session* session, RequestId id, uint32_t primary, std::vector<uint32_t> others, uint64_t stamp)
      : task_(Run(session, id, primary, std::move(others), stamp)) {
    task_.Start();
  }
  bool ended() const override { return task_.done(); }

 private:
  static Task<bool> Run(Session* session, RequestId id, uint32_t primary, std::vector<uint32_t> others,
                        uint64_t stamp) {
    ++*session->finishing();
    for (int tries = 0; !others.empty() && tries < kFinishTries && !session->closed(); ++tries) {
      const int64_t deadline_ns = session->NowNs() + kTransactTryNs;
      std::vector<Task<StepResult>> steps;
      steps.reserve(others.size());
      for (const uint32_t region : others) {
        steps.push_back(DecideAt(session, region, id, Decision::kCommit, stamp, deadline_ns));
      }
      for (Task<StepResult>& step : steps) step.Start();
      std::vector<uint32_t> left;
      for (size_t i = 0; i < others.size(); ++i) {
        const StepResult result = co_await steps[i].Join();
        if (result.kind != StepResult::Kind::kAnswered) left.push_back(others[i]);
      }
      others = std::move(left);
      if (!others.empty()) co_await session->loop()->SleepUntil(session->NowNs() + kPauseNsMax);
    }
    if (!others.empty() && !session->closed()) {
      session->slots()->Retire(id);  // The primary tells them when they are back.
    } else if (!session->closed()) {
      (void)co_await DecideAt(session, primary, id, Decision::kFinish, stamp, session->NowNs() + kTransactTryNs);
      session->slots()->Give(id);
    }
    --*session->finishing();
    co_return true;
  }

  Task<bool> task_;
};

}  // namespace

int64_t TransactPauseNs(const Session& session) {
  return std::max<int64_t>(1'000, session.options().refused_pause_us * 250);
}

StepResult ResultOf(const absl::StatusOr<ConstBytes>& reply, MessageKind kind) {
  using Kind = StepResult::Kind;
  if (!reply.ok()) {
    return {absl::IsUnavailable(reply.status()) ? Kind::kRefused : Kind::kLost, {}, 0, {}, reply.status()};
  }
  if (IsRoute(*reply)) return {Kind::kElsewhere, {}, 0, {}, absl::UnavailableError("a region was split or has moved")};
  const absl::StatusOr<Parsed<TransactReply>> parsed = ParseTransactReply(*reply, kind);
  if (parsed.ok()) {
    const TransactReply& fixed = parsed->fixed;
    return {Kind::kAnswered, fixed.outcome, fixed.stamp, std::string(parsed->key), {}, fixed.expires};
  }
  if (absl::IsUnavailable(parsed.status())) return {Kind::kRefused, {}, 0, {}, parsed.status()};
  if (absl::IsUnknown(parsed.status())) return {Kind::kLost, {}, 0, {}, parsed.status()};
  return {IsErrorReply(*reply, kind) ? Kind::kFailed : Kind::kLost, {}, 0, {}, parsed.status()};
}

Task<StepResult> DecideAt(Session* session, uint32_t region, RequestId id, Decision decision, uint64_t stamp,
                          int64_t deadline_ns, Expiry expires) {
  const std::string request = MakeDecideRequest(RootOf(region), id, decision, stamp, expires);
  StepResult result{StepResult::Kind::kRefused, {}, 0, {}, absl::UnavailableError("no region was asked")};
  bool lost = false;
  int64_t pause_ns = TransactPauseNs(*session);
  for (;;) {
    if (session->closed()) {
      result = {lost ? StepResult::Kind::kLost : StepResult::Kind::kRefused, {}, 0, {}, ClientLoop::Closed()};
      co_return result;
    }
    const absl::StatusOr<WorkerConnection*> worker = co_await session->view()->Connect(region, deadline_ns);
    if (worker.ok()) {
      const OutgoingCall call{.head = request, .reply_bytes_max = kReplyBytesMin, .deadline_ns = deadline_ns};
      result = ResultOf(co_await session->connections()->Call(*worker, call), MessageKind::kDecide);
      result.again = lost;
      if (result.kind == StepResult::Kind::kAnswered) co_return result;
      if (result.kind == StepResult::Kind::kFailed && lost) result.kind = StepResult::Kind::kLost;
      if (result.kind == StepResult::Kind::kFailed) co_return result;
      lost |= result.kind == StepResult::Kind::kLost;
    } else {
      result.status = worker.status();
    }
    if (session->NowNs() + pause_ns >= deadline_ns) {
      if (lost) result.kind = StepResult::Kind::kLost;
      co_return result;
    }
    co_await session->loop()->SleepUntil(session->NowNs() + pause_ns);
    pause_ns = std::min(2 * pause_ns, kPauseNsMax);
    co_await session->view()->Refresh(deadline_ns);
    const bool gone = session->view()->failure().ok() && session->view()->cluster().table.Find(region) == nullptr;
    if (!gone) continue;
    result.kind = StepResult::Kind::kRefused;  // Who asks goes by the key again.
    if (decision != Decision::kRecall) result.kind = lost ? StepResult::Kind::kLost : StepResult::Kind::kAnswered;
    result.outcome = TransactOutcome::kAborted;
    co_return result;
  }
}

void FinishTransaction(Session* session, RequestId id, uint32_t primary, std::vector<uint32_t> others, uint64_t stamp) {
  session->loop()->Keep(std::make_unique<Finishing>(session, id, primary, std::move(others), stamp));
}

}  // namespace cell

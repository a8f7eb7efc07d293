#include "cell/client/call/take_snapshot.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "cell/client/call/calls.h"
#include "cell/client/call/operate.h"
#include "fmt/format.h"

namespace cell {
namespace {

// A region goes on by itself after 200 ms, which begin with its first answer.
constexpr int64_t kStillNs = 150'000'000;
constexpr int64_t kForgetNs = 1'000'000'000;
constexpr int64_t kPauseNs = 20'000;        // Before a region is asked again whether it is still. It doubles...
constexpr int kPauseDoublings = 6;          // ...so often.
constexpr int64_t kTryPauseNs = 1'000'000;  // Before another try. It doubles, too.
constexpr int kTryDoublings = 10;

using Piece = TakenSnapshot::Piece;

// Takes one step at the region that has the key `from`.
Task<absl::StatusOr<SnapshotAnswer>> StepAt(Session* session, SnapshotCall step, CallContext context) {
  co_return co_await Operate<SnapshotAnswer>(
      session, nullptr, step.from, context,
      [session, step](KeyRouter* router, const CallContext& its) { return SnapshotHere(session, router, step, its); });
}

// Returns whether another try may succeed.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsUnknown(status);
}

class Taker {
 public:
  Taker(Session* session, TakenSnapshot* taken, uint32_t kept_ms, CallContext context)
      : session_(session),
        taken_(taken),
        kept_ms_(kept_ms),
        context_(context),
        random_(static_cast<uint64_t>(context.started_ns)) {
    context_.path = Path::kServer;
  }

  Task<absl::Status> Run() {
    for (int tries = 0;; ++tries) {
      if (session_->closed()) co_return ClientLoop::Closed();
      taken_->id = session_->TakeSnapshotId();
      absl::Status status = co_await Look();
      if (status.ok()) status = co_await Try();
      if (status.ok() || session_->closed() || !MayPass(status)) co_return status;
      const int64_t longest_ns = kTryPauseNs << std::min(tries, kTryDoublings);
      const int64_t until_ns =
          session_->NowNs() + 1 + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(longest_ns)));
      if (until_ns >= context_.deadline_ns) {
        co_return absl::DeadlineExceededError(
            fmt::format("the snapshot could not be taken in time: {}", std::string(status.message())));
      }
      co_await session_->loop()->SleepUntil(until_ns);
    }
  }

 private:
  SnapshotCall CallOf(SnapshotStep step, const Piece& piece) const {
    return {step, taken_->id, piece.from, taken_->to, kept_ms_};
  }

  // Finds the regions that have the keys.
  Task<absl::Status> Look() {
    taken_->pieces.clear();
    std::string from = taken_->from;
    for (bool more = true; more;) {
      Piece piece{from, {}};
      const SnapshotCall step = CallOf(SnapshotStep::kLook, piece);
      const absl::StatusOr<SnapshotAnswer> answer = co_await StepAt(session_, step, context_);
      if (!answer.ok()) co_return answer.status();
      piece.end = answer->end;
      from = piece.end;
      more = !piece.end.empty() && (taken_->to.empty() || piece.end < taken_->to);
      taken_->pieces.push_back(std::move(piece));
    }
    co_return absl::OkStatus();
  }

  // Waits until a region is still, unless another one cannot be.
  Task<absl::Status> MakeStill(const Piece& piece, CallContext context) {
    absl::Status status = co_await WaitForStill(piece, context);
    failed_ |= !status.ok();
    co_return status;
  }
  Task<absl::Status> WaitForStill(const Piece& piece, CallContext context) {
    int64_t pause_ns = kPauseNs;
    for (int asked = 0;; ++asked) {
      const SnapshotCall step = CallOf(SnapshotStep::kStill, piece);
      const absl::StatusOr<SnapshotAnswer> answer = co_await StepAt(session_, step, context);
      if (!answer.ok()) co_return answer.status();
      if (answer->end != piece.end) co_return absl::UnavailableError("a region was split or joined");
      if (answer->state == SnapshotState::kStill) co_return absl::OkStatus();
      if (failed_) co_return absl::UnavailableError("another region could not be still");
      if (session_->NowNs() + pause_ns >= context.deadline_ns) {
        co_return absl::UnavailableError("writes were under way for too long");
      }
      co_await session_->loop()->SleepUntil(session_->NowNs() + pause_ns);
      if (asked < kPauseDoublings) pause_ns *= 2;
    }
  }

  // Lets a region go on that was still.
  Task<absl::Status> GoOn(const Piece& piece, CallContext context) {
    const SnapshotCall step = CallOf(SnapshotStep::kGoOn, piece);
    const absl::StatusOr<SnapshotAnswer> answer = co_await StepAt(session_, step, context);
    if (!answer.ok()) co_return answer.status();
    if (answer->state == SnapshotState::kTaken && answer->end == piece.end) co_return absl::OkStatus();
    co_return absl::UnavailableError("a region has not waited for the others");
  }

  // Takes a step in all regions at once.
  Task<absl::Status> InAll(Task<absl::Status> (Taker::*step)(const Piece&, CallContext), CallContext context) {
    std::vector<Task<absl::Status>> tasks;
    tasks.reserve(taken_->pieces.size());
    for (const Piece& piece : taken_->pieces) tasks.push_back((this->*step)(piece, context));
    for (Task<absl::Status>& task : tasks) task.Start();
    absl::Status lasting, passing;
    for (Task<absl::Status>& task : tasks) {
      const absl::Status status = co_await task.Join();
      (MayPass(status) ? passing : lasting).Update(status);
    }
    co_return lasting.ok() ? passing : lasting;
  }

  // Tries once. After an error, no region has the snapshot, or will for long.
  Task<absl::Status> Try() {
    failed_ = false;
    CallContext context = context_;
    context.deadline_ns = std::min(context_.deadline_ns, session_->NowNs() + kStillNs);
    absl::Status status = co_await InAll(&Taker::MakeStill, context);
    // Now there is a moment at which all were still.
    if (status.ok()) status = co_await InAll(&Taker::GoOn, context);
    if (status.ok()) co_return status;
    ForgetSnapshotLater(session_, *taken_);  // It may take longer than the call.
    co_return status;
  }

  Session* const session_;
  TakenSnapshot* const taken_;
  const uint32_t kept_ms_;
  CallContext context_;
  Random random_;
  bool failed_ = false;  // A region could not be made still in this try.
};

class Forgetting : public DetachedTask {
 public:
  Forgetting(Session* session, TakenSnapshot taken) : task_(ForgetSnapshot(session, std::move(taken))) {
    task_.Start();
  }
  bool ended() const override { return task_.done(); }

 private:
  Task<bool> task_;
};

// Tells the region that had these keys that they are not needed any more, and those that it was split into. Returns
// whether all have answered.
Task<bool> ForgetPiece(Session* session, const TakenSnapshot* taken, const Piece* piece, CallContext context) {
  for (std::string from = piece->from; !session->closed();) {
    const SnapshotCall step{SnapshotStep::kForget, taken->id, from, taken->to};
    const absl::StatusOr<SnapshotAnswer> answer = co_await StepAt(session, step, context);
    if (!answer.ok()) co_return false;
    const std::string& end = answer->end;
    const auto ends_at = [&end](const std::string& at) { return !at.empty() && end >= at; };
    if (end.empty() || ends_at(piece->end) || ends_at(taken->to)) co_return true;
    from = answer->end;
  }
  co_return false;
}

absl::Status CheckSnapshot(const TakenSnapshot& taken, int64_t keep_us, size_t key_bytes_max) {
  if (std::max(taken.from.size(), taken.to.size()) > key_bytes_max) {
    return absl::InvalidArgumentError(fmt::format("the bounds of a snapshot can have at most {} bytes", key_bytes_max));
  }
  if (!taken.to.empty() && taken.from >= taken.to) {
    return absl::InvalidArgumentError(fmt::format("a snapshot cannot begin at {} and end at {}: it would have no keys",
                                                  ForMessage(taken.from), ForMessage(taken.to)));
  }
  if (keep_us < 200'000 || keep_us > kSnapshotKeptNsMax / 1000) {
    return absl::InvalidArgumentError("a snapshot is kept for 0.2 s to an hour");
  }
  return absl::OkStatus();
}

}  // namespace

Task<absl::StatusOr<TakenSnapshot>> TakeSnapshot(Session* session, std::string from, std::string to, int64_t keep_us,
                                                 CallOptions options) {
  if (session->closed()) co_return ClientLoop::Closed();
  TakenSnapshot taken{{}, std::move(from), std::move(to)};
  if (taken.from.empty()) taken.from.assign(1, '\0');
  absl::Status status = CheckSnapshot(taken, keep_us, KeyBytesMax(session->node_bytes()));
  if (!status.ok()) co_return status;
  const CallContext context = session->Begin(options, OperationKind::kScan);
  Taker taker(session, &taken, static_cast<uint32_t>(keep_us / 1000), context);
  status = co_await taker.Run();
  status = ReadOutcome(std::move(status));
  session->End(context, status);
  if (!status.ok()) co_return status;
  co_return taken;
}

Task<bool> ForgetSnapshot(Session* session, TakenSnapshot taken) {
  CallContext context = session->ContextOf({});
  context.path = Path::kServer;
  context.deadline_ns = session->NowNs() + kForgetNs;
  std::vector<Task<bool>> tasks;
  tasks.reserve(taken.pieces.size());
  for (const Piece& piece : taken.pieces) tasks.push_back(ForgetPiece(session, &taken, &piece, context));
  for (Task<bool>& task : tasks) task.Start();
  bool all = true;
  for (Task<bool>& task : tasks) all &= co_await task.Join();
  co_return all;
}

void ForgetSnapshotLater(Session* session, TakenSnapshot taken) {
  if (!session->closed()) session->loop()->Keep(std::make_unique<Forgetting>(session, std::move(taken)));
}

}  // namespace cell

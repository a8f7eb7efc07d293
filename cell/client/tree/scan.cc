// Implements scans: batches of entries, each over the path that was chosen for it, with the next one read ahead.
#include <algorithm>
#include <optional>

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/client/call/calls.h"
#include "cell/client/route/key_router.h"
#include "cell/client/tree/scan_batch.h"
#include "cell/client/tree/scan_leaves.h"
#include "fmt/format.h"

namespace cell {

class Scan::Cursor : public DetachedTask {
 public:
  Cursor(Session* session, ScanOptions options, std::optional<SnapshotId> snapshot)
      : session_(session),
        options_(std::move(options)),
        snapshot_(snapshot),
        bounds_(CheckBounds()),
        position_(ScanPosition::Of(options_.from, options_.to, options_.reverse, KeyBytesMax(session->node_bytes()))),
        left_(options_.limit),
        leaves_(session, options_.keys_only) {
    options_.batch = std::clamp<uint32_t>(options_.batch, 1, kScanLimitMax);
    done_ = left_ == 0 || position_.ended();
  }

  Task<absl::StatusOr<absl::Span<const Entry>>> NextBatch() {
    if (!bounds_.ok()) co_return bounds_;
    const CallContext context = Context();
    absl::Status status = absl::CancelledError("");
    if (ahead_.has_value()) {
      status = co_await ahead_->Join();
      ahead_.reset();
      // It was read ahead, with an earlier deadline. If it failed, read it again with this call's.
    }
    if (!status.ok()) status = co_await Fill(context);
    if (!status.ok()) co_return status;
    ScanBatch* const given = filling_;
    filling_ = given == &batches_[0] ? &batches_[1] : &batches_[0];
    ++given_;
    if (options_.read_ahead && !done_ && (given_ > 1 || ended_at_border_)) {
      ahead_.emplace(Fill(Context()));
      ahead_->Start();
    }
    co_return given->Entries();
  }

  bool ended() const override { return !ahead_.has_value() || ahead_->done(); }
  // Tells the cursor that nobody waits for what is read ahead.
  void Stop() { stopped_ = true; }
  Session* session() const { return session_; }

 private:
  CallContext Context() const {
    CallContext context = session_->ContextOf(options_.call, OperationKind::kScan);
    if (snapshot_.has_value()) context.path = Path::kServer;  // Memory has what is there now.
    return context;
  }
  absl::Status CheckBounds() const {
    const size_t longest = KeyBytesMax(session_->node_bytes());
    if (options_.from.size() > longest || (options_.to.has_value() && options_.to->size() > longest)) {
      return absl::InvalidArgumentError(fmt::format("the bounds of a scan can have at most {} bytes", longest));
    }
    return absl::OkStatus();
  }

  // Fills `filling_` with the next batch: at least one entry, unless the scan is done. An error comes without entries.
  // The position is behind everything that was seen, even after an error. A scan over a long stretch of emptied leaves
  // therefore gets through it, however short the timeout of each batch is.
  Task<absl::Status> Fill(CallContext context) {
    ScanBatch* const batch = filling_;
    batch->Clear();
    if (done_) co_return absl::OkStatus();
    session_->Begin();
    absl::Status status;
    // An empty batch does not mean that the range has ended. Continue to the end, or to the next entries.
    while (status.ok() && batch->empty() && !done_ && !stopped_) {
      if (!router_.has_value()) {
        begin_key_ = position_.at();
        router_.emplace(session_, begin_key_, context, nullptr);
        from_here_ = !next_root_.null();
        if (from_here_) (void)router_->GoTo(next_root_);
      }
      if (router_->worker() == nullptr) {
        leaves_.Forget();
        status = co_await router_->FindConnection();
        if (!status.ok()) break;
      }
      WorkerConnection* const worker = router_->worker();
      ended_at_border_ = false;
      if (session_->ChoosePath(worker->selector(OperationKind::kScan), context) == Path::kServer) {
        leaves_.Forget();
        status = co_await FillByCall(worker, context, batch);
      } else {
        status = co_await FillByReads(context, batch);
      }
      if (!status.ok()) {
        leaves_.Forget();
        from_here_ = false;
      }
      if (const int64_t pause_ns = router_.has_value() ? router_->TakePauseNs() : 0; pause_ns > 0) {
        co_await session_->loop()->SleepUntil(std::min(context.deadline_ns, session_->NowNs() + pause_ns));
        context.path = Path::kServer;
      }
      if (AsksServer(status, context)) {
        context.path = Path::kServer;
        status = absl::OkStatus();
      } else if (MayHaveMoved(status)) {
        if (router_.has_value()) (void)router_->Restart();  // The region table may name another worker.
        status = absl::OkStatus();
      }
      if (session_->now_ns() >= context.deadline_ns && status.ok() && batch->empty() && !done_) {
        leaves_.Forget();
        status = absl::DeadlineExceededError(fmt::format(
            "the scan took too long; it stopped at key {}, and Next continues from there", ForMessage(position_.at())));
      }
    }
    // The router refers to this batch's deadline, and to its first key.
    if (router_.has_value()) NextAt(router_->worker() != nullptr ? router_->root() : Pointer());
    if (!batch->empty()) status = absl::OkStatus();  // The next batch meets the error again if it lasts.
    left_ -= std::min<uint64_t>(left_, batch->size());
    done_ |= left_ == 0;
    session_->metrics()->scanned += batch->size();
    status = ReadOutcome(std::move(status));
    session_->End(context, status);
    co_return status;
  }

  // Sets the root of the meganode with the next entries. Null: search for it by the position's key.
  void NextAt(Pointer root) {
    next_root_ = root;
    router_.reset();
  }

  size_t Wanted() const { return static_cast<size_t>(std::min<uint64_t>(left_, options_.batch)); }

  Task<absl::Status> FillByReads(CallContext context, ScanBatch* batch) {
    const ScanPosition from = position_;
    const Holder holder = router_->holder();  // The router may move on.
    const absl::StatusOr<ScanLeaves::Leg> leg =
        co_await leaves_.Fill(&*router_, &position_, from_here_, Wanted(), left_, context, batch);
    // Leaves that were read before a leg failed are part of the batch, too.
    if (!session_->view()->Leased(holder)) {
      if (!Mutated(Mutant::kScanSkipsUnleased)) position_ = from;
      batch->Clear();
      co_return absl::UnavailableError("the region table is too old for one-sided reads");
    }
    if (!leg.ok()) co_return leg.status();
    from_here_ |= !batch->empty();
    done_ = leg->end == ScanLeaves::Leg::End::kRange;
    ended_at_border_ = leg->end == ScanLeaves::Leg::End::kMeganode;
    if (ended_at_border_) NextAt(leg->next);
    co_return absl::OkStatus();
  }

  Task<absl::Status> FillByCall(WorkerConnection* worker, CallContext context, ScanBatch* batch) {
    const ScanTerms terms{.limit = static_cast<uint32_t>(Wanted()),
                          .reply_bytes_max = kMessageBytesMax,
                          .keys_only = options_.keys_only,
                          .down = position_.down()};
    std::string request;
    if (snapshot_.has_value()) {
      request = MakeScanSnapshotRequest(router_->root(), *snapshot_, position_.at(), position_.end(), terms);
    } else {
      request = MakeScanRequest(router_->root(), position_.at(), position_.end(), terms);
    }
    const OutgoingCall call{.head = request, .reply_bytes_max = kMessageBytesMax, .deadline_ns = context.deadline_ns};
    const absl::StatusOr<ConstBytes> reply =
        co_await session_->connections()->Call(worker, call, {worker->selector(OperationKind::kScan), Feedback::kCost});
    if (!reply.ok()) co_return reply.status();
    if (IsRoute(*reply)) {
      const absl::StatusOr<RouteView> route = ParseRouteReply(*reply);
      if (!route.ok()) co_return route.status();
      if (position_.down() && from_here_ && route->kind == RouteKind::kRestart) {
        NextAt({});  // The meganode to the left has no pointer from here. Search for it by key.
        co_return absl::OkStatus();
      }
      co_return router_->Follow(*route);
    }
    const absl::StatusOr<ScanResult> result =
        ParseScanReply(*reply, &items_, snapshot_.has_value() ? MessageKind::kScanSnapshot : MessageKind::kScan);
    if (!result.ok()) co_return result.status();
    if (!result->done && result->next_key.empty()) co_return absl::DataLossError("a scan's reply has no next key");
    // The views point into the reply, which is gone at the next suspension. Copy it whole, then fetch large values.
    const std::byte* const from = reply->data();
    const size_t base = batch->Copy(from, reply->size());
    const auto at = [&](std::string_view view) {
      return base + static_cast<size_t>(reinterpret_cast<const std::byte*>(view.data()) - from);
    };
    const std::string next_key(result->next_key);
    size_t elsewhere = 0;
    for (const ScanItem& item : items_) {
      elsewhere += item.elsewhere;
      batch->Add({at(item.key), item.key.size(), item.value.size(), item.expiry});
    }
    for (size_t i = 0; i < items_.size() && elsewhere > 0; ++i) {
      if (!items_[i].elsewhere) continue;
      const ScanBatch::EntryRef ref = (*batch)[i];
      const std::string key(batch->KeyOf(ref));
      if (batch->full()) {  // End the batch before it, and begin the next one with it.
        batch->Cut(i, batch->bytes());
        position_.MoveTo(key);
        co_return absl::OkStatus();
      }
      const absl::StatusOr<std::optional<size_t>> fetched = co_await FetchLarge(worker, key, items_[i], context, batch);
      if (fetched.ok() && fetched->has_value()) {
        (*batch)[i] = {**fetched, ref.key_bytes, items_[i].value_bytes, ref.expiry};
        continue;
      }
      if (!fetched.ok() && Mutated(Mutant::kScanGivesEmpty)) continue;
      if (Mutated(Mutant::kScanEndsEarly)) done_ = result->done;
      // End the batch before it, and begin the next one with it.
      if (fetched.ok()) ++session_->metrics()->extent_retries;
      const std::string behind(i + 1 < batch->size() ? batch->KeyOf((*batch)[i + 1]) : std::string_view());
      batch->Cut(i, batch->bytes());
      position_.MoveTo(key);
      // An entry of a snapshot may have led the router elsewhere.
      if (!fetched.ok() || i > 0 || router_->worker() == nullptr) co_return fetched.status();
      // If it is the first one, the batch is this entry alone, as its server has it at one moment, because it may be
      // written faster than it can be fetched.
      PairFacts facts;
      const Attempt<Value> value = co_await GetByCall(session_, &*router_, key, context, &facts, snapshot_);
      if (!value.ok() || !value->has_value()) co_return value.status();
      if ((*value)->has_value()) {
        const std::string entry = key + ***value;
        batch->Add({batch->Copy(entry.data(), entry.size()), key.size(), entry.size() - key.size(), facts.expiry});
      }
      if (behind.empty()) break;
      position_.MoveTo(behind);
      co_return absl::OkStatus();
    }
    position_.MoveTo(next_key);
    done_ = result->done;
    ended_at_border_ = !result->next.null();
    NextAt(ended_at_border_ ? result->next : router_->root());
    co_return absl::OkStatus();
  }

  // Fetches a large entry. Returns its offset in the batch's memory, or nullopt if it is not what the leaf said any
  // more.
  Task<absl::StatusOr<std::optional<size_t>>> FetchLarge(WorkerConnection* worker, std::string_view key,
                                                         const ScanItem& item, CallContext context, ScanBatch* batch) {
    if (snapshot_.has_value()) co_return co_await GetLarge(key, item, context, batch);
    const size_t bytes = key.size() + item.value_bytes;
    const size_t at = batch->Reserve(bytes);
    const absl::StatusOr<bool> there = co_await FetchBytes(session_, worker, item.extent.extent, /*copy=*/0,
                                                           {batch->At(at), bytes}, context.deadline_ns);
    if (!there.ok()) co_return there.status();
    if (!*there) co_return std::nullopt;
    const std::string_view extent = AsText(ConstBytes(batch->At(at), bytes));
    if (Crc64(extent) != item.extent.crc || extent.substr(0, key.size()) != key) co_return std::nullopt;
    co_return at;
  }

  // Works like FetchLarge, for an entry of a snapshot.
  Task<absl::StatusOr<std::optional<size_t>>> GetLarge(std::string_view key, const ScanItem& item, CallContext context,
                                                       ScanBatch* batch) {
    const Attempt<Value> value = co_await GetByCall(session_, &*router_, key, context, nullptr, snapshot_);
    if (!value.ok()) co_return value.status();
    if (!value->has_value() || !(*value)->has_value()) co_return std::nullopt;
    const std::string entry = std::string(key) + ***value;
    if (entry.size() != key.size() + item.value_bytes) {
      co_return absl::DataLossError(fmt::format("the server's value of {} has another size", ForMessage(key)));
    }
    co_return batch->Copy(entry.data(), entry.size());
  }

  Session* session_;
  ScanOptions options_;
  const std::optional<SnapshotId> snapshot_;  // Scans what this has.
  const absl::Status bounds_;
  ScanPosition position_;  // Where the next batch begins.
  uint64_t left_;          // Entries left of the limit.
  bool done_ = false;
  Pointer next_root_;                // Root of the meganode with the next entries, if known.
  std::optional<KeyRouter> router_;  // Router of the batch being filled...
  std::string begin_key_;            // ...and the key where that begins.
  bool from_here_ = false;           // The scan's entries so far, if any, end in the router's meganode.
  bool ended_at_border_ = false;     // The batch ended at a meganode's border: all entries of the last one are there.
  ScanLeaves leaves_;
  std::vector<ScanItem> items_;

  // One belongs to the caller. The other is being filled, by ahead_ or on the caller's request.
  ScanBatch batches_[2];
  ScanBatch* filling_ = &batches_[0];
  uint64_t given_ = 0;
  std::optional<Task<absl::Status>> ahead_;
  bool stopped_ = false;
};

void Scan::CursorDeleter::operator()(Cursor* cursor) const {
  std::unique_ptr<Cursor> owned(cursor);
  if (owned->ended()) return;
  owned->Stop();
  owned->session()->loop()->Keep(std::move(owned));
}

Scan::Scan(Session* session, ScanOptions options) : Scan(session, std::move(options), nullptr) {}
Scan::Scan(Session* session, ScanOptions options, const SnapshotId* snapshot)
    : session_(session),
      cursor_(new Cursor(session, std::move(options), snapshot == nullptr ? std::nullopt : std::optional(*snapshot))) {}
Scan::Scan(Scan&&) noexcept = default;
Scan& Scan::operator=(Scan&&) noexcept = default;
Scan::~Scan() = default;

Task<absl::StatusOr<absl::Span<const Scan::Entry>>> Scan::AsyncNextBatch() { return cursor_->NextBatch(); }

absl::StatusOr<bool> Scan::Next() {
  if (++at_ < batch_.size()) return true;
  auto task = cursor_->NextBatch();
  task.Start();
  while (!task.done()) session_->Poll(INT64_MAX);
  ASSIGN_OR_RETURN(batch_, task.Take());
  at_ = 0;
  return !batch_.empty();
}

}  // namespace cell

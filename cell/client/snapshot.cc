#include "cell/client/snapshot.h"

#include <algorithm>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/client/call/calls.h"
#include "cell/client/call/operate.h"
#include "cell/client/call/take_snapshot.h"
#include "cell/client/session/session.h"
#include "fmt/format.h"

namespace cell {

struct Snapshot::State {
  State(Client* its_client, TakenSnapshot its) : client(its_client), taken(std::move(its)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (!forgotten) ForgetSnapshotLater(client->session_.get(), std::move(taken));
  }

  Client* const client;
  TakenSnapshot taken;
  bool over = false;       // It is not to be read any more.
  bool forgotten = false;  // All servers know that.
};

bool IsSnapshotTooOld(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) && status.message().find("SnapshotTooOld") != std::string_view::npos;
}

Snapshot::Snapshot(std::unique_ptr<State> state) : state_(std::move(state)) {}
Snapshot::Snapshot(Snapshot&&) noexcept = default;
Snapshot& Snapshot::operator=(Snapshot&&) noexcept = default;
Snapshot::~Snapshot() = default;

Task<bool> Snapshot::AsyncForget() {
  State* const state = state_.get();
  state->over = true;
  TakenSnapshot taken = state->taken;
  const bool all = co_await ForgetSnapshot(state->client->session_.get(), std::move(taken));
  state->forgotten |= all;
  co_return all;
}

bool Snapshot::Forget() { return state_->client->Run(AsyncForget()); }

Task<absl::StatusOr<std::optional<std::string>>> Snapshot::AsyncGet(std::string_view key, CallOptions options) {
  const TakenSnapshot& taken = state_->taken;
  Session* const session = state_->client->session_.get();
  if (key < taken.from || (!taken.to.empty() && key >= taken.to)) {
    if (const absl::Status status = CheckKey(key, KeyBytesMax(session->node_bytes()), "this cluster's nodes");
        !status.ok())
      co_return status;
    co_return absl::OutOfRangeError(fmt::format("the snapshot's range does not have key {}", ForMessage(key)));
  }
  if (state_->over) co_return absl::FailedPreconditionError("SnapshotTooOld: it was forgotten");
  options.path = Path::kServer;
  co_return co_await RunRead<Value>(session, nullptr, OperationKind::kGet, key, options,
                                    [session, key, id = taken.id](KeyRouter* router, const CallContext& context) {
                                      return GetByCall(session, router, key, context, nullptr, id);
                                    });
}

absl::StatusOr<std::optional<std::string>> Snapshot::Get(std::string_view key, const CallOptions& options) {
  return state_->client->Run(AsyncGet(key, options));
}

absl::StatusOr<std::vector<std::optional<std::string>>> Snapshot::MultiGet(absl::Span<const std::string_view> keys,
                                                                           const CallOptions& options) {
  std::vector<Task<absl::StatusOr<Value>>> gets;
  gets.reserve(keys.size());
  for (const std::string_view key : keys) gets.push_back(AsyncGet(key, options));
  return state_->client->RunAll(&gets);
}

Scan Snapshot::NewScan(ScanOptions options) {
  const TakenSnapshot& taken = state_->taken;
  options.from = std::max(options.from, taken.from);
  if (!taken.to.empty() && (!options.to.has_value() || *options.to > taken.to)) options.to = taken.to;
  return Scan(state_->client->session_.get(), std::move(options), &taken.id);
}

absl::StatusOr<Snapshot> Client::TakeSnapshot(const SnapshotOptions& options) {
  return Run(AsyncTakeSnapshot(options));
}

Task<absl::StatusOr<Snapshot>> Client::AsyncTakeSnapshot(SnapshotOptions options) {
  if (options.to == "") co_return absl::InvalidArgumentError("a snapshot cannot end before the first key");
  std::string to = options.to.value_or("");
  absl::StatusOr<TakenSnapshot> taken = co_await cell::TakeSnapshot(session_.get(), std::move(options.from),
                                                                    std::move(to), options.keep_us, options.call);
  if (!taken.ok()) co_return taken.status();
  co_return Snapshot(std::make_unique<Snapshot::State>(this, *std::move(taken)));
}

}  // namespace cell

#include "cell/server/change/peers.h"

#include <algorithm>
#include <utility>

#include "cell/io/fabric/fabric_await.h"
#include "cell/layout/wire.h"

namespace cell {
namespace {

constexpr int64_t kConnectTimeoutNs = 1'000'000'000;

// Names a worker for a message. A stranger may ask for a worker of any name.
std::string Shown(const WorkerId& worker) { return absl::CHexEscape(ToString(worker)); }

}  // namespace

Task<absl::StatusOr<ConnectionId>> Peers::Connect(WorkerId worker, int64_t timeout_ns, bool* before) {
  const auto link = links_.find(worker);
  *before = link != links_.end();
  if (*before) co_return link->second;
  const ClusterState::Worker* known = membership_->state().FindWorker(worker);
  if (known == nullptr) co_return absl::UnavailableError(fmt::format("{} is not in the cluster", Shown(worker)));
  const absl::StatusOr<ConnectionId> connection =
      co_await ConnectAwaiter(fabric_, known->address, fabric_->NowNs() + std::min(timeout_ns, kConnectTimeoutNs));
  if (!connection.ok()) co_return connection.status();
  const auto made = links_.emplace(worker, *connection);
  if (!made.second) to_close_.push_back(*connection);  // Another task was faster.
  co_return made.first->second;
}

void Peers::Lost(const WorkerId& worker, ConnectionId used) {
  const auto link = links_.find(worker);
  if (link == links_.end() || link->second != used) return;
  links_.erase(link);
  to_close_.push_back(used);
}

Task<absl::StatusOr<std::string>> Peers::Call(WorkerId worker, std::string request, int64_t timeout_ns) {
  for (int attempt = 0;; ++attempt) {
    bool before = false;
    const absl::StatusOr<ConnectionId> connection = co_await Connect(worker, timeout_ns, &before);
    if (!connection.ok()) co_return connection.status();
    const OutgoingCall call{
        .head = request, .reply_bytes_max = kMessageBytesMax, .deadline_ns = fabric_->NowNs() + timeout_ns};
    const absl::StatusOr<ConstBytes> reply = co_await CallAwaiter(fabric_, *connection, call);
    if (reply.ok()) co_return std::string(AsText(*reply));
    Lost(worker, *connection);
    // Unavailable means that it was not sent, so it can be sent again.
    if (!before || attempt > 0 || !absl::IsUnavailable(reply.status())) co_return reply.status();
  }
}

Task<absl::Status> Peers::Read(WorkerId worker, absl::Span<const ReadPart> parts) {
  bool before = false;
  const absl::StatusOr<ConnectionId> connection = co_await Connect(worker, kAnswerTimeoutNs, &before);
  if (!connection.ok()) co_return connection.status();
  absl::Status status = co_await ReadAwaiter(fabric_, *connection, parts, fabric_->NowNs() + kAnswerTimeoutNs);
  if (!status.ok() && status.code() != absl::StatusCode::kOutOfRange) Lost(worker, *connection);
  co_return status;
}

void Peers::ForgetRegion(const WorkerId& worker, uint32_t region) {
  const auto it = links_.find(worker);
  if (it != links_.end()) fabric_->ForgetRegion(it->second, region);
}

void Peers::Step() {
  if (const ClusterState& state = membership_->state(); state.revision != seen_revision_) {
    seen_revision_ = state.revision;
    for (auto link = links_.begin(); link != links_.end();) {
      if (state.FindWorker(link->first) != nullptr) {
        ++link;
        continue;
      }
      to_close_.push_back(link->second);
      link = links_.erase(link);
    }
  }
  for (const ConnectionId id : std::exchange(to_close_, {})) fabric_->Disconnect(id);
}

}  // namespace cell

#include "cell/server/peers.h"

#include <utility>

#include "cell/io/fabric_await.h"
#include "cell/layout/wire.h"

namespace cell {
namespace {

constexpr int64_t kConnectTimeoutNs = 1'000'000'000;
constexpr int64_t kAnswerTimeoutNs = 2'000'000'000;

}  // namespace

Task<absl::StatusOr<ConnectionId>> Peers::Connect(WorkerId worker) {
  Link& link = links_[worker];  // Stays where it is: a map.
  if (link.up) co_return link.connection;
  const ClusterState::Worker* known = membership_->state().FindWorker(worker);
  if (known == nullptr) co_return absl::UnavailableError(fmt::format("{} is not in the cluster", ToString(worker)));
  const absl::StatusOr<ConnectionId> connection =
      co_await ConnectAwaiter(fabric_, known->address, fabric_->NowNs() + kConnectTimeoutNs);
  if (!connection.ok()) co_return connection.status();
  if (link.up) {
    lost_.push_back(*connection);  // Another task was faster.
  } else {
    link = {*connection, true};
  }
  co_return link.connection;
}

void Peers::Lost(const WorkerId& worker, ConnectionId used) {
  Link& link = links_[worker];
  if (!link.up || link.connection != used) return;
  link.up = false;
  lost_.push_back(used);
}

Task<absl::StatusOr<std::string>> Peers::Ask(WorkerId worker, std::string request) {
  const absl::StatusOr<ConnectionId> connection = co_await Connect(worker);
  if (!connection.ok()) co_return connection.status();
  const absl::StatusOr<ConstBytes> reply =
      co_await CallAwaiter(fabric_, *connection, request, {}, kMessageBytesMax, fabric_->NowNs() + kAnswerTimeoutNs);
  if (reply.ok()) co_return std::string(AsText(*reply));
  Lost(worker, *connection);
  co_return reply.status();
}

Task<absl::Status> Peers::Read(WorkerId worker, absl::Span<const ReadPart> parts) {
  const absl::StatusOr<ConnectionId> connection = co_await Connect(worker);
  if (!connection.ok()) co_return connection.status();
  absl::Status status = co_await ReadAwaiter(fabric_, *connection, parts, fabric_->NowNs() + kAnswerTimeoutNs);
  if (!status.ok() && status.code() != absl::StatusCode::kOutOfRange) Lost(worker, *connection);
  co_return status;
}

void Peers::ForgetRegion(const WorkerId& worker, uint32_t region) {
  const auto it = links_.find(worker);
  if (it != links_.end() && it->second.up) fabric_->ForgetRegion(it->second.connection, region);
}

void Peers::Step() {
  for (const ConnectionId id : std::exchange(lost_, {})) fabric_->Disconnect(id);
}

}  // namespace cell

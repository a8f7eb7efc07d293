#include "cell/client/session/table_asker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/layout/limits.h"
#include "cell/layout/wire.h"

namespace cell {
namespace {

// Returns the `count` workers that come first in an order that all clients of the cluster know.
std::vector<WorkerId> FirstWorkers(const ClusterState& cluster, size_t count) {
  std::vector<std::pair<uint64_t, WorkerId>> all;
  for (const ClusterState::Server& server : cluster.servers) {
    for (uint32_t i = 0; i < server.workers.size(); ++i) {
      if (server.workers[i].address.empty()) continue;
      WorkerId id{server.name, i};
      const uint64_t order = Crc64(ToString(id), Crc64(cluster.uuid));
      all.emplace_back(order, std::move(id));
    }
  }
  const auto end = all.begin() + static_cast<ptrdiff_t>(std::min(count, all.size()));
  std::partial_sort(all.begin(), end, all.end());
  std::vector<WorkerId> first;
  for (auto it = all.begin(); it != end; ++it) first.push_back(std::move(it->second));
  return first;
}

}  // namespace

WorkerConnection* TableAsker::Next(const ClusterState& cluster) {
  if (asked_.empty() || revision_ != cluster.revision) {
    asked_ = FirstWorkers(cluster, kAskedMax);
    revision_ = cluster.revision;
  }
  if (asked_.empty()) return nullptr;
  const WorkerId& id = asked_[turn_ % asked_.size()];
  return connections_->To(id, cluster.FindWorker(id)->address);
}

Task<absl::StatusOr<TableAsker::Answer>> TableAsker::Ask(const ClusterState* cluster, uint64_t age_ns,
                                                         int64_t deadline_ns) {
  const uint64_t identity = Crc64(cluster->uuid);
  const int64_t begun_ns = loop_->NowNs();
  WorkerConnection* asked = nullptr;
  absl::StatusOr<Answer> answer = absl::UnavailableError("there is no worker to ask");
  for (const int64_t until_ns : {begun_ns + (deadline_ns - begun_ns) / 2, deadline_ns}) {
    WorkerConnection* const worker = Next(*cluster);
    if (worker == nullptr || worker == asked || loop_->closed()) break;
    asked = worker;
    answer = co_await AskOne(worker, identity, age_ns, until_ns);
    if (answer.ok()) break;
    PassOver();
  }
  co_return answer;
}

Task<absl::StatusOr<TableAsker::Answer>> TableAsker::AskOne(WorkerConnection* worker, uint64_t cluster, uint64_t age_ns,
                                                            int64_t deadline_ns) {
  if (const absl::Status connected = co_await connections_->Connect(worker, deadline_ns); !connected.ok()) {
    co_return connected;
  }
  if (loop_->closed()) co_return ClientLoop::Closed();
  const std::string request = MakeTableVersionRequest(age_ns);
  const OutgoingCall call{.head = request, .reply_bytes_max = kReplyBytesMin, .deadline_ns = deadline_ns};
  const int64_t asked_ns = loop_->NowNs();
  ++metrics_->table_questions;
  Connections::CallOp asking(connections_, worker, call, {});  // Not counted as a call: it belongs to no operation.
  const absl::StatusOr<ConstBytes> bytes = co_await asking;
  const absl::StatusOr<TableVersionReply> reply = bytes.ok() ? ParseTableVersionReply(*bytes) : bytes.status();
  if (!reply.ok()) co_return reply.status();
  if (reply->cluster != cluster) co_return absl::FailedPreconditionError("this worker belongs to another cluster");
  // An age beyond any lease is as good as none, and does not overflow.
  if (reply->age_ns > static_cast<uint64_t>(INT64_MAX / 2)) {
    co_return absl::FailedPreconditionError("this worker does not know how old its region table is");
  }
  const int64_t age = Mutated(Mutant::kTableAgeIgnored) ? 0 : static_cast<int64_t>(reply->age_ns);
  co_return Answer{reply->version, reply->servers_version, asked_ns - age, worker};
}

}  // namespace cell

#include "cell/client/session/table_fetcher.h"

#include <utility>
#include <vector>

#include "cell/cluster/cluster_text.h"
#include "cell/cluster/table_shards.h"
#include "cell/layout/limits.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kServersBytesMax = size_t{1} << 20;

absl::Status NotValid(const char* what, const absl::Status& why) {
  return absl::DataLossError(fmt::format("a worker sent {} that is not valid: {}", what, std::string(why.message())));
}

}  // namespace

Task<absl::StatusOr<std::string>> TableFetcher::FetchPart(WorkerConnection* worker, TablePart part, size_t bytes_max,
                                                          int64_t deadline_ns) {
  std::string text;
  for (;;) {
    if (loop_->closed()) co_return ClientLoop::Closed();
    const std::string request = MakeTablePartRequest(part, text.size());
    const OutgoingCall call{.head = request, .reply_bytes_max = kMessageBytesMax, .deadline_ns = deadline_ns};
    Connections::CallOp asking(connections_, worker, call, {});  // Not counted as a call: it belongs to no operation.
    const absl::StatusOr<ConstBytes> bytes = co_await asking;
    if (!bytes.ok()) co_return bytes.status();
    const absl::StatusOr<Parsed<TablePartReply>> reply = ParseTablePartReply(*bytes);
    if (!reply.ok()) co_return reply.status();
    ++metrics_->table_parts;
    text += reply->value;
    if (reply->fixed.bytes > bytes_max || text.size() > reply->fixed.bytes) {
      co_return NotValid("a part of the region table", absl::InvalidArgumentError("it is too long"));
    }
    if (text.size() == reply->fixed.bytes) co_return text;
    if (reply->value.empty()) {
      co_return NotValid("a part of the region table", absl::InvalidArgumentError("a piece of it is empty"));
    }
  }
}

Task<absl::Status> TableFetcher::FetchServers(WorkerConnection* worker, uint64_t version, int64_t deadline_ns,
                                              ClusterState* to) {
  const TablePart part{TablePartKind::kServers, 0, version};
  const absl::StatusOr<std::string> text = co_await FetchPart(worker, part, kServersBytesMax, deadline_ns);
  if (!text.ok()) co_return text.status();
  absl::StatusOr<std::vector<ClusterState::Server>> servers = ParseServersText(*text);
  if (!servers.ok()) co_return NotValid("a list of servers", servers.status());
  to->servers = *std::move(servers);
  to->servers_version = version;
  co_return absl::OkStatus();
}

Task<absl::Status> TableFetcher::FetchTable(WorkerConnection* worker, uint64_t version, int64_t deadline_ns,
                                            ClusterState* to) {
  const TablePart part{TablePartKind::kRoot, 0, version};
  const absl::StatusOr<std::string> text = co_await FetchPart(worker, part, kTableRootMax, deadline_ns);
  if (!text.ok()) co_return text.status();
  absl::StatusOr<TableRoot> root = ParseTableRoot(*text);
  if (!root.ok()) co_return NotValid("a region table", root.status());
  std::vector<RegionMap::Shard> shards = KnownShards(root->shards, to->table.regions.shards());
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].entries != nullptr) continue;
    const ShardRef ref = root->shards[i];
    const TablePart wanted{TablePartKind::kShard, ref.first, ref.version};
    const absl::StatusOr<std::string> bytes = co_await FetchPart(worker, wanted, kTableShardMax, deadline_ns);
    if (!bytes.ok()) co_return bytes.status();
    absl::StatusOr<RegionMap::Shard> shard = ParseTableShard(*bytes, ref);
    if (!shard.ok()) co_return NotValid("a part of the region table", shard.status());
    shards[i] = *std::move(shard);
  }
  absl::StatusOr<RegionTable> table = JoinTable(*std::move(root), std::move(shards));
  if (!table.ok()) co_return NotValid("a region table", table.status());
  if (table->version != version) {
    co_return NotValid("a region table", absl::InvalidArgumentError("it has another version"));
  }
  to->table = *std::move(table);
  co_return absl::OkStatus();
}

Task<absl::StatusOr<std::shared_ptr<const ClusterState>>> TableFetcher::Fetch(WorkerConnection* worker,
                                                                              ClusterState have, Versions newer,
                                                                              int64_t deadline_ns) {
  absl::Status status;
  if (newer.servers > have.servers_version) {
    status = co_await FetchServers(worker, newer.servers, deadline_ns, &have);
  }
  if (status.ok() && newer.table > have.table.version) {
    status = co_await FetchTable(worker, newer.table, deadline_ns, &have);
  }
  if (!status.ok()) co_return status;
  co_return std::make_shared<const ClusterState>(std::move(have));
}

}  // namespace cell

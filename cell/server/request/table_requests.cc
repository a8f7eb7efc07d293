#include "cell/server/request/table_requests.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/cluster_text.h"
#include "cell/cluster/table_shards.h"

namespace cell {
namespace {

absl::Status OtherVersion() { return absl::AbortedError("this worker knows another version"); }

}  // namespace

absl::StatusOr<size_t> TableRequests::Version(ConstBytes request, MutableBytes to) {
  ASSIGN_OR_RETURN(const TableVersionRequest parsed, ParseTableVersionRequest(request));
  const ClusterState& state = membership_->state();
  auto reply = ReplyOf<TableVersionReply>(MessageKind::kTableVersion);
  const std::optional<int64_t> age_ns = refresher_ == nullptr ? std::nullopt : refresher_->Age(parsed.age_ns);
  reply.cluster = Crc64(state.uuid);
  reply.version = state.table.version;
  reply.servers_version = state.servers_version;
  reply.age_ns = age_ns.has_value() ? static_cast<uint64_t>(*age_ns) : UINT64_MAX;
  Store(to.data(), reply);
  return sizeof(reply);
}

absl::StatusOr<size_t> TableRequests::Part(ConstBytes request, MutableBytes to) {
  ASSIGN_OR_RETURN(const TablePartRequest parsed, ParseTablePartRequest(request));
  ASSIGN_OR_RETURN(const std::string* const text, TextOf(parsed.part));
  if (parsed.offset > text->size()) return absl::InvalidArgumentError("there is no such offset");
  const size_t bytes = std::min(text->size() - parsed.offset, to.size() - sizeof(TablePartReply));
  auto reply = ReplyOf<TablePartReply>(MessageKind::kTablePart);
  reply.header.bytes = static_cast<uint32_t>(sizeof(reply) + bytes);
  reply.bytes = text->size();
  Store(to.data(), reply);
  std::memcpy(to.data() + sizeof(reply), text->data() + parsed.offset, bytes);
  return sizeof(reply) + bytes;
}

absl::StatusOr<const std::string*> TableRequests::TextOf(const TablePart& part) {
  const ClusterState& state = membership_->state();
  const bool any = Mutated(Mutant::kPartOfAnyVersion);
  if (part.kind == TablePartKind::kServers) {
    if (part.version != state.servers_version && !any) return OtherVersion();
    if (servers_.text.empty() || servers_.version != state.servers_version) {
      servers_ = {state.servers_version, ServersText(state.servers)};
    }
    return &servers_.text;
  }
  const std::vector<RegionMap::Shard>& shards = state.table.regions.shards();
  if (part.kind == TablePartKind::kRoot) {
    if (part.version != state.table.version && !any) return OtherVersion();
    for (const RegionMap::Shard& shard : shards) {
      if (shard.version == 0) return absl::FailedPreconditionError("this cluster's table has no versions of its parts");
    }
    if (root_.text.empty() || root_.version != state.table.version) {
      root_ = {state.table.version, StoredRoot(state.table)};
    }
    return &root_.text;
  }
  const auto shard = std::lower_bound(shards.begin(), shards.end(), part.first,
                                      [](const RegionMap::Shard& one, uint32_t first) { return one.first < first; });
  if (shard == shards.end() || shard->first != part.first || shard->version == 0) return OtherVersion();
  if (shard->version != part.version && !any) return OtherVersion();
  if (shard_.text.empty() || shard_first_ != shard->first || shard_.version != shard->version) {
    shard_ = {shard->version, StoredShard(*shard)};
    shard_first_ = shard->first;
  }
  return &shard_.text;
}

}  // namespace cell

#include "cell/cluster/zookeeper/zookeeper_table.h"

#include <utility>

#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int kReadsMax = 100;
// ZooKeeper takes 1 MB at once. An operation takes its path and less than this beside its data.
constexpr size_t kWriteMax = 1'000'000;
constexpr size_t kOpBytes = 128;

std::string ShardPath(const std::string& path, uint32_t first) { return fmt::format("{}/{:08}", path, first); }

std::vector<ZooKeeperConnection::Op> OpsOf(const std::string& path, const TableWrite& write, int root_version) {
  using Op = ZooKeeperConnection::Op;
  std::vector<Op> ops{{Op::Kind::kSet, path, write.root, root_version}};
  for (const TableWrite::Shard& shard : write.created) {
    ops.push_back({Op::Kind::kCreate, ShardPath(path, shard.first), shard.bytes, -1});
  }
  for (const TableWrite::Shard& shard : write.replaced) {
    ops.push_back({Op::Kind::kSet, ShardPath(path, shard.first), shard.bytes, -1});
  }
  for (const uint32_t first : write.removed) ops.push_back({Op::Kind::kDelete, ShardPath(path, first), {}, -1});
  return ops;
}

absl::Status CheckSize(const std::vector<ZooKeeperConnection::Op>& ops) {
  size_t bytes = 0;
  for (const ZooKeeperConnection::Op& op : ops) bytes += op.data.size() + op.path.size() + kOpBytes;
  if (bytes <= kWriteMax) return absl::OkStatus();
  return absl::OutOfRangeError(fmt::format(
      "this change of the region table has {} bytes, but ZooKeeper takes {} at once: it is for too many regions", bytes,
      kWriteMax));
}

}  // namespace

absl::StatusOr<std::vector<RegionMap::Shard>> ZooKeeperTable::ReadShards(const std::vector<ShardRef>& refs,
                                                                         const std::vector<RegionMap::Shard>& have) {
  std::vector<RegionMap::Shard> shards = KnownShards(refs, have);
  for (size_t i = 0; i < refs.size(); ++i) {
    if (shards[i].entries != nullptr) continue;
    between_();
    const std::string path = ShardPath(path_, refs[i].first);
    const absl::StatusOr<std::string> bytes = connection_->Get(path, nullptr, false);
    if (!bytes.ok() && absl::IsNotFound(bytes.status())) {
      return absl::AbortedError(fmt::format("{} does not exist", path));
    }
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<RegionMap::Shard> shard = ParseTableShard(*bytes, refs[i]);
    if (!shard.ok()) {
      return absl::Status(shard.status().code(), fmt::format("{}: {}", path, std::string(shard.status().message())));
    }
    shards[i] = *std::move(shard);
  }
  return shards;
}

absl::Status ZooKeeperTable::Read() {
  int64_t failed_zxid = 0;  // That of a root that was older than table(), or one of whose shards was not as it says.
  for (int tries = 0; tries < kReadsMax; ++tries) {
    const auto invalid = [this](const absl::Status& status) {
      return absl::UnavailableError(
          fmt::format("ZooKeeper: {}: not a region table: {}", path_, std::string(status.message())));
    };
    Stat stat{};
    ASSIGN_OR_RETURN(const std::string text, connection_->Get(path_, &stat, true));
    if (stat.mzxid == root_zxid_) return absl::OkStatus();
    absl::StatusOr<TableRoot> root = ParseTableRoot(text);
    if (!root.ok()) return invalid(root.status());
    // The cluster may have been deleted and made again: versions of the former table mean nothing in this one.
    const bool other = stat.czxid != root_made_zxid_;
    if (!other && root->table.version < table_.version) {
      // The ZooKeeper that answers may lag behind the one that did before. Otherwise an older copy was written, under
      // which versions would be given a second time.
      if (stat.mzxid == failed_zxid) {
        return invalid(absl::DataLossError(fmt::format("it has version {}, but had version {} before: write that back",
                                                       root->table.version, table_.version)));
      }
      failed_zxid = stat.mzxid;
      (void)connection_->Sync(path_);
      continue;
    }
    const std::vector<RegionMap::Shard> none;
    absl::StatusOr<std::vector<RegionMap::Shard>> shards =
        ReadShards(root->shards, other ? none : table_.regions.shards());
    if (!shards.ok() && absl::IsAborted(shards.status()) && stat.mzxid != failed_zxid) {
      failed_zxid = stat.mzxid;  // A change may have come between. If the root is the same, none has.
      continue;
    }
    if (!shards.ok()) return absl::IsUnavailable(shards.status()) ? shards.status() : invalid(shards.status());
    absl::StatusOr<RegionTable> table = JoinTable(*std::move(root), *std::move(shards));
    if (!table.ok()) return invalid(table.status());
    table_ = *std::move(table);
    root_made_zxid_ = stat.czxid;
    root_zxid_ = stat.mzxid;
    root_version_ = stat.version;
    return absl::OkStatus();
  }
  return absl::UnavailableError(fmt::format("ZooKeeper: {} keeps changing while it is read", path_));
}

bool ZooKeeperTable::IsCurrent() {
  const absl::StatusOr<Stat> stat = connection_->StatOf(path_);
  return stat.ok() && stat->mzxid == root_zxid_;
}

absl::StatusOr<int> ZooKeeperTable::Write(RegionTable changed) {
  const TableWrite write = WriteTable(table_, &changed);
  const std::vector<ZooKeeperConnection::Op> ops = OpsOf(path_, write, root_version_);
  RETURN_IF_ERROR(CheckSize(ops));
  Stat stat{};
  const int rc = connection_->Multi(ops, &stat);
  if (rc != ZOK) return rc;
  table_ = std::move(changed);
  root_zxid_ = stat.mzxid;
  root_version_ = stat.version;
  return ZOK;
}

absl::Status ZooKeeperTable::Create() {
  RegionTable empty;
  const TableWrite write = WriteTable(RegionTable(), &empty);
  const int rc = connection_->Retry([&] { return connection_->Create(path_, write.root, /*flags=*/0); });
  return rc == ZOK || rc == ZNODEEXISTS ? absl::OkStatus() : ZooKeeperConnection::ToStatus(rc, path_);
}

absl::StatusOr<std::vector<std::string>> ZooKeeperTable::Paths() {
  Stat stat{};
  ASSIGN_OR_RETURN(const std::vector<std::string> shards, connection_->WatchChildren(path_, &stat));
  std::vector<std::string> paths;
  paths.reserve(shards.size() + 1);
  for (const std::string& shard : shards) paths.push_back(path_ + "/" + shard);
  paths.push_back(path_);
  return paths;
}

absl::StatusOr<std::vector<ZooKeeperConnection::Op>> ZooKeeperTable::OpsToReplace(const std::string& path,
                                                                                  RegionTable table, int root_version) {
  const TableWrite write = WriteTable(RegionTable(), &table);
  std::vector<ZooKeeperConnection::Op> ops = OpsOf(path, write, root_version);
  RETURN_IF_ERROR(CheckSize(ops));
  return ops;
}

}  // namespace cell

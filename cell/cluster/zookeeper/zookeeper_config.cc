#include "cell/cluster/zookeeper/zookeeper_config.h"

#include <utility>
#include <vector>

#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/cluster_text.h"
#include "cell/cluster/zookeeper/zookeeper_table.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {

using Config = ZooKeeperMembership::Config;

std::string ToJson(const Config& config) {
  nlohmann::json json({{"format", kZooKeeperFormat},
                       {"node_bytes", config.shape.node_bytes},
                       {"meganode_bytes", config.shape.meganode_bytes},
                       {"extents_bytes", config.shape.extents_bytes},
                       {"durability", ToString(config.durability)}});
  if (!config.uuid.empty()) json["uuid"] = config.uuid;
  return JsonText(json);
}

absl::StatusOr<Config> ParseConfig(const std::string& text, uint32_t expected) {
  const auto bad = [](const absl::Status& status) {
    return absl::InvalidArgumentError(fmt::format("the cluster's znode: {}", std::string(status.message())));
  };
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(text);
  if (!parsed.ok()) return bad(parsed.status());
  const JsonView json(*parsed);
  const absl::StatusOr<uint32_t> format = json.Get<uint32_t>("format");
  if (!format.ok()) return bad(format.status());
  if (*format != expected) {
    return absl::FailedPreconditionError(fmt::format(
        "the cluster has format {}, but this program reads format {}{}", *format, kZooKeeperFormat,
        *format == kZooKeeperFormatOfOneZnode ? ": stop all its servers, and start them with this release" : ""));
  }
  const absl::StatusOr<RegionShape> shape = ParseShape(json);
  if (!shape.ok()) return bad(shape.status());
  const absl::StatusOr<Durability> durability = ParseDurability(json);
  if (!durability.ok()) return bad(durability.status());
  absl::StatusOr<std::string> uuid = json.Get<std::string>("uuid", "");
  if (!uuid.ok()) return bad(uuid.status());
  return Config{*std::move(uuid), *shape, *durability};
}

absl::Status ConvertCluster(ZooKeeperConnection* connection, const std::string& root) {
  Stat config_stat{}, table_stat{}, workers_stat{};
  ASSIGN_OR_RETURN(const std::string text, connection->Get(root, &config_stat, false));
  const absl::StatusOr<Config> config = ParseConfig(text, kZooKeeperFormatOfOneZnode);
  if (!config.ok()) return absl::OkStatus();  // It has another format, or is malformed: the caller says so.
  // Another server may have converted it since the format was read, and may be one of its workers already.
  const auto unless_converted = [&](const absl::Status& status) -> absl::Status {
    Stat now{};
    RETURN_IF_ERROR(connection->Get(root, &now, false).status());
    return now.version == config_stat.version ? status : absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const std::vector<std::string> workers, connection->WatchChildren(root + "/workers", &workers_stat));
  if (!workers.empty()) {
    return unless_converted(absl::FailedPreconditionError(
        fmt::format("the cluster {} is of an earlier release, and has running servers: stop them first", root)));
  }
  ASSIGN_OR_RETURN(const std::string json, connection->Get(root + "/table", &table_stat, false));
  absl::StatusOr<RegionTable> table = RegionTable::Parse(json);
  if (!table.ok()) return unless_converted(table.status());
  ++table->version;
  ASSIGN_OR_RETURN(std::vector<ZooKeeperConnection::Op> ops,
                   ZooKeeperTable::OpsToReplace(root + "/table", *std::move(table), table_stat.version));
  ops.push_back({ZooKeeperConnection::Op::Kind::kSet, root, ToJson(*config), config_stat.version});
  const int rc = connection->Multi(ops, nullptr);
  if (rc == ZOK) spdlog::info("converted the region table of the cluster {} to format {}", root, kZooKeeperFormat);
  // If another server was faster, or the answer was lost, the caller finds out.
  const bool unsure = rc == ZBADVERSION || rc == ZNODEEXISTS || ZooKeeperConnection::Lost(rc);
  return rc == ZOK || unsure ? absl::OkStatus() : ZooKeeperConnection::ToStatus(rc, root + "/table");
}

}  // namespace cell

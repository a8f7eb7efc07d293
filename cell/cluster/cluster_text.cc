#include "cell/cluster/cluster_text.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "cell/base/status_macros.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr uint32_t kWorkersMax = 64;  // Per server, as cell_server --workers.
constexpr uint64_t kMeganodeBytesMax = kExtentsBytesMax;
constexpr size_t kAddressBytesMax = 4096;

// Returns whether a text can be an address: short enough, and without characters that would make a mess of messages.
bool IsAddress(std::string_view text) {
  return text.size() <= kAddressBytesMax &&
         std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

}  // namespace

absl::Status CheckShape(const RegionShape& shape) {
  if (!ValidNodeBytes(shape.node_bytes)) {
    return absl::InvalidArgumentError(
        fmt::format("node_bytes must be a power of two from 512 to 4096, not {}", shape.node_bytes));
  }
  if (shape.meganode_bytes % shape.node_bytes != 0 || shape.meganode_bytes / shape.node_bytes < 4 ||
      shape.meganode_bytes > kMeganodeBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("meganode_bytes must be a multiple of node_bytes ({}), from 4 nodes to 32 GB, not {}",
                    shape.node_bytes, shape.meganode_bytes));
  }
  if (shape.extents_bytes % 4096 != 0 || shape.extents_bytes > kExtentsBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("extents_bytes must be a multiple of 4096, up to 32 GB, not {}", shape.extents_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<RegionShape> ParseShape(JsonView json) {
  RegionShape shape;
  ASSIGN_OR_RETURN(shape.node_bytes, json.Get<uint32_t>("node_bytes"));
  ASSIGN_OR_RETURN(shape.meganode_bytes, json.Get<uint64_t>("meganode_bytes"));
  ASSIGN_OR_RETURN(shape.extents_bytes, json.Get<uint64_t>("extents_bytes"));
  RETURN_IF_ERROR(CheckShape(shape));
  return shape;
}

absl::StatusOr<Durability> ParseDurability(JsonView json) {
  ASSIGN_OR_RETURN(const std::string text, json.Get<std::string>("durability", "none"));
  const std::optional<Durability> durability = ParseDurability(text);
  if (!durability.has_value()) return absl::InvalidArgumentError("durability must be none, async or sync");
  return *durability;
}

std::string Differences(const ClusterConstants& started_with, const ClusterConstants& cluster) {
  std::vector<std::string> all;
  const auto compare = [&all](const char* flag, const auto& mine, const auto& theirs) {
    if (mine != theirs) all.push_back(fmt::format("{} {} (the cluster has {})", flag, mine, theirs));
  };
  compare("--node-bytes", started_with.shape.node_bytes, cluster.shape.node_bytes);
  compare("--meganode-bytes", started_with.shape.meganode_bytes, cluster.shape.meganode_bytes);
  compare("--extents-bytes", started_with.shape.extents_bytes, cluster.shape.extents_bytes);
  compare("--durability", std::string_view(ToString(started_with.durability)),
          std::string_view(ToString(cluster.durability)));
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string ToText(const WorkerText& worker) {
  return JsonText(
      {{"address", worker.worker.address}, {"regions_max", worker.worker.regions_max}, {"control", worker.control}});
}

absl::StatusOr<WorkerText> ParseWorkerText(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text));
  const JsonView view(json);
  WorkerText worker;
  ASSIGN_OR_RETURN(worker.worker.address, view.Get<std::string>("address"));
  ASSIGN_OR_RETURN(worker.worker.regions_max, view.Get<uint32_t>("regions_max"));
  ASSIGN_OR_RETURN(worker.control, view.Get<std::string>("control", ""));
  if (worker.worker.address.empty()) return absl::InvalidArgumentError("\"address\" is empty");
  for (const std::string& text : {worker.worker.address, worker.control}) {
    if (!IsAddress(text)) return absl::InvalidArgumentError("an address is too long, or has control characters");
  }
  return worker;
}

std::string ServersText(const std::vector<ClusterState::Server>& servers) {
  nlohmann::json all = nlohmann::json::array();
  for (const ClusterState::Server& server : servers) {
    nlohmann::json workers = nlohmann::json::array();
    for (const ClusterState::Worker& worker : server.workers) {
      workers.push_back({{"address", worker.address}, {"regions_max", worker.regions_max}});
    }
    all.push_back({{"name", server.name}, {"control", server.control}, {"workers", std::move(workers)}});
  }
  return JsonText(all);
}

absl::StatusOr<std::vector<ClusterState::Server>> ParseServersText(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text));
  const JsonView all(json);
  if (!all.is_array()) return absl::InvalidArgumentError("it is not a list of servers");
  std::vector<ClusterState::Server> servers;
  std::set<std::string> names;
  for (const JsonView one : all.elements()) {
    ClusterState::Server server;
    ASSIGN_OR_RETURN(server.name, one.Get<std::string>("name"));
    ASSIGN_OR_RETURN(server.control, one.Get<std::string>("control"));
    if (!IsServerName(server.name) || !names.insert(server.name).second) {
      return absl::InvalidArgumentError("a server's name is not valid, or comes twice");
    }
    for (const JsonView worker : one["workers"].elements()) {
      ClusterState::Worker read;
      ASSIGN_OR_RETURN(read.address, worker.Get<std::string>("address"));
      ASSIGN_OR_RETURN(read.regions_max, worker.Get<uint32_t>("regions_max"));
      if (!IsAddress(read.address)) return absl::InvalidArgumentError("an address is not valid");
      server.workers.push_back(std::move(read));
    }
    if (server.workers.size() > kWorkersMax || !IsAddress(server.control)) {
      return absl::InvalidArgumentError("a server has too many workers, or an address is not valid");
    }
    servers.push_back(std::move(server));
  }
  return servers;
}

std::optional<WorkerId> ParseWorkerId(std::string_view text) {
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos || !IsServerName(text.substr(0, dot))) return std::nullopt;
  const std::string_view number = text.substr(dot + 1);
  uint32_t worker = 0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), worker);
  if (error != std::errc() || end != number.end() || worker >= kWorkersMax) return std::nullopt;
  WorkerId id{std::string(text.substr(0, dot)), worker};
  if (ToString(id) != text) return std::nullopt;  // Refuses forms such as "server.01".
  return id;
}

}  // namespace cell

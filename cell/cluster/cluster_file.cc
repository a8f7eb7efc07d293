#include "cell/cluster/cluster_file.h"

#include <fstream>
#include <set>
#include <sstream>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {

absl::StatusOr<ClusterFile> ClusterFile::Read(const std::string& directory) {
  std::ifstream file(directory + "/cluster.json");
  if (!file) {
    return absl::NotFoundError(fmt::format(
        "no cluster in \"{}\" (no cluster.json there): start one with //tools:up --dir {}", directory, directory));
  }
  std::stringstream text;
  text << file.rdbuf();
  return Parse(text.str(), directory);
}

absl::StatusOr<ClusterFile> ClusterFile::Parse(const std::string& text, const std::string& directory) {
  const auto bad = [&](const std::string& what) {
    return absl::InvalidArgumentError(fmt::format("{}/cluster.json: {}", directory, what));
  };
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("format") || !json["format"].is_number_integer()) {
    return bad("is not a cluster file (damaged?)");
  }
  if (json["format"] != kFormat) {
    return absl::FailedPreconditionError(
        fmt::format("{}/cluster.json has format {}, this program reads format {}: use "
                    "the release that made it",
                    directory, json["format"].dump(), kFormat));
  }
  ClusterFile cluster;
  std::set<uint32_t> seen;
  try {
    cluster.shape = {json.at("node_bytes").get<uint32_t>(), json.at("meganode_bytes").get<uint64_t>(),
                     json.at("extents_bytes").get<uint64_t>()};
    for (const auto& server_json : json.at("servers")) {
      Server server{server_json.at("name").get<std::string>(), {}};
      for (const auto& worker_json : server_json.at("workers")) {
        Worker worker{directory + "/" + worker_json.at("socket").get<std::string>(), {}};
        for (const auto& region : worker_json.at("regions")) {
          const auto id = region.get<uint32_t>();
          if (id == 0 || id > Pointer::kRegionMax || !seen.insert(id).second) {
            return bad(fmt::format("region {} is out of range or listed twice", id));
          }
          worker.regions.push_back(id);
        }
        server.workers.push_back(std::move(worker));
      }
      cluster.servers.push_back(std::move(server));
    }
  } catch (const nlohmann::json::exception& error) {
    return bad(error.what());
  }
  if (!ValidNodeBytes(cluster.shape.node_bytes)) return bad("node_bytes is not a power of two from 512 to 4096");
  if (seen.empty()) return bad("lists no region");
  return cluster;
}

Pointer ClusterFile::tree_root() const {
  uint32_t lowest = Pointer::kRegionMax;
  for (const Server& server : servers) {
    for (const Worker& worker : server.workers) {
      for (const uint32_t region : worker.regions) lowest = std::min(lowest, region);
    }
  }
  return Pointer(lowest, kRegionHeaderBytes);
}

const ClusterFile::Server* ClusterFile::FindServer(const std::string& name) const {
  for (const Server& server : servers) {
    if (server.name == name) return &server;
  }
  return nullptr;
}

const ClusterFile::Worker* ClusterFile::OwnerOf(uint32_t region) const {
  for (const Server& server : servers) {
    for (const Worker& worker : server.workers) {
      for (const uint32_t owned : worker.regions) {
        if (owned == region) return &worker;
      }
    }
  }
  return nullptr;
}

}  // namespace cell

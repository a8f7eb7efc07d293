#include "cell/cluster/embedded_membership.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/io/fabric_address.h"
#include "cell/io/fd.h"
#include "cell/io/posix_files.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedMembership>> EmbeddedMembership::Open(const std::string& directory) {
  const std::optional<std::string> text = ReadFile(directory + "/cluster.json");
  if (!text.has_value()) {
    return absl::NotFoundError(fmt::format(
        "no cluster in \"{}\" (no cluster.json there): start one with //tools:up --dir {}", directory, directory));
  }
  ASSIGN_OR_RETURN(ClusterState state, ParseConfig(*text, directory));
  std::unique_ptr<EmbeddedMembership> membership(new EmbeddedMembership(directory, std::move(state)));
  membership->config_text_ = *text;
  membership->servers_ = membership->state_.servers;
  membership->ReadControls();
  membership->state_.servers = membership->servers_;
  ASSIGN_OR_RETURN(membership->state_.table, membership->ReadTable());
  return membership;
}

// Servers may have come, and begun again since, with another control plane.
absl::Status EmbeddedMembership::ReadServers() {
  std::optional<std::string> text = ReadFile(directory_ + "/cluster.json");
  if (!text.has_value()) {
    return absl::UnavailableError(fmt::format("{}/cluster.json is gone: was the cluster deleted?", directory_));
  }
  if (*text != config_text_) {
    ASSIGN_OR_RETURN(ClusterState state, ParseConfig(*text, directory_));
    if (state.uuid != state_.uuid) {
      return absl::UnavailableError(fmt::format("another cluster is in \"{}\" by now", directory_));
    }
    servers_ = std::move(state.servers);
    controls_.clear();
    config_text_ = *std::move(text);
    ++servers_version_;
  }
  ReadControls();
  return absl::OkStatus();
}

void EmbeddedMembership::ReadControls() {
  for (ClusterState::Server& server : servers_) {
    const std::string path = directory_ + "/" + server.name + ".control";
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) continue;
    const std::tuple seen{info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
    if (const auto it = controls_.find(server.name); it != controls_.end() && it->second == seen) continue;
    controls_[server.name] = seen;
    server.control = ReadFile(path).value_or("");
    ++servers_version_;
  }
}

absl::StatusOr<ClusterState> EmbeddedMembership::ParseConfig(const std::string& text, const std::string& directory) {
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
  ClusterState state;
  std::set<std::string> names;
  try {
    state.uuid = json.value("uuid", "");
    state.shape = {json.at("node_bytes").get<uint32_t>(), json.at("meganode_bytes").get<uint64_t>(),
                   json.at("extents_bytes").get<uint64_t>()};
    const std::string durability = json.value("durability", "none");
    if (!ParseDurability(durability).has_value()) return bad("durability is not none, async or sync");
    state.durability = *ParseDurability(durability);
    for (const auto& server_json : json.at("servers")) {
      ClusterState::Server server{server_json.at("name").get<std::string>(), {}, {}};
      for (const auto& worker_json : server_json.at("workers")) {
        std::vector<FabricAddress> addresses;
        for (const FabricKind kind : {FabricKind::kTcp, FabricKind::kVerbs}) {
          const std::string name(ToString(kind));
          if (worker_json.contains(name)) addresses.push_back({kind, worker_json[name].get<std::string>(), {}});
        }
        if (addresses.empty() || worker_json.contains("socket")) {
          const std::string path = directory + "/" + worker_json.at("socket").get<std::string>();
          addresses.push_back({FabricKind::kShm, std::filesystem::absolute(path), {}});
        }
        server.workers.push_back({ToString(std::move(addresses)), worker_json.at("regions_max").get<uint32_t>()});
      }
      if (server.workers.empty()) return bad(fmt::format("{} has no workers", server.name));
      if (!names.insert(server.name).second) return bad(fmt::format("lists two servers named {}", server.name));
      state.servers.push_back(std::move(server));
    }
  } catch (const nlohmann::json::exception& error) {
    return bad(error.what());
  }
  if (!ValidNodeBytes(state.shape.node_bytes)) return bad("node_bytes is not a power of two from 512 to 4096");
  if (state.servers.empty()) return bad("lists no server");
  return state;
}

bool EmbeddedMembership::IsGone(const WorkerId& worker) const {
  // A server that is not listed may have come since the list was read.
  if (state_.FindServer(worker.server) != nullptr && state_.FindWorker(worker) == nullptr) return true;
  return !IsLocked(LockPath(directory_, worker.server));
}

absl::StatusOr<RegionTable> EmbeddedMembership::ReadTable() {
  std::optional<std::string> text = ReadFile(directory_ + "/regions.json");
  if (!text.has_value()) return RegionTable();  // No server has started yet.
  if (*text == table_text_) return table_;      // Clients ask often (kTableLeaseNs).
  absl::StatusOr<RegionTable> table = RegionTable::Parse(*text);
  if (table.ok()) {
    table_text_ = *std::move(text);
    table_ = *table;
    return table;
  }
  return absl::InvalidArgumentError(
      fmt::format("{}/regions.json: {}", directory_, std::string(table.status().message())));
}

absl::StatusOr<RegionTable> EmbeddedMembership::ChangeTable(const TableChange& change) {
  const std::string path = directory_ + "/regions.json";
  const Fd lock(::open((directory_ + "/regions.lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  if (!lock.valid() || ::flock(lock.get(), LOCK_EX) != 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, fmt::format("cannot lock {}/regions.lock", directory_));
  }
  ASSIGN_OR_RETURN(RegionTable table, ReadTable());
  RETURN_IF_ERROR(ReadServers());
  RETURN_IF_ERROR(change(&table));
  ++table.version;
  PosixFiles files;
  (void)files.Remove(path + ".new");
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.Create(path + ".new"));
  RETURN_IF_ERROR(file->Append(table.ToJson() + "\n"));
  const bool durable = state_.durability != Durability::kNone;  // Then the table is to last as long as the logs.
  if (durable) RETURN_IF_ERROR(file->Sync());
  RETURN_IF_ERROR(files.Rename(path + ".new", path));
  if (durable) RETURN_IF_ERROR(files.SyncDirectory(directory_));
  return table;
}

void EmbeddedMembership::Tell(Done done, absl::StatusOr<RegionTable> table) {
  Told told{std::move(done), table.status(), {}};
  if (table.ok()) told.table = *std::move(table);
  told_.push_back(std::move(told));
}

void EmbeddedMembership::Refresh(Done done) {
  absl::StatusOr<RegionTable> table = ReadTable();
  const absl::Status servers = ReadServers();  // After the table: so all of its owners are listed.
  Tell(std::move(done), servers.ok() ? std::move(table) : servers);
}
void EmbeddedMembership::Change(TableChange change, Done done) { Tell(std::move(done), ChangeTable(change)); }

size_t EmbeddedMembership::Poll() {
  if (told_.empty()) return 0;
  std::vector<Told> now;
  now.swap(told_);
  for (Told& told : now) {
    const bool newer = told.status.ok() && told.table.version > state_.table.version;
    if (newer) state_.table = std::move(told.table);
    const bool others = servers_version_ != servers_seen_;
    if (others) state_.servers = servers_;
    servers_seen_ = servers_version_;
    if (newer || others) ++state_.revision;
    told.done(told.status);
  }
  return now.size();
}

}  // namespace cell

#include "tools/cluster_remains.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/cluster/embedded/embedded_membership.h"
#include "cell/cluster/open/open_membership.h"
#include "cell/cluster/zookeeper/digest_file.h"
#include "cell/io/file/posix_files.h"
#include "cell/io/file/private_directory.h"
#include "cell/io/file/text_file.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

namespace fs = std::filesystem;

// Returns what is in a file; nothing if it cannot be read.
std::string TextOf(const std::string& path) {
  absl::StatusOr<std::optional<std::string>> text = ReadTextFile(path);
  return text.ok() ? std::move(*text).value_or("") : "";
}

absl::Status Denied(const std::string& path) {
  return absl::PermissionDeniedError(
      fmt::format("permission denied: {} belongs to {}; wipe the cluster as that user", path, OwnerOf(path)));
}

// Returns field 22 of /proc/PID/stat, or 0 if the process has ended. It identifies a process together with the id.
uint64_t StartTime(int64_t pid) {
  const std::string stat = TextOf(fmt::format("/proc/{}/stat", pid));
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(end + 1));
  std::string field;
  uint64_t start = 0;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
    if (i == 3 && field == "Z") return 0;
    if (i == 22) start = std::strtoull(field.c_str(), nullptr, 10);
  }
  return start;
}

// Returns FailedPrecondition if a process runs that //tools:up started for the cluster, for example ZooKeeper.
absl::Status CheckProcesses(const std::string& directory) {
  const auto listed = nlohmann::json::parse(TextOf(directory + "/processes.json"), nullptr, false);
  if (!listed.is_array()) return absl::OkStatus();
  for (const auto& process : listed) {
    if (!process.is_object() || !process.contains("pid") || !process["pid"].is_number_integer()) continue;
    const int64_t pid = process["pid"].get<int64_t>();
    const auto start = process.find("start_time");
    if (start == process.end() || !start->is_number_unsigned() || start->get<uint64_t>() != StartTime(pid)) continue;
    return absl::FailedPreconditionError(
        fmt::format("process {} of the cluster in {} is running: stop it first (//tools:down "
                    "--dir {})",
                    pid, directory, directory));
  }
  return absl::OkStatus();
}

// Returns the names of the servers that //tools:up starts there. A server that could not start has left its messages,
// and no lock.
std::set<std::string> StartedByUp(const std::string& directory) {
  std::set<std::string> names;
  const auto settings = nlohmann::json::parse(TextOf(directory + "/up.json"), nullptr, false);
  if (!settings.is_object() || !settings.contains("servers") || !settings["servers"].is_number_unsigned()) return names;
  const auto count = std::min<uint64_t>(settings["servers"].get<uint64_t>(), 1024);
  for (uint64_t i = 0; i < count; ++i) names.insert(fmt::format("server-{}", i));
  return names;
}

// Returns where up.json says that the logs are, or nothing if it does not.
absl::StatusOr<std::optional<LogPlace>> NotedLogs(const std::string& directory) {
  const auto settings = nlohmann::json::parse(TextOf(directory + "/up.json"), nullptr, false);
  if (!settings.is_object() || !settings.contains("log_store") || !settings["log_store"].is_string())
    return std::nullopt;
  ASSIGN_OR_RETURN(const LogPlace place, LogPlace::Parse(settings["log_store"].get<std::string>()));
  return std::optional<LogPlace>(place);
}

uint64_t BytesIn(const std::string& directory) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += it->file_size(ignored);
  }
  return bytes;
}

}  // namespace

void ClusterRemains::AddFile(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (fs::exists(status) && !fs::is_directory(status)) files_.push_back(path);
}

void ClusterRemains::AddTable(const RegionTable& table) {
  std::string tables;
  for (const auto& [name, parts] : table.tables) tables += (tables.empty() ? ", with the Pilaf tables " : ", ") + name;
  listed_.push_back(fmt::format("the region table: {} regions{}", table.regions.size(), tables));
}

absl::Status ClusterRemains::AddLogs(const LogPlace& logs, bool check) {
  if (check) RETURN_IF_ERROR(CheckLogs(logs, uuid_));
  logs_ = logs;
  check_logs_ = check;
  std::error_code error;
  if (logs.in_rados()) {
    listed_.push_back(fmt::format("the logs in {}", logs.ToText()));
  } else if (fs::is_directory(logs.directory, error)) {
    listed_.push_back(
        fmt::format("the logs in {}: {:.1f} MB", logs.directory, static_cast<double>(BytesIn(logs.directory)) / 1e6));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterRemains> ClusterRemains::InZooKeeper(const std::string& cluster, const std::string& digest,
                                                           const std::optional<LogPlace>& logs) {
  ClusterRemains remains;
  ASSIGN_OR_RETURN(ZooKeeperOptions options, ZooKeeperOptions::Parse(cluster));
  options.digest = digest;
  ASSIGN_OR_RETURN(const std::unique_ptr<ZooKeeperMembership> membership, ZooKeeperMembership::Open(options));
  const ClusterState& state = membership->state();
  if (!state.servers.empty()) {
    return absl::FailedPreconditionError(fmt::format("{} is a member of the cluster {}: stop all its servers first",
                                                     state.servers.front().name, options.name));
  }
  remains.name_ = options.name;
  remains.uuid_ = state.uuid;
  remains.listed_.push_back(fmt::format("the znodes of {}", cluster));
  remains.AddTable(state.table);
  remains.zookeeper_ = options;
  if (logs.has_value()) {
    RETURN_IF_ERROR(remains.AddLogs(*logs, true));
  } else if (state.durability != Durability::kNone) {
    remains.listed_.push_back("not included, its logs: give their place (--log-store), or remove them yourself");
  }
  return remains;
}

absl::StatusOr<ClusterRemains> ClusterRemains::InDirectory(const std::string& given, const std::string& digest,
                                                           const std::optional<LogPlace>& given_logs, bool keep_logs) {
  const std::string directory = fs::absolute(given).lexically_normal().string();
  const auto path = [&](const std::string& name) { return (fs::path(directory) / name).string(); };
  std::error_code error;
  const bool listed_here = fs::exists(path("cluster.json"), error);
  if (error == std::errc::permission_denied) return Denied(directory);
  if (!listed_here && !fs::exists(path("up.json"), error) && !fs::exists(path("durable.json"), error)) {
    return absl::NotFoundError(fmt::format("there is no cluster in \"{}\"", directory));
  }
  RETURN_IF_ERROR(CheckPrivateDirectory(directory));  // Another user could have put a link to other logs there.
  RETURN_IF_ERROR(CheckProcesses(directory));
  std::string address = TextOf(path("address"));
  while (!address.empty() && std::isspace(static_cast<unsigned char>(address.back()))) address.pop_back();
  ClusterRemains remains;
  const bool own_zookeeper = fs::is_directory(path("zookeeper"), error);
  const bool own_ceph = fs::is_directory(path("ceph"), error);  // Its logs go with it.
  std::optional<LogPlace> logs = given_logs;
  if (!logs.has_value() && !own_ceph && !keep_logs) {
    ASSIGN_OR_RETURN(logs, NotedLogs(directory));
  }
  if (!logs.has_value() && !keep_logs) logs = LogPlace::Directory(path("log"));
  if (!listed_here && NamesZooKeeper(address) && !own_zookeeper) {
    std::string its = digest;
    if (its.empty() && fs::exists(path(kDigestFileName), error)) {
      ASSIGN_OR_RETURN(its, ReadZooKeeperDigest(path(kDigestFileName)));
    }
    ASSIGN_OR_RETURN(remains, InZooKeeper(address, its, logs));
  } else {
    fs::path last = fs::path(directory).filename();
    if (last.empty()) last = fs::path(directory).parent_path().filename();
    remains.name_ = own_zookeeper && NamesZooKeeper(address) ? address.substr(address.rfind('/') + 1) : last.string();
    const auto config = EmbeddedMembership::ParseConfig(TextOf(path("cluster.json")), directory);
    remains.uuid_ = config.ok() ? config->uuid : FirstLineOf(path("cluster-uuid")).value_or("");
    const absl::StatusOr<RegionTable> table = RegionTable::Parse(TextOf(path("regions.json")));
    if (table.ok()) remains.AddTable(*table);
    // A directory of logs inside the cluster's own belongs to it, even if its UUID cannot be read.
    if (logs.has_value()) {
      RETURN_IF_ERROR(remains.AddLogs(*logs, config.ok() || given_logs.has_value() || logs->in_rados()));
    }
    if (own_zookeeper) {
      remains.services_.push_back(path("zookeeper"));
      remains.listed_.push_back(fmt::format("the data of its ZooKeeper in {}", path("zookeeper")));
    }
  }
  if (own_ceph) {
    remains.services_.push_back(path("ceph"));
    remains.listed_.push_back(fmt::format("its Ceph, with the logs, in {}", path("ceph")));
  }
  PosixFiles files;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  std::set<std::string> servers = StartedByUp(directory);
  for (const std::string& name : names) {
    if (!name.ends_with(".lock") || name == "regions.lock") continue;
    Fd lock(::open(path(name).c_str(), O_RDWR | O_CLOEXEC));
    if (!lock.valid() && errno == EACCES) return Denied(path(name));
    if (!lock.valid()) return ErrnoError(absl::StatusCode::kUnavailable, fmt::format("cannot open {}", path(name)));
    const std::string server = name.substr(0, name.size() - 5);
    if (!TryLock(lock)) {
      return absl::FailedPreconditionError(fmt::format(
          "{} of the cluster in {} is running: stop it first (//tools:down --dir {})", server, directory, directory));
    }
    remains.locks_.push_back(std::move(lock));
    servers.insert(server);
  }
  // Locks are deleted last, and up.json last of the files that show that there is a cluster.
  for (const std::string& server : servers) {
    for (const char* const end : {".log", ".log.new", ".control", ".control.new"}) remains.AddFile(path(server + end));
    for (const std::string& name : names) {
      const bool socket = name.starts_with(server + ".") && name.ends_with(".sock");
      const bool audit = name == server + ".audit" || name.starts_with(server + ".audit.");
      if (socket || audit || name.starts_with(server + ".log.")) remains.AddFile(path(name));
    }
  }
  for (const char* const name : {"regions.json.new", "regions.json", "processes.json", "address", "cluster-uuid"}) {
    remains.AddFile(path(name));
  }
  remains.AddFile(path(kDigestFileName));
  remains.AddFile(path("secret"));
  for (const char* const name : {"cluster.json", "durable.json", "up.json", "regions.lock"})
    remains.AddFile(path(name));
  for (const std::string& server : servers) remains.AddFile(path(server + ".lock"));
  remains.listed_.push_back(
      fmt::format("{} files in {}: constants, locks, and the servers' logs", remains.files_.size(), directory));
  return remains;
}

absl::Status ClusterRemains::Delete() {
  if (zookeeper_.has_value()) RETURN_IF_ERROR(ZooKeeperMembership::Delete(*zookeeper_, uuid_));
  PosixFiles files;
  if (logs_.has_value()) {
    // Servers that start from now on make a cluster with another UUID, which may not use these logs.
    std::string uuid = uuid_;
    if (!check_logs_) uuid = FirstLineOf(logs_->directory + "/cluster").value_or("");
    RETURN_IF_ERROR(RemoveLogs(*logs_, uuid));
  }
  for (const std::string& service : services_) {
    std::error_code error;
    fs::remove_all(service, error);
    if (error) return absl::UnavailableError(fmt::format("cannot remove {}: {}", service, error.message()));
  }
  for (const std::string& file : files_) {
    absl::Status removed = files.Remove(file);
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  return absl::OkStatus();
}

}  // namespace cell

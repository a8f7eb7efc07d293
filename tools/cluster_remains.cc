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
#include "cell/io/file/text_file.h"
#include "cell/log/directory_log_store.h"
#include "cell/log/log_directory.h"
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

absl::Status ClusterRemains::AddLogs(const std::string& directory, bool check) {
  if (check) RETURN_IF_ERROR(CheckLogDirectory(directory, uuid_));
  log_dir_ = directory;
  check_logs_ = check;
  std::error_code error;
  if (fs::is_directory(directory, error)) {
    listed_.push_back(
        fmt::format("the logs in {}: {:.1f} MB", directory, static_cast<double>(BytesIn(directory)) / 1e6));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterRemains> ClusterRemains::InZooKeeper(const std::string& cluster, const std::string& digest,
                                                           const std::string& log_dir) {
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
  if (!log_dir.empty()) {
    RETURN_IF_ERROR(remains.AddLogs(log_dir, true));
  } else if (state.durability != Durability::kNone) {
    remains.listed_.push_back("not included, its logs: give their directory (--log-dir), or remove them yourself");
  }
  return remains;
}

absl::StatusOr<ClusterRemains> ClusterRemains::InDirectory(const std::string& given, const std::string& digest,
                                                           const std::string& log_dir) {
  const std::string directory = fs::absolute(given).lexically_normal().string();
  const auto path = [&](const std::string& name) { return (fs::path(directory) / name).string(); };
  std::error_code error;
  const bool listed_here = fs::exists(path("cluster.json"), error);
  if (error == std::errc::permission_denied) return Denied(directory);
  if (!listed_here && !fs::exists(path("up.json"), error) && !fs::exists(path("durable.json"), error)) {
    return absl::NotFoundError(fmt::format("there is no cluster in \"{}\"", directory));
  }
  RETURN_IF_ERROR(CheckProcesses(directory));
  std::string address = TextOf(path("address"));
  while (!address.empty() && std::isspace(static_cast<unsigned char>(address.back()))) address.pop_back();
  ClusterRemains remains;
  const bool own_zookeeper = fs::is_directory(path("zookeeper"), error);
  if (!listed_here && NamesZooKeeper(address) && !own_zookeeper) {
    std::string its = digest;
    if (its.empty() && fs::exists(path(kDigestFileName), error)) {
      ASSIGN_OR_RETURN(its, ReadZooKeeperDigest(path(kDigestFileName)));
    }
    ASSIGN_OR_RETURN(remains, InZooKeeper(address, its, log_dir.empty() ? path("log") : log_dir));
  } else {
    fs::path last = fs::path(directory).filename();
    if (last.empty()) last = fs::path(directory).parent_path().filename();
    remains.name_ = own_zookeeper && NamesZooKeeper(address) ? address.substr(address.rfind('/') + 1) : last.string();
    const auto config = EmbeddedMembership::ParseConfig(TextOf(path("cluster.json")), directory);
    if (config.ok()) remains.uuid_ = config->uuid;
    const absl::StatusOr<RegionTable> table = RegionTable::Parse(TextOf(path("regions.json")));
    if (table.ok()) remains.AddTable(*table);
    // A directory of logs inside the cluster's own belongs to it, even if its UUID cannot be read.
    RETURN_IF_ERROR(remains.AddLogs(log_dir.empty() ? path("log") : log_dir, config.ok() || !log_dir.empty()));
    if (own_zookeeper) {
      remains.zookeeper_dir_ = path("zookeeper");
      remains.listed_.push_back(fmt::format("the data of its ZooKeeper in {}", remains.zookeeper_dir_));
    }
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
    remains.AddFile(path(server + ".log"));
    remains.AddFile(path(server + ".control"));
    for (const std::string& name : names) {
      const bool socket = name.starts_with(server + ".") && name.ends_with(".sock");
      const bool audit = name == server + ".audit" || name.starts_with(server + ".audit.");
      if (socket || audit) remains.AddFile(path(name));
    }
  }
  for (const char* const name : {"regions.json.new", "regions.json", "processes.json", "address"}) {
    remains.AddFile(path(name));
  }
  remains.AddFile(path(kDigestFileName));
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
  if (!log_dir_.empty()) {
    // Servers that start from now on make a cluster with another UUID, which may not use these logs.
    std::string uuid = uuid_;
    if (!check_logs_) {
      uuid = FirstLineOf(log_dir_ + "/cluster").value_or("");
    }
    RETURN_IF_ERROR(RemoveLogDirectory(log_dir_, uuid));
  }
  if (!zookeeper_dir_.empty()) {
    std::error_code error;
    fs::remove_all(zookeeper_dir_, error);
    if (error) {
      return absl::UnavailableError(fmt::format("cannot remove {}: {}", zookeeper_dir_, error.message()));
    }
  }
  for (const std::string& file : files_) {
    absl::Status removed = files.Remove(file);
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  return absl::OkStatus();
}

}  // namespace cell

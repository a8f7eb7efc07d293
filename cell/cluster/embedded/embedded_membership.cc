#include "cell/cluster/embedded/embedded_membership.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include "cell/base/bytes.h"
#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/cluster_text.h"
#include "cell/cluster/table_changes.h"
#include "cell/io/fabric/fabric_address.h"
#include "cell/io/net/fd.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr auto kLockPause = std::chrono::microseconds(200);

absl::Status Failed(const char* what, const std::string& path) {
  const auto code = errno == EACCES ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable;
  return ErrnoError(code, fmt::format("cannot {} {}", what, path));
}

// Converts an error that is not the change's own: the change may have been made.
absl::Status Unavailable(const absl::Status& status) { return absl::UnavailableError(std::string(status.message())); }

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedMembership>> EmbeddedMembership::Open(const std::string& directory,
                                                                             Options options) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, options.files->ReadText(directory + "/cluster.json"));
  if (!text.has_value()) {
    return absl::NotFoundError(fmt::format(
        "there is no cluster in \"{}\" (it has no cluster.json): start one with ./bazelw run //tools:up -- --dir '{}'",
        directory, directory));
  }
  ASSIGN_OR_RETURN(ClusterState state, ParseConfig(*text, directory));
  std::unique_ptr<EmbeddedMembership> membership(
      new EmbeddedMembership(directory, std::move(options), std::move(state)));
  membership->config_text_ = *text;
  membership->servers_ = membership->state_.servers;
  membership->ReadControls();
  membership->state_.servers = membership->servers_;
  ASSIGN_OR_RETURN(membership->state_.table, membership->ReadTable());
  return membership;
}

// Reads the control planes' addresses. Servers may have joined, or restarted with another control plane.
absl::Status EmbeddedMembership::ReadServers() {
  ASSIGN_OR_RETURN(std::optional<std::string> text, options_.files->ReadText(directory_ + "/cluster.json"));
  if (!text.has_value()) {
    return absl::UnavailableError(
        fmt::format("{}/cluster.json no longer exists: was the cluster deleted?", directory_));
  }
  if (*text != config_text_) {
    ASSIGN_OR_RETURN(ClusterState state, ParseConfig(*text, directory_));
    if (state.uuid != state_.uuid) {
      return absl::UnavailableError(fmt::format("\"{}\" now contains another cluster", directory_));
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
    const absl::StatusOr<FileStamp> seen = options_.files->Stamp(path);
    if (!seen.ok()) continue;
    if (const auto it = controls_.find(server.name); it != controls_.end() && it->second == *seen) continue;
    const absl::StatusOr<std::optional<std::string>> control = options_.files->ReadText(path);
    if (!control.ok()) continue;  // The next call reads it again.
    controls_[server.name] = *seen;
    server.control = control->value_or("");
    ++servers_version_;
  }
}

EmbeddedMembership::~EmbeddedMembership() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

namespace {

absl::StatusOr<ClusterState::Worker> ParseWorker(JsonView json, const std::string& directory) {
  std::vector<FabricAddress> addresses;
  for (const FabricKind kind : {FabricKind::kTcp, FabricKind::kVerbs}) {
    const std::string name(ToString(kind));
    if (!json[name].there()) continue;
    ASSIGN_OR_RETURN(std::string address, json.Get<std::string>(name));
    addresses.push_back({kind, std::move(address), {}});
  }
  if (addresses.empty() || json["socket"].there()) {
    ASSIGN_OR_RETURN(const std::string socket, json.Get<std::string>("socket"));
    addresses.push_back({FabricKind::kShm, std::filesystem::absolute(directory + "/" + socket), {}});
  }
  ASSIGN_OR_RETURN(const auto regions_max, json.Get<uint32_t>("regions_max"));
  return ClusterState::Worker{ToString(std::move(addresses)), regions_max};
}

absl::StatusOr<ClusterState> ParseServers(JsonView json, const std::string& directory) {
  ClusterState state;
  ASSIGN_OR_RETURN(state.shape, ParseShape(json));
  ASSIGN_OR_RETURN(state.durability, ParseDurability(json));
  ASSIGN_OR_RETURN(state.uuid, json.Get<std::string>("uuid", ""));
  std::set<std::string> names;
  for (const JsonView one : json["servers"].elements()) {
    ClusterState::Server server;
    ASSIGN_OR_RETURN(server.name, one.Get<std::string>("name"));
    if (!IsServerName(server.name)) {
      return absl::InvalidArgumentError(fmt::format("{} is not a server's name", ForMessage(server.name)));
    }
    for (const JsonView worker : one["workers"].elements()) {
      ASSIGN_OR_RETURN(ClusterState::Worker parsed, ParseWorker(worker, directory));
      server.workers.push_back(std::move(parsed));
    }
    if (server.workers.empty()) return absl::InvalidArgumentError(fmt::format("{} has no workers", server.name));
    if (!names.insert(server.name).second) {
      return absl::InvalidArgumentError(fmt::format("it lists two servers named {}", server.name));
    }
    state.servers.push_back(std::move(server));
  }
  if (state.servers.empty()) return absl::InvalidArgumentError("it lists no servers");
  return state;
}

}  // namespace

absl::StatusOr<ClusterState> EmbeddedMembership::ParseConfig(const std::string& text, const std::string& directory) {
  const auto bad = [&](const std::string& what) {
    return absl::InvalidArgumentError(fmt::format("{}/cluster.json: {}", directory, what));
  };
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(text);
  const JsonView json = parsed.ok() ? JsonView(*parsed) : JsonView();
  const std::optional<uint32_t> format = json["format"].As<uint32_t>();
  if (!format.has_value()) return bad("it is not a cluster file (damaged?)");
  if (*format != kFormat) {
    return absl::FailedPreconditionError(
        fmt::format("{}/cluster.json has format {}, but this program reads format {}: use the release that created it",
                    directory, *format, kFormat));
  }
  absl::StatusOr<ClusterState> state = ParseServers(json, directory);
  if (!state.ok()) return bad(std::string(state.status().message()));
  return state;
}

bool EmbeddedMembership::IsGone(const WorkerId& worker) const {
  // A server that is not listed may have joined since the list was read.
  if (state_.FindServer(worker.server) != nullptr && state_.FindWorker(worker) == nullptr) return true;
  const absl::StatusOr<bool> locked = IsLocked(LockPath(directory_, worker.server));
  return locked.ok() && !*locked;  // An unknown server may be alive and serving.
}

absl::StatusOr<std::string> EmbeddedMembership::ReadText() {
  ASSIGN_OR_RETURN(std::optional<std::string> text, options_.files->ReadText(directory_ + "/regions.json"));
  if (text.has_value()) {
    seen_table_ = true;
    return *std::move(text);
  }
  if (!seen_table_) return "";  // No server has started yet.
  return absl::UnavailableError(fmt::format("{}/regions.json no longer exists: was the cluster deleted?", directory_));
}

absl::StatusOr<RegionTable> EmbeddedMembership::ParseText(const std::string& text) const {
  if (text.empty() && !seen_table_) return RegionTable();
  absl::StatusOr<RegionTable> table = RegionTable::Parse(text);
  if (table.ok()) return table;
  return absl::InvalidArgumentError(
      fmt::format("{}/regions.json: {}", directory_, std::string(table.status().message())));
}

absl::StatusOr<RegionTable> EmbeddedMembership::ReadTable() {
  ASSIGN_OR_RETURN(std::string text, ReadText());
  if (!text.empty() && text == table_text_) return table_;  // Clients ask often (kTableLeaseNs).
  ASSIGN_OR_RETURN(table_, ParseText(text));
  table_text_ = std::move(text);
  return table_;
}

absl::StatusOr<Fd> EmbeddedMembership::Lock() {
  const std::string path = directory_ + "/regions.lock";
  // Only this user may read the file: a process that may read it can lock it.
  Fd lock(::open(path.c_str(), O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock.valid()) return Failed("open", path);
  const int64_t give_up_ns = options_.clock->NowNs() + std::chrono::nanoseconds(options_.lock_wait).count();
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Failed("lock", path);
    if (options_.clock->NowNs() > give_up_ns) {
      char holder[32] = {};
      (void)!::pread(lock.get(), holder, sizeof(holder) - 1, 0);
      return absl::UnavailableError(
          fmt::format("process {} has held the lock on {} for more than {} ms: is it stopped, or is its disk slow?",
                      std::atoi(holder), path, options_.lock_wait.count()));
    }
    std::unique_lock guard(mutex_);
    if (wake_.wait_for(guard, kLockPause, [this] { return stopping_; })) {
      return absl::UnavailableError("this member is shutting down");
    }
  }
  const std::string self = fmt::format("{:<16}\n", ::getpid());
  (void)!::pwrite(lock.get(), self.data(), self.size(), 0);
  return lock;
}

absl::StatusOr<RegionTable> EmbeddedMembership::ChangeTable(absl::Span<const TableChange* const> changes,
                                                            std::vector<absl::Status>* results) {
  const absl::StatusOr<Fd> lock = Lock();
  if (!lock.ok()) return Unavailable(lock.status());
  const absl::StatusOr<std::string> text = ReadText();
  if (!text.ok()) return Unavailable(text.status());
  absl::StatusOr<RegionTable> table = ParseText(*text);
  if (!table.ok()) return Unavailable(table.status());
  *results = ApplyChanges(changes, &*table);
  if (std::none_of(results->begin(), results->end(), [](const absl::Status& one) { return one.ok(); })) return table;
  ++table->version;
  const absl::Status written = WriteTable(table->ToJson() + "\n");
  if (!written.ok()) return Unavailable(written);
  return table;
}

absl::Status EmbeddedMembership::WriteTable(const std::string& text) {
  const std::string path = directory_ + "/regions.json";
  Files& files = *options_.files;
  (void)files.Remove(path + ".new");
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.Create(path + ".new"));
  RETURN_IF_ERROR(file->Append(text));
  const bool durable = state_.durability != Durability::kNone;  // With durability, the table must last as long as the
                                                                // logs.
  if (durable) RETURN_IF_ERROR(file->Sync());
  RETURN_IF_ERROR(files.Rename(path + ".new", path));
  seen_table_ = true;
  return durable ? files.SyncDirectory(directory_) : absl::OkStatus();
}

void EmbeddedMembership::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    std::deque<Job> jobs = std::exchange(jobs_, {});
    lock.unlock();
    std::vector<const TableChange*> changes;
    changes.reserve(jobs.size());
    for (const Job& job : jobs) changes.push_back(&job.change);
    std::vector<absl::Status> results;
    const absl::StatusOr<RegionTable> table = ChangeTable(changes, &results);
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (table.ok()) {
        Tell(std::move(jobs[i].done), results[i], *table);
      } else {
        Tell(std::move(jobs[i].done), table.status(), std::nullopt);
      }
    }
    lock.lock();
  }
}

void EmbeddedMembership::Tell(Done done, absl::Status status, std::optional<RegionTable> table) {
  {
    const std::lock_guard lock(mutex_);
    told_.push_back({std::move(done), std::move(status), std::move(table)});
  }
  wake_owner_.Call();  // Also on the owner's thread (Refresh): it must not sleep before its next Poll.
}

void EmbeddedMembership::Refresh(Done done) {
  ++pending_;
  absl::StatusOr<RegionTable> table = ReadTable();
  const absl::Status servers = ReadServers();  // Read the servers after the table, so that all of its owners are
                                               // listed.
  if (table.ok() && !servers.ok()) table = servers;
  if (table.ok()) {
    Tell(std::move(done), absl::OkStatus(), *std::move(table));
  } else {
    Tell(std::move(done), Unavailable(table.status()), std::nullopt);
  }
}

void EmbeddedMembership::Change(TableChange change, Done done) {
  ++pending_;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(change), std::move(done)});
  }
  wake_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

size_t EmbeddedMembership::Poll() {
  if (pending_ == 0) return 0;
  std::vector<Told> now;
  {
    const std::lock_guard lock(mutex_);
    now.swap(told_);
  }
  for (Told& told : now) {
    const bool newer = told.table.has_value() && told.table->version > state_.table.version;
    if (newer) (void)ReadServers();  // All owners in a table that was made before are listed now.
    if (newer) state_.table = *std::move(told.table);
    const bool others = servers_version_ != servers_seen_;
    if (others) state_.servers = servers_;
    servers_seen_ = servers_version_;
    if (newer || others) ++state_.revision;
    --pending_;
    told.done(told.status);
  }
  return now.size();
}

}  // namespace cell

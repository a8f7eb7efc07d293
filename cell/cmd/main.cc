// cell_server runs one server process of a cluster. Usually started by //tools:up.

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <deque>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "CLI/CLI.hpp"
#include "cell/base/status_macros.h"
#include "cell/cluster/cluster_text.h"
#include "cell/cluster/embedded/embedded_membership.h"
#include "cell/cluster/zookeeper/zookeeper_membership.h"
#include "cell/cmd/exposure.h"
#include "cell/cmd/help_text.h"
#include "cell/cmd/log_file.h"
#include "cell/cmd/log_lines.h"
#include "cell/cmd/server_flags.h"
#include "cell/cmd/serving_address.h"
#include "cell/cmd/worker_control.h"
#include "cell/cmd/zookeeper_digest.h"
#include "cell/control/audit_log.h"
#include "cell/control/control_server.h"
#include "cell/control/tls_files.h"
#include "cell/functions/functions.h"
#include "cell/io/exec/invocation.h"
#include "cell/io/exec/system_clock.h"
#include "cell/io/fabric/fabric_address.h"
#include "cell/io/fabric/open/open_fabric.h"
#include "cell/io/fabric/verbs/verbs_device.h"
#include "cell/io/file/posix_files.h"
#include "cell/io/file/private_directory.h"
#include "cell/io/file/private_file.h"
#include "cell/io/file/text_file.h"
#include "cell/io/net/descriptors.h"
#include "cell/log/data_keys.h"
#include "cell/log/place/log_place.h"
#include "cell/log/sealed_log_store.h"
#include "cell/server/worker.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

std::atomic<bool> stop = false;

// How long a worker sleeps at most, and so how soon a signal is noticed.
constexpr int64_t kNapNs = 200'000'000;

// With fewer, gRPC ends the process.
constexpr uint64_t kDescriptorsMin = 64;

// The exit status of a server that was asked to end, but whose disk or membership did not answer.
constexpr int kUnfinishedStatus = 3;

// Per worker. Disks sync several files at the same time; replays use the cores.
constexpr size_t kDiskThreads = 4;
constexpr size_t kRadosThreads = 16;  // Each waits for one answer, while a disk has other work to do.
const size_t kReplayThreads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 8);

// Sets regions_max to what --memory-max says. Returns InvalidArgument if that is less than a region for each worker.
absl::Status ApplyMemoryMax(ServerFlags* flags) {
  if (!flags->memory_max.has_value()) return absl::OkStatus();
  const uint64_t region_bytes = flags->shape.region_bytes();
  const uint64_t fit = *flags->memory_max / region_bytes / flags->workers;
  if (fit == 0) {
    return absl::InvalidArgumentError(fmt::format(
        "--memory-max must be at least {} bytes: each of {} worker(s) holds at least one region, of {} bytes "
        "(--meganode-bytes, --extents-bytes)",
        flags->workers * region_bytes, flags->workers, region_bytes));
  }
  flags->regions_max = static_cast<uint32_t>(std::min<uint64_t>(fit, kRegionsMax));
  return absl::OkStatus();
}

// Takes a lock that is held while the server runs, so that a second one with this name and directory is refused.
absl::StatusOr<Fd> LockServer(const ServerFlags& flags) {
  const std::string path = EmbeddedMembership::LockPath(flags.dir, flags.name);
  // Only this user may read the file: a process that may read it can lock it.
  Fd lock(::open(path.c_str(), O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock.valid()) return ErrnoError(absl::StatusCode::kInvalidArgument, fmt::format("cannot open {}", path));
  if (!TryLock(lock)) {
    return absl::AlreadyExistsError(
        fmt::format("a server named {} already runs on \"{}\" ({} is locked): stop it with "
                    "./bazelw run //tools:down -- --dir '{}'",
                    flags.name, flags.dir, path, flags.dir));
  }
  // Allows //tools:down to find servers that were started by hand.
  const std::string id = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), id.data(), id.size(), 0) < 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, fmt::format("cannot write {}", path));
  }
  return lock;
}

// Joins the cluster as a worker. Sets *serving to the address where the worker should serve.
absl::StatusOr<std::unique_ptr<Membership>> Join(const ServerFlags& flags, const WorkerId& self,
                                                 ServingAddress* serving) {
  if (flags.cluster.empty()) {
    ASSIGN_OR_RETURN(std::unique_ptr<Membership> embedded, EmbeddedMembership::Open(flags.dir));
    const ClusterState::Worker* listed = embedded->state().FindWorker(self);
    if (listed == nullptr) {
      return absl::NotFoundError(fmt::format("the cluster lists no worker {} of {}", self.worker, self.server));
    }
    ASSIGN_OR_RETURN(*serving, ChooseOfListed(flags.fabric, listed->address));
    return embedded;
  }
  ASSIGN_OR_RETURN(ZooKeeperOptions options, ZooKeeperOptions::Parse(flags.cluster));
  options.digest = flags.zookeeper_digest;
  const std::string socket =
      std::filesystem::absolute(fmt::format("{}/{}.{}.sock", flags.dir, self.server, self.worker));
  ASSIGN_OR_RETURN(*serving, ChooseServingAddress({flags.fabric, flags.listen, socket}, self.worker));
  const ClusterState::Worker announced{serving->address, flags.regions_max};
  ASSIGN_OR_RETURN(std::unique_ptr<Membership> zookeeper,
                   ZooKeeperMembership::Join(options, {{}, flags.shape, *ParseDurability(flags.durability)}, self,
                                             announced, ControlAddressOf(flags.control)));
  return zookeeper;
}

// Returns the group whose members are clients by shm, if there is one, and opens the directory of the sockets to it.
absl::StatusOr<std::optional<gid_t>> GroupOf(const ServerFlags& flags) {
  if (flags.shm_group.empty()) return std::nullopt;
  group entry{};
  group* found = nullptr;
  std::vector<char> names(1 << 20);
  if (::getgrnam_r(flags.shm_group.c_str(), &entry, names.data(), names.size(), &found) != 0 || found == nullptr) {
    return absl::NotFoundError(fmt::format("there is no group {} (--shm-group)", ForMessage(flags.shm_group)));
  }
  RETURN_IF_ERROR(PosixFiles().MakeDirectory(flags.dir));
  if (::chown(flags.dir.c_str(), static_cast<uid_t>(-1), found->gr_gid) != 0 || ::chmod(flags.dir.c_str(), 0710) != 0) {
    return ErrnoError(absl::StatusCode::kPermissionDenied,
                      fmt::format("cannot give {} to group {} (--shm-group)", flags.dir, flags.shm_group));
  }
  return found->gr_gid;
}

// Opens the files that the server proves itself by, and knows others by.
absl::StatusOr<std::shared_ptr<CredentialFiles>> OpenCredentials(const ServerFlags& flags, bool over_tcp) {
  const TlsFiles tls = over_tcp ? flags.control.tls : TlsFiles();
  const Identity self = IdentityOf(Role::kServer, flags.name);
  const auto accept = [self, secret = flags.secret_file, tls](const Credentials& read) -> absl::Status {
    if (tls.any()) RETURN_IF_ERROR(CheckTlsFiles(tls));  // Such as whether it has expired.
    if (!read.keys->empty() && !read.keys->Cluster().has_value()) {
      return absl::InvalidArgumentError(fmt::format(
          "{} has no secret of the cluster, which a server needs to know others (cellctl secret new)", secret));
    }
    if (read.tls != nullptr && read.tls->certified().value_or(self) != self) {
      return absl::InvalidArgumentError(fmt::format("{} is the certificate of {}, but this server is {}",
                                                    tls.certificate, ToString(*read.tls->certified()), ToString(self)));
    }
    return absl::OkStatus();
  };
  return CredentialFiles::Open({flags.secret_file, tls.authority, tls.certificate, tls.key}, accept);
}

LogPlace LogsOf(const ServerFlags& flags) {
  if (!flags.log_store.empty()) return *LogPlace::Parse(flags.log_store);  // CLI11 has checked it.
  return LogPlace::Directory(flags.log_dir.empty() ? flags.dir + "/log" : flags.log_dir);
}

// Opens the store of the logs of the worker's regions. Returns nothing without durability.
absl::StatusOr<Worker::Logs> OpenWorkersLogs(const ServerFlags& flags, const ClusterState& cluster, Fabric* fabric) {
  static PosixFiles files;
  const LogPlace place = LogsOf(flags);
  if (cluster.durability == Durability::kNone && !flags.log_key.empty()) {
    return absl::InvalidArgumentError("--log-key encrypts logs, but the cluster has none: its durability is none");
  }
  if (cluster.durability == Durability::kNone && place.in_rados()) {
    return absl::InvalidArgumentError(
        fmt::format("{} is a place for logs, but the cluster has none: its durability is none", place.ToText()));
  }
  if (cluster.durability == Durability::kNone) {
    const absl::StatusOr<std::vector<std::string>> left = files.List(place.directory);
    if (!left.ok() || left->empty()) return Worker::Logs();
    return absl::FailedPreconditionError(
        fmt::format("{} has the logs of a durable cluster, but this one has durability none: start it with its former "
                    "durability, or remove the logs",
                    place.directory));
  }
  if (!place.in_rados()) {
    RETURN_IF_ERROR(files.MakeDirectory(place.directory));
    RETURN_IF_ERROR(CheckPrivateDirectory(place.directory));
  }
  if (place.in_rados()) {
    // For wipe: the logs stay where they are when the directory, and a ZooKeeper in it, are gone.
    const std::string note = flags.dir + "/cluster-uuid";
    if (FirstLineOf(note) != cluster.uuid) RETURN_IF_ERROR(WritePrivateFile(note, cluster.uuid + "\n", true));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<LogStore> store, OpenLogs(place, cluster.uuid));
  if (!place.in_rados() && CloseToOthers(place.directory)) {
    spdlog::info("{} was readable by other users; now it is only this user's", place.directory);
  }
  if (!flags.log_key.empty()) {
    constexpr const char* kAboutPlain =
        "If it is from the time before logs were encrypted, start the servers once with --log-plain-ok, and then run "
        "cellctl checkpoint, which replaces it";
    ASSIGN_OR_RETURN(std::shared_ptr<KeyFile> keys,
                     KeyFile::Open(flags.log_key, flags.log_plain_ok ? "" : kAboutPlain));
    if (keys->takes_plain()) {
      spdlog::warn(
          "--log-plain-ok: logs that are not encrypted are read, too, whoever has put them there. Run cellctl "
          "checkpoint, and start the servers without it");
    }
    store = std::make_shared<SealedLogStore>(std::move(store), std::move(keys));
  }
  const ThreadPool::Work wake = [fabric] { fabric->Wake(); };
  const size_t threads = place.in_rados() ? kRadosThreads : kDiskThreads;
  return Worker::Logs{std::move(store), std::make_unique<OsThreadPool>(threads, wake),
                      std::make_unique<OsThreadPool>(kReplayThreads, wake)};
}

absl::StatusOr<std::unique_ptr<Worker>> StartWorker(const ServerFlags& flags,
                                                    const std::shared_ptr<CredentialFiles>& credentials,
                                                    uint32_t index) {
  const WorkerId id{flags.name, index};
  ServingAddress serving;
  ASSIGN_OR_RETURN(std::unique_ptr<Membership> membership, Join(flags, id, &serving));
  const ClusterState::Worker* self = membership->state().FindWorker(id);
  if (self == nullptr) {
    return absl::NotFoundError(fmt::format("the cluster lists no worker {} of {}", index, flags.name));
  }
  const RegionShape shape = membership->state().shape;
  Worker::Options options;
  if (flags.inline_max.has_value()) {
    RETURN_IF_ERROR(CheckInlineMax(*flags.inline_max, shape.node_bytes));
    options.pairs.inline_max = *flags.inline_max;
  }
  options.pairs.cluster_time = ClusterTimeNs;
  options.service = {flags.name, flags.batching};
  options.self = id;
  options.snapshot_bytes = flags.snapshot_bytes;
  options.split.split_at = flags.split_at;
  options.balance.enabled = flags.balance;
  options.join.enabled = flags.join;
  options.seed = std::hash<std::string>()(fmt::format("{}/{}", flags.name, index));
  options.regions_max = self->regions_max;
  options.logs.durability = membership->state().durability;
  options.logs.bound_ns = static_cast<int64_t>(flags.sync_bound_ms * 1e6);
  options.logs.gather_percent = static_cast<int64_t>(flags.sync_wait_percent);
  options.checkpoints.log_bytes_min = flags.checkpoint_mb << 20;
  options.recoverer.takeover_after_ns = static_cast<int64_t>(flags.takeover_after_s * 1e9);
  if (!flags.stop_at.empty()) {
    options.sync_points.on_reach = [stop_at = flags.stop_at](std::string_view point) {
      if (point != stop_at) return;
      spdlog::warn("stopping at \"{}\" because of --stop-at", point);
      ::raise(SIGSTOP);
    };
  }
  ASSIGN_OR_RETURN(auto fabric, OpenFabric({.kind = flags.fabric,
                                            .polling = flags.poll == "busy" ? Polling::kBusy : Polling::kAdaptive,
                                            .huge_pages = flags.huge_pages,
                                            .zero_freed = flags.zero_freed,
                                            .credentials = credentials,
                                            .shm_group = flags.shm_group_id,
                                            .rdma_device = flags.rdma_device,
                                            .rdma_gid_index = flags.rdma_gid_index,
                                            .rdma_mtu = flags.rdma_mtu}));
  const std::shared_ptr<RegionPool> pool = fabric->pool();
  ASSIGN_OR_RETURN(Worker::Logs logs, OpenWorkersLogs(flags, membership->state(), fabric.get()));
  auto worker = std::make_unique<Worker>(std::move(fabric), std::move(membership), std::move(logs), options);
  RETURN_IF_ERROR(worker->Start(serving.address));
  spdlog::info("worker {} serves at {} ({})", index, serving.address, serving.why);
  spdlog::info(
      "worker {} holds up to {} regions of {} MB of nodes and {} MB of extents, which is {} MB when all are full",
      index, options.regions_max, shape.meganode_bytes >> 20, shape.extents_bytes >> 20,
      options.regions_max * (shape.region_bytes() >> 20));
  if (flags.huge_pages && !pool->huge_pages()) {
    spdlog::warn(
        "there are not enough huge pages for all regions, so reads will be slower (sysctl vm.nr_hugepages={} for each)",
        (shape.region_bytes() >> 21) + 1);
  }
  return worker;
}

// Writes the control plane's address to a file, which is replaced as a whole.
absl::Status TellControl(const ServerFlags& flags, const std::string& address) {
  const std::string path = fmt::format("{}/{}.control", flags.dir, flags.name);
  PosixFiles files;
  (void)files.Remove(path + ".new");  // A server that was killed may have left it.
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.Create(path + ".new"));
  RETURN_IF_ERROR(file->Append(address));
  return files.Rename(path + ".new", path);
}

// Refuses to start a server that strangers could use, unless the user wants that: then returns what is open, for the
// log. `embedded` is null with --cluster.
absl::StatusOr<std::string> CheckExposure(const ServerFlags& flags, const EmbeddedMembership* embedded) {
  Exposure exposure{.control = flags.control.address,
                    .control_tls = flags.control.tls.all(),
                    .data_rdma = flags.fabric != "tcp" && HasActiveRdmaDevice(),
                    .secret = !flags.secret_file.empty(),
                    .certificate = flags.control.tls.all(),
                    .zookeeper = flags.cluster,
                    .zookeeper_digest = !flags.zookeeper_digest.empty()};
  if (embedded == nullptr && !flags.listen.empty() && flags.fabric != "shm") exposure.data.push_back(flags.listen);
  if (embedded != nullptr) {
    const ClusterState::Server* const self = embedded->state().FindServer(flags.name);
    for (const ClusterState::Worker& worker : self->workers) {
      ASSIGN_OR_RETURN(const ServingAddress serving, ChooseOfListed(flags.fabric, worker.address));
      ASSIGN_OR_RETURN(const std::vector<FabricAddress> addresses, ParseAddresses(serving.address));
      for (const FabricAddress& one : addresses) {
        if (one.kind != FabricKind::kShm) exposure.data.push_back(one.address);
      }
    }
  }
  const std::vector<Opening> open = OpenToStrangers(exposure);
  if (open.empty()) return std::string();
  if (!flags.insecure) return absl::FailedPreconditionError(RefusalOf(open));
  return WarningOf(open);
}

// Opens the audit log, or returns null if the user wants none.
absl::StatusOr<std::unique_ptr<AuditLog>> OpenAuditLog(const ServerFlags& flags) {
  if (flags.audit_log == "none") return nullptr;
  return AuditLog::Open(flags.audit_log.empty() ? fmt::format("{}/{}.audit", flags.dir, flags.name) : flags.audit_log);
}

// Returns the result of Worker::Stop.
absl::Status RunWorker(Worker* worker) {
  while (!stop.load(std::memory_order_relaxed)) {
    if (worker->Poll() == 0) worker->Wait(worker->fabric()->NowNs() + kNapNs);
  }
  return worker->Stop();
}

// Makes signals end the server gracefully. Before a server serves, a signal ends it at once.
void EndOnSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
}

// Checks what the flag parser accepts, before anything is started.
absl::Status CheckFlags(const ServerFlags& flags) {
  for (const double number : {flags.split_at, flags.sync_bound_ms, flags.takeover_after_s}) {
    if (std::isnan(number)) return absl::InvalidArgumentError("nan is not a valid number for a flag");
  }
  if (!IsServerName(flags.name)) {
    return absl::InvalidArgumentError(fmt::format(
        "{} is not a valid server name: --name must have 1 to {} printable characters, without / and spaces",
        ForMessage(flags.name), kServerNameMax));
  }
  if (flags.control.tls.any()) RETURN_IF_ERROR(CheckTlsFiles(flags.control.tls));
  RETURN_IF_ERROR(CheckMayChange(flags.zookeeper_digest));
  if (!flags.cluster.empty()) {  // Without --cluster the directory says what shape regions have.
    RETURN_IF_ERROR(CheckShape(flags.shape));
    if (flags.inline_max.has_value()) RETURN_IF_ERROR(CheckInlineMax(*flags.inline_max, flags.shape.node_bytes));
  }
  return absl::OkStatus();
}

// Makes sure that the server's directory is there, unless it is the cluster, and that no other user can change what is
// in it.
absl::Status PrepareDirectory(const ServerFlags& flags) {
  if (!flags.cluster.empty()) RETURN_IF_ERROR(PosixFiles().MakeDirectory(flags.dir));
  const absl::Status status = CheckPrivateDirectory(flags.dir);
  if (absl::IsNotFound(status)) return absl::OkStatus();  // Opening the cluster says what to do.
  RETURN_IF_ERROR(status);
  if (OthersCanRead(flags.dir)) {
    spdlog::warn("other users can see which files are in {}: chmod 700 '{}' ends that", flags.dir, flags.dir);
  }
  return absl::OkStatus();
}

absl::Status LogToFile(const ServerFlags& flags, std::shared_ptr<LogFile>* file) {
  if (flags.log_file.empty()) return absl::OkStatus();
  const LogFile::Limits limits{flags.log_file_mb << 20, flags.log_files};
  ASSIGN_OR_RETURN(*file, LogFile::Open(flags.log_file, limits));
  auto logger = std::make_shared<spdlog::logger>("", *file);
  logger->set_formatter(LogLines());
  logger->set_level(spdlog::get_level());
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

absl::Status Run(ServerFlags flags) {
  RETURN_IF_ERROR(CheckFlags(flags));
  RETURN_IF_ERROR(ApplyMemoryMax(&flags));
  const uint64_t descriptors = RaiseDescriptorLimit();
  spdlog::debug("up to {} file descriptors can be open", descriptors);
  if (descriptors < kDescriptorsMin) {
    return absl::ResourceExhaustedError(fmt::format(
        "this process can have only {} files and connections open, but needs {}: raise its limit (ulimit -n)",
        descriptors, kDescriptorsMin));
  }
  if (!flags.control.address.empty()) {
    ASSIGN_OR_RETURN(flags.control.address, WithFreePort(flags.control.address));
  }
  flags.control.server = flags.name;
  flags.control.insecure = flags.insecure;
  flags.control.socket = std::filesystem::absolute(fmt::format("{}/{}.control.sock", flags.dir, flags.name));
  if (flags.secret_file.empty()) flags.secret_file = SecretFileIn(flags.dir);
  std::string open;
  if (!flags.cluster.empty()) {
    ASSIGN_OR_RETURN(open, CheckExposure(flags, nullptr));  // Before anything is made.
  }
  RETURN_IF_ERROR(PrepareDirectory(flags));
  std::shared_ptr<LogFile> log_file;
  RETURN_IF_ERROR(LogToFile(flags, &log_file));
  ASSIGN_OR_RETURN(flags.shm_group_id, GroupOf(flags));
  bool over_tcp = !flags.listen.empty();
  uint32_t count = flags.workers;
  if (flags.cluster.empty()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<EmbeddedMembership> membership, EmbeddedMembership::Open(flags.dir));
    const ClusterState::Server* self = membership->state().FindServer(flags.name);
    if (self == nullptr) {
      return absl::NotFoundError(fmt::format("{}/cluster.json lists no server named {}", flags.dir, flags.name));
    }
    count = static_cast<uint32_t>(self->workers.size());
    ASSIGN_OR_RETURN(open, CheckExposure(flags, membership.get()));
    for (const ClusterState::Worker& worker : self->workers) {
      over_tcp |= worker.address.find("tcp://") != std::string::npos;
    }
  }
  if (!open.empty()) spdlog::warn("{}", open);
  ASSIGN_OR_RETURN(const Fd lock, LockServer(flags));
  ASSIGN_OR_RETURN(const std::unique_ptr<AuditLog> audit, OpenAuditLog(flags));
  flags.control.audit = audit.get();
  ASSIGN_OR_RETURN(const std::shared_ptr<CredentialFiles> credentials, OpenCredentials(flags, over_tcp));
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, StartWorker(flags, credentials, i));
    workers.push_back(std::move(worker));
  }
  if (over_tcp && flags.control.address.empty()) flags.control.tls = {};  // They are for the data alone.
  std::deque<WorkerControl> controls;
  std::vector<ControlledWorker*> controlled;
  controlled.reserve(workers.size());
  for (const auto& worker : workers) controlled.push_back(&controls.emplace_back(worker.get()));
  ASSIGN_OR_RETURN(std::unique_ptr<ControlServer> control, ControlServer::Start(flags.control, controlled));
  RETURN_IF_ERROR(TellControl(flags, control->address()));
  if (log_file != nullptr) log_file->TakeStandardStreams();  // Until now, errors have to reach who started the server.
  spdlog::info("the control plane is listening at {}", control->address());
  EndOnSignals();
  std::vector<std::future<absl::Status>> running;
  running.reserve(workers.size());
  for (const auto& worker : workers) running.push_back(std::async(std::launch::async, RunWorker, worker.get()));
  spdlog::info("{} serves with {} worker(s)", flags.name, workers.size());
  absl::Status ended;
  for (std::future<absl::Status>& worker : running) ended.Update(worker.get());
  if (!ended.ok()) {  // Threads wait for something that does not answer, and cannot be joined.
    spdlog::error("{} stops waiting for its disk and ends: {}", flags.name, std::string(ended.message()));
    spdlog::default_logger()->flush();
    ::_exit(kUnfinishedStatus);
  }
  control.reset();
  spdlog::info("{} ends", flags.name);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  ::umask(S_IRWXG | S_IRWXO);  // What the server makes is its user's alone.
  HoldStandardStreams();
  EnterCallersDirectory();
  (void)Functions();  // If one has a wrong name, say so now.
  ServerFlags flags;
  CLI::App app{
      "Run a Cell server, which holds and serves regions of a cluster. Without --cluster, the cluster is the one in "
      "the directory DIR, as //tools:up creates it."};
  app.formatter(HelpText());
  DeclareFlags(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fmt::print(stderr, "cell_server: {}\n", OneLine(error.what()));  // In one line, which //tools:up repeats.
    return 2;
  }
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  spdlog::set_formatter(LogLines());
  spdlog::flush_on(spdlog::level::info);
  if (const absl::Status status = Run(flags); !status.ok()) {
    const std::string why(status.message());
    if (!flags.log_file.empty()) spdlog::error("{}", why);
    fmt::print(stderr, "cell_server: {}\n", OneLine(why));
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

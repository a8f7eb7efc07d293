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
#include "cell/cmd/number_flags.h"
#include "cell/cmd/serving_address.h"
#include "cell/cmd/worker_control.h"
#include "cell/cmd/zookeeper_digest.h"
#include "cell/control/audit_log.h"
#include "cell/control/control_server.h"
#include "cell/control/tls_files.h"
#include "cell/io/exec/invocation.h"
#include "cell/io/exec/system_clock.h"
#include "cell/io/fabric/fabric_address.h"
#include "cell/io/fabric/open/open_fabric.h"
#include "cell/io/fabric/verbs/verbs_device.h"
#include "cell/io/file/posix_files.h"
#include "cell/io/file/private_directory.h"
#include "cell/io/net/descriptors.h"
#include "cell/log/directory_log_store.h"
#include "cell/log/log_directory.h"
#include "cell/server/worker.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

struct Flags {
  std::string dir;
  std::string cluster;
  std::string zookeeper_digest;
  std::string name = "server-0";
  uint32_t workers = 1;
  uint32_t regions_max = 16;
  std::optional<uint64_t> memory_max;
  RegionShape shape;
  std::string fabric = "auto";
  std::string listen;
  std::string secret_file;
  std::string shm_group;
  std::optional<gid_t> shm_group_id;
  std::string rdma_device;
  int rdma_gid_index = -1;
  uint32_t rdma_mtu = 0;
  std::string poll = "adaptive";
  bool batching = true;
  bool huge_pages = true;
  std::optional<size_t> inline_max;
  double split_at = 0.75;
  bool balance = true;
  bool join = true;
  std::string durability = "async";
  std::string log_dir;
  double sync_bound_ms = 10;
  uint64_t checkpoint_mb = 64;
  double takeover_after_s = 1;
  ControlOptions control;
  std::string audit_log;
  bool insecure = false;
  std::string stop_at;
  std::string log_level = "info";
  std::string log_file;
  uint64_t log_file_mb = 16;
  int log_files = 4;
};

std::atomic<bool> stop = false;

// How long a worker sleeps at most, and so how soon a signal is noticed.
constexpr int64_t kNapNs = 200'000'000;

constexpr uint32_t kRegionsMax = 65'536;  // Per worker.

// With fewer, gRPC ends the process.
constexpr uint64_t kDescriptorsMin = 64;

// The exit status of a server that was asked to end, but whose disk or membership did not answer.
constexpr int kUnfinishedStatus = 3;

// Per worker. Disks sync several files at the same time; replays use the cores.
constexpr size_t kDiskThreads = 4;
const size_t kReplayThreads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 8);

// Sets regions_max to what --memory-max says. Returns InvalidArgument if that is less than a region for each worker.
absl::Status ApplyMemoryMax(Flags* flags) {
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
absl::StatusOr<Fd> LockServer(const Flags& flags) {
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
absl::StatusOr<std::unique_ptr<Membership>> Join(const Flags& flags, const WorkerId& self, ServingAddress* serving) {
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
absl::StatusOr<std::optional<gid_t>> GroupOf(const Flags& flags) {
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
absl::StatusOr<std::shared_ptr<CredentialFiles>> OpenCredentials(const Flags& flags, bool over_tcp) {
  const TlsFiles tls = over_tcp ? flags.control.tls : TlsFiles();
  ASSIGN_OR_RETURN(std::shared_ptr<CredentialFiles> credentials,
                   CredentialFiles::Open({flags.secret_file, tls.authority, tls.certificate, tls.key}));
  const std::shared_ptr<const Credentials> current = credentials->Current(0);
  if (!current->keys->empty() && !current->keys->Cluster().has_value()) {
    return absl::InvalidArgumentError(
        fmt::format("{} has no secret of the cluster, which a server needs to know others (cellctl secret new)",
                    flags.secret_file));
  }
  const Identity self = IdentityOf(Role::kServer, flags.name);
  if (current->tls != nullptr && current->tls->certified().value_or(self) != self) {
    return absl::InvalidArgumentError(fmt::format("{} is the certificate of {}, but this server is {}", tls.certificate,
                                                  ToString(*current->tls->certified()), ToString(self)));
  }
  return credentials;
}

// Opens the store of the logs of the worker's regions. Returns nothing without durability.
absl::StatusOr<Worker::Logs> OpenLogs(const Flags& flags, const ClusterState& cluster, Fabric* fabric) {
  static PosixFiles files;
  const std::string directory = flags.log_dir.empty() ? flags.dir + "/log" : flags.log_dir;
  if (cluster.durability == Durability::kNone) {
    const absl::StatusOr<std::vector<std::string>> left = files.List(directory);
    if (!left.ok() || left->empty()) return Worker::Logs();
    return absl::FailedPreconditionError(
        fmt::format("{} has the logs of a durable cluster, but this one has durability none: start it with its former "
                    "durability, or remove the logs",
                    directory));
  }
  RETURN_IF_ERROR(files.MakeDirectory(directory));
  RETURN_IF_ERROR(CheckPrivateDirectory(directory));
  RETURN_IF_ERROR(ClaimLogDirectory(directory, cluster.uuid));
  if (CloseToOthers(directory)) spdlog::info("{} was readable by other users; now it is only this user's", directory);
  const ThreadPool::Work wake = [fabric] { fabric->Wake(); };
  return Worker::Logs{std::make_shared<DirectoryLogStore>(&files, directory),
                      std::make_unique<OsThreadPool>(kDiskThreads, wake),
                      std::make_unique<OsThreadPool>(kReplayThreads, wake)};
}

absl::StatusOr<std::unique_ptr<Worker>> StartWorker(const Flags& flags,
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
  options.split.split_at = flags.split_at;
  options.balance.enabled = flags.balance;
  options.join.enabled = flags.join;
  options.seed = std::hash<std::string>()(fmt::format("{}/{}", flags.name, index));
  options.regions_max = self->regions_max;
  options.logs.durability = membership->state().durability;
  options.logs.bound_ns = static_cast<int64_t>(flags.sync_bound_ms * 1e6);
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
                                            .credentials = credentials,
                                            .shm_group = flags.shm_group_id,
                                            .rdma_device = flags.rdma_device,
                                            .rdma_gid_index = flags.rdma_gid_index,
                                            .rdma_mtu = flags.rdma_mtu}));
  const std::shared_ptr<RegionPool> pool = fabric->pool();
  ASSIGN_OR_RETURN(Worker::Logs logs, OpenLogs(flags, membership->state(), fabric.get()));
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
absl::Status TellControl(const Flags& flags, const std::string& address) {
  const std::string path = fmt::format("{}/{}.control", flags.dir, flags.name);
  PosixFiles files;
  (void)files.Remove(path + ".new");  // A server that was killed may have left it.
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.Create(path + ".new"));
  RETURN_IF_ERROR(file->Append(address));
  return files.Rename(path + ".new", path);
}

// Refuses to start a server that strangers could use, unless the user wants that: then returns what is open, for the
// log. `embedded` is null with --cluster.
absl::StatusOr<std::string> CheckExposure(const Flags& flags, const EmbeddedMembership* embedded) {
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
absl::StatusOr<std::unique_ptr<AuditLog>> OpenAuditLog(const Flags& flags) {
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
absl::Status CheckFlags(const Flags& flags) {
  for (const double number : {flags.split_at, flags.sync_bound_ms, flags.takeover_after_s}) {
    if (std::isnan(number)) return absl::InvalidArgumentError("nan is not a valid number for a flag");
  }
  if (!IsServerName(flags.name)) {
    return absl::InvalidArgumentError(fmt::format(
        "{} is not a valid server name: --name must have 1 to {} printable characters, without / and spaces",
        ForMessage(flags.name), kServerNameMax));
  }
  if (flags.control.tls.any()) RETURN_IF_ERROR(CheckTlsFiles(flags.control.tls));
  if (!flags.cluster.empty()) {  // Without --cluster the directory says what shape regions have.
    RETURN_IF_ERROR(CheckShape(flags.shape));
    if (flags.inline_max.has_value()) RETURN_IF_ERROR(CheckInlineMax(*flags.inline_max, flags.shape.node_bytes));
  }
  return absl::OkStatus();
}

// Makes sure that the server's directory is there, unless it is the cluster, and that no other user can change what is
// in it.
absl::Status PrepareDirectory(const Flags& flags) {
  if (!flags.cluster.empty()) RETURN_IF_ERROR(PosixFiles().MakeDirectory(flags.dir));
  const absl::Status status = CheckPrivateDirectory(flags.dir);
  if (absl::IsNotFound(status)) return absl::OkStatus();  // Opening the cluster says what to do.
  RETURN_IF_ERROR(status);
  if (OthersCanRead(flags.dir)) {
    spdlog::warn("other users can see which files are in {}: chmod 700 '{}' ends that", flags.dir, flags.dir);
  }
  return absl::OkStatus();
}

absl::Status LogToFile(const Flags& flags, std::shared_ptr<LogFile>* file) {
  if (flags.log_file.empty()) return absl::OkStatus();
  const LogFile::Limits limits{flags.log_file_mb << 20, flags.log_files};
  ASSIGN_OR_RETURN(*file, LogFile::Open(flags.log_file, limits));
  auto logger = std::make_shared<spdlog::logger>("", *file);
  logger->set_formatter(LogLines());
  logger->set_level(spdlog::get_level());
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

absl::Status Run(Flags flags) {
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
  Flags flags;
  CLI::App app{
      "Run a Cell server, which holds and serves regions of a cluster. Without --cluster, the cluster is the one in "
      "the directory DIR, as //tools:up creates it."};
  app.formatter(HelpText());
  app.add_option("--dir", flags.dir,
                 "Directory for the server's sockets; without --cluster, also the cluster's directory")
      ->required();
  CLI::Option* cluster = app.add_option("--cluster", flags.cluster,
                                        "Cluster whose membership is in ZooKeeper: zk://HOST:PORT[,HOST:PORT...]/NAME");
  AddZooKeeperDigest(&app, &flags.zookeeper_digest);
  app.add_option("--workers", flags.workers, "Number of worker threads, each with its own regions")
      ->needs(cluster)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--regions-max", flags.regions_max, "Maximum number of regions that each worker holds")
      ->needs(cluster)
      ->check(CLI::Range(uint32_t{1}, kRegionsMax))
      ->capture_default_str();
  app.add_option("--memory-max", flags.memory_max,
                 "Memory for the regions of this server, such as 4G; sets --regions-max to as many as fit")
      ->needs(cluster)
      ->excludes("--regions-max")
      ->check([](const std::string& text) {  // Otherwise -1 would be a large number.
        return text.find_first_not_of("0123456789") == 0 ? "a size such as 4G is needed, not " + text : std::string();
      })
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--node-bytes", flags.shape.node_bytes,
                 "Size of a tree node in bytes; must be the same for all servers of a cluster")
      ->needs(cluster)
      ->check(CLI::IsMember({512, 1024, 2048, 4096}))
      ->capture_default_str();
  app.add_option("--meganode-bytes", flags.shape.meganode_bytes,
                 "Bytes for the nodes of each region, such as 64M; must be the same for all servers of a cluster")
      ->needs(cluster)
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option(
         "--extents-bytes", flags.shape.extents_bytes,
         "Bytes for the keys and values of each region, such as 256M; must be the same for all servers of a cluster")
      ->needs(cluster)
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--name", flags.name, "Name of this server in the cluster")->capture_default_str();
  app.add_option("--fabric", flags.fabric,
                 "How clients reach this server. auto: shm for clients on this machine; with --listen also tcp for "
                 "other machines, and verbs if it is the address of an RDMA device")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "verbs"}))
      ->capture_default_str();
  app.add_option("--listen", flags.listen,
                 "Address for clients on other machines, HOST[:PORT]; worker N listens at PORT + N, or at a free port "
                 "if none is given")
      ->needs(cluster);
  app.add_option(
         "--secret-file", flags.secret_file,
         "File with the cluster's secret (cellctl secret new). By tcp and verbs only clients and servers can connect "
         "that "
         "prove who they are by a secret derived from it; tcp then uses TLS. Read again when it changes. By shm only "
         "this user can connect, and members of --shm-group")
      ->envname("CELL_SECRET_FILE");
  app.add_option(
         "--shm-group", flags.shm_group,
         "Group whose members may connect by shm, too, as clients. DIR gets this group and can be entered by it")
      ->needs(cluster);
  app.add_flag_callback(
      "--list-devices",
      [] {
        fmt::print("{}", Describe(ListRdmaDevices()));
        throw CLI::Success();
      },
      "List this machine's RDMA devices, and exit");
  app.add_option("--rdma-device", flags.rdma_device,
                 "RDMA device for connections to other servers, NAME or NAME:PORT; by default the route decides");
  app.add_option("--rdma-gid-index", flags.rdma_gid_index,
                 "Index of the RDMA device's GID for connections to other servers; -1: the first GID with an address");
  app.add_option("--rdma-mtu", flags.rdma_mtu, "Maximum RDMA packet size in bytes; 0: the maximum of the port")
      ->check(CLI::IsMember({0, 256, 512, 1024, 2048, 4096}));
  app.add_option(
         "--poll", flags.poll,
         "How workers wait for requests. adaptive: spin for 50 us, then sleep. busy: never sleep (for pinned cores)")
      ->check(CLI::IsMember({"adaptive", "busy"}))
      ->capture_default_str();
  app.add_flag("--batching,!--no-batching", flags.batching,
               "Process searches that arrive together as one batch (default: yes)");
  app.add_flag("--huge-pages,!--no-huge-pages", flags.huge_pages,
               "Use huge pages if enough of them are available (default: yes)");
  app.add_option(
         "--inline-max", flags.inline_max,
         "Store pairs of at most this many bytes, key and value together, in the tree's leaves, so that clients "
         "need no further read for them. 0: none. At most 218 with nodes of 1 KB, 90 with 512 B")
      ->check(WholeNumber(0, InlineBytesMax(kNodeBytesMax)))
      ->default_str(fmt::format("{}, or less if the nodes are too small for that", kInlineMaxDefault));
  app.add_option("--split-at", flags.split_at, "Split a meganode when this fraction of its nodes or extents is used")
      ->check(CLI::Range(0.1, 0.95))
      ->capture_default_str();
  app.add_flag("--balance,!--no-balance", flags.balance,
               "Automatically migrate regions to servers whose regions use fewer bytes (default: yes)");
  app.add_flag("--join,!--no-join", flags.join,
               "Automatically join meganodes that deletes have left small with a neighbour (default: yes)");
  app.add_option("--control", flags.control.address,
                 "Address where the control plane (gRPC) listens for operators on other machines, HOST:PORT, with "
                 "mutual TLS (--tls-certificate, --tls-key, --tls-authority); port 0: any free port. On this machine, "
                 "this user and root always reach it by the Unix socket DIR/NAME.control.sock");
  app.add_option("--tls-certificate", flags.control.tls.certificate,
                 "PEM file with this server's certificate, whose URI is cell://server/NAME, for --control and --listen "
                 "(tcp); for --control alone it may also have the name of the host. Read again when it changes");
  app.add_option("--tls-key", flags.control.tls.key, "PEM file with the key of --tls-certificate");
  app.add_option("--tls-authority", flags.control.tls.authority,
                 "PEM file with the certificate authority of the cluster. Whoever has a certificate that it has signed "
                 "can connect to --listen (tcp) as what its URI says (cell://client/NAME, cell://operator/NAME, "
                 "cell://server/NAME), and only operators can use the control plane");
  app.add_option("--audit-log", flags.audit_log,
                 "File that gets a line of JSON for each change that operators make, and for requests that are "
                 "refused; none: no such file; default: DIR/NAME.audit");
  app.add_flag("--insecure", flags.insecure,
               "Start also if strangers can use what this server listens at: a control plane without TLS, a --listen "
               "address without --secret-file, or a ZooKeeper without --zookeeper-digest-file. A warning says which");
  app.add_option("--durability", flags.durability,
                 "When writes are on disk. none: never, there are no logs. async: soon after they are acknowledged. "
                 "sync: before they are acknowledged. Must be the same for all servers of a cluster")
      ->needs(cluster)
      ->check(CLI::IsMember({"none", "async", "sync"}))
      ->capture_default_str();
  app.add_option("--log-dir", flags.log_dir,
                 "Directory of the logs; takeovers and migrations need one directory that all servers can access; "
                 "default: DIR/log");
  app.add_option("--sync-bound-ms", flags.sync_bound_ms,
                 "With --durability async, the maximum time in milliseconds from acknowledging a write until it is on "
                 "disk; a crash loses at most the writes of this time, and writes wait while the disk is slower")
      ->check(CLI::Range(1.0, 10'000.0))
      ->capture_default_str();
  app.add_option(
         "--checkpoint-mb", flags.checkpoint_mb,
         "Write a checkpoint of a region when its log has this many MB and is twice as large as the region's data")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--takeover-after", flags.takeover_after_s,
                 "Seconds after a server is gone until other servers take over its regions")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--stop-at", flags.stop_at,
                 "For tests: stop the process (SIGSTOP) at this point of a split, migration or join");
  app.add_option("--log-level", flags.log_level, "Log level: trace, debug, info, warning or error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error"}))
      ->capture_default_str();
  CLI::Option* log_file = app.add_option(
      "--log-file", flags.log_file,
      "File for the server's messages, which is renamed to PATH.1 when it is full, and the older ones to "
      "PATH.2 and so on; default: standard output");
  app.add_option("--log-file-mb", flags.log_file_mb, "Size in MB at which a new --log-file is begun")
      ->needs(log_file)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--log-files", flags.log_files, "Number of log files that are kept, with the one that is written")
      ->needs(log_file)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
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

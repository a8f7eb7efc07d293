// cell_server: one server process of a cluster. Usually started by //tools:up.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "CLI/CLI.hpp"
#include "cell/base/status_macros.h"
#include "cell/cluster/cluster_file.h"
#include "cell/io/shm_fabric.h"
#include "cell/server/request_service.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

struct Flags {
  std::string dir;
  std::string name = "server-0";
  std::string poll = "adaptive";
  bool batching = true;
  bool huge_pages = true;
  std::string log_level = "info";
};

std::atomic<bool> stop = false;

// The longest that a worker sleeps: how soon a signal is noticed.
constexpr int64_t kNapNs = 200'000'000;

// Held while the server runs, so that a second one with this name and directory is refused.
absl::StatusOr<Fd> LockServer(const Flags& flags) {
  const std::string path = fmt::format("{}/{}.lock", flags.dir, flags.name);
  Fd lock(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  if (!lock.valid()) return ErrnoError(absl::StatusCode::kInvalidArgument, fmt::format("cannot open {}", path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(
        fmt::format("a server named {} already runs on \"{}\" ({} is locked): stop it with //tools:down --dir {}",
                    flags.name, flags.dir, path, flags.dir));
  }
  return lock;
}

// One thread, one endpoint, some regions.
struct Worker {
  std::unique_ptr<ShmFabric> fabric;
  std::unique_ptr<RequestService> service;
  std::thread thread;
};

absl::StatusOr<Worker> StartWorker(const Flags& flags, const ClusterFile& cluster, const ClusterFile::Worker& config) {
  Worker worker;
  worker.fabric = std::make_unique<ShmFabric>(ShmFabricOptions{
      .polling = flags.poll == "busy" ? ShmFabricOptions::Polling::kBusy : ShmFabricOptions::Polling::kAdaptive,
      .huge_pages = flags.huge_pages,
  });
  std::vector<RegionMemory*> memory;
  for (const uint32_t region : config.regions) {
    ASSIGN_OR_RETURN(RegionMemory * one, worker.fabric->CreateRegion(region, cluster.shape.region_bytes()));
    RETURN_IF_ERROR(Meganode::Format(one, region, cluster.shape));
    memory.push_back(one);
    spdlog::info("region {}: {} MB of nodes, {} MB of extents", region, cluster.shape.meganode_bytes >> 20,
                 cluster.shape.extents_bytes >> 20);
  }
  if (flags.huge_pages && !worker.fabric->huge_pages()) {
    spdlog::warn("no huge pages for all regions; reads will be slower (sysctl vm.nr_hugepages={})",
                 (cluster.shape.region_bytes() * config.regions.size() >> 21) + 1);
  }
  worker.service = std::make_unique<RequestService>(worker.fabric.get(), memory,
                                                    RequestService::Options{flags.name, flags.batching});
  RETURN_IF_ERROR(worker.fabric->Listen(config.socket, worker.service.get()));
  return worker;
}

void RunWorker(ShmFabric* fabric) {
  while (!stop.load(std::memory_order_relaxed)) {
    if (fabric->Poll() == 0) fabric->Wait(fabric->NowNs() + kNapNs);
  }
}

absl::Status Run(const Flags& flags) {
  ASSIGN_OR_RETURN(const ClusterFile cluster, ClusterFile::Read(flags.dir));
  const ClusterFile::Server* self = cluster.FindServer(flags.name);
  if (self == nullptr) {
    return absl::NotFoundError(fmt::format("{}/cluster.json lists no server named {}", flags.dir, flags.name));
  }
  ASSIGN_OR_RETURN(const Fd lock, LockServer(flags));
  std::vector<Worker> workers;
  for (const ClusterFile::Worker& config : self->workers) {
    ASSIGN_OR_RETURN(Worker worker, StartWorker(flags, cluster, config));
    workers.push_back(std::move(worker));
  }
  for (Worker& worker : workers) worker.thread = std::thread(RunWorker, worker.fabric.get());
  spdlog::info("{} serves with {} worker(s)", flags.name, workers.size());
  for (Worker& worker : workers) worker.thread.join();
  spdlog::info("{} ends", flags.name);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"A Cell server: holds the regions that DIR/cluster.json gives it and serves them over shared memory."};
  app.add_option("--dir", flags.dir, "The cluster's directory, with cluster.json")->required();
  app.add_option("--name", flags.name, "Which of the cluster's servers this is")->capture_default_str();
  app.add_option("--poll", flags.poll, "adaptive: spin for 50 us, then sleep. busy: never sleep (pinned cores)")
      ->check(CLI::IsMember({"adaptive", "busy"}))
      ->capture_default_str();
  app.add_flag("--batching,!--no-batching", flags.batching, "Walk searches that arrive together together");
  app.add_flag("--huge-pages,!--no-huge-pages", flags.huge_pages, "Use huge pages where there are enough");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  spdlog::flush_on(spdlog::level::info);

  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  if (const absl::Status status = Run(flags); !status.ok()) {
    fmt::print(stderr, "cell_server: {}\n", std::string(status.message()));
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

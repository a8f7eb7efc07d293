// Clusters of one server for tests: in virtual time, and over shared memory with the server in a thread.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "cell/client/client.h"
#include "cell/cluster/cluster_file.h"
#include "cell/io/shm_fabric.h"
#include "cell/io/sim_fabric.h"
#include "cell/server/request_service.h"
#include "cell/tree/tree_check.h"

namespace cell {

class TestCluster {
 public:
  virtual ~TestCluster() = default;
  virtual std::unique_ptr<Client> NewClient(ClientOptions options) = 0;
  // After all clients have gone: the check of the one region.
  virtual TreeReport Check() = 0;

 protected:
  static constexpr uint32_t kRegion = 1;

  static ClusterFile Describe(const RegionShape& shape, const std::string& address) {
    ClusterFile cluster;
    cluster.shape = shape;
    cluster.servers = {{"server-0", {{address, {kRegion}}}}};
    return cluster;
  }
  static RegionMemory* Format(Fabric* fabric, const RegionShape& shape) {
    RegionMemory* memory = *fabric->CreateRegion(kRegion, shape.region_bytes());
    CELL_CHECK(Meganode::Format(memory, kRegion, shape).ok());
    return memory;
  }
};

inline std::unique_ptr<Client> Opened(absl::StatusOr<std::unique_ptr<Client>> client) {
  if (!client.ok()) std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
  CELL_CHECK(client.ok());
  return *std::move(client);
}

class SimCluster : public TestCluster {
 public:
  explicit SimCluster(RegionShape shape, SimOptions options = {})
      : shape_(shape), network_(options), fabric_(network_.NewEndpoint()), memory_(Format(fabric_.get(), shape)) {
    service_ = std::make_unique<RequestService>(fabric_.get(), std::vector<RegionMemory*>{memory_},
                                                RequestService::Options{"server-0", true});
    CELL_CHECK(fabric_->Listen("sim", service_.get()).ok());
  }
  std::unique_ptr<Client> NewClient(ClientOptions options) override {
    return Opened(Client::Open(options, network_.NewEndpoint(), Describe(shape_, "sim")));
  }
  TreeReport Check() override { return CheckTree(*memory_); }
  SimNetwork* network() { return &network_; }
  SimFabric* server() { return fabric_.get(); }

 private:
  const RegionShape shape_;
  SimNetwork network_;
  std::unique_ptr<SimFabric> fabric_;
  RegionMemory* memory_;
  std::unique_ptr<RequestService> service_;
};

class ShmCluster : public TestCluster {
 public:
  explicit ShmCluster(RegionShape shape)
      : shape_(shape), address_(fmt::format("/tmp/cell-test-{}-{}", ::getpid(), counter_++)) {
    memory_ = Format(&fabric_, shape);
    service_ = std::make_unique<RequestService>(&fabric_, std::vector<RegionMemory*>{memory_},
                                                RequestService::Options{"server-0", true});
    CELL_CHECK(fabric_.Listen(address_, service_.get()).ok());
    thread_ = std::thread([this] {
      while (!stop_) {
        if (fabric_.Poll() == 0) fabric_.Wait(fabric_.NowNs() + 10'000'000);
      }
    });
  }
  ~ShmCluster() override { Stop(); }
  std::unique_ptr<Client> NewClient(ClientOptions options) override {
    return Opened(Client::Open(options, std::make_unique<ShmFabric>(), Describe(shape_, address_)));
  }
  TreeReport Check() override {
    Stop();
    return CheckTree(*memory_);
  }

 private:
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  static inline std::atomic<int> counter_ = 0;
  const RegionShape shape_;
  const std::string address_;
  ShmFabric fabric_{ShmFabricOptions{.huge_pages = false}};
  RegionMemory* memory_;
  std::unique_ptr<RequestService> service_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace cell

// Provides clusters for tests: in virtual time (SimCluster), and over shared memory with each server in a thread
// (ShmCluster).
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <random>
#include <thread>

#include "cell/base/check.h"
#include "cell/client/client_testing.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "tests/sim_cluster.h"

namespace cell {

// One lock guards the members' copies of the table, because each server and client has a thread of its own.
class ShmCluster : public TestCluster {
 public:
  explicit ShmCluster(RegionShape shape, TestClusterOptions options = {})
      : cluster_(std::make_shared<MemoryCluster>(
            Describe(shape, fmt::format("/tmp/cell-test-{:08x}-{}-", process_, counter_++), options))) {
    for (int i = 0; i < options.servers; ++i) {
      workers_.push_back(std::make_unique<Worker>(std::make_unique<ShmFabric>(ShmFabricOptions{.huge_pages = false}),
                                                  std::make_unique<MemoryMembership>(cluster_),
                                                  WorkerOptions(options, i)));
      const auto index = static_cast<size_t>(i);
      CELL_CHECK(workers_.back()->Start(cluster_->state.servers[index].workers[0].address).ok());
    }
    for (const auto& worker : workers_) {
      threads_.emplace_back([this, worker = worker.get()] {
        while (!stop_) {
          if (worker->Poll() == 0) worker->Wait(worker->fabric()->NowNs() + 1'000'000);
        }
      });
    }
  }
  ~ShmCluster() override {
    Join();
    for (const auto& worker : workers_) CELL_CHECK(worker->Stop().ok());
  }
  std::unique_ptr<Client> NewClient(ClientOptions options) override {
    return Opened(
        ClientTesting::Open(options, std::make_unique<ShmFabric>(), std::make_unique<MemoryMembership>(cluster_)));
  }
  TestReport Check() override {
    Join();
    std::vector<Worker*> workers;
    for (const auto& worker : workers_) workers.push_back(worker.get());
    for (int turns = 0; turns < 1'000'000; ++turns) {
      bool idle = true;
      for (Worker* worker : workers) {
        worker->Poll();
        idle &= worker->scheduler()->idle();
      }
      if (idle) break;
    }
    return CheckAll(workers);
  }

  const std::shared_ptr<MemoryCluster>& shared() const { return cluster_; }

  // Creates a Pilaf table with the first server.
  absl::Status CreateTable(const std::string& name, uint32_t bucket_bytes, uint32_t parts) {
    std::promise<absl::Status> created;
    std::future<absl::Status> future = created.get_future();
    const auto create = [&](Worker* worker) -> Task<bool> {
      absl::Status status = co_await worker->tables()->Create(name, bucket_bytes, parts);
      created.set_value(std::move(status));
      co_return true;
    };
    workers_[0]->Post([&create](Worker* worker) { worker->scheduler()->Spawn(create(worker)); });
    return future.get();
  }

 private:
  void Join() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    for (const auto& worker : workers_) worker->HandOver();
  }

  static inline const unsigned process_ = std::random_device()();  // Tests in sandboxes have the same ids.
  static inline std::atomic<int> counter_ = 0;
  std::shared_ptr<MemoryCluster> cluster_;
  std::atomic<bool> stop_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
};

}  // namespace cell

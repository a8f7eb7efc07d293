// JoinerFixture is a worker whose regions are joined, in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "cell/base/check.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/io/sim/sim_files.h"
#include "cell/io/sim/sim_thread_pool.h"
#include "cell/log/directory_log_store.h"
#include "cell/log/log_replay.h"
#include "cell/server/worker.h"

namespace cell {

class JoinerFixture : public ::testing::Test {
 public:
  static constexpr RegionShape kShape{512, 32 << 10, 64 << 10};

  JoinerFixture(bool joins, size_t regions_max, int64_t every_ns = JoinerOptions().every_ns) {
    ClusterState state;
    state.shape = kShape;
    state.durability = Durability::kSync;
    state.servers = {{"own", {{"own", 8}}, ""}};
    cluster_ = std::make_shared<MemoryCluster>(state);
    auto membership = std::make_unique<MemoryMembership>(cluster_);
    membership_ = membership.get();
    Worker::Options options;
    options.self = {"own", 0};
    options.balance.enabled = false;
    options.join.enabled = joins;
    options.join.every_ns = every_ns;
    options.regions_max = regions_max;
    options.join.copied = 10;
    options.logs.durability = Durability::kSync;
    options.recoverer.lease_wait_ns = 0;
    Worker::Logs logs{std::make_shared<DirectoryLogStore>(host_.get(), "log"),
                      std::make_unique<SimThreadPool>(&network_, 1, 1'000),
                      std::make_unique<SimThreadPool>(&network_, 2, 1'000)};
    worker_.emplace(network_.NewEndpoint(), std::move(membership), std::move(logs), options);
    CELL_CHECK(worker_->Start("own").ok());
  }
  ~JoinerFixture() override { EXPECT_TRUE(worker_->Stop().ok()); }
  JoinerFixture(const JoinerFixture&) = delete;
  JoinerFixture& operator=(const JoinerFixture&) = delete;

 protected:
  void Turn() {
    if (worker_->Poll() > 0) return;
    network_.At(network_.now_ns() + 2'000, [] {});  // Time passes when nothing happens.
    network_.Step();
  }
  absl::Status Run(Task<absl::Status> task) {
    std::optional<absl::Status> status;
    const auto run = [&]() -> Task<bool> {
      status = co_await std::move(task);
      co_return true;
    };
    worker_->scheduler()->Spawn(run());
    for (int i = 0; i < 1'000'000 && !status.has_value(); ++i) Turn();
    return status.value_or(absl::DeadlineExceededError("it has not ended"));
  }
  void AwaitIdle() {
    for (int i = 0; i < 100'000 && !worker_->scheduler()->idle(); ++i) Turn();
    ASSERT_TRUE(worker_->scheduler()->idle());
  }
  HeldRegion* Find(uint32_t region) { return worker_->regions()->Find(region); }
  // Returns the number of pairs that a recovery of the region's log would find.
  size_t KeysInLog(uint32_t region, const LogReplay::GoneAt& is_gone) {
    DirectoryLogStore store(host_.get(), "log");
    LogReplay replay(&store, region, is_gone);
    EXPECT_TRUE(replay.Open().ok());
    size_t keys = 0;
    EXPECT_TRUE(replay
                    .ForEach([&](const LogRecord& record) {
                      const auto& range = replay.hash_range();
                      const uint32_t position = HashKey(record.key).position;
                      keys += !range.has_value() || (position >= range->first && position <= range->last);
                      return absl::OkStatus();
                    })
                    .ok());
    return keys;
  }
  bool HasLog(uint32_t region) {
    return !absl::IsNotFound(DirectoryLogStore(host_.get(), "log").List(region).status());
  }

  SimDisk disk_{1};
  const std::unique_ptr<SimFiles> host_ = disk_.NewHost();
  SimNetwork network_{SimOptions{}};
  std::shared_ptr<MemoryCluster> cluster_;
  MemoryMembership* membership_;
  std::optional<Worker> worker_;
};

}  // namespace cell

// Provides a region of a worker whose log is on a simulated disk, for tests of what works on such logs.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string_view>

#include "cell/base/crc64.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/io/sim/sim_files.h"
#include "cell/io/sim/sim_thread_pool.h"
#include "cell/log/directory_log_store.h"
#include "cell/server/region/log_flusher.h"

namespace cell {

class LoggedRegionTest : public ::testing::Test {
 protected:
  static constexpr RegionShape kShape{512, 32 << 10, 64 << 10};
  static constexpr uint32_t kRegion = 1;
  static constexpr int64_t kDiskNs = 1'000;  // The longest time of an operation of the disk is twice this.
  static constexpr int64_t kBoundNs = 1'000'000;

  explicit LoggedRegionTest(const LogFlusherOptions& options)
      : flusher_(fabric_.get(), &scheduler_, &regions_, {&store_, &pool_, &replay_}, options) {
    EXPECT_TRUE(regions_.Create(kRegion, {}).ok());
    EXPECT_TRUE(Run(flusher_.Create(kRegion)).ok());
  }
  ~LoggedRegionTest() override { End(); }
  // Ends all tasks. A test that owns something that they use calls it before that goes.
  void End() {
    scheduler_.Stop();
    while (!scheduler_.idle()) Turn();
  }

  HeldRegion* region() { return regions_.Find(kRegion); }
  void Put(std::string_view key, std::string_view value = "value") {
    ASSERT_TRUE(region()->store->Put(key, value, Crc64(value, Crc64(key))).ok());
  }
  // Does what is due now, or lets a little time pass.
  void Turn() {
    flusher_.Step();
    if (scheduler_.Step() + flusher_.Poll() > 0) return;
    network_.At(network_.now_ns() + 500, [] {});
    network_.Step();
  }
  void PassTime(int64_t ns) {
    const int64_t until_ns = network_.now_ns() + ns;
    while (network_.now_ns() < until_ns) Turn();
  }
  absl::Status Run(Task<absl::Status> task) {
    task.Start();
    while (!task.done()) Turn();
    return task.Take();
  }

  // Before the network: what was under way at the end of a test holds open files until the network is gone.
  SimDisk disk_{1};
  std::unique_ptr<SimFiles> files_ = disk_.NewHost();
  DirectoryLogStore store_{files_.get(), "log"};
  SimNetwork network_{SimOptions{}};
  std::unique_ptr<SimFabric> fabric_ = network_.NewEndpoint();
  SimThreadPool pool_{&network_, 1, kDiskNs};
  SimThreadPool replay_{&network_, 2, kDiskNs};
  Scheduler scheduler_{fabric_.get()};
  Regions regions_{fabric_.get(), kShape, 2};
  LogFlusher flusher_;
};

}  // namespace cell

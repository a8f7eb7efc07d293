// Splits of meganodes and of parts of tables, by a worker that loses them meanwhile.
#include <gtest/gtest.h>

#include "cell/base/crc64.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/sim/sim_background.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/io/sim/sim_files.h"
#include "cell/log/directory_log_store.h"
#include "cell/server/worker.h"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 32 << 10, 64 << 10};

class SplitTest : public ::testing::Test {
 protected:
  SplitTest() {
    ClusterState state;
    state.shape = kShape;
    state.durability = Durability::kSync;
    state.servers = {{"own", {{"own", 8}}, ""}};
    auto membership = std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(state));
    membership_ = membership.get();
    Worker::Options options;
    options.steward.self = options.recoverer.self = {"own", 0};
    options.steward.balance = false;
    options.steward.copied_per_turn = 1'000'000;  // All of a region in one turn.
    options.logs.durability = Durability::kSync;
    Worker::Logs logs{std::make_shared<DirectoryLogStore>(host_.get(), "log"),
                      std::make_unique<SimBackground>(&network_, 1, 1'000),
                      std::make_unique<SimBackground>(&network_, 2, 1'000)};
    worker_.emplace(network_.NewEndpoint(), std::move(membership), std::move(logs), options);
    CELL_CHECK(worker_->Start("own").ok());
  }
  ~SplitTest() override { EXPECT_TRUE(worker_->Stop().ok()); }

  void Turn() {
    if (worker_->Poll() > 0) return;
    network_.At(network_.now_ns() + 100, [] {});  // Time goes on when nothing happens.
    network_.Step();
  }
  absl::Status Run(Task<absl::Status> task) {
    std::optional<absl::Status> status;
    const auto run = [&]() -> Task<bool> {
      status = co_await std::move(task);
      co_return true;
    };
    worker_->turns()->Begin(run());
    for (int i = 0; i < 100'000 && !status.has_value(); ++i) Turn();
    return status.value_or(absl::DeadlineExceededError("it has not ended"));
  }
  void Fill(uint32_t region) {
    for (int i = 0; i < 100; ++i) {
      const std::string key = fmt::format("key{:03}", i), value = "value";
      ASSERT_TRUE(worker_->regions()->Find(region)->store->Put(key, value, Crc64(value, Crc64(key))).ok());
    }
  }
  // The session is lost when all has been copied and nothing is cut: what is lost then may be another's at any time.
  void LoseItWhileItIsSplit(uint32_t region, std::string_view made, std::string_view copied) {
    bool lost = false, went_on = false;
    worker_->sync_points()->on_reach = [&](std::string_view point) {
      if (point == made) membership_->Rejoin();  // The worker looks at its session after the copy's turn.
      if (point == copied) lost = worker_->regions()->Find(region)->lost();
      went_on |= point.find("cut") != std::string_view::npos;
    };
    EXPECT_EQ(Run(worker_->steward()->SplitNow(region)).code(), absl::StatusCode::kAborted);
    EXPECT_TRUE(lost);
    EXPECT_FALSE(went_on);
    const HeldRegion* const held = worker_->regions()->Find(region);
    EXPECT_TRUE(held == nullptr || held->lost());
    worker_->sync_points()->on_reach = nullptr;
  }

  SimDisk disk_{1};
  const std::unique_ptr<SimFiles> host_ = disk_.NewHost();
  SimNetwork network_{SimOptions{}};
  MemoryMembership* membership_;
  std::optional<Worker> worker_;
};

TEST_F(SplitTest, AMeganodeThatIsLostMeanwhileIsNotReadAgain) {
  const uint32_t region = membership_->state().table.root;
  Fill(region);
  LoseItWhileItIsSplit(region, "split: region made", "split: copied");
}

TEST_F(SplitTest, APartOfATableThatIsLostMeanwhileIsNotReadAgain) {
  ASSERT_TRUE(Run(worker_->tables()->Create("table", 0, 1)).ok());
  const uint32_t region = membership_->state().table.tables.at("table").parts.begin()->second;
  Fill(region);
  LoseItWhileItIsSplit(region, "table split: region made", "table split: copied");
}

}  // namespace
}  // namespace cell

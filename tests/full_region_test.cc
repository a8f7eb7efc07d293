// Tests full regions at a server that may hold no more: writes fail with a clear error, and nothing else breaks.
#include <gtest/gtest.h>

#include <map>

#include "cell/base/check.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tests/sim_cluster.h"

namespace cell {
namespace {

std::string Key(int i) { return fmt::format("k{:05}", i); }

class FullRegion : public ::testing::TestWithParam<Durability> {
 protected:
  static TestClusterOptions TwoRegions(Durability durability) {
    TestClusterOptions options;
    options.regions_max = 2;  // The tree's and the table's.
    options.logs.durability = durability;
    options.balance.enabled = false;
    options.split.split_at = 2;  // Only a write that finds no room asks for a split.
    return options;
  }
  FullRegion() {
    ClientOptions options;
    options.report = false;
    client_ = cluster_.NewClient(options);
    CELL_CHECK(cluster_.CreateTable("t", 1024, 1).ok());
    table_.emplace(*client_->OpenTable("t"));
  }
  Task<bool> PutAsync(bool in_table, std::string key, std::string value) {
    ++in_flight_;
    absl::StatusOr<bool> existed = false;
    if (in_table) {
      existed = co_await table_->AsyncPut(key, value);
    } else {
      existed = co_await client_->AsyncPut(key, value);
    }
    --in_flight_;
    if (existed.ok()) {
      stored_[in_table][key] = value;
      co_return true;
    }
    EXPECT_EQ(existed.status().code(), absl::StatusCode::kResourceExhausted) << existed.status();
    ++refused_[in_table];
    co_return false;
  }
  // Puts keys into both, 64 in flight, until each has refused `refused` of them.
  void Fill(size_t refused) {
    for (int i = 0; std::min(refused_[0], refused_[1]) < refused && i < 100'000;) {
      std::vector<Task<bool>> batch;
      for (int j = 0; j < 64; ++j, ++i) {
        batch.push_back(PutAsync(j % 2 != 0, Key(i), std::string(100, 'v')));
        batch.back().Start();
      }
      while (in_flight_ > 0) client_->Poll(INT64_MAX);
    }
    ASSERT_GE(std::min(refused_[0], refused_[1]), refused);
  }
  Task<bool> DeleteAsync(bool in_table, std::string key) {
    ++in_flight_;
    absl::StatusOr<bool> existed = false;
    if (in_table) {
      existed = co_await table_->AsyncDelete(key);
    } else {
      existed = co_await client_->AsyncDelete(key);
    }
    --in_flight_;
    EXPECT_TRUE(existed.ok()) << existed.status();
    stored_[in_table].erase(key);
    co_return true;
  }
  nlohmann::json Status() { return nlohmann::json::parse(cluster_.worker()->service()->reports().StatusJson(0, 2)); }

  SimCluster cluster_{{512, 16 << 10, 64 << 10}, {}, TwoRegions(GetParam())};
  std::unique_ptr<Client> client_;
  std::optional<Table> table_;
  std::map<std::string, std::string> stored_[2];
  size_t in_flight_ = 0, refused_[2] = {0, 0};
};
INSTANTIATE_TEST_SUITE_P(Durabilities, FullRegion,
                         ::testing::Values(Durability::kNone, Durability::kAsync, Durability::kSync));

// The split that would make room fails at once, because there is no room for another region. It must not begin in the
// middle of the loop over the writes that wait for it: those would be answered twice, and from freed memory.
TEST_P(FullRegion, AnswersEachWriteOnceWhenNoSplitIsPossible) {
  Fill(1);
  client_->Run(client_->AsyncSleepUntil(client_->NowNs() + 1'100'000'000));  // Until a split is tried again.
  // With `sync` the puts wait behind the deletes, which may make room for them.
  std::vector<Task<bool>> batch;
  for (const bool in_table : {false, true}) {
    const std::string first = stored_[in_table].begin()->first;
    batch.push_back(DeleteAsync(in_table, first));
    batch.back().Start();
  }
  for (int i = 0; i < 60; ++i) {
    batch.push_back(PutAsync(i % 2 != 0, fmt::format("new{}", i), std::string(100, 'n')));
    batch.back().Start();
  }
  while (in_flight_ > 0) client_->Poll(INT64_MAX);
  for (const auto& [key, value] : stored_[0]) ASSERT_EQ((*client_->Get(key)).value_or("lost"), value) << key;
  for (const auto& [key, value] : stored_[1]) ASSERT_EQ((*table_->Get(key)).value_or("lost"), value) << key;
  EXPECT_EQ(Status()["held_writes"]["now"], 0);
  EXPECT_GT(Status()["held_writes"]["ever"], 0);
  EXPECT_EQ(Status()["refused"], refused_[0] + refused_[1]);
  table_.reset();
  client_.reset();
  const TestReport report = cluster_.Check();
  EXPECT_EQ(report.error_count, 0u) << report.errors[0];
}

// With any durability, replacing a value by one of the same size needs no more room than there is.
TEST_P(FullRegion, TakesWhatReplacesAValue) {
  Fill(1);
  for (const bool in_table : {false, true}) {
    std::vector<Task<bool>> batch;
    const std::map<std::string, std::string> before = stored_[in_table];
    const size_t refused = refused_[in_table];
    for (const auto& [key, value] : before) {
      batch.push_back(PutAsync(in_table, key, std::string(100, 'w')));
      batch.back().Start();
    }
    while (in_flight_ > 0) client_->Poll(INT64_MAX);
    EXPECT_EQ(refused_[in_table], refused) << in_table;
  }
  for (const auto& [key, value] : stored_[0]) ASSERT_EQ((*client_->Get(key)).value_or("lost"), std::string(100, 'w'));
  for (const auto& [key, value] : stored_[1]) ASSERT_EQ((*table_->Get(key)).value_or("lost"), std::string(100, 'w'));
  table_.reset();
  client_.reset();
  const TestReport report = cluster_.Check();
  EXPECT_EQ(report.error_count, 0u) << report.errors[0];
}

// Large values are uploaded in pieces, and the server has no room for them. Each upload takes one of its client's few
// upload numbers, and returns it when it is refused.
TEST(FullServer, AValueThatIsRefusedLeavesRoomForTheNext) {
  TestClusterOptions options;
  options.uploads.bytes_max = 100'000;
  SimCluster cluster({512, 32 << 10, 1 << 20}, {}, options);
  ClientOptions client_options;
  client_options.report = false;
  const std::unique_ptr<Client> client = cluster.NewClient(client_options);
  for (int i = 0; i < 10; ++i) {
    const absl::Status refused = client->Put("large", std::string(200'000, 'v')).status();
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  }
  const absl::Status taken = client->Put("large", std::string(90'000, 'v')).status();
  EXPECT_TRUE(taken.ok()) << taken;
}

}  // namespace
}  // namespace cell

// Tests conditional writes and stamps, by all paths of a client, over meganodes and tables on several servers.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/client/client_testing.h"
#include "tests/clusters.h"

namespace cell {
namespace {

std::string Key(int i) { return fmt::format("key{:05}", i); }

// In the leaf, outside of it, in pieces in a reply, and in pieces in a request.
std::vector<std::string> Values(char c) {
  return {std::string(20, c), std::string(300, c), std::string(kInlineValueBytesMax + 10, c),
          std::string(kMessageBytesMax, c)};
}

class WriteIfTest : public ::testing::TestWithParam<Durability> {
 protected:
  static TestClusterOptions Options() {
    TestClusterOptions options = SpreadingOptions();
    options.logs.durability = GetParam();
    return options;
  }
  static ClientOptions Quiet() {
    ClientOptions options;
    options.report = false;
    return options;
  }
  uint64_t StampOf(const std::string& key) {
    std::optional<uint64_t> stamp;
    for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
      const auto found = client_->GetWithStamp(key, {path, {}});
      EXPECT_TRUE(found.ok()) << found.status();
      const uint64_t its = found.ok() && found->has_value() ? (*found)->stamp : 0;
      EXPECT_EQ(its, stamp.value_or(its)) << ToString(path);
      stamp = its;
    }
    return *stamp;
  }
  // The stamp is the one that the key's pair has now.
  void Expect(const std::string& key, const absl::StatusOr<WriteIfResult>& result, bool applied, bool existed) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->applied, applied);
    EXPECT_EQ(result->existed, existed);
    EXPECT_EQ(result->stamp, StampOf(key));
  }

  SimCluster cluster_{{512, 32 << 10, 2 << 20}, {}, Options()};
  std::unique_ptr<Client> client_ = cluster_.NewClient(Quiet());
};

TEST_P(WriteIfTest, IsAppliedIfItsConditionHolds) {
  for (const std::string& value : Values('a')) {
    for (const std::string& other : Values('b')) {
      const std::string key = fmt::format("{}-{}", value.size(), other.size());
      Expect(key, client_->PutIf(key, value, Condition::Present()), false, false);
      Expect(key, client_->PutIf(key, value, Condition::StampIs(1)), false, false);
      Expect(key, client_->PutIf(key, value, Condition::ValueIs("")), false, false);
      Expect(key, client_->DeleteIf(key, Condition::Present()), false, false);
      EXPECT_EQ(StampOf(key), 0u);
      Expect(key, client_->PutIf(key, value, Condition::Absent()), true, false);
      EXPECT_EQ(*client_->Get(key), value);
      const uint64_t first = StampOf(key);

      Expect(key, client_->PutIf(key, other, Condition::Absent()), false, true);
      Expect(key, client_->PutIf(key, other, Condition::StampIs(first - 1)), false, true);
      Expect(key, client_->DeleteIf(key, Condition::StampIs(first + 1)), false, true);
      Expect(key, client_->DeleteIf(key, Condition::Absent()), false, true);
      EXPECT_EQ(*client_->Get(key), value);
      EXPECT_EQ(StampOf(key), first);
      Expect(key, client_->PutIf(key, other, Condition::StampIs(first)), true, true);
      EXPECT_EQ(*client_->Get(key), other);
      const uint64_t second = StampOf(key);
      EXPECT_GT(second, first);

      Expect(key, client_->PutIf(key, value, Condition::ValueIs(value.substr(0, 100))), false, true);
      if (other.size() <= 4096) {
        Expect(key, client_->PutIf(key, other, Condition::ValueIs(other)), true, true);
        EXPECT_GT(StampOf(key), second) << "an equal value is another version";
      }
      Expect(key, client_->DeleteIf(key, Condition::StampIs(first)), false, true);
      Expect(key, client_->DeleteIf(key, Condition::StampIs(StampOf(key))), true, true);
      EXPECT_EQ(*client_->Get(key), std::nullopt);
      Expect(key, client_->PutIf(key, value, Condition::Absent()), true, false);
      EXPECT_GT(StampOf(key), second) << "a key that was deleted does not begin again";
    }
  }
}

TEST_P(WriteIfTest, InATable) {
  const auto expect = [](const absl::StatusOr<WriteIfResult>& result, bool applied, bool existed) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->applied, applied);
    EXPECT_EQ(result->existed, existed);
    EXPECT_EQ(result->stamp, 0u);
  };
  for (const uint32_t bucket_bytes : {0, 1024}) {
    const std::string name = fmt::format("table{}", bucket_bytes);
    ASSERT_TRUE(cluster_.CreateTable(name, bucket_bytes, 2).ok());
    absl::StatusOr<Table> table = client_->OpenTable(name);
    ASSERT_TRUE(table.ok()) << table.status();
    for (const std::string& value : Values('a')) {
      const std::string key = fmt::format("{}", value.size());
      expect(table->DeleteIf(key, Condition::Present()), false, false);
      expect(table->PutIf(key, value, Condition::ValueIs(value.substr(0, 9))), false, false);
      expect(table->PutIf(key, value, Condition::StampIs(1)), false, false);
      expect(table->PutIf(key, value, Condition::Absent()), true, false);
      expect(table->PutIf(key, "other", Condition::Absent()), false, true);
      expect(table->PutIf(key, "other", Condition::ValueIs(value.substr(0, 9))), false, true);
      EXPECT_EQ(*table->Get(key), value);
      EXPECT_TRUE(absl::IsInvalidArgument(table->PutIf(key, "other", Condition::StampIs(1)).status()));
      if (value.size() <= 4096) {
        expect(table->PutIf(key, "other", Condition::ValueIs(value)), true, true);
        EXPECT_EQ(*table->Get(key), "other");
      }
      expect(table->DeleteIf(key, Condition::Present()), true, true);
      EXPECT_EQ(*table->Get(key), std::nullopt);
    }
  }
}

TEST_P(WriteIfTest, WhatCannotBeIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(client_->PutIf("", "value", Condition::Absent()).status()));
  const absl::Status long_value =
      client_->PutIf("key", std::string(kValueBytesMax + 1, 'v'), Condition::Absent()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(long_value)) << long_value;
  const absl::Status long_condition = client_->DeleteIf("key", Condition::ValueIs(std::string(4097, 'v'))).status();
  EXPECT_TRUE(absl::IsInvalidArgument(long_condition)) << long_condition;
  EXPECT_NE(long_condition.message().find("expected value"), std::string::npos) << long_condition;
  EXPECT_TRUE(absl::IsInvalidArgument(client_->PutIf("key", "value", Expires::AtNs(1), Condition::Absent()).status()));
  EXPECT_EQ(StampOf("key"), 0u);
}

TEST_P(WriteIfTest, APairThatHasExpiredIsAbsent) {
  const auto now_ns = [this] { return static_cast<uint64_t>(cluster_.network()->now_ns()); };
  const uint64_t at_ns = now_ns() + 50'000'000;
  Expect("key", client_->PutIf("key", "1", Expires::AtNs(at_ns), Condition::Absent()), true, false);
  const uint64_t stamp = StampOf("key");
  Expect("key", client_->PutIf("key", "2", Condition::Absent()), false, true);
  while (now_ns() < at_ns) cluster_.network()->Step();
  Expect("key", client_->PutIf("key", "2", Condition::Present()), false, false);
  Expect("key", client_->PutIf("key", "2", Condition::StampIs(stamp)), false, false);
  Expect("key", client_->PutIf("key", "2", Condition::Absent()), true, false);
}

// Reads a counter and writes its next value until that is applied.
Task<bool> Increment(Client* client, const std::string* key, bool by_value, int times) {
  while (times > 0) {
    const absl::StatusOr<std::optional<StampedValue>> now = co_await client->AsyncGetWithStamp(*key, {});
    CELL_CHECK(now.ok());
    const std::string before = now->has_value() ? (*now)->value : "";
    const std::string after = std::to_string((before.empty() ? 0 : std::stoi(before)) + 1);
    Condition condition = Condition::Absent();
    if (now->has_value()) condition = by_value ? Condition::ValueIs(before) : Condition::StampIs((*now)->stamp);
    const absl::StatusOr<WriteIfResult> put = co_await client->AsyncPutIf(*key, after, Expires::Never(), condition, {});
    CELL_CHECK(put.ok());
    times -= put->applied;
  }
  co_return true;
}

TEST_P(WriteIfTest, NoIncrementIsLost) {
  constexpr int kAtOnce = 8, kTimes = 50;
  for (const bool by_value : {false, true}) {
    const std::string key = by_value ? "by value" : "by stamp";
    std::vector<Task<bool>> tasks;
    for (int i = 0; i < kAtOnce; ++i) {
      tasks.push_back(Increment(client_.get(), &key, by_value, kTimes));
      tasks.back().Start();
    }
    for (Task<bool>& task : tasks) {
      while (!task.done()) client_->Poll(INT64_MAX);
    }
    EXPECT_EQ(*client_->Get(key), std::to_string(kAtOnce * kTimes));
  }
}

// The servers' clocks differ by hours, and each of them ends once. Without a bound of the stamps in the log (the mutant
// stamps-again) a key that was deleted gets an earlier stamp than it had.
TEST(Stamps, OfAKeyGrowUnderAllItsOwners) {
  constexpr int kKeys = 300;
  constexpr int64_t kHourNs = 3'600'000'000'000;
  TestClusterOptions options = SpreadingOptions();
  options.logs.durability = Durability::kSync;
  options.logs.bound_ns = 40'000;
  options.checkpoints.log_bytes_min = 8 << 10;
  options.clock_offset_ns = {2 * kHourNs, 0, kHourNs};
  SimCluster cluster(kSpreadingShape, {}, options);
  const std::unique_ptr<Client> client = cluster.NewClient({.report = false});
  std::vector<uint64_t> stamps(kKeys, 0);  // The last one that each key had.
  for (size_t victim = 0; victim < 3; ++victim) {
    for (int i = 0; i < kKeys; ++i) {
      const auto at = static_cast<size_t>(i);
      // Every third key keeps its pair from the first round on, every third is written, and every third is deleted.
      const auto found = client->GetWithStamp(Key(i));
      ASSERT_TRUE(found.ok()) << found.status();
      if (found->has_value()) {
        EXPECT_EQ((*found)->stamp, stamps[at]) << Key(i);
      }
      if (i % 3 == 0 && victim > 0) continue;
      const auto put = client->PutIf(Key(i), std::string(100, 'v'),
                                     found->has_value() ? Condition::StampIs(stamps[at]) : Condition::Absent());
      ASSERT_TRUE(put.ok()) << put.status();
      EXPECT_TRUE(put->applied);
      EXPECT_GT(put->stamp, stamps[at]) << Key(i);
      stamps[at] = put->stamp;
      if (i % 3 == 2) {
        EXPECT_TRUE(client->DeleteIf(Key(i), Condition::StampIs(put->stamp))->applied);
      }
    }
    cluster.Kill(victim, true);
    const auto all_served = [&] {
      for (const auto& [region, entry] : cluster.table().regions) {
        if (entry.recovering || entry.owner.server == fmt::format("server-{}", victim)) return false;
      }
      return true;
    };
    for (int i = 0; i < 100'000 && !all_served(); ++i) client->Poll(client->NowNs() + 1'000);
    ASSERT_TRUE(all_served());
    cluster.Restart(victim);
  }
}

INSTANTIATE_TEST_SUITE_P(Durabilities, WriteIfTest,
                         ::testing::Values(Durability::kNone, Durability::kAsync, Durability::kSync),
                         [](const auto& info) { return std::string(ToString(info.param)); });

}  // namespace
}  // namespace cell

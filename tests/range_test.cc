// Tests Count and DeleteRange over many meganodes on several servers: their bounds, their progress, and what they do
// while meganodes split and move, and around takeovers.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/client/client_testing.h"
#include "tests/clusters.h"

namespace cell {
namespace {

constexpr int kKeys = 2000;

std::string Key(int i) { return fmt::format("key{:05}", i); }

ClientOptions Quiet() {
  ClientOptions options;
  options.report = false;
  return options;
}

void PutAll(Client* client) {
  for (int i = 0; i < kKeys; ++i) {
    const int shuffled = i * 1543 % kKeys;
    CELL_CHECK(client->Put(Key(shuffled), fmt::format("value {}", shuffled)).ok());
  }
}

// Returns the keys that a scan finds.
std::vector<std::string> Scanned(Client* client) {
  std::vector<std::string> keys;
  Scan scan = client->NewScan({.keys_only = true});
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) keys.emplace_back(scan.key());
  CELL_CHECK(more.ok());
  return keys;
}

class RangeTest : public ::testing::Test {
 protected:
  RangeTest() : cluster_(SpreadingCluster()), client_(cluster_.NewClient(Quiet())) {
    PutAll(client_.get());
    CELL_CHECK(cluster_.table().CountOf({"server-1", 0}) > 1 && cluster_.table().CountOf({"server-2", 0}) > 1);
  }

  SimCluster cluster_;
  std::unique_ptr<Client> client_;
};

TEST_F(RangeTest, CountsEachKeyOfARangeOnce) {
  EXPECT_EQ(*client_->Count("", std::nullopt), static_cast<uint64_t>(kKeys));
  EXPECT_EQ(*client_->Count("", Key(1)), 1u);
  EXPECT_EQ(*client_->Count("", std::string(1, '\0')), 0u);
  EXPECT_EQ(*client_->Count("zzz", std::nullopt), 0u);
  for (int from = 0; from < kKeys; from += 83) {
    for (int to = from; to <= kKeys; to += 239) {
      EXPECT_EQ(*client_->Count(Key(from), Key(to)), static_cast<uint64_t>(to - from));
      EXPECT_EQ(*client_->Count(Key(from) + "x", Key(to) + "x"),
                static_cast<uint64_t>(std::min(to, kKeys - 1) - std::min(from, kKeys - 1)));
    }
  }
  EXPECT_EQ(client_->metrics().errors, 0u);
}

TEST_F(RangeTest, DeletesTheKeysOfARangeAndNoOthers) {
  EXPECT_EQ(*client_->DeleteRange(Key(300), Key(300)), 0u);
  EXPECT_EQ(*client_->DeleteRange(Key(300), Key(301)), 1u);
  EXPECT_EQ(*client_->DeleteRange(Key(300), Key(301)), 0u);
  EXPECT_EQ(*client_->DeleteRange(Key(290), Key(1700)), 1409u);
  std::vector<std::string> want;
  for (int i = 0; i < kKeys; ++i) {
    if (i < 290 || i >= 1700) want.push_back(Key(i));
  }
  EXPECT_EQ(Scanned(client_.get()), want);
  EXPECT_EQ(*client_->DeleteRange("", Key(100)), 100u);
  EXPECT_EQ(*client_->DeleteRange(Key(1990), std::nullopt), 10u);
  EXPECT_EQ(*client_->Count("", std::nullopt), 480u);
  EXPECT_EQ(*client_->DeleteRange("", std::nullopt), 480u);
  EXPECT_EQ(Scanned(client_.get()), std::vector<std::string>());
  EXPECT_FALSE(*client_->Put(Key(5), "new"));
  EXPECT_EQ(*client_->Count("", std::nullopt), 1u);
  client_.reset();
  const TestReport report = cluster_.Check();
  EXPECT_EQ(report.error_count, 0u) << report.errors[0];
  EXPECT_EQ(report.keys, 1u);
}

TEST_F(RangeTest, BoundsThatMakeNoSenseAreRefused) {
  const std::string too_long(client_->key_bytes_max() + 1, 'k');
  const auto refused = [](const absl::StatusOr<uint64_t>& result, const char* why) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
    EXPECT_NE(result.status().message().find(why), std::string_view::npos) << result.status();
  };
  refused(client_->Count(Key(2), Key(1)), "which is below");
  refused(client_->DeleteRange(Key(2), Key(1)), "which is below");
  refused(client_->DeleteRange(Key(2), ""), "which is below");
  refused(client_->Count(too_long, std::nullopt), "the bounds of a range");
  refused(client_->DeleteRange("", too_long), "the bounds of a range");
  EXPECT_EQ(*client_->DeleteRange("", ""), 0u);
  EXPECT_EQ(*client_->Count("", std::nullopt), static_cast<uint64_t>(kKeys));
}

TEST_F(RangeTest, ProgressTellsHowFarItIsAndMayStopIt) {
  for (const bool deletes : {false, true}) {
    SCOPED_TRACE(deletes);
    uint64_t pairs = 0;
    std::string reached;
    int calls = 0;
    RangeOptions options;
    options.progress = [&](const RangeProgress& progress) {
      EXPECT_GE(progress.pairs, pairs);
      EXPECT_GT(progress.reached, reached);
      pairs = progress.pairs;
      reached = progress.reached;
      return ++calls < 5;
    };
    const absl::Status stopped =
        (deletes ? client_->DeleteRange("", std::nullopt, options) : client_->Count("", std::nullopt, options))
            .status();
    EXPECT_TRUE(absl::IsCancelled(stopped) && !IsMaybeApplied(stopped)) << stopped;
    EXPECT_NE(stopped.message().find(fmt::format("{} pairs below key", pairs)), std::string_view::npos) << stopped;
    EXPECT_EQ(calls, 5);
    EXPECT_GT(pairs, 0u);
    if (!deletes) continue;
    // What is below the key that was reached is gone, and nothing else.
    EXPECT_EQ(Scanned(client_.get()).front(), Key(static_cast<int>(pairs)));
    EXPECT_LE(reached, Key(static_cast<int>(pairs)));
    EXPECT_EQ(*client_->DeleteRange(reached, std::nullopt), kKeys - pairs);
  }
}

TEST_F(RangeTest, EndsByItsDeadline) {
  for (const bool deletes : {false, true}) {
    RangeOptions options;
    options.timeout_us = 10;
    const int64_t begun_ns = client_->NowNs();
    const absl::Status late =
        (deletes ? client_->DeleteRange("", std::nullopt, options) : client_->Count("", std::nullopt, options))
            .status();
    EXPECT_LE(client_->NowNs() - begun_ns, 15'000);
    EXPECT_TRUE(absl::IsDeadlineExceeded(late) || (deletes && IsMaybeApplied(late))) << late;
    EXPECT_NE(late.message().find("pairs below key"), std::string_view::npos) << late;
  }
  RangeOptions none;
  none.timeout_us = 0;
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->DeleteRange("", std::nullopt, none).status()));
}

// Nobody knows whether the slice was deleted. Sent once more, it could delete what was put after the call.
TEST_F(RangeTest, ASliceWithoutAnAnswerIsNotSentAgain) {
  for (size_t server = 0; server < 3; ++server) cluster_.Stop(server);
  RangeOptions options;
  options.timeout_us = 1'000;
  const absl::Status lost = client_->DeleteRange("", std::nullopt, options).status();
  EXPECT_TRUE(IsMaybeApplied(lost)) << lost;
  EXPECT_EQ(client_->Count("", std::nullopt, options).status().code(), absl::StatusCode::kDeadlineExceeded);
  for (size_t server = 0; server < 3; ++server) cluster_.Continue(server);
  // Here it was, after the caller got its answer, and once.
  for (int i = 0; i < 100; ++i) client_->Poll(client_->NowNs() + 10'000);
  const uint64_t left = *client_->Count("", std::nullopt);
  EXPECT_LT(left, static_cast<uint64_t>(kKeys));
  EXPECT_GT(left, static_cast<uint64_t>(kKeys / 2));
}

TEST_F(RangeTest, ASliceWhoseServerDiesIsNotSentAgain) {
  for (size_t server = 0; server < 3; ++server) cluster_.Stop(server);
  Task<absl::StatusOr<uint64_t>> erase = client_->AsyncDeleteRange("", std::nullopt);
  erase.Start();
  client_->Poll(client_->NowNs() + 10'000);
  for (size_t server = 0; server < 3; ++server) cluster_.Kill(server);
  while (!erase.done()) client_->Poll(client_->NowNs() + 1'000'000);
  const absl::Status lost = erase.Take().status();
  EXPECT_TRUE(IsMaybeApplied(lost)) << lost;
  client_.reset();
}

// Ids of regions are used again.
TEST_F(RangeTest, AnOldRouteToARegionThatIsPartOfATableByNowIsForgotten) {
  ASSERT_TRUE(cluster_.CreateTable("table", 0, 1).ok());
  const uint32_t part = client_->Tables().front().parts.front().region;
  ASSERT_TRUE(client_->OpenTable("table")->Put("k", "of the table").ok());
  ClientTesting::RememberRoute(client_.get(), "k", "l", part);
  EXPECT_EQ(*client_->Count("k", "l"), static_cast<uint64_t>(kKeys));
  ClientTesting::RememberRoute(client_.get(), "k", "l", part);
  EXPECT_EQ(*client_->Get("k", {.path = Path::kClient}), std::nullopt);
  ClientTesting::RememberRoute(client_.get(), "k", "l", part);
  EXPECT_EQ(*client_->DeleteRange("k", "l"), static_cast<uint64_t>(kKeys));
  EXPECT_EQ(client_->OpenTable("table")->Get("k")->value_or("absent"), "of the table");
}

TEST_F(RangeTest, EndsWithItsClient) {
  Task<absl::StatusOr<uint64_t>> count = client_->AsyncCount("", std::nullopt);
  Task<absl::StatusOr<uint64_t>> erase = client_->AsyncDeleteRange("", std::nullopt);
  count.Start();
  erase.Start();
  client_.reset();
  ASSERT_TRUE(count.done() && erase.done());
  EXPECT_TRUE(absl::IsCancelled(count.Take().status()));
  EXPECT_TRUE(IsMaybeApplied(erase.Take().status()));
}

// What was deleted stays deleted, and nothing else is, when others rebuild the regions from their logs.
TEST(LoggedRange, IsDeletedInTheLogsToo) {
  for (const Durability durability : {Durability::kSync, Durability::kAsync}) {
    TestClusterOptions cluster_options = SpreadingOptions();
    cluster_options.logs.durability = durability;
    SimCluster cluster(kSpreadingShape, {}, cluster_options);
    auto client = cluster.NewClient(Quiet());
    PutAll(client.get());
    EXPECT_EQ(*client->DeleteRange(Key(100), Key(1900)), 1800u);
    EXPECT_EQ(*client->DeleteRange(Key(50), Key(1950)), 100u);
    client->Run(client->AsyncSleepUntil(client->NowNs() + 50'000'000));
    for (size_t server = 0; server < cluster.servers(); ++server) cluster.Kill(server, /*machine=*/true);
    for (size_t server = 0; server < cluster.servers(); ++server) cluster.Restart(server);
    const absl::StatusOr<uint64_t> count = client->Count("", std::nullopt);
    ASSERT_TRUE(count.ok()) << count.status();
    EXPECT_EQ(*count, 100u);
    std::vector<std::string> want;
    for (int i = 0; i < kKeys; ++i) {
      if (i < 50 || i >= 1950) want.push_back(Key(i));
    }
    EXPECT_EQ(Scanned(client.get()), want);
  }
}

// With threads and shared memory: one client fills ranges and deletes them, while others write beside them, and count.
TEST(ShmRange, CountsAndDeletesWhileMeganodesSplitAndMove) {
  constexpr int kRounds = 12;
  ShmCluster cluster(kSpreadingShape, SpreadingOptions());
  auto writer = cluster.NewClient(Quiet());
  for (int i = 0; i < kKeys; i += 2) ASSERT_TRUE(writer->Put(Key(i), "there throughout").ok());
  std::atomic<bool> stop = false;
  std::thread thread([&] {
    auto counter = cluster.NewClient(Quiet());
    while (!stop) {
      const absl::StatusOr<uint64_t> count = counter->Count("key", "keyz");
      EXPECT_TRUE(count.ok()) << count.status();
      EXPECT_TRUE(*count >= kKeys / 2 && *count <= kKeys) << *count;
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 1; i < kKeys; i += 2) ASSERT_TRUE(writer->Put(Key(i) + "odd", std::string(90, 'v')).ok());
    uint64_t deleted = 0;
    for (int i = 1; i < kKeys; i += 2) {
      const absl::StatusOr<uint64_t> one = writer->DeleteRange(Key(i), Key(i + 1));
      ASSERT_TRUE(one.ok()) << one.status();
      deleted += *one;
    }
    EXPECT_EQ(deleted, static_cast<uint64_t>(kKeys / 2));
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(writer->Put(fmt::format("z{}", i), std::string(90, 'v')).ok());
    EXPECT_EQ(*writer->DeleteRange("z", std::nullopt), 100u);
  }
  stop = true;
  thread.join();
  EXPECT_EQ(*writer->Count("", std::nullopt), static_cast<uint64_t>(kKeys / 2));
  writer.reset();
  const TreeReport report = cluster.Check();
  EXPECT_TRUE(report.ok()) << report.errors[0];
}

}  // namespace
}  // namespace cell

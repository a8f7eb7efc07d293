// Destroys clients with operations in flight: each must end with Cancelled, and nothing may be left of it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cell/base/check.h"
#include "tests/clusters.h"

namespace cell {
namespace {

std::string Key(int i) { return fmt::format("key{:05}", i); }

ClientOptions Options() {
  ClientOptions options;
  options.report = false;
  return options;
}

class ClientEnd : public ::testing::Test {
 protected:
  ClientEnd() {
    CELL_CHECK(cluster_.CreateTable("t", 0, 1).ok());
    const auto writer = cluster_.NewClient(Options());
    const auto table = writer->OpenTable("t");
    for (int i = 0; i < kKeys; ++i) {
      CELL_CHECK(writer->Put(Key(i), "value").ok());
      CELL_CHECK(const_cast<Table&>(*table).Put(Key(i), "value").ok());
    }
  }

  static constexpr int kKeys = 300;
  static TestClusterOptions Two() {
    TestClusterOptions options;
    options.servers = 2;
    return options;
  }
  SimCluster cluster_{{512, 1 << 20, 4 << 20}, {}, Two()};
};

// Destroys the client at any moment of its operations, while its servers answer or are stopped.
TEST_F(ClientEnd, EndsWhatIsInFlightWithCancelled) {
  const std::string key = Key(7), large(200'000, 'v'), other = "other";
  std::vector<std::string_view> keys(50, key);
  int cancelled = 0, maybe_applied = 0, ended = 0;
  for (const bool stopped : {false, true}) {
    for (const Path path : {Path::kServer, Path::kClient}) {
      for (int polls = 0; polls < 30; ++polls) {
        SCOPED_TRACE(fmt::format("{} stopped {} polls {}", ToString(path), stopped, polls));
        auto client = cluster_.NewClient(Options());
        absl::StatusOr<Table> table = client->OpenTable("t");
        ASSERT_TRUE(table.ok());
        if (stopped) cluster_.Stop(0);
        CallOptions call;
        call.path = path;
        std::vector<Task<absl::StatusOr<bool>>> writes, contains;
        std::vector<Task<absl::StatusOr<std::optional<std::string>>>> gets;
        for (int i = 0; i < 6; ++i) writes.push_back(client->AsyncPut(other, large, call));  // Some wait for a number.
        writes.push_back(client->AsyncPut(other, "small", call));
        writes.push_back(client->AsyncDelete(other, call));
        writes.push_back(table->AsyncPut(other, large, call));
        contains.push_back(client->AsyncContains(key, call));
        contains.push_back(table->AsyncContains(key, call));
        gets.push_back(client->AsyncGet(key, call));
        gets.push_back(table->AsyncGet(key, call));
        auto many = client->AsyncMultiGet(keys, call);
        auto sleep = client->AsyncSleepUntil(INT64_MAX);
        std::optional<Scan> scan(client->NewScan({.batch = 10, .call = call}));
        auto batch = scan->AsyncNextBatch();
        for (auto& task : writes) task.Start();
        for (auto& task : contains) task.Start();
        for (auto& task : gets) task.Start();
        many.Start();
        sleep.Start();
        batch.Start();
        for (int i = 0; i < polls; ++i) client->Poll(client->NowNs() + 5'000);
        client.reset();
        const auto check = [&](const absl::Status& status) {
          ended += status.ok();
          cancelled += absl::IsCancelled(status);
          EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
        };
        for (auto& task : writes) {
          ASSERT_TRUE(task.done());
          const absl::Status status = task.Take().status();
          check(status);
          maybe_applied += IsMaybeApplied(status);
        }
        for (auto& task : contains) {
          ASSERT_TRUE(task.done());
          check(task.Take().status());
        }
        for (auto& task : gets) {
          ASSERT_TRUE(task.done());
          check(task.Take().status());
        }
        ASSERT_TRUE(many.done() && sleep.done() && batch.done());
        check(many.Take().status());
        check(batch.Take().status());
        if (stopped) cluster_.Continue(0);
      }
    }
  }
  EXPECT_GT(cancelled, 500);
  EXPECT_GT(maybe_applied, 30);
  EXPECT_GT(ended, 50);
}

TEST_F(ClientEnd, EndsWhatWaitsForAConnectionOrForTheTable) {
  const std::string key = Key(7);
  SimCluster::DrivenClient client = cluster_.NewDrivenClient(Options());
  const std::optional<Table> table = *client.client->OpenTable("t");
  for (size_t i = 0; i < 2; ++i) {
    cluster_.network()->SetCut(client.host, cluster_.host(i), true);
    cluster_.network()->Break(client.host, cluster_.host(i));
  }
  auto lost = client.client->AsyncGet(key);
  lost.Start();
  for (int i = 0; i < 50; ++i) client.client->Poll(client.client->NowNs() + 1'000);
  ASSERT_FALSE(lost.done());
  auto waits = client.client->AsyncPut(key, "value");
  waits.Start();
  client.client.reset();
  ASSERT_TRUE(lost.done() && waits.done());
  EXPECT_TRUE(absl::IsCancelled(lost.Take().status()));
  const absl::Status put = waits.Take().status();
  EXPECT_TRUE(absl::IsCancelled(put) && !IsMaybeApplied(put)) << put;  // It was never sent.
}

// Such a scan discards what it has read, and would search for it again, but there is nothing left to do that with.
TEST(ClientEndWithLogs, EndsAScanByATableThatIsTooOld) {
  TestClusterOptions options;
  options.logs.durability = Durability::kSync;
  SimCluster cluster({512, 1 << 20, 4 << 20}, {}, options);
  const auto writer = cluster.NewClient(Options());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(writer->Put(Key(i), "value").ok());
  int cancelled = 0;
  for (int steps = 0; steps < 60; ++steps) {
    SCOPED_TRACE(steps);
    SimCluster::DrivenClient client = cluster.NewDrivenClient(Options());
    client.membership->set_unreachable(true);
    const int64_t until_ns = cluster.network()->now_ns() + 2 * options.table_lease_ns;
    while (cluster.network()->now_ns() < until_ns) client.client->Poll(client.client->NowNs() + 10'000);
    ScanOptions scan_options;
    scan_options.call.path = Path::kClient;
    std::optional<Scan> scan(client.client->NewScan(scan_options));
    auto batch = scan->AsyncNextBatch();
    batch.Start();
    for (int i = 0; i < steps; ++i) client.client->Poll(client.client->NowNs() + 200);
    client.client.reset();
    ASSERT_TRUE(batch.done());
    cancelled += absl::IsCancelled(batch.Take().status());
  }
  EXPECT_GT(cancelled, 40);
}

// Uses all of a client that is another process's, and destroys it. Returns what went wrong.
int UseInherited(std::unique_ptr<Client> client, Table* table, Scan* scan) {
  const auto refused = [](const absl::Status& status) {
    return absl::IsCancelled(status) && !IsMaybeApplied(status) && status.message().find("forked") != std::string::npos;
  };
  int wrong = 0;
  for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
    CallOptions call;
    call.path = path;
    wrong += !refused(client->Get(Key(7), call).status()) + !refused(client->Put(Key(7), "child", call).status());
    wrong += !refused(client->Delete(Key(7), call).status()) + !refused(client->Contains(Key(7), call).status());
    wrong += !refused(table->Get(Key(7), call).status()) + !refused(table->Put(Key(7), "child", call).status());
    wrong += !refused(client->NewScan({.call = call}).Next().status());
  }
  const std::string key = Key(7);
  const std::vector<std::string_view> keys(3, key);
  wrong += !refused(client->MultiGet(keys).status()) + !refused(client->TimeLeftNs(key).status());
  wrong += !refused(client->Count("", std::nullopt).status()) + !refused(client->DeleteRange("", "z").status());
  wrong += !refused(client->Check().status());
  for (const auto& status : client->ServerStatus()) wrong += !refused(status.status());
  wrong += client->Regions().regions.empty() + client->Tables().empty() + client->Servers().empty();
  for (bool more = true; more;) {  // What it had is there.
    const absl::StatusOr<bool> next = scan->Next();
    more = next.ok();
    if (!more) wrong += !refused(next.status());
  }
  client->Poll(INT64_MAX);
  client.reset();
  return wrong;
}

TEST_F(ClientEnd, LeavesTheClientOfTheParentAloneInAForkedProcess) {
  auto client = cluster_.NewClient(Options());
  std::optional<Table> table = *client->OpenTable("t");
  Scan scan = client->NewScan({.batch = 10});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(*scan.Next());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(30);
    ::_exit(UseInherited(std::move(client), &*table, &scan));
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(client->Get(Key(7))->value(), "value");
  for (int i = 5; i < 50; ++i) ASSERT_TRUE(*scan.Next());
}

// Nobody waits for what a scan has read ahead.
TEST_F(ClientEnd, WaitsForNothing) {
  auto client = cluster_.NewClient(Options());
  {
    Scan scan = client->NewScan({.batch = 10});
    for (int i = 0; i < 11; ++i) ASSERT_TRUE(*scan.Next());
    cluster_.Stop(0);
  }
  const int64_t before_ns = cluster_.network()->now_ns();
  client.reset();
  EXPECT_LT(cluster_.network()->now_ns() - before_ns, 1'000'000);
}

}  // namespace
}  // namespace cell

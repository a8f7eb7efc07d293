// Runs many clients in virtual time, in the tree and in Pilaf tables, on mixed paths, while leaves split and extents
// are reused. Get, put, delete and contains must be linearizable per key, and a scan must return keys in order, each
// once, and every key that was there throughout.
//
// Each key has one writer, whose writes carry a growing version, so that a history can be checked by intervals: a read
// must return a version that was current at some moment between its start and its end. Odd versions are puts, even
// deletes.
#include <gtest/gtest.h>

#include <map>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "tests/clusters.h"

namespace cell {
namespace {

struct Load {
  RegionShape shape;
  int keys = 150;
  int writers = 3;
  int readers = 6;
  int writes_each = 700;
  TestClusterOptions cluster;
  std::optional<uint32_t> table = {};  // In a Pilaf table with buckets of this many bytes; 0: with slots.
  uint32_t parts = 0;                  // With which the table is created; 0: one for each worker.
};

std::string Key(int i) { return fmt::format("k{:05}", i); }
// Values have the same size, so that a freed extent is reused at once, and each consists of a letter of its own, so
// that a mix is visible.
std::string Value(int i, int version) {
  return fmt::format("{} {} ", i, version) + std::string(200, static_cast<char>('a' + (i * 7 + version) % 26));
}

struct History {
  explicit History(const Load& load)
      : keys(load.keys), begun(static_cast<size_t>(load.keys)), ended(begun), writers_left(load.writers) {}
  const int keys;
  std::vector<int> begun;  // The version of the last write of a key that began...
  std::vector<int> ended;  // ...and that of the last one that ended. 0: absent.
  int writers_left;
  uint64_t reads = 0, scans = 0, overlapping = 0;
};

CallOptions OnPath(Random* random) {
  CallOptions options;
  options.path = random->Below(2) == 0 ? Path::kServer : Path::kClient;
  return options;
}

// Returns the version in a value; 0 for absent, when an even version, or none, must be current.
int VersionOf(int i, const std::optional<std::string>& value) {
  if (!value.has_value()) return 0;
  const int version = std::stoi(value->substr(value->find(' ') + 1));
  EXPECT_EQ(*value, Value(i, version));
  return version;
}

// Returns whether a read may have seen `version` (0: absent), if it began when `ended` was the last ended write and
// returned when `begun` was the last begun one.
bool MayHaveSeen(int version, int ended, int begun) {
  if (version != 0) return version >= ended && version <= begun;
  for (int v = ended; v <= begun; ++v) {
    if (v % 2 == 0) return true;
  }
  return false;
}

template <typename Map>
Task<bool> Writer(Map* client, const Load& load, History* history, int index, uint64_t seed) {
  Random random(seed);
  for (int write = 0; write < load.writes_each; ++write) {
    const int own = static_cast<int>(random.Below(static_cast<uint64_t>(load.keys / load.writers)));
    const int i = own * load.writers + index;
    const std::string key = Key(i);
    const int version = ++history->begun[static_cast<size_t>(i)];
    absl::StatusOr<bool> existed = false;
    if (version % 2 == 1) {
      existed = co_await client->AsyncPut(key, Value(i, version), OnPath(&random));
    } else {
      existed = co_await client->AsyncDelete(key, OnPath(&random));
    }
    if (!existed.ok()) ADD_FAILURE() << existed.status();
    CELL_CHECK(existed.ok());
    EXPECT_EQ(*existed, version % 2 == 0);
    history->ended[static_cast<size_t>(i)] = version;
    if (i % 5 == 0 && version % 2 == 1 && i > 0) {  // Also replace it in place: skip the delete.
      history->begun[static_cast<size_t>(i)] += 2;
      const int next = history->begun[static_cast<size_t>(i)];
      const absl::StatusOr<bool> again = co_await client->AsyncPut(key, Value(i, next), OnPath(&random));
      CELL_CHECK(again.ok() && *again);
      history->ended[static_cast<size_t>(i)] = next;
    }
  }
  --history->writers_left;
  co_return true;
}

Task<bool> ScanOnce(Client* client, History* history, Random* random) {
  History before = *history;
  ScanOptions options;
  options.batch = static_cast<uint32_t>(1 + random->Below(40));
  options.reverse = random->Below(2) == 0;
  options.read_ahead = random->Below(4) != 0;
  const bool down = options.reverse;
  options.call = OnPath(random);
  Scan scan = client->NewScan(std::move(options));
  std::map<std::string, int> seen;
  std::string last;
  for (;;) {
    const auto batch = co_await scan.AsyncNextBatch();
    if (!batch.ok()) ADD_FAILURE() << batch.status();
    CELL_CHECK(batch.ok());
    if (batch->empty()) break;
    for (const Scan::Entry& entry : *batch) {
      EXPECT_TRUE(last.empty() || (down ? entry.key < last : entry.key > last)) << entry.key << " after " << last;
      last = entry.key;
      const int i = std::stoi(last.substr(1));
      seen[last] = VersionOf(i, std::string(entry.value));
    }
  }
  for (int i = 0; i < history->keys; ++i) {
    const auto it = seen.find(Key(i));
    const int version = it == seen.end() ? 0 : it->second;
    EXPECT_TRUE(MayHaveSeen(version, before.ended[static_cast<size_t>(i)], history->begun[static_cast<size_t>(i)]))
        << "scan saw version " << version << " of " << Key(i)
        << ", but only these are possible: " << before.ended[static_cast<size_t>(i)] << " to "
        << history->begun[static_cast<size_t>(i)];
  }
  ++history->scans;
  co_return true;
}

template <typename Map>
Task<bool> Reader(Map* client, History* history, uint64_t seed) {
  Random random(seed);
  while (history->writers_left > 0) {
    if (random.Below(10) == 0) {
      if constexpr (std::is_same_v<Map, Client>) {
        co_await ScanOnce(client, history, &random);
        continue;
      }
    }
    const int i = static_cast<int>(random.Below(static_cast<uint64_t>(history->keys)));
    const std::string key = Key(i);
    const int ended = history->ended[static_cast<size_t>(i)];
    int version = 0;
    if (random.Below(4) == 0) {
      const absl::StatusOr<bool> found = co_await client->AsyncContains(key, OnPath(&random));
      CELL_CHECK(found.ok());
      bool possible = false;
      for (int v = ended; v <= history->begun[static_cast<size_t>(i)]; ++v) possible |= (v % 2 == 1) == *found;
      EXPECT_TRUE(possible) << "contains " << key;
    } else {
      const auto value = co_await client->AsyncGet(key, OnPath(&random));
      CELL_CHECK(value.ok());
      version = VersionOf(i, *value);
      EXPECT_TRUE(MayHaveSeen(version, ended, history->begun[static_cast<size_t>(i)]))
          << "get saw version " << version << " of " << key << ", but only these are possible: " << ended << " to "
          << history->begun[static_cast<size_t>(i)];
    }
    ++history->reads;
    history->overlapping += history->begun[static_cast<size_t>(i)] != ended;
  }
  co_return true;
}

struct Totals {
  uint64_t reads = 0, scans = 0, overlapping = 0, torn = 0, extent_retries = 0, restarts = 0, splits = 0, roots = 0,
           routes = 0, held = 0, moves = 0, lookup_retries = 0, table_splits = 0, table_joins = 0;
};

// Makes one run and adds to *totals. Returns false if something was wrong.
bool RunSeed(const Load& load, uint64_t seed, Totals* totals) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  SimOptions sim;
  sim.seed = seed;
  sim.latency_ns = 200;
  sim.line_ns = 60;
  sim.writer_step_ns = 40;
  SimCluster cluster(load.shape, sim, load.cluster);
  History history(load);
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::unique_ptr<Table>> tables;
  std::vector<Task<bool>> tasks;
  if (load.table.has_value()) CELL_CHECK(cluster.CreateTable("t", *load.table, load.parts).ok());
  for (int i = 0; i < load.writers + load.readers; ++i) {
    ClientOptions options;
    options.cache_level_min = 1;  // Makes caches as outdated as possible.
    options.timeout_us = 1'000'000;
    options.report = false;
    clients.push_back(cluster.NewClient(options));
    const uint64_t own = seed * 100 + static_cast<uint64_t>(i);
    if (load.table.has_value()) {
      tables.push_back(std::make_unique<Table>(*clients.back()->OpenTable("t")));
      tasks.push_back(i < load.writers ? Writer(tables.back().get(), load, &history, i, own)
                                       : Reader(tables.back().get(), &history, own));
      continue;
    }
    tasks.push_back(i < load.writers ? Writer(clients.back().get(), load, &history, i, own)
                                     : Reader(clients.back().get(), &history, own));
  }
  for (Task<bool>& task : tasks) task.Start();
  for (bool all = false; !all;) {
    all = true;
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].done()) continue;
      all = false;
      clients[i]->Poll(cluster.network()->now_ns() + 50);
    }
  }
  for (const auto& client : clients) {
    totals->torn += client->metrics().torn;
    totals->extent_retries += client->metrics().extent_retries;
    totals->restarts += client->metrics().restarts;
    const ClientMetrics& metrics = client->metrics();
    totals->lookup_retries += metrics.lookup_torn + metrics.lookup_extents + metrics.lookup_moved;
  }
  totals->reads += history.reads;
  totals->scans += history.scans;
  totals->overlapping += history.overlapping;
  tasks.clear();
  clients.clear();
  const TestReport report = cluster.Check();
  EXPECT_TRUE(report.ok()) << report.errors[0];
  uint64_t keys = 0;
  for (const int version : history.ended) keys += static_cast<uint64_t>(version % 2);
  EXPECT_EQ(load.table.has_value() ? report.hash_keys : report.keys, keys);
  for (int i = 0; i < load.cluster.servers; ++i) {
    Worker* const worker = cluster.worker(static_cast<size_t>(i));
    totals->splits += worker->splitter()->meganodes().splits;
    totals->table_splits += worker->splitter()->parts().splits;
    totals->table_joins += worker->joiner()->counters().part_joins;
    totals->roots += worker->routes()->counters().roots_made;
    totals->routes += worker->routes()->counters().added;
    totals->moves += worker->migrator()->counters().received;
  }
  return !::testing::Test::HasFailure();
}

TEST(Linearizable, MixedPathsThroughSplitsAndReuse) {
  Load load;
  load.shape = {512, 1 << 20, 256 << 10};
  Totals totals;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    load.cluster.inline_max = {seed % 3 == 0 ? kInlineMaxDefault : 0};
    if (!RunSeed(load, seed, &totals)) break;
  }
  // The test is only meaningful if there were races.
  EXPECT_GT(totals.reads, 100'000u);
  EXPECT_GT(totals.scans, 1'000u);
  EXPECT_GT(totals.overlapping, 100u);
  EXPECT_GT(totals.torn, 100u);
  EXPECT_GT(totals.extent_retries, 20u);
}

// Meganodes of 64 nodes split all the time.
TEST(Linearizable, MixedPathsThroughMeganodeSplits) {
  Load load;
  load.shape = {512, 32 << 10, 64 << 10};
  load.keys = 3000;
  load.writers = 4;
  load.writes_each = 1500;
  load.cluster.split.pace.copied = 8;
  load.cluster.split.pace.freed = 2;
  load.cluster.membership_polls_max = 20;
  Totals totals;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    if (!RunSeed(load, seed, &totals)) break;
  }
  EXPECT_GT(totals.reads, 50'000u);
  EXPECT_GT(totals.scans, 1'000u);
  EXPECT_GT(totals.splits, 200u);
  EXPECT_GT(totals.roots, 30u);
}

// Additionally there are three servers, between which regions migrate all the time.
TEST(Linearizable, MixedPathsThroughSplitsAndMoves) {
  Load load;
  load.shape = {512, 32 << 10, 64 << 10};
  load.keys = 3000;
  load.writers = 4;
  load.writes_each = 1500;
  load.cluster.servers = 3;
  load.cluster.inline_max = {0, kInlineMaxDefault, 20};  // Moved regions have pairs of both kinds.
  load.cluster.split.pace.copied = 8;
  load.cluster.split.pace.freed = 2;
  load.cluster.balance.every_ns = 50'000;
  load.cluster.membership_polls_max = 20;
  Totals totals;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    if (!RunSeed(load, seed, &totals)) break;
  }
  EXPECT_GT(totals.reads, 50'000u);
  EXPECT_GT(totals.scans, 1'000u);
  EXPECT_GT(totals.splits, 200u);
  EXPECT_GT(totals.roots, 30u);
  EXPECT_GT(totals.moves, 100u);
  EXPECT_GT(totals.restarts, 100u);
}

// The parts of a table split and migrate all the time.
class LinearizableTable : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Layouts, LinearizableTable, ::testing::Values(0, 512, 2048));

TEST_P(LinearizableTable, MixedPathsThroughSplitsAndMoves) {
  Load load;
  load.shape = {512, 32 << 10, 64 << 10};
  load.keys = 3000;
  load.writers = 4;
  load.writes_each = 1500;
  load.cluster.servers = 3;
  load.cluster.split.pace.copied = 16;
  load.cluster.balance.every_ns = 50'000;
  load.cluster.membership_polls_max = 20;
  load.table = GetParam();
  Totals totals;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    if (!RunSeed(load, seed, &totals)) break;
  }
  EXPECT_GT(totals.reads, 50'000u);
  EXPECT_GT(totals.table_splits, 100u);
  EXPECT_GT(totals.moves, 100u);
  EXPECT_GT(totals.restarts, 100u);
  EXPECT_GT(totals.lookup_retries, 100u);
  fmt::print("{} reads, {} splits, {} moves, {} restarts, {} retries\n", totals.reads, totals.table_splits,
             totals.moves, totals.restarts, totals.lookup_retries);
}

// Parts are split early, and then joined at once.
TEST_P(LinearizableTable, MixedPathsThroughSplitsAndJoins) {
  Load load;
  load.shape = {512, 32 << 10, 64 << 10};
  load.keys = 1000;
  load.writers = 4;
  load.writes_each = 1000;
  load.cluster.servers = 2;
  load.cluster.split.pace.copied = 16;
  load.cluster.split.split_at = 0.3;
  load.cluster.join.every_ns = 20'000;
  load.cluster.join.deleted_per_left = 0.1;
  load.cluster.join.migrate_again_after_ns = 200'000;
  load.cluster.join.failed_pause_ns = 20'000;
  load.cluster.join.copied = 8;
  load.cluster.membership_polls_max = 20;
  load.table = GetParam();
  load.parts = 1;
  Totals totals;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    if (!RunSeed(load, seed, &totals)) break;
  }
  EXPECT_GT(totals.reads, 20'000u);
  EXPECT_GT(totals.table_joins, 100u);
  EXPECT_GT(totals.restarts, 100u);
  fmt::print("{} reads, {} splits, {} joins, {} restarts, {} retries\n", totals.reads, totals.table_splits,
             totals.table_joins, totals.restarts, totals.lookup_retries);
}

}  // namespace
}  // namespace cell

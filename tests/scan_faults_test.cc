// Tests scans that meet lost connections, early deadlines, values that change and empty regions. Each entry must be
// returned once, whole, and the scan must reach its end.
#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "tests/clusters.h"

namespace cell {
namespace {

const RegionShape kShape{1024, 1 << 20, 1 << 20};
constexpr int kKeys = 12;

std::string Key(int i) { return fmt::format("key{:05}", i); }
// Every third value is large, and so does not come with a scan's reply.
std::string ValueOf(int i, char c = 'v') {
  const size_t bytes = i % 3 == 0 ? kInlineValueBytesMax + 10 + static_cast<size_t>(i) : 20;
  return std::string(bytes, c) + Key(i);
}

ClientOptions Options() {
  ClientOptions options;
  options.report = false;
  options.reconnect_us = 20;
  options.cache_level_min = 1;  // Downwards there is a walk to each leaf then.
  return options;
}

// Returns the entries of a scan, with an empty line for each error.
std::vector<std::string> Entries(Scan* scan, int errors_max) {
  std::vector<std::string> entries;
  for (int errors = 0;;) {
    const absl::StatusOr<bool> more = scan->Next();
    if (!more.ok() && ++errors > errors_max) {
      ADD_FAILURE() << more.status();
      return entries;
    }
    if (!more.ok()) continue;
    if (!*more) return entries;
    entries.push_back(fmt::format("{}={}", scan->key(), scan->value()));
  }
}

class ScanFaults : public ::testing::Test {
 protected:
  explicit ScanFaults(SimOptions sim = {}) : cluster_(kShape, sim), client_(cluster_.NewDrivenClient(Options())) {
    for (int i = 0; i < kKeys; ++i) CELL_CHECK(client_.client->Put(Key(i), ValueOf(i)).ok());
  }

  std::vector<std::string> Expected() const {
    std::vector<std::string> expected;
    expected.reserve(kKeys);
    for (int i = 0; i < kKeys; ++i) expected.push_back(fmt::format("{}={}", Key(i), ValueOf(i)));
    return expected;
  }

  SimCluster cluster_;
  SimCluster::DrivenClient client_;
};

TEST_F(ScanFaults, NoEntryIsHandedOutBeforeItsValueIsThere) {
  for (const Path path : {Path::kServer, Path::kClient}) {
    for (const bool read_ahead : {false, true}) {
      for (int64_t after_ns = 0; after_ns < 60'000; after_ns += 500) {
        SCOPED_TRACE(fmt::format("{} ahead {} after {} ns", ToString(path), read_ahead, after_ns));
        ScanOptions options{.batch = 5, .read_ahead = read_ahead};
        options.call.path = path;
        Scan scan = client_.client->NewScan(options);
        cluster_.network()->At(client_.client->NowNs() + after_ns,
                               [this] { cluster_.network()->Break(client_.host, cluster_.host(0)); });
        ASSERT_EQ(Entries(&scan, /*errors_max=*/0), Expected());
      }
    }
  }
}

// A batch that ends early at its deadline counts towards the limit only once.
TEST_F(ScanFaults, ALimitIsExactWhereverABatchEndsEarly) {
  constexpr int kMany = 1000, kFrom = 20, kLimit = 900;
  int interrupted = 0;
  for (int i = kKeys; i < kMany; ++i) ASSERT_TRUE(client_.client->Put(Key(i), "small").ok());
  for (const Path path : {Path::kServer, Path::kClient}) {
    for (const bool reverse : {false, true}) {
      for (int64_t timeout_us = 4; timeout_us < 60; ++timeout_us) {
        SCOPED_TRACE(fmt::format("{} reverse {} within {} us", ToString(path), reverse, timeout_us));
        ScanOptions options{
            .from = Key(kFrom), .reverse = reverse, .limit = kLimit, .batch = kLimit, .read_ahead = false};
        options.call = {.path = path, .timeout_us = timeout_us};
        Scan scan = client_.client->NewScan(options);
        const uint64_t batches_before = client_.client->metrics().operations;
        const std::vector<std::string> entries = Entries(&scan, /*errors_max=*/1000);
        interrupted += client_.client->metrics().operations > batches_before + 1;
        ASSERT_EQ(entries.size(), static_cast<size_t>(kLimit));
        for (int i = 0; i < kLimit; ++i) {
          ASSERT_EQ(entries[static_cast<size_t>(i)], fmt::format("{}=small", Key(reverse ? kMany - 1 - i : kFrom + i)));
        }
      }
    }
  }
  EXPECT_GT(interrupted, 10);
}

// The batch is the range's last one, and one of its large values is replaced before it is fetched.
TEST_F(ScanFaults, AValueThatChangesWhileItIsFetchedDoesNotEndTheScan) {
  SimCluster::DrivenClient writer = cluster_.NewDrivenClient(Options());
  writer.Drive();
  uint64_t changed = 0;
  for (int64_t after_ns = 0; after_ns < 60'000; after_ns += 500) {
    SCOPED_TRACE(fmt::format("after {} ns", after_ns));
    const std::string value = ValueOf(6, after_ns % 1000 == 0 ? 'w' : 'v');
    std::optional<Task<absl::StatusOr<bool>>> put;
    const std::string key = Key(6);
    cluster_.network()->At(client_.client->NowNs() + after_ns, [&] {
      put.emplace(writer.client->AsyncPut(key, value));
      put->Start();
    });
    ScanOptions options;
    options.call.path = Path::kServer;
    Scan scan = client_.client->NewScan(options);
    const uint64_t retries_before = client_.client->metrics().extent_retries;
    const std::vector<std::string> entries = Entries(&scan, /*errors_max=*/0);
    changed += client_.client->metrics().extent_retries - retries_before;
    ASSERT_EQ(entries.size(), static_cast<size_t>(kKeys));
    for (int i = 0; i < kKeys; ++i) {
      if (i == 6) continue;
      ASSERT_EQ(entries[static_cast<size_t>(i)], fmt::format("{}={}", Key(i), ValueOf(i)));
    }
    EXPECT_TRUE(entries[6] == fmt::format("{}={}", key, ValueOf(6, 'v')) ||
                entries[6] == fmt::format("{}={}", key, ValueOf(6, 'w')));
    while (!put.has_value() || !put->done()) ASSERT_TRUE(cluster_.network()->Step());
  }
  EXPECT_GT(changed, 3u);
}

// All deadlines are too early to get over the stretch of regions without pairs at once.
TEST(EmptyRegions, AScanGetsThroughThemHoweverShortItsDeadlines) {
  SimCluster cluster(RegionShape{512, 16 << 10, 64 << 10});  // So small that the keys fill many regions.
  auto client = cluster.NewClient(Options());
  constexpr int kMany = 6000;
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(client->Put(Key(i), "value").ok());
  for (int i = 1; i + 1 < kMany; ++i) ASSERT_TRUE(client->Delete(Key(i)).ok());
  for (const Path path : {Path::kServer, Path::kClient}) {
    for (const bool reverse : {false, true}) {
      SCOPED_TRACE(fmt::format("{} reverse {}", ToString(path), reverse));
      ScanOptions options{.reverse = reverse, .read_ahead = false};
      options.call = {.path = path, .timeout_us = path == Path::kServer ? 3 : 40};
      Scan scan = client->NewScan(options);
      int errors = 0;
      std::vector<std::string> seen;
      for (absl::StatusOr<bool> more = scan.Next(); !more.ok() || *more; more = scan.Next()) {
        if (more.ok()) {
          seen.emplace_back(scan.key());
        } else {
          ASSERT_EQ(more.status().code(), absl::StatusCode::kDeadlineExceeded) << more.status();
          ASSERT_LT(++errors, 1000);
        }
      }
      EXPECT_EQ(seen, reverse ? (std::vector<std::string>{Key(kMany - 1), Key(0)})
                              : (std::vector<std::string>{Key(0), Key(kMany - 1)}));
      EXPECT_TRUE(errors > 0 || path == Path::kServer);
    }
  }
}

}  // namespace
}  // namespace cell

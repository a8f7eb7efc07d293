// Tests scans over many meganodes on several servers, up and down, and what they read ahead.
#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "cell/client/client_testing.h"
#include "tests/clusters.h"

namespace cell {
namespace {

constexpr int kKeys = 2000;

std::string Key(int i) { return fmt::format("key{:05}", i); }

class ScanTest : public ::testing::Test {
 protected:
  ScanTest() : cluster_(SpreadingCluster()), client_(NewClient()) {
    for (int i = 0; i < kKeys; ++i) {
      const int shuffled = i * 1543 % kKeys;
      CELL_CHECK(client_->Put(Key(shuffled), fmt::format("value {}", shuffled)).ok());
    }
    CELL_CHECK(cluster_.table().CountOf({"server-1", 0}) > 1 && cluster_.table().CountOf({"server-2", 0}) > 1);
  }
  std::unique_ptr<Client> NewClient() {
    ClientOptions options;
    options.report = false;
    return cluster_.NewClient(options);
  }

  SimCluster cluster_;
  std::unique_ptr<Client> client_;
};

TEST_F(ScanTest, SeesAllOfARangeBothWaysOnEveryPath) {
  for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
    for (const bool reverse : {false, true}) {
      for (const uint32_t batch : {0u, 1u, 7u, 128u, 4096u, UINT32_MAX}) {
        for (const bool read_ahead : {false, true}) {
          SCOPED_TRACE(fmt::format("{} reverse {} batch {} ahead {}", ToString(path), reverse, batch, read_ahead));
          ScanOptions options{.from = Key(100), .to = Key(1900), .reverse = reverse, .batch = batch};
          options.read_ahead = read_ahead;
          options.call.path = path;
          Scan scan = client_->NewScan(options);
          int seen = 0;
          absl::StatusOr<bool> more = scan.Next();
          for (; more.ok() && *more; more = scan.Next(), ++seen) {
            const int i = reverse ? 1899 - seen : 100 + seen;
            ASSERT_EQ(scan.key(), Key(i));
            ASSERT_EQ(scan.value(), fmt::format("value {}", i));
          }
          ASSERT_TRUE(more.ok()) << more.status();
          ASSERT_EQ(seen, 1800);
          ASSERT_EQ(ClientTesting::InFlight(*client_), 0) << "an operation is counted that has ended";
        }
      }
    }
  }
  EXPECT_EQ(client_->metrics().errors, 0u);
}

TEST_F(ScanTest, BoundsThatNoKeyCanHaveAreRefused) {
  const std::string too_long(KeyBytesMax(kSpreadingShape.node_bytes) + 1, 'k');
  for (const Path path : {Path::kServer, Path::kClient}) {
    for (const bool low : {false, true}) {
      ScanOptions options;
      (low ? options.from : options.to.emplace()) = too_long;
      options.call.path = path;
      const absl::Status status = client_->NewScan(options).Next().status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_NE(status.message().find("the bounds of a scan"), std::string_view::npos) << status;
    }
  }
}

// Downwards there are no links to follow, and yet a leaf costs one read, and a meganode one walk.
TEST_F(ScanTest, ReadsAboutAsMuchDownAsUp) {
  uint64_t reads[2], restarts[2];
  for (const bool reverse : {false, true}) {
    ScanOptions options{.reverse = reverse};
    options.call.path = Path::kClient;
    for (int round = 0; round < 2; ++round) {  // The first round learns the routes.
      client_->ResetMetrics();
      Scan scan = client_->NewScan(options);
      absl::StatusOr<bool> more = scan.Next();
      while (more.ok() && *more) more = scan.Next();
      ASSERT_TRUE(more.ok()) << more.status();
    }
    EXPECT_EQ(client_->metrics().scanned, static_cast<uint64_t>(kKeys));
    reads[reverse] = client_->metrics().node_reads;
    restarts[reverse] = client_->metrics().restarts;
  }
  EXPECT_LE(reads[true], reads[false] * 3 / 2) << "up: " << reads[false];
  EXPECT_EQ(restarts[true], 0u);
}

// Each round of reads brings many leaves, also after the scan has left the first parent.
TEST(LongScan, ReadsManyLeavesInARoundBothWays) {
  constexpr int kMany = 10'000;
  SimCluster cluster({1024, 8 << 20, 1 << 20});
  ClientOptions client_options;
  client_options.report = false;
  const std::unique_ptr<Client> client = cluster.NewClient(client_options);
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(client->Put(fmt::format("key{:05}", i * 7919 % kMany), "value").ok());
  for (const bool reverse : {false, true}) {
    for (int pass = 0; pass < 2; ++pass) {  // The first one fills the cache.
      SCOPED_TRACE(fmt::format("reverse {} pass {}", reverse, pass));
      client->ResetMetrics();
      ScanOptions options{.reverse = reverse, .batch = 4096};
      options.call.path = Path::kClient;
      Scan scan = client->NewScan(options);
      int seen = 0;
      absl::StatusOr<bool> more = scan.Next();
      for (; more.ok() && *more; more = scan.Next()) ++seen;
      ASSERT_TRUE(more.ok()) << more.status();
      ASSERT_EQ(seen, kMany);
      EXPECT_GT(client->metrics().node_reads, 200u);
      EXPECT_LT(client->metrics().read_rounds, client->metrics().node_reads / 8);
    }
  }
}

// A batch ends early, however many entries it may have, so that it does not fill the client's memory.
TEST(LongScan, LargeValuesComeInBatchesOfLimitedSize) {
  constexpr int kLarge = 60;
  SimCluster cluster({512, 1 << 20, 16 << 20});
  ClientOptions client_options;
  client_options.report = false;
  const std::unique_ptr<Client> client = cluster.NewClient(client_options);
  for (int i = 0; i < kLarge; ++i) ASSERT_TRUE(client->Put(Key(i), std::string(100'000, 'v')).ok());
  for (const Path path : {Path::kServer, Path::kClient}) {
    for (const bool reverse : {false, true}) {
      SCOPED_TRACE(fmt::format("{} reverse {}", ToString(path), reverse));
      ScanOptions options{.reverse = reverse, .batch = 4096};
      options.call.path = path;
      Scan scan = client->NewScan(options);
      int seen = 0;
      for (bool done = false; !done;) {
        const absl::StatusOr<absl::Span<const Scan::Entry>> batch = client->Run(scan.AsyncNextBatch());
        ASSERT_TRUE(batch.ok()) << batch.status();
        size_t bytes = 0;
        for (const Scan::Entry& entry : *batch) {
          EXPECT_EQ(entry.key, Key(reverse ? kLarge - 1 - seen : seen));
          EXPECT_EQ(entry.value.size(), 100'000u);
          bytes += entry.value.size();
          ++seen;
        }
        EXPECT_LT(bytes, size_t{5} << 20);
        done = batch->empty();
      }
      EXPECT_EQ(seen, kLarge);
    }
  }
}

TEST_F(ScanTest, AsksForTheNextBatchWhileOneIsUsed) {
  uint64_t calls[2];
  for (const bool read_ahead : {false, true}) {
    client_->ResetMetrics();
    ScanOptions options{.limit = 300, .batch = 20, .read_ahead = read_ahead};
    options.call.path = Path::kServer;
    Scan scan = client_->NewScan(options);
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(*scan.Next());
    calls[read_ahead] = client_->metrics().calls;
    int left = 260;
    for (absl::StatusOr<bool> more = scan.Next(); more.ok() && *more; more = scan.Next()) --left;
    EXPECT_EQ(left, 0);
  }
  EXPECT_EQ(calls[true], calls[false] + 1);
}

// Servers stop at any moment of a batch, even in the middle of the messages for its large values.
TEST_F(ScanTest, GoesOnAfterAnError) {
  constexpr int kLarge = 8;
  for (int i = 0; i < kLarge; ++i) {
    ASSERT_TRUE(client_->Put(fmt::format("large{}", i), std::string(kInlineValueBytesMax + 1, 'v')).ok());
  }
  int errors = 0;
  for (const Path path : {Path::kServer, Path::kClient}) {
    for (int64_t after_ns = 0; after_ns < 20'000; after_ns += 700) {
      ScanOptions options{.from = Key(kKeys - 12), .batch = 6};
      options.call = {.path = path, .timeout_us = 100};
      Scan scan = client_->NewScan(options);
      cluster_.network()->At(client_->NowNs() + after_ns, [this] {
        for (size_t server = 0; server < 3; ++server) cluster_.Stop(server);
      });
      for (int i = 0; i < 12 + kLarge; ++i) {
        absl::StatusOr<bool> more = scan.Next();
        if (!more.ok()) {
          ++errors;
          for (size_t server = 0; server < 3; ++server) cluster_.Continue(server);
          client_->Run(client_->AsyncSleepUntil(client_->NowNs() + 1'000'000));
          more = scan.Next();
        }
        ASSERT_TRUE(more.ok()) << more.status();
        ASSERT_EQ(scan.key(), i < 12 ? Key(kKeys - 12 + i) : fmt::format("large{}", i - 12)) << after_ns;
      }
      for (size_t server = 0; server < 3; ++server) cluster_.Continue(server);
    }
  }
  EXPECT_GT(errors, 5);
}

// Nobody waited for the batch that failed, so nobody sees the error: it is fetched again when it is wanted.
TEST_F(ScanTest, WhatWasReadAheadInVainIsReadAgain) {
  ScanOptions options{.batch = 10};
  options.call = {.path = Path::kServer, .timeout_us = 1000};
  Scan scan = client_->NewScan(options);
  for (int i = 0; i < 11; ++i) ASSERT_TRUE(*scan.Next());
  // The third batch has been requested.
  for (size_t server = 0; server < 3; ++server) cluster_.Stop(server);
  client_->Run(client_->AsyncSleepUntil(client_->NowNs() + 50'000'000));
  EXPECT_EQ(client_->metrics().errors, 1u);
  for (size_t server = 0; server < 3; ++server) cluster_.Continue(server);
  for (int i = 11; i < kKeys; ++i) {
    const absl::StatusOr<bool> more = scan.Next();
    ASSERT_TRUE(more.ok()) << more.status();
    ASSERT_EQ(scan.key(), Key(i));
  }
  EXPECT_FALSE(*scan.Next());
}

// A scan that is dropped while it reads ahead leaves no read behind that would write to freed memory.
TEST_F(ScanTest, MayBeDroppedAtAnyTime) {
  for (const Path path : {Path::kServer, Path::kClient}) {
    for (int entries = 0; entries < 100; ++entries) {
      ScanOptions options{.reverse = entries % 2 == 0, .batch = 8};
      options.call.path = path;
      Scan scan = client_->NewScan(options);
      for (int i = 0; i < entries; ++i) ASSERT_TRUE(*scan.Next());
      if (entries % 3 == 0) scan = client_->NewScan({});
    }
  }
  ASSERT_TRUE(client_->Get(Key(1)).ok());
  client_.reset();  // With some of them in progress.
  client_ = NewClient();
  EXPECT_EQ(client_->Get(Key(1))->value(), "value 1");
}

// Uses threads and shared memory, mainly for ThreadSanitizer: one client writes while another scans, both ways.
TEST(ShmScan, SeesAllWhileMeganodesSplitAndMove) {
  constexpr int kRounds = 5;
  ShmCluster cluster(kSpreadingShape, SpreadingOptions());
  ClientOptions options;
  auto writer = cluster.NewClient(options);
  for (int i = 0; i < kKeys; i += 2) ASSERT_TRUE(writer->Put(Key(i), "there throughout").ok());
  std::atomic<bool> stop = false;
  std::thread thread([&] {
    for (int i = 1; !stop && i < kRounds * kKeys; i += 2) {
      const absl::Status put = writer->Put(Key(i), std::string(static_cast<size_t>(i % 90), 'v')).status();
      EXPECT_TRUE(put.ok()) << put;
    }
  });
  {
    auto reader = cluster.NewClient(options);
    for (int round = 0; round < 4 * kRounds; ++round) {
      ScanOptions scan_options{.reverse = round % 2 == 0, .batch = 50};
      scan_options.call.path = round % 3 == 0 ? Path::kServer : round % 3 == 1 ? Path::kClient : Path::kHybrid;
      Scan scan = reader->NewScan(scan_options);
      std::string last;
      int seen = 0;
      absl::StatusOr<bool> more = scan.Next();
      for (; more.ok() && *more; more = scan.Next()) {
        EXPECT_TRUE(last.empty() || (scan_options.reverse ? scan.key() < last : scan.key() > last));
        last = scan.key();
        const int i = std::stoi(last.substr(3));
        seen += i < kKeys && i % 2 == 0;
      }
      EXPECT_TRUE(more.ok()) << more.status();
      EXPECT_EQ(seen, kKeys / 2);
    }
  }
  stop = true;
  thread.join();
  writer.reset();
  const TreeReport report = cluster.Check();
  EXPECT_TRUE(report.ok()) << report.errors[0];
}

}  // namespace
}  // namespace cell

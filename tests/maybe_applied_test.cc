// Checks that a write whose answer was lost is MaybeApplied. One that was never sent, and any read, is a plain failure.
#include <gtest/gtest.h>

#include "tests/clusters.h"

namespace cell {
namespace {

const RegionShape kShape{1024, 1 << 20, 1 << 20};

ClientOptions Options(Path path) {
  ClientOptions options;
  options.path = path;
  options.timeout_us = 1000;
  options.report = false;
  return options;
}

TEST(MaybeApplied, AWriteThatGotNoAnswerInTimeMayHaveHappened) {
  for (const Path path : {Path::kServer, Path::kClient}) {
    SimCluster cluster(kShape);
    auto client = cluster.NewClient(Options(path));
    ASSERT_TRUE(client->Put("key", "old").ok());
    cluster.server()->SetPaused(true);
    const absl::Status put = client->Put("key", "new").status();
    EXPECT_TRUE(IsMaybeApplied(put)) << put;
    EXPECT_NE(std::string(put.message()).find("key"), std::string::npos) << put;
    const absl::Status deleted = client->Delete("other").status();
    EXPECT_TRUE(IsMaybeApplied(deleted)) << deleted;
    cluster.server()->SetPaused(false);
    // The server had it all the time: here the write does happen, after its caller got the answer.
    for (int i = 0; i < 100; ++i) client->Poll(client->NowNs() + 10'000);
    EXPECT_EQ(client->Get("key")->value(), "new");
  }
}

// Nothing was written, for a temporary reason. Within its deadline the client tries again, and then returns the
// server's error.
TEST(MaybeApplied, AWriteRefusedForNowIsTriedAgain) {
  SimCluster cluster(kShape);
  ClientOptions options = Options(Path::kServer);
  options.timeout_us = 50'000;
  auto client = cluster.NewClient(options);
  ASSERT_TRUE(client->Put("key", "old").ok());
  cluster.membership()->set_lease_until_ns(0);
  const absl::Status refused = client->Put("key", "new").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(refused.message()).find("cannot renew its session"), std::string::npos) << refused;
  EXPECT_EQ(client->Get("key")->value(), "old");
  cluster.network()->At(client->NowNs() + 20'000'000, [&] { cluster.membership()->set_lease_until_ns(INT64_MAX); });
  EXPECT_TRUE(client->Put("key", "new").ok());
  EXPECT_EQ(client->Get("key")->value(), "new");
}

TEST(MaybeApplied, AReadWithoutAnAnswerIsAPlainFailure) {
  SimCluster cluster(kShape);
  auto client = cluster.NewClient(Options(Path::kServer));
  cluster.server()->SetPaused(true);
  EXPECT_EQ(client->Get("key").status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(client->Contains("key").status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(MaybeApplied, AWriteToAServerThatIsGoneWasNeverSent) {
  auto cluster = std::make_unique<ShmCluster>(kShape);
  ClientOptions options = Options(Path::kServer);
  options.timeout_us = 10'000'000;
  auto client = cluster->NewClient(options);
  ASSERT_TRUE(client->Put("key", "value").ok());
  cluster.reset();
  // The first may have been put into the ring before the death was noticed; then its outcome is reported as unknown.
  const absl::Status first = client->Put("key", "value").status();
  EXPECT_TRUE(IsMaybeApplied(first) || first.code() == absl::StatusCode::kUnavailable) << first;
  EXPECT_EQ(client->Put("key", "value").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(client->Get("key").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cell

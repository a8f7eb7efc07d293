// Tests pairs that expire, by all paths of a client, over meganodes on several servers.
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

constexpr int kKeys = 600;
constexpr int64_t kSecondUs = 1'000'000;

std::string Key(int i) { return fmt::format("key{:05}", i); }
// Every third value is outside of the leaf, and some of these come in pieces.
std::string ValueOf(int i) { return std::string(i % 3 != 0 ? 20 : i % 9 == 0 ? kInlineValueBytesMax + 10 : 300, 'v'); }

class ExpiryTest : public ::testing::Test {
 protected:
  ExpiryTest() : cluster_(SpreadingCluster()), client_(cluster_.NewClient(Options())) {}

  static ClientOptions Options() {
    ClientOptions options;
    options.report = false;
    return options;
  }
  uint64_t now_ns() { return static_cast<uint64_t>(cluster_.network()->now_ns()); }
  void RunUntil(uint64_t at_ns) {
    while (now_ns() < at_ns) cluster_.network()->Step();
  }
  // Expects that exactly these keys are found by gets, and by scans in both directions.
  void ExpectKeys(const std::vector<std::string>& expected) {
    for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
      SCOPED_TRACE(ToString(path));
      const CallOptions call{path, {}};
      for (const bool reverse : {false, true}) {
        std::vector<std::string> keys;
        Scan scan = client_->NewScan({.reverse = reverse, .batch = 50, .call = call});
        absl::StatusOr<bool> more = scan.Next();
        for (; more.ok() && *more; more = scan.Next()) {
          keys.emplace_back(scan.key());
          EXPECT_EQ(scan.value(), ValueOf(std::stoi(keys.back().substr(3)))) << keys.back();
        }
        ASSERT_TRUE(more.ok()) << more.status();
        if (reverse) std::reverse(keys.begin(), keys.end());
        EXPECT_EQ(keys, expected);
      }
      auto next = expected.begin();
      for (int i = 0; i < kKeys; ++i) {
        const bool there = next != expected.end() && *next == Key(i);
        next += there ? 1 : 0;
        EXPECT_EQ(*client_->Contains(Key(i), call), there) << Key(i);
        EXPECT_EQ(*client_->Get(Key(i), call), there ? std::optional(ValueOf(i)) : std::nullopt) << Key(i);
      }
    }
    EXPECT_EQ(*client_->Count("", std::nullopt), expected.size());
  }

  SimCluster cluster_;
  std::unique_ptr<Client> client_;
};

TEST_F(ExpiryTest, APairIsFoundByEachPathUntilItExpires) {
  const uint64_t at_ns = now_ns() + 20 * kSecondUs * 1000;
  std::vector<std::string> all, left;
  for (int i = 0; i < kKeys; ++i) {
    all.push_back(Key(i));
    if (i % 2 == 0) left.push_back(Key(i));
    const Expires expires = i % 2 == 0 ? Expires::Never() : Expires::AtNs(at_ns);
    ASSERT_TRUE(client_->Put(Key(i), ValueOf(i), expires).ok());
  }
  ExpectKeys(all);
  RunUntil(at_ns - 100'000'000);
  const uint64_t calls = client_->metrics().calls;
  for (int i = 0; i < kKeys; ++i) EXPECT_TRUE(*client_->Contains(Key(i), {Path::kClient, {}}));
  EXPECT_LT(client_->metrics().calls, calls + 10) << "reads must rarely need the server";
  RunUntil(at_ns);
  ExpectKeys(left);
  ASSERT_FALSE(*client_->Put(Key(1), ValueOf(1)));
  left.insert(left.begin() + 1, Key(1));
  ExpectKeys(left);
  client_.reset();
  RunUntil(now_ns() + 1'000'000'000);
  const TestReport report = cluster_.Check();
  EXPECT_EQ(report.errors, std::vector<std::string>());
  EXPECT_EQ(report.keys, left.size()) << "the others were not removed";
}

TEST_F(ExpiryTest, APairOfATableIsFoundByEachPathUntilItExpires) {
  for (const uint32_t bucket_bytes : {0u, 1024u}) {
    SCOPED_TRACE(bucket_bytes);
    const std::string name = fmt::format("table{}", bucket_bytes);
    ASSERT_TRUE(cluster_.CreateTable(name, bucket_bytes, 2).ok());
    Table table = *client_->OpenTable(name);
    const uint64_t at_ns = now_ns() + 20 * kSecondUs * 1000;
    for (int i = 0; i < kKeys; ++i) {
      const Expires expires = i % 2 == 0 ? Expires::Never() : Expires::AtNs(at_ns);
      ASSERT_TRUE(table.Put(Key(i), ValueOf(i), expires).ok());
    }
    const auto expect = [&](bool all) {
      for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
        SCOPED_TRACE(ToString(path));
        const CallOptions call{path, {}};
        for (int i = 0; i < kKeys; ++i) {
          const bool there = all || i % 2 == 0;
          ASSERT_EQ(*table.Contains(Key(i), call), there) << Key(i);
          ASSERT_EQ(*table.Get(Key(i), call), there ? std::optional(ValueOf(i)) : std::nullopt) << Key(i);
        }
      }
    };
    expect(true);
    EXPECT_EQ(*table.TimeLeftNs(Key(0)), INT64_MAX);
    EXPECT_GT(table.TimeLeftNs(Key(1))->value_or(0), 1'000'000'000);
    RunUntil(at_ns - 100'000'000);
    const uint64_t calls = client_->metrics().calls;
    for (int i = 0; i < kKeys; ++i) EXPECT_TRUE(*table.Contains(Key(i), {Path::kClient, {}}));
    EXPECT_LT(client_->metrics().calls, calls + 10) << "reads must rarely need the server";
    RunUntil(at_ns);
    // The client cannot tell by itself at this moment, and asks the server for the pair.
    EXPECT_EQ(*table.Get(Key(1), {Path::kClient, {}}), std::nullopt);
    expect(false);
    EXPECT_EQ(*table.TimeLeftNs(Key(1)), std::nullopt);
    ASSERT_FALSE(*table.Put(Key(1), ValueOf(1)));
    EXPECT_EQ(*table.TimeLeftNs(Key(1)), INT64_MAX);
    ASSERT_TRUE(*table.Delete(Key(1)));
  }
  RunUntil(now_ns() + 2'000'000'000);
  const TestReport report = cluster_.Check();
  EXPECT_EQ(report.errors, std::vector<std::string>());
  EXPECT_EQ(report.hash_keys, kKeys) << "half of both tables; the others were not removed";
}

TEST_F(ExpiryTest, TellsHowMuchTimeIsLeft) {
  ASSERT_TRUE(client_->Put("never", "value").ok());
  ASSERT_TRUE(client_->Put("soon", "value", Expires::AfterUs(kSecondUs)).ok());
  EXPECT_EQ(*client_->TimeLeftNs("never"), INT64_MAX);
  EXPECT_EQ(*client_->TimeLeftNs("nothing"), std::nullopt);
  const int64_t left_ns = client_->TimeLeftNs("soon")->value_or(0);
  EXPECT_GT(left_ns, 900'000'000);
  EXPECT_LE(left_ns, 1'000'000'000);
  Scan scan = client_->NewScan({});
  ASSERT_TRUE(*scan.Next());
  EXPECT_EQ(scan.expiry_ns(), 0u);
  ASSERT_TRUE(*scan.Next());
  EXPECT_GT(scan.expiry_ns(), now_ns());
  EXPECT_LE(scan.expiry_ns(), now_ns() + 1'000'000'000);
  ASSERT_TRUE(*client_->Put("soon", "value"));
  EXPECT_EQ(*client_->TimeLeftNs("soon"), INT64_MAX);
}

// A scan goes on with the leaf as it was read for the batch before.
TEST_F(ExpiryTest, AScanFindsAPairThatWasPutAgainBeforeItsExpiry) {
  const uint64_t at_ns = now_ns() + 1'000'000'000;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client_->Put(Key(i), ValueOf(1), Expires::AtNs(at_ns)).ok());
  Scan scan = client_->NewScan({.batch = 2, .read_ahead = false, .call = {Path::kClient, {}}});
  std::vector<std::string> keys;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(*scan.Next());
    keys.emplace_back(scan.key());
  }
  ASSERT_TRUE(*client_->Put(Key(5), ValueOf(1)));
  RunUntil(at_ns + 1'000'000'000);  // The client knows then that it has expired, and does not ask.
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) keys.emplace_back(scan.key());
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(keys, (std::vector<std::string>{Key(0), Key(1), Key(5)}));
}

TEST_F(ExpiryTest, ATimeThatCannotBeIsRefused) {
  const auto code = [this](Expires expires) { return client_->Put("key", "value", expires).status().code(); };
  for (const int64_t us : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(code(Expires::AfterUs(us)), absl::StatusCode::kInvalidArgument) << us;
  }
  for (const uint64_t ns : {uint64_t{0}, uint64_t{1}, now_ns() - 1, kExpiryMax + 1, UINT64_MAX}) {
    EXPECT_EQ(code(Expires::AtNs(ns)), absl::StatusCode::kInvalidArgument) << ns;
  }
  EXPECT_EQ(
      client_->Put(std::string(client_->key_bytes_max() - 7, 'k'), "", Expires::AfterUs(kSecondUs)).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(*client_->Contains("key"));
  EXPECT_TRUE(client_->Put("key", "value", Expires::AtNs(kExpiryMax)).ok());
  EXPECT_TRUE(*client_->Contains("key", {Path::kClient, {}}));
}

}  // namespace
}  // namespace cell

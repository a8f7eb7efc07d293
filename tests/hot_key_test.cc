// Checks that a key that is overwritten all the time can be read on each path, however large its value is.
#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "tests/clusters.h"

namespace cell {
namespace {

const RegionShape kShape{1024, 1 << 20, 16 << 20};
constexpr int kGets = 20;
constexpr size_t kSizes[] = {100, 8 << 10, 100 << 10};

ClientOptions Options() {
  ClientOptions options;
  options.timeout_us = 20'000;
  options.report = false;
  return options;
}

// Overwrites a key during its lifetime, several writes at a time.
class Writers {
 public:
  Writers(SimCluster* cluster, const std::string& table, std::string key, size_t value_bytes)
      : key_(std::move(key)), client_(cluster->NewDrivenClient(Options())) {
    if (!table.empty()) table_ = *client_.client->OpenTable(table);
    for (char c = 'a'; c < 'a' + 4; ++c) {
      values_.emplace_back(value_bytes, c);
      CELL_CHECK(Put(values_.back()).ok());
    }
    for (const std::string& value : values_) {
      loops_.push_back(Loop(value));
      loops_.back().Start();
    }
    client_.Drive();
  }
  ~Writers() {
    stop_ = true;
    client_.fabric->Drive(nullptr);
    for (auto& loop : loops_) {
      while (!loop.done()) client_.client->Poll(INT64_MAX);
    }
  }
  bool Wrote(const std::string& value) const {
    return std::find(values_.begin(), values_.end(), value) != values_.end();
  }

 private:
  absl::StatusOr<bool> Put(const std::string& value) {
    return table_.has_value() ? table_->Put(key_, value) : client_.client->Put(key_, value);
  }
  Task<bool> Loop(const std::string& value) {
    while (!stop_) {
      const absl::StatusOr<bool> put =
          table_.has_value() ? co_await table_->AsyncPut(key_, value) : co_await client_.client->AsyncPut(key_, value);
      CELL_CHECK(put.ok());
    }
    co_return true;
  }

  const std::string key_;
  SimCluster::DrivenClient client_;
  std::optional<Table> table_;
  std::vector<std::string> values_;
  std::vector<Task<bool>> loops_;
  bool stop_ = false;
};

TEST(HotKey, IsReadByEachPathHoweverLargeItIs) {
  uint64_t retries = 0;
  for (const std::string table : {"", "slots", "buckets"}) {
    SimCluster cluster(kShape, {.clients_run = true});
    CELL_CHECK(cluster.CreateTable("slots", 0, 1).ok());
    CELL_CHECK(cluster.CreateTable("buckets", 1024, 1).ok());
    SimCluster::DrivenClient reader = cluster.NewDrivenClient(Options());
    std::optional<Table> read_table;
    if (!table.empty()) read_table = *reader.client->OpenTable(table);
    for (const size_t bytes : kSizes) {
      Writers writers(&cluster, table, "hot", bytes);
      for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
        SCOPED_TRACE(fmt::format("table '{}', {} bytes, path {}", table, bytes, ToString(path)));
        CallOptions call{.path = path};
        for (int i = 0; i < (bytes < size_t{16} << 10 ? kGets : kGets / 4); ++i) {
          const auto value = read_table.has_value() ? read_table->Get("hot", call) : reader.client->Get("hot", call);
          ASSERT_TRUE(value.ok()) << i << ": " << value.status();
          ASSERT_TRUE(value->has_value() && writers.Wrote(**value)) << i;
          const auto there =
              read_table.has_value() ? read_table->Contains("hot", call) : reader.client->Contains("hot", call);
          ASSERT_TRUE(there.ok() && *there) << there.status();
        }
      }
    }
    retries += reader.client->metrics().retries();
  }
  EXPECT_GT(retries, 100u);
}

TEST(HotKey, IsScannedByEachPathAlsoInABatchOfItsOwn) {
  SimCluster cluster(kShape, {.clients_run = true});
  SimCluster::DrivenClient reader = cluster.NewDrivenClient(Options());
  ASSERT_TRUE(reader.client->Put("cool", "value").ok());
  ASSERT_TRUE(reader.client->Put("last", "value").ok());
  for (const size_t bytes : kSizes) {
    Writers writers(&cluster, "", "hot", bytes);
    for (const Path path : {Path::kServer, Path::kClient}) {
      for (int i = 0; i < (bytes < size_t{16} << 10 ? 2 * kGets : kGets / 2); ++i) {
        SCOPED_TRACE(fmt::format("{} bytes, path {}, {}", bytes, ToString(path), i));
        Scan scan =
            reader.client->NewScan({.reverse = i % 2 == 0, .batch = i % 4 < 2 ? 1u : 128u, .call = {.path = path}});
        std::vector<std::string> keys;
        absl::StatusOr<bool> more = scan.Next();
        for (; more.ok() && *more; more = scan.Next()) {
          keys.emplace_back(scan.key());
          ASSERT_TRUE(scan.key() == "hot" ? writers.Wrote(std::string(scan.value())) : scan.value() == "value");
        }
        ASSERT_TRUE(more.ok()) << more.status();
        ASSERT_EQ(keys, i % 2 == 0 ? (std::vector<std::string>{"last", "hot", "cool"})
                                   : (std::vector<std::string>{"cool", "hot", "last"}));
      }
    }
  }
}

}  // namespace
}  // namespace cell

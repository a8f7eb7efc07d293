// Runs one random sequence of operations over every path and fabric, with pairs in leaves and outside, and with small
// and large caches. All results must be equal, and equal to those of a std::map.
#include <gtest/gtest.h>

#include <map>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "tests/clusters.h"

namespace cell {
namespace {

std::string RandomKey(Random* random) {
  std::string key(1 + random->Below(12), '\0');
  for (char& c : key) c = "\0ab\xff"[random->Below(4)];
  return key;
}

std::string RandomValue(Random* random) {
  const size_t sizes[] = {0, 1, 100, kInlineValueBytesMax, kInlineValueBytesMax + 1, 20'000, kMessageBytesMax, 200'000};
  const size_t bytes =
      random->Below(20) == 0 ? sizes[random->Below(8)] : random->Below(random->Below(4) == 0 ? 300 : 60);
  std::string value(bytes, '\0');
  const uint64_t salt = random->Next();
  for (size_t i = 0; i < bytes; ++i) value[i] = static_cast<char>(Mix64(salt + i / 8) >> (i % 8 * 8));
  return value;
}

std::string Text(const absl::StatusOr<bool>& result) {
  return result.ok() ? (*result ? "yes" : "no") : result.status().ToString();
}

// Returns the answer of each operation, in order.
std::vector<std::string> Answers(Client* client, uint64_t seed, int operations) {
  Random random(seed);
  std::vector<std::string> log;
  for (int i = 0; i < operations; ++i) {
    const std::string key = RandomKey(&random);
    switch (random.Below(9)) {
      case 0:
      case 1:
      case 2:
        log.push_back(Text(client->Put(key, RandomValue(&random))));
        break;
      case 3:
        log.push_back(Text(client->Delete(key)));
        break;
      case 4:
        log.push_back(Text(client->Contains(key)));
        break;
      case 5: {
        ScanOptions options;
        options.from = key;
        if (random.Below(2) == 0) options.to = RandomKey(&random);
        options.limit = random.Below(3) == 0 ? random.Below(5) : 1 + random.Below(300);
        options.keys_only = random.Below(4) == 0;
        options.batch = static_cast<uint32_t>(1 + random.Below(200));
        options.reverse = random.Below(2) == 0;
        options.read_ahead = random.Below(4) != 0;
        const bool broken_off = random.Below(8) == 0;
        Scan scan = client->NewScan(options);
        std::string all;
        absl::StatusOr<bool> more = scan.Next();
        for (; more.ok() && *more; more = scan.Next()) {
          all += fmt::format("{}={};", ForMessage(scan.key()), Crc64(scan.value()));
          if (broken_off && all.size() > 200) break;
        }
        log.push_back(more.ok() ? all : more.status().ToString());
        break;
      }
      case 6: {
        std::vector<std::string> keys(random.Below(20));
        for (std::string& one : keys) one = RandomKey(&random);
        const auto values = client->MultiGet(std::vector<std::string_view>(keys.begin(), keys.end()));
        std::string all = values.ok() ? "" : values.status().ToString();
        for (size_t j = 0; values.ok() && j < keys.size(); ++j) {
          const std::optional<std::string>& value = (*values)[j];
          all += value.has_value() ? fmt::format("{};", Crc64(*value)) : "none;";
        }
        log.push_back(all);
        break;
      }
      default: {
        const auto value = client->Get(key);
        log.push_back(!value.ok()          ? value.status().ToString()
                      : value->has_value() ? fmt::format("{}", Crc64(**value))
                                           : "none");
      }
    }
  }
  return log;
}

// Returns the answers of a std::map.
std::vector<std::string> Model(uint64_t seed, int operations) {
  std::map<std::string, std::string> map;
  Random random(seed);
  std::vector<std::string> log;
  for (int i = 0; i < operations; ++i) {
    const std::string key = RandomKey(&random);
    switch (random.Below(9)) {
      case 0:
      case 1:
      case 2: {
        const bool there = map.contains(key);
        map[key] = RandomValue(&random);
        log.push_back(there ? "yes" : "no");
        break;
      }
      case 3:
        log.push_back(map.erase(key) == 1 ? "yes" : "no");
        break;
      case 4:
        log.push_back(map.contains(key) ? "yes" : "no");
        break;
      case 5: {
        std::optional<std::string> to;
        if (random.Below(2) == 0) to = RandomKey(&random);
        size_t limit = random.Below(3) == 0 ? random.Below(5) : 1 + random.Below(300);
        const bool keys_only = random.Below(4) == 0;
        random.Below(200);
        const bool reverse = random.Below(2) == 0;
        random.Below(4);
        const bool broken_off = random.Below(8) == 0;
        std::vector<std::string> entries;
        for (auto it = map.lower_bound(key); it != map.end() && (!to.has_value() || it->first < *to); ++it) {
          entries.push_back(
              fmt::format("{}={};", ForMessage(it->first), Crc64(keys_only ? std::string_view() : it->second)));
        }
        if (reverse) std::reverse(entries.begin(), entries.end());
        std::string all;
        for (size_t j = 0; j < entries.size() && j < limit && (!broken_off || all.size() <= 200); ++j)
          all += entries[j];
        log.push_back(all);
        break;
      }
      case 6: {
        std::vector<std::string> keys(random.Below(20));
        for (std::string& one : keys) one = RandomKey(&random);
        std::string all;
        for (const std::string& one : keys) all += map.contains(one) ? fmt::format("{};", Crc64(map[one])) : "none;";
        log.push_back(all);
        break;
      }
      default:
        log.push_back(map.contains(key) ? fmt::format("{}", Crc64(map[key])) : "none");
    }
  }
  return log;
}

// Defines where a cluster stores its pairs and how much its client caches.
struct Setting {
  size_t inline_max;
  uint32_t node_bytes;
  size_t cached_nodes;
  int cache_level_min;
};
constexpr Setting kSettings[] = {
    {0, 1024, 100'000, 1}, {0, 512, 100'000, 4},    {24, 512, 2, 1},
    {24, 1024, 0, 1},      {128, 1024, 100'000, 1}, {InlineBytesMax(512), 512, 5, 1},
};

void ExpectAnswers(const std::vector<std::string>& want, uint64_t seed, const Setting& setting, Path path, bool sim) {
  const RegionShape shape{setting.node_bytes, 4 << 20, 64 << 20};
  TestClusterOptions cluster_options;
  cluster_options.inline_max = {setting.inline_max};
  std::unique_ptr<TestCluster> cluster;
  if (sim) {
    cluster = std::make_unique<SimCluster>(shape, SimOptions{.seed = seed}, cluster_options);
  } else {
    cluster = std::make_unique<ShmCluster>(shape, cluster_options);
  }
  ClientOptions options;
  options.path = path;
  options.cache_bytes = setting.cached_nodes * setting.node_bytes;
  options.cache_level_min = setting.cache_level_min;
  auto client = cluster->NewClient(options);
  const std::vector<std::string> got = Answers(client.get(), seed, static_cast<int>(want.size()));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << "operation " << i;
  if (path == Path::kServer) {
    EXPECT_EQ(client->metrics().node_reads, 0u);
  }
  if (path == Path::kClient) {
    EXPECT_EQ(client->metrics().server_path, 0u);
    EXPECT_GT(client->metrics().extent_reads, 0u);
    if (setting.cache_level_min == 1) {
      EXPECT_EQ(client->metrics().cache_hits == 0, setting.cached_nodes == 0);
    }
  }
  if (path == Path::kHybrid) {
    EXPECT_GT(client->metrics().server_path * client->metrics().client_path, 0u);
  }
  client.reset();
  const TestReport report = cluster->Check();
  EXPECT_TRUE(report.ok()) << report.errors[0];
  EXPECT_EQ(report.inline_pairs == 0, setting.inline_max == 0);
}

TEST(Metamorphic, EveryPathFabricAndLayoutAnswersAlike) {
  constexpr int kOperations = 3000;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const std::vector<std::string> want = Model(seed, kOperations);
    for (const Setting& setting : kSettings) {
      for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
        for (const bool sim : {true, false}) {
          SCOPED_TRACE(fmt::format("seed {} inline {} node {} cached {} path {} fabric {}", seed, setting.inline_max,
                                   setting.node_bytes, setting.cached_nodes, ToString(path), sim ? "sim" : "shm"));
          ExpectAnswers(want, seed, setting, path, sim);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cell

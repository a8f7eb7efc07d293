// Runs one random sequence of operations on every path and fabric. All results must be equal, and equal to those of a
// std::map.
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
  const size_t bytes = random->Below(20) == 0 ? sizes[random->Below(8)] : random->Below(60);
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
    switch (random.Below(8)) {
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
    switch (random.Below(8)) {
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
      default:
        log.push_back(map.contains(key) ? fmt::format("{}", Crc64(map[key])) : "none");
    }
  }
  return log;
}

TEST(Metamorphic, EveryPathAndFabricAnswersAlike) {
  constexpr int kOperations = 3000;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const std::vector<std::string> want = Model(seed, kOperations);
    for (const uint32_t node_bytes : {512u, 1024u}) {
      const RegionShape shape{node_bytes, 4 << 20, 64 << 20};
      for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
        for (const bool sim : {true, false}) {
          SCOPED_TRACE(
              fmt::format("seed {} node {} path {} fabric {}", seed, node_bytes, ToString(path), sim ? "sim" : "shm"));
          std::unique_ptr<TestCluster> cluster;
          if (sim) {
            cluster = std::make_unique<SimCluster>(shape, SimOptions{.seed = seed});
          } else {
            cluster = std::make_unique<ShmCluster>(shape);
          }
          ClientOptions options;
          options.path = path;
          options.cache_level_min = seed == 1 ? 1 : 4;
          auto client = cluster->NewClient(options);
          const std::vector<std::string> got = Answers(client.get(), seed, kOperations);
          for (int i = 0; i < kOperations; ++i) ASSERT_EQ(got[i], want[i]) << "operation " << i;
          if (path == Path::kServer) {
            EXPECT_EQ(client->metrics().node_reads, 0u);
          }
          if (path == Path::kClient) {
            EXPECT_EQ(client->metrics().server_path, 0u);
          }
          if (path == Path::kHybrid) {
            EXPECT_GT(client->metrics().server_path * client->metrics().client_path, 0u);
          }
          client.reset();
          const TreeReport report = cluster->Check();
          EXPECT_TRUE(report.ok()) << report.errors[0];
        }
      }
    }
  }
}

}  // namespace
}  // namespace cell

#include "cell/cluster/cluster_text.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace cell {
namespace {

TEST(WorkerText, IsReadAsItWasWritten) {
  const auto read = ParseWorkerText(ToText({{"tcp://a:1", 7}, "a:2"}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->worker.address, "tcp://a:1");
  EXPECT_EQ(read->worker.regions_max, 7u);
  EXPECT_EQ(read->control, "a:2");
}

TEST(WorkerText, RefusesWhatMakesNoSense) {
  for (const char* text :
       {"", "{}", "[]", "7", "null", R"({"address": 7, "regions_max": 1})", R"({"address": "a"})",
        R"({"address": "a", "regions_max": -1})", R"({"address": "a", "regions_max": 1e300})",
        R"({"address": "", "regions_max": 1})", R"({"address": "a", "regions_max": 1, "control": []})"}) {
    EXPECT_EQ(ParseWorkerText(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_TRUE(ParseWorkerText(ToText({{"\xff", 1}, "\xff"})).ok());
}

TEST(ClusterConstants, AShapeThatNoRegionCanHaveIsRefused) {
  EXPECT_TRUE(CheckShape({512, 2048, 0}).ok());
  EXPECT_EQ(CheckShape({100, 1 << 20, 4 << 20}).message(),
            "node_bytes must be a power of two from 512 to 4096, not 100");
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1000}, uint64_t{3072}, uint64_t{33} << 30}) {
    EXPECT_EQ(CheckShape({1024, bytes, 4 << 20}).code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{33} << 30}) {
    EXPECT_EQ(CheckShape({1024, 1 << 20, bytes}).code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
}

TEST(ClusterConstants, ThoseThatDifferAreNamedWithBothValues) {
  const ClusterConstants cluster{{1024, 1 << 20, 4 << 20}, Durability::kSync};
  EXPECT_EQ(Differences(cluster, cluster), "");
  ClusterConstants other = cluster;
  other.shape.node_bytes = 512;
  EXPECT_EQ(Differences(other, cluster), "--node-bytes 512 (the cluster has 1024)");
  EXPECT_EQ(Differences({{1024, 2 << 20, 8 << 20}, Durability::kNone}, cluster),
            "--meganode-bytes 2097152 (the cluster has 1048576), --extents-bytes 8388608 (the cluster has 4194304), "
            "--durability none (the cluster has sync)");
}

TEST(WorkerText, AddressesAreShortAndPrintable) {
  const auto parse = [](const std::string& address, const std::string& control) {
    return ParseWorkerText(ToText({{address, 1}, control})).ok();
  };
  EXPECT_TRUE(parse("tcp://10.0.0.1:1,shm://m/a path/\xc3\xbc", "10.0.0.1:2"));
  EXPECT_FALSE(parse("tcp://10.0.0.1:1\n", ""));
  EXPECT_FALSE(parse("tcp://10.0.0.1:1", "\x1b[2J"));
  EXPECT_FALSE(parse(std::string(5000, 'a'), ""));
  EXPECT_FALSE(parse("a", std::string(5000, 'a')));
}

TEST(WorkerId, IsASeverAndANumber) {
  EXPECT_EQ(ParseWorkerId("a.b.3"), (WorkerId{"a.b", 3}));
  for (const char* text : {"", ".", "a", "a.", ".1", "a.-1", "a.+1", "a. 1", "a.01", "a.1x", "a.64", "a.4294967296",
                           "a b.0", "a/b.0", "../a.0", "a\n.0", "\x1b[2J.0", "\xe2\x80\xae.0", "\xff.0"}) {
    EXPECT_EQ(ParseWorkerId(text), std::nullopt) << text;
  }
  EXPECT_TRUE(ParseWorkerId(std::string(kServerNameMax, 'a') + ".0").has_value());
  EXPECT_FALSE(ParseWorkerId(std::string(kServerNameMax + 1, 'a') + ".0").has_value());
}

}  // namespace
}  // namespace cell

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

TEST(ServersText, IsReadAsItWasWritten) {
  const std::vector<ClusterState::Server> servers{
      {"b", {{"tcp://b:1", 7}, {"", 0}, {"tcp://b:2", 8}}, "b:9"}, {"a", {}, ""}, {"c", {{"shm:///c", 1}}, ""}};
  const auto read = ParseServersText(ServersText(servers));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ServersText(*read), ServersText(servers));
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].name, "b");
  EXPECT_EQ((*read)[0].control, "b:9");
  ASSERT_EQ((*read)[0].workers.size(), 3u);
  EXPECT_EQ((*read)[0].workers[2].address, "tcp://b:2");
  EXPECT_EQ((*read)[0].workers[2].regions_max, 8u);
  EXPECT_TRUE(ParseServersText("[]")->empty());
}

TEST(ServersText, RefusesWhatMakesNoSense) {
  std::string too_many = R"([{"name": "a", "control": "", "workers": [)";
  for (int i = 0; i < 65; ++i) too_many += std::string(i > 0 ? "," : "") + R"({"address": "", "regions_max": 0})";
  too_many += "]}]";
  for (const std::string& text : std::initializer_list<std::string>{
           "", "{}", "7", "[7]", "[{}]", R"([{"name": "a"}])", R"([{"name": "a/b", "control": "", "workers": []}])",
           R"([{"name": "a", "control": "
", "workers": []}])",
           R"([{"name": "a", "control": "", "workers": [{"address": 7, "regions_max": 1}]}])",
           R"([{"name": "a", "control": "", "workers": [{"address": "[2J", "regions_max": 1}]}])",
           R"([{"name": "a", "control": "", "workers": [{"address": "a"}]}])",
           R"([{"name": "a", "control": "", "workers": []}, {"name": "a", "control": "", "workers": []}])", too_many}) {
    EXPECT_EQ(ParseServersText(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ClusterState, TakesOverWhatIsNewerOfEachPart) {
  ClusterState state;
  state.table.version = 5;
  state.servers_version = 5;
  state.revision = 1;
  ClusterState other = state;
  other.table.version = other.servers_version = 4;
  EXPECT_FALSE(state.TakeNewer(other));
  EXPECT_EQ(state.revision, 1u);
  other.table.version = 6;
  other.table.root = 7;
  other.servers_version = 4;
  other.servers = {{"old", {}, ""}};
  EXPECT_TRUE(state.TakeNewer(other));
  EXPECT_EQ(state.table.root, 7u);
  EXPECT_TRUE(state.servers.empty());
  EXPECT_EQ(state.servers_version, 5u);
  EXPECT_EQ(state.revision, 2u);
  other.table.version = 4;
  other.table.root = 4;
  other.servers_version = 8;
  EXPECT_TRUE(state.TakeNewer(other));
  EXPECT_EQ(state.table.root, 7u);
  EXPECT_EQ(state.servers.size(), 1u);
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

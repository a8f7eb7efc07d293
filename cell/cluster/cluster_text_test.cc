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

TEST(WorkerId, IsASeverAndANumber) {
  EXPECT_EQ(ParseWorkerId("a.b.3"), (WorkerId{"a.b", 3}));
  for (const char* text : {"", ".", "a", "a.", ".1", "a.-1", "a.+1", "a. 1", "a.01", "a.1x", "a.1025", "a.4294967296"}) {
    EXPECT_EQ(ParseWorkerId(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace cell

#include "cell/server/report/client_reports.h"

#include <gtest/gtest.h>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

std::string Report(size_t bytes, int operations) {
  const std::string start = fmt::format("{{\"operations\":{},\"text\":\"", operations);
  return start + std::string(bytes - start.size() - 2, 'x') + "\"}";
}

TEST(ClientReports, RefusesWhatIsNoReport) {
  ClientReports reports;
  EXPECT_TRUE(reports.Set(1, Report(4096, 1)).ok());
  for (const std::string& bad : {Report(4097, 1), std::string("[1]"), std::string("{"), std::string()}) {
    EXPECT_EQ(reports.Set(1, bad).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ClientReports, CountsTheBytesThatItShows) {
  std::string numbers = R"({"a":[9e14)";
  for (int i = 0; i < 500; ++i) numbers += ",9e14";  // 900000000000000.0
  EXPECT_FALSE(ClientReports().Set(1, numbers + "]}").ok());
}

TEST(ClientReports, SumsClientsThatHaveGone) {
  ClientReports reports;
  ASSERT_TRUE(reports.Set(1, Report(100, 3)).ok());
  ASSERT_TRUE(reports.Set(1, Report(100, 5)).ok());  // Replaces the first.
  ASSERT_TRUE(
      reports.Set(2, R"({"operations":7,"retries":"many","calls":3,"read_rounds":4,"node_reads":5,"extent_reads":6})")
          .ok());
  reports.Forget(1);
  reports.Forget(2);
  reports.Forget(3);  // Has never reported.
  nlohmann::json status;
  reports.AddTo(&status);
  EXPECT_EQ(status["departed_clients"]["operations"], 12);
  EXPECT_EQ(status["departed_clients"]["retries"], 0);
  EXPECT_EQ(status["departed_clients"]["calls"], 3);
  EXPECT_EQ(status["departed_clients"]["read_rounds"], 4);
  EXPECT_EQ(status["departed_clients"]["node_reads"], 5);
  EXPECT_EQ(status["departed_clients"]["extent_reads"], 6);
  EXPECT_TRUE(status["clients"].empty());
}

// A status that does not fit into a message could not be read at all.
TEST(ClientReports, ShowsNoMoreThanFits) {
  ClientReports large, many;
  for (ConnectionId id = 0; id < 100; ++id) {
    ASSERT_TRUE(large.Set(id, Report(4096, 1)).ok());
    ASSERT_TRUE(many.Set(id, Report(50, 1)).ok());
  }
  nlohmann::json status;
  large.AddTo(&status);
  EXPECT_EQ(status["clients"].size(), 6u);
  EXPECT_EQ(status["other_clients"]["clients"], 94);
  EXPECT_EQ(status["other_clients"]["operations"], 94);
  EXPECT_EQ(status["clients"][5]["connection"], 5);
  many.AddTo(&status);
  EXPECT_EQ(status["clients"].size(), 64u);
  EXPECT_EQ(status["other_clients"]["clients"], 36);
}

}  // namespace
}  // namespace cell

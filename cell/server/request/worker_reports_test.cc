#include "cell/server/request/worker_reports.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/json.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/layout/wire.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 32 << 10, 64 << 10};

class WorkerReportsTest : public ::testing::Test {
 protected:
  WorkerContext Context() {
    WorkerContext context;
    context.fabric = fabric_.get();
    context.regions = &regions_;
    context.status = &status_;
    return context;
  }
  HeldRegion* Hold(uint32_t region, const RegionContent& content = {}, RegionState state = RegionState::kServing) {
    return *regions_.Create(region, content, state);
  }

  static void Put(HeldRegion* region, std::string_view key, std::string_view value) {
    CELL_CHECK(region->tree->Put(key, value, Crc64(value, Crc64(key))).ok());
  }

  nlohmann::json Status(std::string_view text = "") { return Reply(MessageKind::kStatus, reports_.Status(text, to_)); }
  // Returns the JSON in a reply that was written to `to_`.
  nlohmann::json Reply(MessageKind kind, const absl::StatusOr<size_t>& bytes) {
    CELL_CHECK(bytes.ok());
    return *ParseJson(AsText(*ParseBytesReply(to_.first(*bytes), kind)));
  }
  // Returns the regions that a status lists.
  static std::vector<uint32_t> RegionsOf(const nlohmann::json& status) {
    std::vector<uint32_t> regions;
    for (const nlohmann::json& region : status["regions"]) regions.push_back(region["region"]);
    return regions;
  }

  SimNetwork network_{{}};
  std::unique_ptr<SimFabric> fabric_ = network_.NewEndpoint();
  Regions regions_{fabric_.get(), kShape, 300};
  StatusReport status_;
  WorkerReports reports_{Context(), "server-0"};
  std::vector<std::byte> memory_ = std::vector<std::byte>(kMessageBytesMax);
  const MutableBytes to_{memory_.data(), memory_.size()};
};

TEST_F(WorkerReportsTest, AStatusHasTheWorkerItsRegionsAndWhatItsPartsAdd) {
  Hold(3);
  Hold(5);
  status_.Add([](nlohmann::json* status) { (*status)["part"] = "added"; });
  const nlohmann::json status = Status();
  EXPECT_EQ(status["server"], "server-0");
  EXPECT_EQ(status["regions_max"], 300);
  EXPECT_EQ(status["regions_held"], 2);
  EXPECT_EQ(status["part"], "added");
  EXPECT_EQ(RegionsOf(status), (std::vector<uint32_t>{3, 5}));
  EXPECT_EQ(RegionsOf(*ParseJson(reports_.StatusJson(0, 1))), std::vector<uint32_t>{3});
}

// The regions of a large worker do not fit into one message. Together the statuses list each of them once.
TEST_F(WorkerReportsTest, AStatusListsAsManyRegionsAsFit) {
  for (uint32_t region = 1; region <= 300; ++region) Hold(region);
  std::vector<uint32_t> all;
  for (int calls = 1; all.size() < 300; ++calls) {
    ASSERT_LE(calls, 5);
    const nlohmann::json status = Status(all.empty() ? "" : std::to_string(all.size()));
    EXPECT_EQ(status["regions_held"], 300);
    for (const uint32_t region : RegionsOf(status)) all.push_back(region);
  }
  for (uint32_t region = 1; region <= 300; ++region) EXPECT_EQ(all[region - 1], region);
  EXPECT_EQ(RegionsOf(Status("300")), std::vector<uint32_t>());
  EXPECT_EQ(reports_.Status("first", to_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WorkerReportsTest, WeighsAllItsRegions) {
  Put(Hold(1), "key", "value");
  Hold(2);
  const absl::StatusOr<size_t> bytes = reports_.Weigh(to_);
  ASSERT_TRUE(bytes.ok());
  const absl::StatusOr<WeighReply> reply = ParseWeighReply(to_.first(*bytes));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->bytes_used, regions_.bytes_used());
}

TEST_F(WorkerReportsTest, ShowsAClientsReportUntilItLeavesAndThenCountsIt) {
  const auto report = [this](ConnectionId client, std::string_view text) {
    return reports_.Report(client, text, to_).status().code();
  };
  EXPECT_EQ(report(7, "not json"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(report(7, R"({"operations": 3})"), absl::StatusCode::kOk);
  EXPECT_EQ(report(8, R"({"operations": 5})"), absl::StatusCode::kOk);
  const nlohmann::json both = Status();
  ASSERT_EQ(both["clients"].size(), 2u);
  EXPECT_EQ(both["clients"][0]["connection"], 7);
  EXPECT_EQ(both["departed_clients"]["operations"], 0);
  reports_.Disconnected(7);
  const nlohmann::json one = Status();
  ASSERT_EQ(one["clients"].size(), 1u);
  EXPECT_EQ(one["clients"][0]["connection"], 8);
  EXPECT_EQ(one["departed_clients"]["operations"], 3);
}

}  // namespace
}  // namespace cell

// Requests that add routes to a meganode, or remove them.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "cell/base/check.h"
#include "cell/server/request/test_request_service.h"

namespace cell {
namespace {

// A meganode of routes in region 2.
class AddRouteTest : public RequestServiceTest {
 protected:
  HeldRegion* CreateRoutes(uint8_t tier = 1, const std::optional<std::string>& high = {}) {
    RegionContent content;
    content.range = {tier, "", high, high.has_value() ? RootOf(5) : Pointer()};
    HeldRegion* const region = *regions_.Create(2, content);
    CELL_CHECK(region->tree->InsertRoute("", RootOf(3)).ok());
    return region;
  }
  // Adds a route of tier 1.
  std::string Add(const std::string& key, uint64_t order = 1) {
    return Call(MakeRouteRequest(MessageKind::kAddRoute, RootOf(2), 1, key, RootOf(1), order));
  }
  std::string Remove(const std::string& key, uint64_t order) {
    return Call(MakeRouteRequest(MessageKind::kRemoveRoute, RootOf(2), 1, key, RootOf(1), order));
  }
  void ExpectRoute(const std::string& reply, RouteKind kind) {
    ASSERT_TRUE(IsRoute(AsBytes(reply))) << CodeOf(reply);
    EXPECT_EQ(ParseRouteReply(AsBytes(reply))->kind, kind);
  }
};

TEST_F(AddRouteTest, ARouteThatNoNodeTakesIsRefused) {
  const HeldRegion* const region = CreateRoutes();
  EXPECT_EQ(CodeOf(Add("key")), absl::StatusCode::kOk);
  const size_t longest = region->tree->key_bytes_max();
  EXPECT_EQ(CodeOf(Add(std::string(longest, 'k'))), absl::StatusCode::kOk);
  for (const size_t bytes : {longest + 1, size_t{4096}, size_t{60'000}}) {
    EXPECT_EQ(CodeOf(Add(std::string(bytes, 'k'))), absl::StatusCode::kInvalidArgument) << bytes;
  }
  const TreeReport report = CheckTree(*region->memory);
  EXPECT_TRUE(report.ok()) << report.errors[0];
  EXPECT_EQ(report.routes.size(), 3u);
}

TEST_F(AddRouteTest, ARouteIsOnDiskBeforeItIsAcknowledged) {
  HeldRegion* const region = CreateRoutes();
  region->SetLog(std::make_shared<RegionLog>(2, 1, 1, nullptr), false);
  region->log->EndFlush(region->log->BeginFlush(), absl::OkStatus());
  EXPECT_EQ(CodeOf(Add("key")), absl::StatusCode::kUnavailable);
  region->log->EndFlush(region->log->BeginFlush(), absl::OkStatus());
  EXPECT_EQ(CodeOf(Add("key")), absl::StatusCode::kOk);
}

// The record of the route would be in no log.
TEST_F(AddRouteTest, ARegionWhoseLogHasFailedTakesNoRoute) {
  HeldRegion* const region = CreateRoutes();
  region->SetLog(std::make_shared<RegionLog>(2, 1, 1, nullptr), false);
  region->log->Fail(absl::DataLossError("the disk failed"));
  EXPECT_EQ(CodeOf(Add("key")), absl::StatusCode::kDataLoss);
  EXPECT_EQ(region->tree->RouteOf("key").next, RootOf(3));
}

TEST_F(AddRouteTest, ARouteIsRemoved) {
  const HeldRegion* const region = CreateRoutes();
  EXPECT_EQ(CodeOf(Add("key", 1)), absl::StatusCode::kOk);
  const std::string reply = Remove("key", 2);
  EXPECT_EQ(ParseWriteReply(AsBytes(reply), MessageKind::kRemoveRoute)->existed, 1);
  EXPECT_EQ(region->tree->RouteOf("key").next, RootOf(3));
  const std::string again = Remove("key", 3);
  EXPECT_EQ(ParseWriteReply(AsBytes(again), MessageKind::kRemoveRoute)->existed, 0);
  EXPECT_TRUE(CheckTree(*region->memory).ok());
}

// A route that leads elsewhere by now belongs to another meganode.
TEST_F(AddRouteTest, OnlyItsOwnRouteIsRemoved) {
  HeldRegion* const region = CreateRoutes();
  ASSERT_TRUE(region->tree->InsertRoute("key", RootOf(4)).ok());
  const std::string reply = Remove("key", 1);
  EXPECT_EQ(ParseWriteReply(AsBytes(reply), MessageKind::kRemoveRoute)->existed, 0);
  EXPECT_EQ(region->tree->RouteOf("key").next, RootOf(4));
}

// A search for its keys would not find the one before, which is in another node.
TEST_F(AddRouteTest, TheFirstRouteOfANodeStays) {
  RegionContent content;
  content.range = {1, "key", std::nullopt, Pointer()};
  HeldRegion* const region = *regions_.Create(2, content);
  ASSERT_TRUE(region->tree->InsertRoute("key", RootOf(1)).ok());
  EXPECT_EQ(CodeOf(Remove("key", 1)), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(region->tree->RouteOf("key").next, RootOf(1));
}

TEST_F(AddRouteTest, ARequestThatComesLateDoesNotUndoALaterOne) {
  const HeldRegion* const region = CreateRoutes();
  EXPECT_EQ(CodeOf(Add("key", RouteOrder(2, 1))), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(Remove("key", RouteOrder(1, 7))), absl::StatusCode::kAborted);
  EXPECT_EQ(region->tree->RouteOf("key").next, RootOf(1));
  EXPECT_EQ(CodeOf(Remove("key", RouteOrder(2, 2))), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(Add("key", RouteOrder(2, 1))), absl::StatusCode::kAborted);
  EXPECT_EQ(region->tree->RouteOf("key").next, RootOf(3));
}

// The content of a frozen region is on its way to another server, which would not know the route.
TEST_F(AddRouteTest, AFrozenRegionTakesNoRoute) {
  HeldRegion* const region = CreateRoutes();
  region->ChangeState(RegionState::kFrozen);
  ExpectRoute(Add("key"), RouteKind::kNotHeld);
  EXPECT_EQ(region->tree->RouteOf("key").next, RootOf(3));
}

TEST_F(AddRouteTest, ARegionThatIsBeingFilledTakesNoRoute) {
  RegionContent content;
  content.range = {1, "", std::nullopt, Pointer()};
  HeldRegion* const region = *regions_.Create(2, content, RegionState::kFilling);
  ASSERT_TRUE(region->tree->InsertRoute("", RootOf(1)).ok());
  ExpectRoute(Add("key"), RouteKind::kNotHeld);
  region->ChangeState(RegionState::kServing);
  EXPECT_EQ(CodeOf(Add("key")), absl::StatusCode::kOk);
}

TEST_F(AddRouteTest, ARouteOfALowerTierIsLedOn) {
  const HeldRegion* const region = CreateRoutes(/*tier=*/2);
  ExpectRoute(Add("key"), RouteKind::kChild);
  EXPECT_EQ(region->tree->RouteOf("key").next, RootOf(3));
}

TEST_F(AddRouteTest, ARouteOutsideOfTheRangeIsLedOn) {
  CreateRoutes(/*tier=*/1, /*high=*/"m");
  ExpectRoute(Add("z"), RouteKind::kRight);
  EXPECT_EQ(CodeOf(Add("a")), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace cell

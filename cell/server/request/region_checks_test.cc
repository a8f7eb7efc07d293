#include "cell/server/request/region_checks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/base/json.h"
#include "cell/server/request/test_request_service.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

class RegionChecksTest : public RequestServiceTest {
 protected:
  void Fill(int keys) {
    for (int i = 0; i < keys; ++i) {
      const std::string key = fmt::format("key{:06}", i), value(100, 'v');
      CELL_CHECK(region()->tree->Put(key, value, Crc64(value, Crc64(key))).ok());
    }
  }
  HeldRegion* region() { return regions_.Find(1); }
  HeldRegion* Hold(uint32_t id, const RegionContent& content = {}, RegionState state = RegionState::kServing) {
    return *regions_.Create(id, content, state);
  }
  nlohmann::json Check(std::string_view text) {
    const std::string reply = Call(MakeTextRequest(MessageKind::kCheck, text));
    const absl::StatusOr<ConstBytes> bytes = ParseBytesReply(AsBytes(reply), MessageKind::kCheck);
    CELL_CHECK(bytes.ok());
    return *ParseJson(AsText(*bytes));
  }
  absl::StatusCode CheckCode(std::string_view text) { return CodeOf(Call(MakeTextRequest(MessageKind::kCheck, text))); }
  void Send(SimFabric* client, ConnectionId connection, Reply* reply) {
    const std::string request = MakeTextRequest(MessageKind::kCheck, "1");
    client->Call(connection, AsBytes(request), {}, kMessageBytesMax, INT64_MAX, reply);
  }
  // Lets requests arrive, without a turn of the worker.
  void Arrive() {
    for (int i = 0; i < 1000; ++i) {
      network_.Step();
      server_->Poll();
      client_->Poll();
    }
  }
  const RegionChecks& checks() { return service_.checks(); }
};

TEST_F(RegionChecksTest, ACheckReportsARegion) {
  ASSERT_TRUE(Put("key", "value").ok());
  const nlohmann::json report = Check("1");
  EXPECT_EQ(report["region"], 1);
  EXPECT_EQ(report["keys"], 1);
  EXPECT_EQ(report["whole"], true);
  EXPECT_EQ(report["errors"], nlohmann::json::array());
}

// A turn of the worker takes a slice, and other requests are served in between.
TEST_F(RegionChecksTest, RequestsAreServedBetweenTheSlicesOfACheck) {
  Fill(4'000);
  Reply check;
  Send(client_.get(), connection_, &check);
  Arrive();
  EXPECT_EQ(checks().size(), 1u);
  int turns = 0;
  for (; checks().size() > 0; ++turns) {
    ASSERT_LT(turns, 100'000);
    Reply get;
    const std::string request = MakeKeyRequest(MessageKind::kGet, root_, {}, "key000001");
    client_->Call(connection_, AsBytes(request), {}, kMessageBytesMax, INT64_MAX, &get);
    for (int i = 0; i < 1000 && !get.done; ++i) {
      network_.Step();
      server_->Poll();
      client_->Poll();
    }
    ASSERT_TRUE(get.done);
    EXPECT_EQ(service_.ServeWaiting(), 1u);
  }
  EXPECT_GT(turns, 10);
  Arrive();
  EXPECT_TRUE(check.done);
  EXPECT_NE(check.bytes.find("\"keys\":4000"), std::string::npos);
}

TEST_F(RegionChecksTest, MoreThanAFewOfOnePeerAreRefused) {
  Fill(1'000);
  std::vector<Reply> flood(20);
  for (Reply& one : flood) Send(client_.get(), connection_, &one);
  Arrive();
  EXPECT_EQ(checks().size(), RegionChecks::kPerPeerMax);
  EXPECT_EQ(checks().refused(), flood.size() - RegionChecks::kPerPeerMax);
  // Another peer is not refused because of that.
  const std::unique_ptr<SimFabric> other = network_.NewEndpoint();
  other->SetSelf({Role::kOperator, "other"});
  const ConnectionId connection = *ConnectTo(other.get(), "server");
  Reply its;
  Send(other.get(), connection, &its);
  for (int i = 0; i < 100'000 && !its.done; ++i) {
    Turn();
    other->Poll();
  }
  EXPECT_TRUE(its.done);
  EXPECT_EQ(CodeOf(its.bytes), absl::StatusCode::kOk);
  int refused = 0;
  for (const Reply& one : flood) refused += CodeOf(one.bytes) == absl::StatusCode::kResourceExhausted;
  EXPECT_EQ(refused, 16);
}

TEST_F(RegionChecksTest, APeerThatIsGoneIsNotAnswered) {
  Fill(1'000);
  Reply check;
  Send(client_.get(), connection_, &check);
  Arrive();
  ASSERT_EQ(checks().size(), 1u);
  client_->Crash();
  for (int i = 0; i < 1000; ++i) Turn();
  EXPECT_EQ(checks().size(), 0u);
}

// It has what nothing leads to yet, which a check would report as lost.
TEST_F(RegionChecksTest, ARegionThatIsBeingJoinedIsNotChecked) {
  const RegionClaim claim(region(), ClaimPurpose::kJoin);
  EXPECT_EQ(CheckCode("1"), absl::StatusCode::kAborted);
}

TEST_F(RegionChecksTest, ARegionThatGoesMeanwhileIsNotFound) {
  Fill(1'000);
  Reply check;
  Send(client_.get(), connection_, &check);
  Arrive();
  service_.ServeWaiting();
  ASSERT_EQ(checks().size(), 1u);
  regions_.Drop(1);
  for (int i = 0; i < 1000 && !check.done; ++i) Turn();
  EXPECT_EQ(CodeOf(check.bytes), absl::StatusCode::kNotFound);
}

TEST_F(RegionChecksTest, ACheckReturnsRoutesFromANumberOn) {
  RegionContent content;
  content.range.tier = 1;
  HeldRegion* const routes = Hold(2, content);
  ASSERT_TRUE(routes->tree->InsertRoute("", RootOf(3)).ok());
  ASSERT_TRUE(routes->tree->InsertRoute("k", RootOf(4)).ok());
  EXPECT_EQ(Check("2")["routes"], 2);
  EXPECT_EQ(Check("2 0"), nlohmann::json::array({{"", 3}, {"6b", 4}}));
  EXPECT_EQ(Check("2 1"), nlohmann::json::array({{"6b", 4}}));
  EXPECT_EQ(Check("2 2"), nlohmann::json::array());
}

TEST_F(RegionChecksTest, APartOfATableHasNoRoutes) {
  RegionContent content;
  content.hash_range = HashRange{0, UINT32_MAX};
  Hold(2, content);
  EXPECT_EQ(Check("2 0"), Check("2"));
  EXPECT_TRUE(Check("2").contains("hash"));
}

TEST_F(RegionChecksTest, OnlyARegionThatIsReadAndCompleteIsChecked) {
  Hold(2, {}, RegionState::kSealed);
  Hold(3, {}, RegionState::kFilling);
  EXPECT_EQ(CheckCode("2"), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckCode("3"), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CheckCode("4"), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckCode(""), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckCode("region"), absl::StatusCode::kInvalidArgument);
}

// A region that is written all the time is checked twice at most, and not compared as a whole.
TEST_F(RegionChecksTest, ACheckOfARegionThatIsWrittenEnds) {
  Fill(4'000);
  Reply check;
  Send(client_.get(), connection_, &check);
  Arrive();
  for (int turns = 0; checks().size() > 0; ++turns) {
    ASSERT_LT(turns, 100'000);
    const std::string value = std::to_string(turns);
    ASSERT_TRUE(region()->tree->Put("key000001", value, Crc64(value, Crc64(std::string_view("key000001")))).ok());
    service_.ServeWaiting();
  }
  Arrive();
  EXPECT_NE(check.bytes.find("\"whole\":false"), std::string::npos);
  EXPECT_NE(check.bytes.find("\"error_count\":0"), std::string::npos);
}

}  // namespace
}  // namespace cell

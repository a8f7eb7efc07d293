// Servers send invalid reports about themselves. The error must name the server, and the client must continue.
#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "cell/client/client_testing.h"
#include "tests/liar.h"

namespace cell {
namespace {

class NonsenseTest : public ::testing::Test {
 protected:
  static TestClusterOptions Options() {
    TestClusterOptions options;
    options.servers = 2;
    options.joining = 1;  // The liar.
    return options;
  }
  NonsenseTest() {
    ClusterState* const state = &cluster_.shared()->state;
    state->servers[1].workers[0].address = "liar";
    region_ = *state->table.Add({"server-1", 0});
    ++state->table.version;
    ++cluster_.shared()->changes;
    ClientOptions options;
    options.report = false;
    client_ = cluster_.NewClient(options);
    CELL_CHECK(client_->Put("key", "value").ok());
  }

  SimCluster cluster_{{512, 16 << 10, 32 << 10}, {}, Options()};
  Liar liar_{cluster_.network()->NewEndpoint(), "liar"};
  uint32_t region_;
  std::unique_ptr<Client> client_;
};

TEST_F(NonsenseTest, AStatusIsDataLoss) {
  for (const char* text : {"", "junk", "7", "null", "[]", "[[]]", "{}", R"({"regions": 7})", R"({"regions": {}})"}) {
    liar_.Say(text);
    const std::vector<absl::StatusOr<std::string>> status = client_->ServerStatus();
    ASSERT_EQ(status.size(), 2u);
    EXPECT_TRUE(status[0].ok()) << status[0].status();
    EXPECT_EQ(status[1].status().code(), absl::StatusCode::kDataLoss) << text;
    EXPECT_NE(status[1].status().message().find("server-1"), std::string::npos) << status[1].status();
  }
  liar_.Say(R"({"regions": [], "regions_held": "many"})");
  EXPECT_TRUE(client_->ServerStatus()[1].ok());
  EXPECT_EQ(client_->Get("key")->value_or("absent"), "value");
}

TEST_F(NonsenseTest, AReportOfARegionIsDataLoss) {
  for (const char* text : {"", "junk", "7", "[]", "{}", R"({"region": -1, "keys": 1})", R"({"region": 9, "keys": "1"})",
                           R"({"region": 9, "keys": 1, "hash": 7})",
                           R"({"region": 9, "keys": 1, "tier": 999, "low": "", "right": 0, "routes": 0})",
                           R"({"region": 9, "keys": 1, "tier": 0, "low": "x", "right": 0, "routes": 0})",
                           R"({"region": 9, "keys": 1, "tier": 1, "low": "", "right": 0, "routes": 1})"}) {
    liar_.Say(text);
    const absl::Status status = client_->Check().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
    EXPECT_NE(status.message().find(fmt::format("region {}", region_)), std::string::npos) << status;
  }
  EXPECT_EQ(client_->Get("key")->value_or("absent"), "value");
}

// The reply has no entries, and says that the scan goes on, but not where. Without an error the client would ask for
// ever.
TEST_F(NonsenseTest, AScanThatGoesOnNowhereIsDataLoss) {
  ClientTesting::RememberRoute(client_.get(), "", std::nullopt, region_);
  liar_.Say(std::string(sizeof(ScanReply) - sizeof(ReplyHeader), '\0'));
  ScanOptions options;
  options.call.path = Path::kServer;
  const absl::Status status = client_->NewScan(options).Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_NE(status.message().find("no next key"), std::string::npos) << status;
}

// The same of ranges: each slice begins above the one before it. A deletion may have happened nevertheless.
TEST_F(NonsenseTest, ARangeThatGoesOnNowhereIsDataLoss) {
  ClientTesting::RememberRoute(client_.get(), "", std::nullopt, region_);
  for (const std::string next : {"", "a", "b", "c", "cc"}) {
    std::string reply(RangeReplyBytes(next.size()), '\0');
    (void)WriteRangeReply({reinterpret_cast<std::byte*>(reply.data()), reply.size()}, MessageKind::kCount,
                          {7, false, next});
    liar_.Say(reply.substr(sizeof(ReplyHeader)));
    const absl::Status count = client_->Count("b", "c").status();
    EXPECT_EQ(count.code(), absl::StatusCode::kDataLoss) << count;
    const absl::Status deletion = client_->DeleteRange("b", "c").status();
    EXPECT_TRUE(IsMaybeApplied(deletion)) << deletion;
  }
}

}  // namespace
}  // namespace cell

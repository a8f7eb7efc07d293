#include "cell/client/session/table_fetcher.h"

#include <gtest/gtest.h>

#include <string>

#include "cell/client/session/served_table.h"
#include "cell/client/session/session_test.h"

namespace cell {
namespace {

class TableFetcherTest : public ConnectionsFixture, public ::testing::Test {
 protected:
  TableFetcherTest() {
    served_.state.servers = {{"server", {{"server", 8}}, ""}};
    served_.state.servers_version = 1;
    served_.ChangeTable([](RegionTable* table) {
      for (int i = 0; i < 1000; ++i) CELL_CHECK(table->Add({"server", 0}).ok());
    });
    service_.answer = [this](const IncomingCall& call, MutableBytes to) { return served_.Answer(call, to); };
    worker_ = connections_.To({"server", 0}, "server");
    CELL_CHECK(Wait(connections_.Connect(worker_)).ok());
  }
  absl::StatusOr<std::shared_ptr<const ClusterState>> Fetch(const ClusterState& have) {
    served_.asked = 0;
    return Wait(fetcher_.Fetch(worker_, have, {served_.state.table.version, served_.state.servers_version},
                               loop_.NowNs() + 1'000'000'000));
  }

  ServedTable served_;
  TableFetcher fetcher_{&loop_, &connections_, &metrics_};
  WorkerConnection* worker_ = nullptr;
};

TEST_F(TableFetcherTest, GetsWhatItLacks) {
  const auto first = Fetch({});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->table, served_.state.table);
  EXPECT_EQ(ServersText((*first)->servers), ServersText(served_.state.servers));
  EXPECT_EQ((*first)->servers_version, served_.state.servers_version);
  const auto shards = static_cast<int>(served_.state.table.regions.shards().size());
  ASSERT_GE(shards, 4);
  EXPECT_EQ(served_.asked, 2 + shards);
  EXPECT_EQ(metrics_.table_parts, static_cast<uint64_t>(served_.asked));
  EXPECT_EQ(metrics_.calls, 0u);
  served_.ChangeTable([](RegionTable* table) { CELL_CHECK(table->Claim(900, 1, {"server", 0}).ok()); });
  const auto second = Fetch(**first);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->table, served_.state.table);
  EXPECT_EQ(served_.asked, 2);  // The root, and the shard that was changed.
  ++served_.state.servers_version;
  served_.state.servers[0].control = "server:2";
  served_.Serve();
  const auto third = Fetch(**second);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ((*third)->servers[0].control, "server:2");
  EXPECT_EQ(served_.asked, 1);
}

TEST_F(TableFetcherTest, PartsMayComeInPieces) {
  served_.piece_bytes = 100;
  const auto fetched = Fetch({});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ((*fetched)->table, served_.state.table);
}

TEST_F(TableFetcherTest, AWorkerThatKnowsAnotherVersionByNowEndsIt) {
  served_.parts.erase({TablePartKind::kShard, 0, served_.state.table.version});
  EXPECT_TRUE(absl::IsAborted(Fetch({}).status()));
}

// Whatever a worker sends, the result is an error or the state.
TEST_F(TableFetcherTest, WhatIsNotValidIsRefused) {
  for (const auto& [part, text] : served_.parts) {
    const std::string right = text;
    for (const std::string& wrong :
         {std::string(), std::string("x"), right.substr(1), right.substr(0, right.size() - 1)}) {
      served_.parts[part] = wrong;
      EXPECT_TRUE(absl::IsDataLoss(Fetch({}).status())) << static_cast<int>(std::get<0>(part)) << " " << wrong.size();
    }
    served_.parts[part] = right;
  }
  EXPECT_TRUE(Fetch({}).ok());
  served_.more = 1;  // It never comes.
  EXPECT_TRUE(absl::IsDataLoss(Fetch({}).status()));
  served_.more = size_t{1} << 40;
  EXPECT_TRUE(absl::IsDataLoss(Fetch({}).status()));
  EXPECT_EQ(served_.asked, 1);
  served_.more = 0;
  served_.parts[{TablePartKind::kRoot, 0, served_.state.table.version}] =
      StoredRoot(RegionTable());  // Of another version.
  EXPECT_TRUE(absl::IsDataLoss(Fetch({}).status()));
}

}  // namespace
}  // namespace cell

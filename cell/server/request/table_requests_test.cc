#include "cell/server/request/table_requests.h"

#include <gtest/gtest.h>

#include <string>

#include "cell/base/crc64.h"
#include "cell/cluster/cluster_text.h"
#include "cell/cluster/table_shards.h"

namespace cell {
namespace {

// Shows a state that the test sets.
class ShownMembership final : public Membership {
 public:
  const ClusterState& state() const override { return shown; }
  void Refresh(Done) override {}
  void Change(TableChange, Done) override {}
  size_t Poll() override { return 0; }
  bool pending() const override { return false; }

  ClusterState shown;
};

class TableRequestsTest : public ::testing::Test {
 protected:
  TableRequestsTest() {
    membership_.shown.uuid = "9c0a";
    membership_.shown.servers = {{"server-0", {{"tcp://a:1", 8}}, "a:2"}};
    membership_.shown.servers_version = 3;
    ChangeTable(600);
  }
  // Adds regions, and stores the table.
  void ChangeTable(int regions) {
    RegionTable& table = membership_.shown.table;
    for (int i = 0; i < regions; ++i) ASSERT_TRUE(table.Add({"server-0", 0}).ok());
    table.regions.Stored(++table.version);
  }
  // Returns a part, which is asked for in pieces of this size.
  absl::StatusOr<std::string> Part(const TablePart& part, size_t piece = 1000) {
    std::string text, reply(sizeof(TablePartReply) + piece, '\0');
    for (;;) {
      const std::string request = MakeTablePartRequest(part, text.size());
      const MutableBytes to(reinterpret_cast<std::byte*>(reply.data()), reply.size());
      const absl::StatusOr<size_t> bytes = requests_.Part(AsBytes(request), to);
      if (!bytes.ok()) return bytes.status();
      const auto parsed = ParseTablePartReply(AsBytes(reply).subspan(0, *bytes));
      if (!parsed.ok()) return parsed.status();
      text += parsed->value;
      if (text.size() == parsed->fixed.bytes) return text;
      EXPECT_EQ(parsed->value.size(), piece);
    }
  }

  ShownMembership membership_;
  TableRequests requests_{&membership_, nullptr};
};

TEST_F(TableRequestsTest, AllPartsMakeTheState) {
  const RegionTable& table = membership_.shown.table;
  const absl::StatusOr<std::string> servers = Part({TablePartKind::kServers, 0, 3});
  ASSERT_TRUE(servers.ok()) << servers.status();
  EXPECT_EQ(*servers, ServersText(membership_.shown.servers));
  const absl::StatusOr<std::string> text = Part({TablePartKind::kRoot, 0, table.version}, 7);
  ASSERT_TRUE(text.ok()) << text.status();
  absl::StatusOr<TableRoot> root = ParseTableRoot(*text);
  ASSERT_TRUE(root.ok()) << root.status();
  std::vector<RegionMap::Shard> shards;
  ASSERT_GE(root->shards.size(), 3u);
  for (const ShardRef& ref : root->shards) {
    const absl::StatusOr<std::string> bytes = Part({TablePartKind::kShard, ref.first, ref.version});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const absl::StatusOr<RegionMap::Shard> shard = ParseTableShard(*bytes, ref);
    ASSERT_TRUE(shard.ok()) << shard.status();
    shards.push_back(*shard);
  }
  const absl::StatusOr<RegionTable> joined = JoinTable(*std::move(root), std::move(shards));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(*joined, table);
}

TEST_F(TableRequestsTest, AnotherVersionIsNotAnswered) {
  const uint64_t version = membership_.shown.table.version;
  ASSERT_TRUE(Part({TablePartKind::kRoot, 0, version}).ok());
  ASSERT_TRUE(Part({TablePartKind::kShard, 0, version}).ok());
  ASSERT_TRUE(Part({TablePartKind::kServers, 0, 3}).ok());
  ASSERT_TRUE(membership_.shown.table.Remove(1).ok());
  ChangeTable(0);
  membership_.shown.servers_version = 4;
  EXPECT_TRUE(absl::IsAborted(Part({TablePartKind::kRoot, 0, version}).status()));
  EXPECT_TRUE(absl::IsAborted(Part({TablePartKind::kShard, 0, version}).status()));
  EXPECT_TRUE(absl::IsAborted(Part({TablePartKind::kShard, 1, version}).status()));
  EXPECT_TRUE(absl::IsAborted(Part({TablePartKind::kShard, UINT32_MAX, version}).status()));
  EXPECT_TRUE(absl::IsAborted(Part({TablePartKind::kServers, 0, 3}).status()));
  EXPECT_TRUE(Part({TablePartKind::kRoot, 0, version + 1}).ok());
  EXPECT_TRUE(Part({TablePartKind::kShard, 0, version + 1}).ok());
  EXPECT_TRUE(Part({TablePartKind::kServers, 0, 4}).ok());
}

TEST_F(TableRequestsTest, MalformedRequestsAreRefused) {
  std::string reply(256, '\0');
  const MutableBytes to(reinterpret_cast<std::byte*>(reply.data()), reply.size());
  const auto ask = [&](const std::string& request) { return requests_.Part(AsBytes(request), to).status(); };
  const TablePart root{TablePartKind::kRoot, 0, membership_.shown.table.version};
  EXPECT_TRUE(ask(MakeTablePartRequest(root, 0)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ask(MakeTablePartRequest(root, 1 << 20))));
  EXPECT_TRUE(absl::IsInvalidArgument(ask(MakeTablePartRequest(root, UINT64_MAX))));
  EXPECT_TRUE(absl::IsInvalidArgument(ask(MakeTablePartRequest({TablePartKind{3}, 0, 1}, 0))));
  EXPECT_TRUE(absl::IsInvalidArgument(ask(MakeTextRequest(MessageKind::kTablePart))));
  EXPECT_TRUE(absl::IsInvalidArgument(ask(MakeTablePartRequest(root, 0) + "x")));
  const std::string version = MakeTableVersionRequest(0) + "x";
  EXPECT_TRUE(absl::IsInvalidArgument(requests_.Version(AsBytes(version), to).status()));
}

TEST_F(TableRequestsTest, ATableWithoutVersionsOfItsPartsIsNotSent) {
  ASSERT_TRUE(membership_.shown.table.Add({"server-0", 0}).ok());  // Not stored.
  const uint64_t version = ++membership_.shown.table.version;
  EXPECT_TRUE(absl::IsFailedPrecondition(Part({TablePartKind::kRoot, 0, version}).status()));
}

}  // namespace
}  // namespace cell

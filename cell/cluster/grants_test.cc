#include "cell/cluster/grants.h"

#include "cell/cluster/region_table.h"
#include "gtest/gtest.h"

namespace cell {
namespace {

using Kind = GrantScope::Kind;

Rights Of(std::string_view text) { return Rights::Parse(text).value(); }
const GrantScope kEverything{};
GrantScope Prefix(std::string prefix) { return {Kind::kPrefix, std::move(prefix)}; }
GrantScope InTable(std::string table) { return {Kind::kTable, std::move(table)}; }

TEST(RightsTest, IncludeOthers) {
  const Rights scan = Of("scan");
  EXPECT_TRUE(scan.Has(Right::kRead));
  EXPECT_TRUE(scan.Has(Right::kScan));
  EXPECT_FALSE(scan.Has(Right::kWrite));
  EXPECT_FALSE(scan.Has(Right::kAdmin));
  EXPECT_FALSE(Of("write").Has(Right::kRead));
  for (const Right right : {Right::kRead, Right::kScan, Right::kWrite, Right::kAdmin}) {
    EXPECT_TRUE(Of("admin").Has(right));
  }
  EXPECT_EQ(Of("write,scan,read").ToText(), "read,scan,write");
  EXPECT_EQ(Of("admin").ToText(), "admin");
}

TEST(RightsTest, RefuseOtherTexts) {
  for (const char* text : {"", ",", "read,", ",read", "all", "Read", "read write"}) {
    EXPECT_FALSE(Rights::Parse(text).has_value()) << text;
  }
}

TEST(RightsTest, RemovingOneRemovesThoseThatIncludeIt) {
  const auto without = [](const char* text, const char* removed) {
    Rights rights = Of(text);
    rights.Remove(Of(removed));
    return rights.ToText();
  };
  EXPECT_EQ(without("scan,write", "scan"), "write");
  EXPECT_EQ(without("read,scan,write", "scan"), "read,write");
  EXPECT_EQ(without("read,scan,write", "read"), "write");
  EXPECT_EQ(without("read,admin", "write"), "read");
  EXPECT_EQ(without("read,scan,write,admin", "read,write"), "");
  EXPECT_EQ(without("read,scan,write,admin", "admin"), "read,scan,write");
  EXPECT_EQ(without("read", "write"), "read");
}

TEST(GrantsTest, OfUsersAndOfEverybody) {
  Grants grants;
  ASSERT_TRUE(grants.Give("alice", Prefix("a/"), Of("read")).ok());
  ASSERT_TRUE(grants.Give("*", Prefix("public/"), Of("scan")).ok());
  const UserRights alice(grants, "alice"), bob(grants, "bob");
  EXPECT_TRUE(alice.OfKey(Right::kRead, "a/"));
  EXPECT_TRUE(alice.OfKey(Right::kRead, "a/x"));
  EXPECT_FALSE(alice.OfKey(Right::kWrite, "a/x"));
  for (const char* key : {"a", "a.", "a0", "", "b", "\xff"}) EXPECT_FALSE(alice.OfKey(Right::kRead, key)) << key;
  EXPECT_FALSE(bob.OfKey(Right::kRead, "a/x"));
  EXPECT_TRUE(bob.OfKey(Right::kScan, "public/x"));
  EXPECT_TRUE(alice.OfKey(Right::kScan, "public/x"));
  EXPECT_TRUE(alice.Somewhere(Right::kRead));
  EXPECT_FALSE(alice.Somewhere(Right::kWrite));
}

TEST(GrantsTest, OfTables) {
  Grants grants;
  ASSERT_TRUE(grants.Give("alice", InTable("t"), Of("write")).ok());
  const UserRights alice(grants, "alice");
  EXPECT_TRUE(alice.OfTable(Right::kWrite, "t"));
  EXPECT_FALSE(alice.OfTable(Right::kRead, "t"));
  EXPECT_FALSE(alice.OfTable(Right::kWrite, "u"));
  EXPECT_FALSE(alice.OfKey(Right::kWrite, "t"));
  EXPECT_TRUE(alice.Somewhere(Right::kWrite));
  // All keys of the tree are not a table, and a key is not a table of its name.
  ASSERT_TRUE(grants.Give("bob", Prefix(""), Of("admin")).ok());
  EXPECT_FALSE(UserRights(grants, "bob").OfTable(Right::kRead, "t"));
  ASSERT_TRUE(grants.Give("carol", kEverything, Of("read")).ok());
  const UserRights carol(grants, "carol");
  EXPECT_TRUE(carol.OfTable(Right::kRead, "t"));
  EXPECT_TRUE(carol.OfKey(Right::kRead, "x"));
  EXPECT_FALSE(carol.OfTable(Right::kWrite, "t"));
}

TEST(GrantsTest, ADroppedTableTakesItsGrantsAlong) {
  Grants grants;
  ASSERT_TRUE(grants.Give("alice", InTable("t"), Of("read")).ok());
  ASSERT_TRUE(grants.Give("bob", InTable("u"), Of("read")).ok());
  const uint64_t before = grants.version();
  grants.DropTable("t");
  EXPECT_FALSE(grants.by_user().contains("alice"));
  EXPECT_TRUE(grants.by_user().contains("bob"));
  EXPECT_GT(grants.version(), before);
}

TEST(GrantsTest, SpansThatTouchAreOne) {
  Grants grants;
  for (const char* prefix : {"b", "a", "d", "a/x"}) {
    ASSERT_TRUE(grants.Give("alice", Prefix(prefix), Of("scan,write")).ok());
  }
  const UserRights alice(grants, "alice");
  const KeySpan* const span = alice.SpanOf(Right::kScan, "a/x/y");
  ASSERT_NE(span, nullptr);
  EXPECT_EQ(span->from, "a");
  EXPECT_EQ(span->to, "c");
  EXPECT_TRUE(alice.OfRange(Right::kScan, "a", "c"));
  EXPECT_TRUE(alice.OfRange(Right::kScan, "ab", "b5"));
  EXPECT_FALSE(alice.OfRange(Right::kScan, "a", "c0"));
  EXPECT_FALSE(alice.OfRange(Right::kScan, "a", "e"));
  EXPECT_FALSE(alice.OfRange(Right::kScan, "a", std::nullopt));
  EXPECT_FALSE(alice.OfRange(Right::kScan, "9", "b"));
  // The last prefix has no end.
  ASSERT_TRUE(grants.Give("bob", Prefix("\xff"), Of("scan")).ok());
  const UserRights bob(grants, "bob");
  EXPECT_TRUE(bob.OfRange(Right::kScan, "\xff", std::nullopt));
  EXPECT_TRUE(bob.OfRange(Right::kScan, "\xff\xff", "\xff\xff\x01"));
  EXPECT_FALSE(bob.OfRange(Right::kScan, "\xfe", std::nullopt));
}

TEST(GrantsTest, MemoryIsForThoseWhoMayScanEverything) {
  Grants grants;
  ASSERT_TRUE(grants.Give("alice", kEverything, Of("read,write")).ok());
  ASSERT_TRUE(grants.Give("bob", Prefix(""), Of("admin")).ok());
  ASSERT_TRUE(grants.Give("carol", kEverything, Of("scan")).ok());
  EXPECT_FALSE(UserRights(grants, "alice").OfMemory());
  EXPECT_FALSE(UserRights(grants, "bob").OfMemory());
  EXPECT_TRUE(UserRights(grants, "carol").OfMemory());
  EXPECT_EQ(ReadersOfMemory(grants), (std::set<std::string, std::less<>>{"carol"}));
}

TEST(GrantsTest, Scopes) {
  Grants grants;
  ASSERT_TRUE(grants.Give("alice", Prefix("a/"), Of("admin")).ok());
  ASSERT_TRUE(grants.Give("alice", InTable("t"), Of("admin")).ok());
  const UserRights alice(grants, "alice");
  EXPECT_TRUE(alice.OfScope(Right::kAdmin, Prefix("a/")));
  EXPECT_TRUE(alice.OfScope(Right::kAdmin, Prefix("a/b")));
  EXPECT_FALSE(alice.OfScope(Right::kAdmin, Prefix("a")));
  EXPECT_FALSE(alice.OfScope(Right::kAdmin, Prefix("")));
  EXPECT_TRUE(alice.OfScope(Right::kAdmin, InTable("t")));
  EXPECT_FALSE(alice.OfScope(Right::kAdmin, InTable("u")));
  EXPECT_FALSE(alice.OfScope(Right::kAdmin, kEverything));
}

TEST(GrantsTest, TakesAndRefuses) {
  Grants grants;
  EXPECT_TRUE(absl::IsNotFound(grants.Take("alice", kEverything, Of("read"))));
  ASSERT_TRUE(grants.Give("alice", kEverything, Of("read,scan,write")).ok());
  EXPECT_TRUE(absl::IsNotFound(grants.Take("alice", Prefix("a"), Of("read"))));
  EXPECT_TRUE(absl::IsNotFound(grants.Take("alice", kEverything, Of("admin"))));
  ASSERT_TRUE(grants.Take("alice", kEverything, Of("scan")).ok());
  EXPECT_FALSE(UserRights(grants, "alice").OfMemory());
  EXPECT_TRUE(UserRights(grants, "alice").OfKey(Right::kRead, "x"));
  ASSERT_TRUE(grants.Take("alice", kEverything, Of("read,write")).ok());
  EXPECT_TRUE(grants.by_user().empty());

  for (const char* user : {"", "a/b", "a b", "**"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(grants.Give(user, kEverything, Of("read")))) << user;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(grants.Give("alice", kEverything, Rights())));
  EXPECT_TRUE(absl::IsInvalidArgument(grants.Give("alice", InTable("a b"), Of("read"))));
  EXPECT_TRUE(
      absl::IsInvalidArgument(grants.Give("alice", Prefix(std::string(Grants::kPrefixBytesMax + 1, 'x')), Of("read"))));
  for (size_t i = 0; i < Grants::kGrantsMax; ++i) {
    ASSERT_TRUE(grants.Give("alice", Prefix(std::to_string(i)), Of("read")).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(grants.Give("alice", Prefix("more"), Of("read"))));
  EXPECT_TRUE(grants.Give("alice", Prefix("1"), Of("write")).ok());  // This one exists.
}

TEST(GrantsTest, EachChangeHasAVersion) {
  Grants grants;
  grants.Enforce(false);
  EXPECT_EQ(grants.version(), 0U);
  grants.Enforce(true);
  ASSERT_TRUE(grants.Give("alice", kEverything, Of("read")).ok());
  ASSERT_TRUE(grants.Take("alice", kEverything, Of("read")).ok());
  EXPECT_EQ(grants.version(), 3U);
  EXPECT_TRUE(grants.enforced());
}

}  // namespace
}  // namespace cell

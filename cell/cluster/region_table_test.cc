#include "cell/cluster/region_table.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

TEST(RegionTable, HandsOutEachIdOnce) {
  RegionTable table;
  EXPECT_EQ(*table.Add({"a", 0}), 1u);
  EXPECT_EQ(*table.Add({"b", 1}), 2u);
  ASSERT_TRUE(table.Remove(2).ok());
  EXPECT_EQ(*table.Add({"b", 1}), 3u);
  EXPECT_EQ(table.Find(2), nullptr);
  EXPECT_EQ(table.CountOf({"b", 1}), 1u);
  EXPECT_EQ(table.CountOf({"b", 0}), 0u);
  table.next_region = Pointer::kRegionMax;
  EXPECT_TRUE(table.Add({"a", 0}).ok());
  EXPECT_EQ(table.Add({"a", 0}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(RegionTable, ARegionMovesOnceFromEachEpoch) {
  RegionTable table;
  ASSERT_TRUE(table.Add({"a", 0}).ok());
  ASSERT_TRUE(table.Move(1, 1, {"b", 0}).ok());
  EXPECT_EQ(table.Find(1)->epoch, 2u);
  EXPECT_EQ(table.Move(1, 1, {"c", 0}).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(table.Find(1)->owner, (WorkerId{"b", 0}));
  EXPECT_EQ(table.Move(9, 1, {"c", 0}).code(), absl::StatusCode::kAborted);
}

TEST(RegionTable, TheRootIsSetByWhoKnowsTheOldOne) {
  RegionTable table;
  ASSERT_TRUE(table.Add({"a", 0}).ok());
  ASSERT_TRUE(table.Add({"a", 0}).ok());
  ASSERT_TRUE(table.SetRoot(0, 1).ok());
  EXPECT_EQ(table.SetRoot(0, 2).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(table.root, 1u);
  EXPECT_FALSE(table.Remove(1).ok());
  ASSERT_TRUE(table.SetRoot(1, 2).ok());
}

// What tells a change whose answer was lost from one that was not made.
TEST(RegionTable, KnowsItsLastChangesAndNoMore) {
  RegionTable table;
  for (size_t i = 0; i <= RegionTable::kMadeMax; ++i) table.Made(fmt::format("member/{}", i));
  EXPECT_FALSE(table.WasMade("member/0"));
  EXPECT_TRUE(table.WasMade("member/1"));
  EXPECT_EQ(table.made.size(), RegionTable::kMadeMax);
  EXPECT_TRUE(RegionTable::Parse(table.ToJson())->WasMade(fmt::format("member/{}", RegionTable::kMadeMax)));
}

TEST(RegionTable, ComesBackFromJson) {
  RegionTable table;
  ASSERT_TRUE(table.Add({"a", 0}).ok());
  ASSERT_TRUE(table.Add({"b", 3}).ok());
  ASSERT_TRUE(table.SetRoot(0, 2).ok());
  ASSERT_TRUE(table.Move(1, 1, {"b", 0}).ok());
  table.version = 7;
  EXPECT_EQ(*RegionTable::Parse(table.ToJson()), table);
  EXPECT_EQ(*RegionTable::Parse(RegionTable().ToJson()), RegionTable());
}

TEST(RegionTable, RefusesWhatMakesNoSense) {
  const auto refused = [](const std::string& json) { return !RegionTable::Parse(json).ok(); };
  const std::string good =
      R"({"version":1,"next_region":3,"root":1,"regions":[{"region":1,"server":"a","worker":0,"epoch":1}]})";
  ASSERT_TRUE(RegionTable::Parse(good).ok());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused(good.substr(0, 50)));
  EXPECT_TRUE(refused(with("\"root\":1", "\"root\":2")));
  EXPECT_TRUE(refused(with("\"region\":1", "\"region\":3")));
  EXPECT_TRUE(refused(with("\"region\":1", "\"region\":0")));
  EXPECT_TRUE(refused(with("\"next_region\":3", "\"next_region\":99999999")));
  EXPECT_TRUE(refused(with("\"worker\":0", "\"worker\":\"x\"")));
}

}  // namespace
}  // namespace cell

#include "cell/cluster/region_table.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace cell {
namespace {

TEST(RegionTable, HandsOutEachIdOnceUntilAllHaveBeenUsed) {
  RegionTable table;
  EXPECT_EQ(*table.Add({"a", 0}), 1u);
  EXPECT_EQ(*table.Add({"b", 1}), 2u);
  ASSERT_TRUE(table.Remove(2).ok());
  EXPECT_EQ(*table.Add({"b", 1}), 3u);
  EXPECT_EQ(table.Find(2), nullptr);
  EXPECT_EQ(table.CountOf({"b", 1}), 1u);
  EXPECT_EQ(table.CountOf({"b", 0}), 0u);
  table.ids.next = Pointer::kRegionMax;
  EXPECT_EQ(*table.Add({"a", 0}), Pointer::kRegionMax);
  EXPECT_EQ(*table.Add({"a", 0}), 2u);  // Region 1 is still there.
}

TEST(RegionTable, ARegionWithTheIdOfAnEarlierOneHasHigherEpochs) {
  RegionTable table;
  table.ids.max = 4;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(table.Add({"a", 0}).ok());
  EXPECT_EQ(table.Add({"a", 0}).status().code(), absl::StatusCode::kResourceExhausted);
  for (uint64_t epoch = 1; epoch <= 5; ++epoch) ASSERT_TRUE(table.Move(3, epoch, {"b", 0}).ok());
  EXPECT_FALSE(table.IsGone(3, 6));
  ASSERT_TRUE(table.Remove(3).ok());
  EXPECT_TRUE(table.IsGone(3, 6));
  ASSERT_EQ(*table.Add({"a", 0}), 3u);
  EXPECT_TRUE(table.IsGone(3, 6));
  EXPECT_EQ(table.Find(3)->first_epoch, 7u);
  EXPECT_FALSE(table.IsGone(3, 7));
  EXPECT_EQ(*RegionTable::Parse(table.ToJson()), table);
  // Changes that were made for the earlier one are over, and leave this one alone.
  EXPECT_TRUE(table.Join(2, 1, 3, 6).ok());
  EXPECT_TRUE(table.LowerRoot(3, 6, 2).ok());
  EXPECT_EQ(table.Move(3, 6, {"b", 0}).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(table.Find(3)->owner, (WorkerId{"a", 0}));
}

TEST(RegionTable, AFormerTableKeepsItsNextIdAndGetsEpochsAboveItsOwn) {
  const std::string former =
      R"({"version":1,"next_region":16777216,"root":1,"regions":[{"region":1,"server":"a","worker":0,"epoch":9}]})";
  RegionTable table = *RegionTable::Parse(former);
  EXPECT_EQ(*table.Add({"a", 0}), 2u);
  EXPECT_GT(table.Find(2)->epoch, 1'000'000u);
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
  EXPECT_EQ(table.SetRoot(1, 9).code(), absl::StatusCode::kAborted);  // There is no such region (any more).
  EXPECT_EQ(table.root, 1u);
  EXPECT_FALSE(table.Remove(1).ok());
  ASSERT_TRUE(table.SetRoot(1, 2).ok());
}

// Distinguishes a change whose answer was lost from one that was not made.
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

// Regions 2, 3 and 4 have region 1 as their split parent. According to its log, only 3 was cut off.
TEST(RegionTable, OfWhatIsMadeForARecoveredRegionTheCutJoinsAndTheRestGoes) {
  for (const bool of_table : {false, true}) {
    RegionTable table;
    ASSERT_TRUE(table.Add({"a", 0}).ok());
    if (of_table) {
      ASSERT_TRUE(table.CreateTable("t", 0, 1).ok());
    }
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.Add({"a", 0}, 1).ok());
    ASSERT_TRUE(table.Add({"a", 0}, 0).ok());  // A child of another parent.
    ASSERT_TRUE(table.Claim(1, 1, {"b", 0}).ok());
    ASSERT_TRUE(table.Claim(3, 1, {"b", 0}).ok());
    EXPECT_EQ(table.Recovered(1, 1, {{3, 1000}}).code(), absl::StatusCode::kAborted);
    ASSERT_TRUE(table.Recovered(1, 2, {{3, 1000}, {9, 2000}}).ok());  // 9 has joined, was migrated and was dropped
                                                                      // since.
    EXPECT_FALSE(table.Find(1)->recovering);
    EXPECT_EQ(table.Find(2), nullptr);
    EXPECT_EQ(table.Find(4), nullptr);
    ASSERT_NE(table.Find(3), nullptr);
    EXPECT_FALSE(table.Find(3)->split_parent.has_value());
    EXPECT_TRUE(table.Find(3)->recovering);
    ASSERT_NE(table.Find(5), nullptr);
    EXPECT_TRUE(table.Find(5)->split_parent.has_value());
    if (!of_table) continue;
    EXPECT_EQ(table.tables.at("t").RegionOf(999), 1u);
    EXPECT_EQ(table.tables.at("t").RegionOf(1000), 3u);
    EXPECT_EQ(table.tables.at("t").parts.size(), 2u);
  }
}

TEST(RegionTable, TablesAreMadeSplitAndDropped) {
  RegionTable table;
  ASSERT_TRUE(table.Add({"a", 0}).ok());
  ASSERT_TRUE(table.SetRoot(0, 1).ok());
  ASSERT_TRUE(table.Add({"a", 0}, 0).ok());
  EXPECT_EQ(table.CreateTable("a b", 0, 2).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table.CreateTable("t", 0, 9).code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(table.CreateTable("t", 512, 2).ok());
  EXPECT_EQ(table.CreateTable("t", 0, 2).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(table.Find(2)->split_parent.has_value());
  ASSERT_TRUE(table.Add({"a", 0}, 2).ok());
  ASSERT_TRUE(table.SplitPart(2, 1000, 3).ok());
  ASSERT_TRUE(table.SplitPart(2, 1000, 3).ok());  // A member that lost the answer repeats the change.
  EXPECT_FALSE(table.Find(3)->split_parent.has_value());
  EXPECT_EQ(table.TableOf(3)->first, "t");
  EXPECT_EQ(table.TableOf(1), table.tables.end());
  const HashParts& parts = table.tables.at("t");
  EXPECT_EQ(parts.RegionOf(0), 2u);
  EXPECT_EQ(parts.RegionOf(999), 2u);
  EXPECT_EQ(parts.RegionOf(1000), 3u);
  EXPECT_EQ(parts.RegionOf(UINT32_MAX), 3u);
  EXPECT_EQ(table.Remove(3).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*RegionTable::Parse(table.ToJson()), table);
  ASSERT_TRUE(table.Add({"a", 0}, 3).ok());  // It is being split from 3, and is removed with it.
  ASSERT_TRUE(table.DropTable("t").ok());
  EXPECT_EQ(table.DropTable("t").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(table.regions.size(), 1u);
  EXPECT_EQ(table.SplitPart(2, 2000, 1).code(), absl::StatusCode::kNotFound);
}

TEST(RegionTable, TablesThatMakeNoSenseAreRefused) {
  RegionTable table;
  ASSERT_TRUE(table.Add({"a", 0}, 0).ok());
  ASSERT_TRUE(table.CreateTable("t", 0, 1).ok());
  const std::string good = table.ToJson();
  ASSERT_TRUE(RegionTable::Parse(good).ok());
  const auto with = [&good](const std::string& tables) {
    const size_t from = good.find("\"tables\"");
    return good.substr(0, from) + "\"tables\": " + tables + "," + good.substr(good.find("\"version\""));
  };
  EXPECT_TRUE(RegionTable::Parse(with(R"({"t": {"bucket_bytes": 0, "parts": [[0, 1]]}})")).ok());
  for (const char* tables :
       {R"({"t": {"bucket_bytes": 0, "parts": []}})", R"({"t": {"bucket_bytes": 0, "parts": [[5, 1]]}})",
        R"({"t": {"bucket_bytes": 0, "parts": [[0, 2]]}})", R"({"t": {"bucket_bytes": 0, "parts": [[0, 1], [0, 1]]}})",
        R"({"": {"bucket_bytes": 0, "parts": [[0, 1]]}})", R"({"t": {"parts": [[0, 1]]}})",
        R"({"t": {"bucket_bytes": 0, "parts": [[0]]}})", R"({"t": {"bucket_bytes": 0, "parts": 7}})", "7"}) {
    EXPECT_FALSE(RegionTable::Parse(with(tables)).ok()) << tables;
  }
}

TEST(RegionTable, ValuesThatNobodyCanActOnAreRefused) {
  RegionTable table;
  ASSERT_TRUE(table.Add({"a", 0}).ok());
  ASSERT_TRUE(table.Add({"a", 0}, 1).ok());
  ASSERT_TRUE(table.SetRoot(0, 1).ok());
  const std::string good = table.ToJson();
  ASSERT_EQ(*RegionTable::Parse(good), table);
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"epoch\": 1", "\"epoch\": 0"},
                                                        {"\"epoch\": 1", "\"epoch\": 4294967295"},
                                                        {"\"epoch\": 1", "\"epoch\": -1"},
                                                        {"\"epoch\": 1", "\"epoch\": 1.5"},
                                                        {"\"epoch\": 1", "\"epoch\": null"},
                                                        {"\"made_for\": 1", "\"made_for\": 2"},
                                                        {"\"made_for\": 1", "\"made_for\": 3"},
                                                        {"\"made_for\": 1", "\"made_for\": \"1\""},
                                                        {"\"server\": \"a\"", "\"server\": \"\""},
                                                        {"\"server\": \"a\"", "\"server\": {}"},
                                                        {"\"server\": \"a\"", "\"server\": \"a b\""},
                                                        {"\"server\": \"a\"", "\"server\": \"../a\""},
                                                        {"\"server\": \"a\"", "\"server\": \"a\\u001b[2J\""},
                                                        {"\"draining\": []", "\"draining\": [\"\\n\"]"},
                                                        {"\"worker\": 0", "\"worker\": 4294967295"},
                                                        {"\"next_region\": 3", "\"next_region\": 2"},
                                                        {"\"next_region\": 3", "\"next_region\": 0"},
                                                        {"\"root\": 1", "\"root\": 9"},
                                                        {"\"version\": 0", "\"version\": 18446744073709551615"},
                                                        {"\"made\": []", "\"made\": 7"},
                                                        {"\"made\": []", "\"made\": [7]"},
                                                        {"\"draining\": []", "\"draining\": {\"a\": 1}"},
                                                        {"\"regions\": [", "\"regions\": 7, \"others\": ["}}) {
    EXPECT_EQ(RegionTable::Parse(with(from, to)).status().code(), absl::StatusCode::kInvalidArgument) << to;
  }
  EXPECT_EQ(RegionTable::Parse(std::string(1'000'000, '[')).status().code(), absl::StatusCode::kInvalidArgument);
}

// A member parses the table whenever it changes. A chain of split parents that took a step for each pair of regions
// kept all members busy for most of a minute; this one would take hours.
TEST(RegionTable, AChainOfSplitParentsTakesOneStepForEachRegion) {
  const uint32_t kRegions = 130'000;
  RegionTable table;
  ASSERT_TRUE(table.Add({"a", 0}).ok());
  for (uint32_t region = 1; region < kRegions; ++region) ASSERT_TRUE(table.Add({"a", 0}, region).ok());
  const std::string chain = table.ToJson();
  EXPECT_TRUE(RegionTable::Parse(chain).ok());
  table.regions.Change(1, [&](RegionEntry* entry) { entry->split_parent = kRegions; });  // Now a circle.
  EXPECT_EQ(RegionTable::Parse(table.ToJson()).status().code(), absl::StatusCode::kInvalidArgument);
  table.regions.Change(1, [](RegionEntry* entry) { entry->split_parent = {}; });
  // A circle, and a region beside it.
  table.regions.Change(2, [&](RegionEntry* entry) { entry->split_parent = kRegions; });
  EXPECT_EQ(RegionTable::Parse(table.ToJson()).status().code(), absl::StatusCode::kInvalidArgument);
}

// Such a region is removed with its split parent, and then nobody could parse the table.
TEST(RegionTable, WhatIsNotMadeYetIsNoRootAndPartOfNoTable) {
  RegionTable table;
  ASSERT_TRUE(table.Add({"a", 0}).ok());
  ASSERT_TRUE(table.Add({"a", 0}).ok());
  ASSERT_TRUE(table.Add({"a", 0}, 1).ok());
  table.root = 3;
  EXPECT_EQ(RegionTable::Parse(table.ToJson()).status().code(), absl::StatusCode::kInvalidArgument);
  table.root = 0;
  ASSERT_TRUE(RegionTable::Parse(table.ToJson()).ok());
  ASSERT_TRUE(table.CreateTable("t", 0, 2).ok());
  ASSERT_TRUE(table.SplitPart(2, 1000, 3).ok());
  table.regions.Change(3, [](RegionEntry* entry) { entry->split_parent = 1; });
  EXPECT_EQ(RegionTable::Parse(table.ToJson()).status().code(), absl::StatusCode::kInvalidArgument);
  table.Joined(3);
  EXPECT_TRUE(RegionTable::Parse(table.ToJson()).ok());
  table.root = 2;  // A part of a table is not a root either.
  EXPECT_EQ(RegionTable::Parse(table.ToJson()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RegionTable, AFullTableTakesNoMoreRegionsAndAnyOtherChange) {
  RegionTable table;
  table.regions_max = 3;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.Add({"a", 0}).ok());
  const absl::Status full = table.Add({"a", 0}).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.message(), "the region table is full (3 of 3 regions)");
  EXPECT_TRUE(table.Claim(2, 1, {"b", 0}).ok());
  EXPECT_EQ(*RegionTable::Parse(table.ToJson()), table);
  EXPECT_TRUE(table.Remove(1).ok());
  EXPECT_TRUE(table.Add({"a", 0}).ok());
}

// The result of a change can always be parsed.
TEST(RegionTable, ARegionMovesNoFurtherThanToItsLastEpoch) {
  RegionTable table;
  ASSERT_TRUE(table.Add({"a", 0}).ok());
  table.regions.Change(1, [](RegionEntry* entry) { entry->epoch = UINT32_MAX - 2; });
  ASSERT_TRUE(table.Move(1, UINT32_MAX - 2, {"b", 0}).ok());
  ASSERT_EQ(*RegionTable::Parse(table.ToJson()), table);
  EXPECT_EQ(table.Move(1, UINT32_MAX - 1, {"a", 0}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(table.Claim(1, UINT32_MAX - 1, {"a", 0}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*RegionTable::Parse(table.ToJson()), table);
}

TEST(RegionTable, TheRootsOnlyChildBecomesTheRoot) {
  RegionTable table;
  const WorkerId own{"own", 0};
  const uint32_t child = *table.Add(own), root = *table.Add(own);
  table.root = child;
  EXPECT_EQ(table.LowerRoot(root, 1, child).code(), absl::StatusCode::kAborted);  // It is not the root.
  ASSERT_TRUE(table.SetRoot(child, root).ok());
  EXPECT_EQ(table.LowerRoot(root, 2, child).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(table.LowerRoot(root, 1, 99).code(), absl::StatusCode::kAborted);
  const uint32_t half = *table.Add(own, root);
  EXPECT_EQ(table.LowerRoot(root, 1, child).code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(table.Remove(half).ok());
  EXPECT_EQ(table.root, root);
  EXPECT_TRUE(table.LowerRoot(root, 1, child).ok());
  EXPECT_EQ(table.root, child);
  EXPECT_EQ(table.Find(root), nullptr);
  EXPECT_TRUE(table.LowerRoot(root, 1, child).ok());  // It was made before.
}

// A worker that is gone may have sent its change before it lost `child`, and `child` may be joined since then.
TEST(RegionTable, ANewRootLeadsToNoRegionOfAnotherEpoch) {
  RegionTable table;
  const WorkerId own{"own", 0};
  const uint32_t first = *table.Add(own), child = *table.Add(own), root = *table.Add(own);
  table.root = first;
  ASSERT_TRUE(table.Move(child, 1, own).ok());
  EXPECT_EQ(table.RaiseRoot(first, root, child, 1).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(table.RaiseRoot(child, root, child, 2).code(), absl::StatusCode::kAborted);  // It is not the root.
  EXPECT_EQ(table.root, first);
  EXPECT_TRUE(table.RaiseRoot(first, root, child, 2).ok());
  EXPECT_EQ(table.root, root);
  EXPECT_TRUE(table.RaiseRoot(first, root, child, 2).ok());  // It was made before.
  ASSERT_TRUE(table.SetRoot(root, first).ok());
  ASSERT_TRUE(table.Join(first, 1, child, 2).ok());
  EXPECT_EQ(table.RaiseRoot(first, root, child, 2).code(), absl::StatusCode::kAborted);
}

TEST(RegionTable, KeepsTheRulesOfEviction) {
  RegionTable table;
  ASSERT_TRUE(table.evictions.Set("", Eviction::kTtl).ok());
  ASSERT_TRUE(table.evictions.Set(std::string("bin\0\xff", 5), Eviction::kLru).ok());
  ASSERT_TRUE(table.evictions.Set("pinned", Eviction::kNone).ok());
  const std::string text = table.ToJson();
  const absl::StatusOr<RegionTable> parsed = RegionTable::Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, table);
  EXPECT_TRUE(parsed->evictions.on());
  EXPECT_TRUE(parsed->evictions.needs_use());
  EXPECT_EQ(RegionTable().ToJson().find("evictions"), std::string::npos);  // As releases before it had none.
  nlohmann::json json = nlohmann::json::parse(text);
  const nlohmann::json one = {"YQ==", "ttl"};
  ASSERT_TRUE((json["evictions"] = nlohmann::json::array({one}), RegionTable::Parse(json.dump()).ok()));
  for (const nlohmann::json& bad :
       {nlohmann::json(7), nlohmann::json::array({one, 7}), nlohmann::json::array({nlohmann::json::array({"YQ=="})}),
        nlohmann::json::array({nlohmann::json::array({"YQ==", "lfu"})}),
        nlohmann::json::array({nlohmann::json::array({"%", "ttl"})}),
        nlohmann::json::array({nlohmann::json::array({std::string(200, 'A'), "ttl"})})}) {
    json["evictions"] = bad;
    EXPECT_TRUE(absl::IsInvalidArgument(RegionTable::Parse(json.dump()).status())) << bad.dump();
  }
}

TEST(RegionTable, KeepsGrants) {
  using Kind = GrantScope::Kind;
  RegionTable table;
  table.root = *table.Add({"own", 0});
  ASSERT_TRUE(table.CreateTable("t", 1024, *table.Add({"own", 0})).ok());
  EXPECT_TRUE(absl::IsNotFound(table.ChangeGrant("alice", {Kind::kTable, "u"}, *Rights::Parse("read"), true)));
  const std::pair<std::string, GrantScope> given[] = {{"alice", {Kind::kTable, "t"}},
                                                      {"alice", {Kind::kPrefix, std::string("bin\0\xff", 5)}},
                                                      {"*", {Kind::kPrefix, ""}},
                                                      {"bob", {}}};
  for (const auto& [user, scope] : given) {
    ASSERT_TRUE(table.ChangeGrant(user, scope, *Rights::Parse("read,write"), true).ok());
  }
  table.grants.Enforce(true);
  const std::string text = table.ToJson();
  const absl::StatusOr<RegionTable> parsed = RegionTable::Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, table);
  EXPECT_EQ(parsed->grants.version(), 5u);
  EXPECT_EQ(RegionTable().ToJson().find("grants"), std::string::npos);  // As releases before it had none.

  // Without its grants a table must not be used: everybody might do everything.
  const nlohmann::json json = nlohmann::json::parse(text);
  const auto refused = [&json](const std::function<void(nlohmann::json*)>& spoil) {
    nlohmann::json spoilt = json;
    spoil(&spoilt["grants"]);
    EXPECT_TRUE(absl::IsInvalidArgument(RegionTable::Parse(spoilt.dump()).status())) << spoilt["grants"];
  };
  refused([](nlohmann::json* grants) { *grants = 7; });
  refused([](nlohmann::json* grants) { *grants = nullptr; });
  refused([](nlohmann::json* grants) { grants->erase("given"); });
  refused([](nlohmann::json* grants) { grants->erase("enforced"); });
  refused([](nlohmann::json* grants) { (*grants)["enforced"] = "yes"; });
  refused([](nlohmann::json* grants) { grants->erase("version"); });
  refused([](nlohmann::json* grants) { (*grants)["given"].push_back(7); });
  refused([](nlohmann::json* grants) { (*grants)["given"][0]["rights"] = "fly"; });
  refused([](nlohmann::json* grants) { (*grants)["given"][0].erase("rights"); });
  refused([](nlohmann::json* grants) { (*grants)["given"][0]["user"] = "a/b"; });
  refused([](nlohmann::json* grants) { (*grants)["given"][0]["prefix"] = "%"; });
  refused([](nlohmann::json* grants) { (*grants)["given"][0]["prefix"] = std::string(200, 'A'); });
  refused([](nlohmann::json* grants) { (*grants)["given"][0] = {{"user", "a"}, {"rights", "read"}, {"table", 7}}; });

  ASSERT_TRUE(table.DropTable("t").ok());
  EXPECT_EQ(table.grants.by_user().at("alice").size(), 1u);
}

// A cluster without durability begins again so when all its servers have ended.
TEST(RegionTable, WithoutRegionsItKeepsTheRulesAndGrantsForKeys) {
  RegionTable table;
  table.root = *table.Add({"own", 0});
  ASSERT_TRUE(table.CreateTable("t", 0, *table.Add({"own", 0})).ok());
  ASSERT_TRUE(table.SetEviction("t", "", Eviction::kTtl).ok());
  ASSERT_TRUE(table.SetEviction("", "a/", Eviction::kTtl).ok());
  const Rights read = *Rights::Parse("read");
  ASSERT_TRUE(table.ChangeGrant("alice", {GrantScope::Kind::kPrefix, "a/"}, read, true).ok());
  ASSERT_TRUE(table.ChangeGrant("alice", {GrantScope::Kind::kTable, "t"}, read, true).ok());
  table.grants.Enforce(true);
  table.Clear();
  EXPECT_TRUE(table.regions.empty());
  EXPECT_TRUE(table.tables.empty());
  EXPECT_EQ(table.root, 0u);
  EXPECT_TRUE(table.grants.enforced());
  ASSERT_EQ(table.grants.by_user().at("alice").size(), 1u);
  EXPECT_EQ(table.grants.by_user().at("alice").begin()->first.name, "a/");
  EXPECT_TRUE(table.evictions.by_table().empty());
  EXPECT_EQ(table.evictions.by_prefix().size(), 1u);
  const absl::StatusOr<RegionTable> read_back = RegionTable::Parse(table.ToJson());
  ASSERT_TRUE(read_back.ok()) << read_back.status();
  EXPECT_EQ(*read_back, table);
}

TEST(RegionTable, ATableHasARuleOfEvictionUntilItIsDropped) {
  RegionTable table;
  table.root = *table.Add({"own", 0});
  ASSERT_TRUE(table.CreateTable("t", 1024, *table.Add({"own", 0})).ok());
  EXPECT_TRUE(absl::IsNotFound(table.SetEviction("u", "", Eviction::kTtl)));
  EXPECT_TRUE(absl::IsInvalidArgument(table.SetEviction("t", "prefix", Eviction::kTtl)));
  EXPECT_FALSE(table.evictions.on());
  ASSERT_TRUE(table.SetEviction("t", "", Eviction::kLru).ok());
  EXPECT_TRUE(table.evictions.on() && table.evictions.needs_use());
  EXPECT_EQ(table.evictions.OfTable("t"), Eviction::kLru);
  EXPECT_EQ(table.evictions.OfTable("u"), Eviction::kNone);
  EXPECT_EQ(table.evictions.Of("t"), Eviction::kNone) << "a key of the tree";
  const absl::StatusOr<RegionTable> parsed = RegionTable::Parse(table.ToJson());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, table);
  nlohmann::json json = nlohmann::json::parse(table.ToJson());
  for (const nlohmann::json& bad : {nlohmann::json("lfu"), nlohmann::json(7)}) {
    json["tables"]["t"]["evict"] = bad;
    EXPECT_TRUE(absl::IsInvalidArgument(RegionTable::Parse(json.dump()).status())) << bad.dump();
  }
  ASSERT_TRUE(table.SetEviction("t", "", std::nullopt).ok());
  EXPECT_FALSE(table.evictions.on());
  ASSERT_TRUE(table.SetEviction("t", "", Eviction::kTtl).ok());
  ASSERT_TRUE(table.DropTable("t").ok());
  EXPECT_FALSE(table.evictions.on());
}

TEST(RegionTable, ARegionJoinsItsLeftNeighbour) {
  RegionTable table;
  const WorkerId own{"own", 0};
  const uint32_t left = *table.Add(own), right = *table.Add(own);
  table.root = left;
  EXPECT_EQ(table.Join(left, 1, right, 2).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(table.Join(left, 2, right, 1).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(table.Join(right, 1, left, 1).code(), absl::StatusCode::kFailedPrecondition);  // The root stays.
  const uint32_t child = *table.Add(own, right);
  EXPECT_EQ(table.Join(left, 1, right, 1).code(), absl::StatusCode::kAborted);
  table.Joined(child);
  EXPECT_TRUE(table.Join(left, 1, right, 1).ok());
  EXPECT_EQ(table.Find(right), nullptr);
  EXPECT_TRUE(table.Join(left, 7, right, 1).ok());  // It was made before.
  EXPECT_NE(*table.Add(own), right);
}

TEST(RegionTable, APartJoinsTheOneBelowIt) {
  RegionTable table;
  const WorkerId own{"own", 0};
  const uint32_t root = *table.Add(own), other = *table.Add(own);
  table.root = root;
  const uint32_t lower = *table.Add(own, 0), middle = *table.Add(own, lower), upper = *table.Add(own, lower);
  ASSERT_TRUE(table.CreateTable("t", 512, lower, 2).ok());
  ASSERT_TRUE(table.SplitPart(lower, 1000, middle).ok() && table.SplitPart(middle, 2000, upper).ok());
  const auto code = [&table](uint32_t left, uint32_t right) { return table.Join(left, 1, right, 1).code(); };
  EXPECT_EQ(code(lower, upper), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(middle, lower), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(other, lower), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(lower, other), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(table.Join(middle, 1, upper, 2).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(table.Join(middle, 2, upper, 1).code(), absl::StatusCode::kAborted);
  const uint32_t child = *table.Add(own, middle);
  EXPECT_EQ(code(middle, upper), absl::StatusCode::kAborted);  // One that is being split.
  ASSERT_TRUE(table.Remove(child).ok());
  EXPECT_EQ(*RegionTable::Parse(table.ToJson()), table);
  EXPECT_EQ(code(middle, upper), absl::StatusCode::kOk);
  EXPECT_EQ(table.Find(upper), nullptr);
  EXPECT_EQ(table.tables.at("t").parts, (HashPartMap{{0, lower}, {1000, middle}}));
  EXPECT_EQ(table.tables.at("t").RegionOf(UINT32_MAX), middle);
  EXPECT_EQ(code(middle, upper), absl::StatusCode::kOk);  // It was made before.
  EXPECT_EQ(code(lower, middle), absl::StatusCode::kOk);
  EXPECT_EQ(*RegionTable::Parse(table.ToJson()), table);
  ASSERT_TRUE(table.DropTable("t").ok());
  EXPECT_EQ(table.regions.size(), 2u);
}

}  // namespace
}  // namespace cell

#include "cell/client/check/region_report.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

constexpr char kTree[] =
    R"({"region": 7, "keys": 3, "tier": 1, "low": "6162", "high": "ff", "right": 9, "routes": 2, "errors": ["x"]})";

std::string With(const std::string& from, const std::string& to) {
  std::string text = kTree;
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return text.replace(text.find(from), from.size(), to);
}

TEST(RegionReport, OfAMeganodeAndOfAPartOfATable) {
  const auto tree = ParseRegionReport(kTree);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->tree.region, 7u);
  EXPECT_EQ(tree->tree.range.low, "ab");
  EXPECT_EQ(tree->tree.range.high, "\xff");
  EXPECT_EQ(tree->tree.range.right, RootOf(9));
  EXPECT_EQ(tree->routes, 2u);
  EXPECT_EQ(tree->errors, std::vector<std::string>{"x"});
  const auto hash = ParseRegionReport(R"({"region": 7, "keys": 3, "hash": {"first": 1, "last": 2}, "errors": []})");
  ASSERT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(hash->hash->last, 2u);
  TreeReport report;
  EXPECT_EQ(*ParseRoutes(R"([["61", 2], ["62", 3]])", &report), 2u);
  EXPECT_EQ(report.routes.size(), 2u);
  EXPECT_EQ(*ParseRoutes("[]", &report), 0u);
}

TEST(RegionReport, RefusesNonsense) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("7"), With("7", "-7"), With("3", "\"3\""),
        With("\"6162\"", "\"616\""), With("\"6162\"", "\"zz\""), With("\"6162\"", "7"), With("\"ff\"", "null"),
        With("\"tier\": 1", "\"tier\": 256"), With("\"right\": 9", "\"right\": 4294967295"),
        With("\"routes\": 2", "\"routes\": 18446744073709551615"),
        std::string(R"({"region": 7, "keys": 3, "hash": 7})")}) {
    EXPECT_EQ(ParseRegionReport(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  TreeReport report;
  for (const char* text : {"", "{}", "7", "[7]", "[[]]", "[[1, 2]]", "[[\"6\", 2]]", "[[\"61\", -1]]", "[[\"61\"]]"}) {
    EXPECT_EQ(ParseRoutes(text, &report).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace cell

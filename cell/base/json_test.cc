#include "cell/base/json.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace cell {
namespace {

TEST(ParseJson, RefusesWhatIsNoJson) {
  for (const std::string text : {"", "{", "nonsense", "{\"a\": 1e999}", "\"\xff\"", "[1] 2"}) {
    EXPECT_EQ(ParseJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseJson, RefusesWhatIsNestedTooDeeply) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseJson(nested(kJsonDepthMax)).ok());
  EXPECT_FALSE(ParseJson(nested(kJsonDepthMax + 1)).ok());
  EXPECT_FALSE(ParseJson(nested(1'000'000)).ok());
  EXPECT_FALSE(ParseJson(std::string(1'000'000, '[')).ok());
  EXPECT_TRUE(ParseJson("[\"" + std::string(100, '[') + "\\\"" + std::string(100, '{') + "\"]").ok());
}

TEST(JsonText, NeverThrows) {
  EXPECT_EQ(JsonText({{"a", "\xff"}}), "{\"a\":\"\xef\xbf\xbd\"}");
  EXPECT_EQ(JsonText({1, 2}), "[1,2]");
}

TEST(JsonView, GivesValuesOfTheirTypeAlone) {
  const nlohmann::json json = *ParseJson(R"({"n": 4294967296, "minus": -1, "half": 0.5, "t": "x", "b": true,
                                            "list": [1, "2"], "one": 1})");
  const JsonView view(json);
  EXPECT_EQ(view["one"].As<uint32_t>(), 1u);
  EXPECT_EQ(view["n"].As<uint64_t>(), 4294967296u);
  EXPECT_EQ(view["n"].As<uint32_t>(), std::nullopt);
  EXPECT_EQ(view["minus"].As<uint64_t>(), std::nullopt);
  EXPECT_EQ(view["minus"].As<double>(), -1);
  EXPECT_EQ(view["half"].As<uint32_t>(), std::nullopt);
  EXPECT_EQ(view["half"].As<double>(), 0.5);
  EXPECT_EQ(view["t"].As<std::string>(), "x");
  EXPECT_EQ(view["t"].As<uint32_t>(), std::nullopt);
  EXPECT_EQ(view["one"].As<std::string>(), std::nullopt);
  EXPECT_EQ(view["b"].As<bool>(), true);
  EXPECT_EQ(view["one"].As<bool>(), std::nullopt);
  EXPECT_EQ(view["absent"]["deeper"].As<bool>(), std::nullopt);
  EXPECT_EQ(view["absent"].Or<uint32_t>(7), 7u);
  ASSERT_EQ(view["list"].elements().size(), 2u);
  EXPECT_EQ(view["list"].elements()[0].As<uint32_t>(), 1u);
  EXPECT_TRUE(view["one"].elements().empty());
  EXPECT_TRUE(view["list"].members().empty());
  EXPECT_EQ(view.members().size(), 7u);
  EXPECT_TRUE(JsonView().members().empty());
}

TEST(JsonView, SaysWhatIsMissing) {
  const nlohmann::json json = *ParseJson(R"({"n": -1})");
  const auto wrong = JsonView(json).Get<uint32_t>("n");
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.status().message().find("out of range"), std::string::npos) << wrong.status();
  const auto missing = JsonView(json).Get<uint32_t>("m");
  EXPECT_NE(missing.status().message().find("missing"), std::string::npos) << missing.status();
  EXPECT_EQ(*JsonView(json).Get<uint32_t>("m", 3), 3u);
  EXPECT_FALSE(JsonView(json).Get<uint32_t>("n", 3).ok());
}

}  // namespace
}  // namespace cell

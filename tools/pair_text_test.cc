#include "tools/pair_text.h"

#include <gtest/gtest.h>

#include "cell/base/random.h"

namespace cell {
namespace {

TEST(PairText, EscapesWhatIsNotText) {
  EXPECT_EQ(EscapeText("plain, gr\xc3\xbc\xc3\x9f"), "plain, gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(EscapeText("a\tb\nc\rd\\e"), R"(a\tb\nc\rd\\e)");
  EXPECT_EQ(EscapeText(std::string_view("\0\x1b[2J\x7f", 6)), R"(\x00\x1b[2J\x7f)");
  EXPECT_EQ(EscapeText("\xc2\x9b"
                       "1m"),
            R"(\xc2\x9b1m)");  // The beginning of a control sequence, in UTF-8.
  EXPECT_EQ(EscapeText("a\xe2\x80\xae"
                       "b\xe2\x81\xa6"),
            R"(a\xe2\x80\xaeb\xe2\x81\xa6)");                             // They turn the direction of what follows.
  EXPECT_EQ(EscapeText("\xd7\x90\xe2\x80\x8f"), "\xd7\x90\xe2\x80\x8f");  // A mark of such writing is text.
  EXPECT_EQ(EscapeText("\xff\xc3"), R"(\xff\xc3)");
  EXPECT_EQ(EscapeText("\xed\xa0\x80"), R"(\xed\xa0\x80)");          // Half of a surrogate pair.
  EXPECT_EQ(EscapeText("\xf0\x8f\xbf\xbf"), R"(\xf0\x8f\xbf\xbf)");  // More bytes than the character needs.
  EXPECT_EQ(BytesAsJson("\xc2\x9b").dump(), R"({"hex":"c29b"})");
  EXPECT_TRUE(IsPrintable("two\nlines\tand \xe2\x82\xac"));
  for (const char* bytes : {"\x1b[2J", "\xff", "\r", "\xc2\x9b"}) EXPECT_FALSE(IsPrintable(bytes)) << bytes;
}

TEST(PairText, RefusesBackslashesThatBeginNothing) {
  for (const char* text : {"\\", "a\\q", "\\x", "\\x1", "\\xg0", "\\\\\\"}) {
    EXPECT_EQ(UnescapeText(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// Both forms of any pair are one line, and give the pair back.
TEST(PairText, RandomPairsComeBack) {
  Random random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string parts[2];
    for (std::string& part : parts) {
      const size_t bytes = random.Below(12);
      const bool text = random.Below(2) == 0;
      while (part.size() < bytes) {
        part += static_cast<char>(text ? "ax{\"}\t\n\r\\:,"[random.Below(12)] : random.Below(256));
      }
    }
    if (parts[0].empty()) parts[0] = "{";
    const std::pair pair(parts[0], parts[1]);
    const std::string text = EscapeText(pair.first) + "\t" + EscapeText(pair.second);
    const std::string json =
        nlohmann::json{{"key", BytesAsJson(pair.first)}, {"value", BytesAsJson(pair.second)}}.dump();
    for (const std::string& line : {text, json}) {
      EXPECT_EQ(line.find('\n'), std::string::npos);
      const auto parsed = ParsePair(line, false);
      ASSERT_TRUE(parsed.ok()) << parsed.status() << line;
      EXPECT_EQ(*parsed, pair) << line;
    }
  }
}

TEST(PairText, SaysWhatIsWrongWithALine) {
  for (const char* line : {"no tab", "\tno key", "{", "{}", R"({"key": "a"})", R"({"key": "a", "value": 1})",
                           R"({"key": "a", "value": "b", "ttl": "2s"})", R"({"key": "a", "value": {"hex": "0"}})",
                           R"({"key": {"hex": "zz"}, "value": ""})", R"({"key": {"hex": "00", "b": 1}, "value": ""})",
                           "[]", "{\"key\": \"\xff\", \"value\": \"\"}"}) {
    EXPECT_EQ(ParsePair(line, false).status().code(), absl::StatusCode::kInvalidArgument) << line;
  }
  EXPECT_EQ(*ParsePair("a\\q\tb\\", true), std::pair(std::string("a\\q"), std::string("b\\")));
  EXPECT_EQ(*ParsePair("{\tb", false), std::pair(std::string("{"), std::string("b")));
}

}  // namespace
}  // namespace cell

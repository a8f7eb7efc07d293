// Tests patterns of Redis.
#include "cell/gateway/glob.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace cell::gateway {
namespace {

TEST(Glob, Matches) {
  const struct {
    const char *pattern, *text;
    bool matches;
  } cases[] = {
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"*", "abc", true},
      {"a*c", "abbc", true},
      {"a*c", "abbd", false},
      {"a*b*c", "aXbYc", true},
      {"?", "", false},
      {"?", "a", true},
      {"h?llo", "hello", true},
      {"h[ae]llo", "hallo", true},
      {"h[ae]llo", "hillo", false},
      {"h[^e]llo", "hello", false},
      {"h[^e]llo", "hallo", true},
      {"h[a-b]llo", "hbllo", true},
      {"h[b-a]llo", "hbllo", true},
      {"h[a-b]llo", "hcllo", false},
      {"\\*", "*", true},
      {"\\*", "a", false},
      {"[\\]]", "]", true},
      {"[a", "a", true},
      {"a\\", "a\\", true},
      {"[^]", "a", true},
      {"**a", "ba", true},
      {"a**", "a", true},
  };
  for (const auto& [pattern, text, matches] : cases) {
    EXPECT_EQ(MatchesGlob(pattern, text), matches) << pattern << " " << text;
  }
}

// As a definition would say it, with as many steps as it takes.
bool Slow(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') return Slow(pattern.substr(1), text) || (!text.empty() && Slow(pattern, text.substr(1)));
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) && Slow(pattern.substr(1), text.substr(1));
}

TEST(Glob, MatchesAsTheDefinitionSays) {
  std::mt19937 random(1);
  for (int round = 0; round < 100'000; ++round) {
    std::string pattern, text;
    for (size_t i = random() % 8; i > 0; --i) pattern += "ab?*"[random() % 4];
    for (size_t i = random() % 8; i > 0; --i) text += "ab"[random() % 2];
    ASSERT_EQ(MatchesGlob(pattern, text), Slow(pattern, text)) << pattern << " " << text;
    if (MatchesGlob(pattern, text)) {
      ASSERT_TRUE(text.starts_with(GlobPrefix(pattern))) << pattern << " " << text;
    }
  }
}

TEST(Glob, EndsSoonForAnyPattern) {
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "a*";
  EXPECT_FALSE(MatchesGlob(pattern + "b", std::string(2000, 'a')));  // By the definition, this would take years.
}

TEST(Glob, HasAPrefix) {
  EXPECT_EQ(GlobPrefix("user:*"), "user:");
  EXPECT_EQ(GlobPrefix("a\\*b?"), "a*b");
  EXPECT_EQ(GlobPrefix("[a]"), "");
  EXPECT_EQ(GlobPrefix("plain"), "plain");
}

}  // namespace
}  // namespace cell::gateway

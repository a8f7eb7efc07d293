#include "cell/cluster/eviction_rules.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

TEST(EvictionRules, TheLongestPrefixCounts) {
  EvictionRules rules;
  EXPECT_FALSE(rules.on());
  EXPECT_EQ(rules.Of("anything"), Eviction::kNone);
  ASSERT_TRUE(rules.Set("cache/", Eviction::kTtl).ok());
  EXPECT_TRUE(rules.on());
  EXPECT_FALSE(rules.needs_use());
  ASSERT_TRUE(rules.Set("cache/pages/", Eviction::kLru).ok());
  ASSERT_TRUE(rules.Set("cache/pages/pinned/", Eviction::kNone).ok());
  EXPECT_TRUE(rules.needs_use());
  EXPECT_EQ(rules.Of("cache"), Eviction::kNone);
  EXPECT_EQ(rules.Of("cache/"), Eviction::kTtl);
  EXPECT_EQ(rules.Of("cache/zebra"), Eviction::kTtl);
  EXPECT_EQ(rules.Of("cache/pages/1"), Eviction::kLru);
  EXPECT_EQ(rules.Of("cache/pages/pinned/1"), Eviction::kNone);
  EXPECT_EQ(rules.Of("d"), Eviction::kNone);
}

// Who says first what must stay, and then what may go, loses nothing. Nor who pauses the wider rule.
TEST(EvictionRules, WhatMustStayStaysInAnyOrder) {
  EvictionRules rules;
  ASSERT_TRUE(rules.Set("a", Eviction::kNone).ok());
  EXPECT_FALSE(rules.on());
  ASSERT_TRUE(rules.Set("", Eviction::kLru).ok());
  EXPECT_EQ(rules.Of("abc"), Eviction::kNone);
  EXPECT_EQ(rules.Of("b"), Eviction::kLru);
  ASSERT_TRUE(rules.Set("", Eviction::kNone).ok());
  EXPECT_FALSE(rules.on());
  ASSERT_TRUE(rules.Set("", Eviction::kLru).ok());
  EXPECT_EQ(rules.Of("abc"), Eviction::kNone);
  ASSERT_TRUE(rules.Set("a", std::nullopt).ok());
  EXPECT_EQ(rules.Of("abc"), Eviction::kLru);
  ASSERT_TRUE(rules.Set("", std::nullopt).ok());
  EXPECT_TRUE(rules.by_prefix().empty());
  EXPECT_TRUE(rules.Set("a", std::nullopt).ok());  // Removing a rule that does not exist is no error.
}

TEST(EvictionRules, AreFewAndShort) {
  EvictionRules rules;
  EXPECT_TRUE(absl::IsInvalidArgument(rules.Set(std::string(65, 'p'), Eviction::kLru)));
  for (size_t i = 0; i < EvictionRules::kRulesMax; ++i) {
    ASSERT_TRUE(rules.Set(std::to_string(i), Eviction::kLru).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(rules.Set("one more", Eviction::kLru)));
  EXPECT_TRUE(rules.Set("7", Eviction::kTtl).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(rules.Set("one more", Eviction::kNone)));
  EXPECT_TRUE(rules.Set("7", std::nullopt).ok());
  EXPECT_TRUE(rules.Set("one more", Eviction::kLru).ok());
}

TEST(EvictionRules, HaveNames) {
  for (const Eviction one : {Eviction::kNone, Eviction::kTtl, Eviction::kLru}) {
    EXPECT_EQ(ParseEviction(ToString(one)), one);
  }
  EXPECT_EQ(ParseEviction("lru"), std::nullopt);
}

TEST(EndOfPrefix, IsTheFirstKeyAfterAllWithThePrefix) {
  EXPECT_EQ(EndOfPrefix("a"), "b");
  EXPECT_EQ(EndOfPrefix("a\xff"), "b");
  EXPECT_EQ(EndOfPrefix("\xff\xff"), std::nullopt);
  EXPECT_EQ(EndOfPrefix(""), std::nullopt);
}

}  // namespace
}  // namespace cell

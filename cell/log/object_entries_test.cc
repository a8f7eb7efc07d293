#include "cell/log/object_entries.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

constexpr uint32_t kRegion = 7;
const std::string kSegment = "00000000000004d2.00000002.log";

TEST(ObjectEntries, WhatIsWrittenIsRead) {
  const ObjectEntries entries = {
      {kSegment, "65536 9f2c01ab"},
      {"+" + kSegment, "65536 9f2c01ab going"},
      {"00000000000004d2.00000002.checkpoint", "1 00000000"},
      {"+00000000000004d3.00000002.checkpoint", "0 00000001"},
      {"00000000000004d2.00000002.end", ""},
  };
  EXPECT_TRUE(CheckEntries(kRegion, entries).ok()) << CheckEntries(kRegion, entries);
  for (const auto& [key, value] : entries) {
    if (!value.empty()) {
      EXPECT_EQ(ParseEntry(kRegion, key, value)->ToText(), value);
    }
  }
}

TEST(ObjectEntries, DamageIsNamed) {
  const std::string checkpoint = "00000000000004d2.00000002.checkpoint";
  const ObjectEntries damaged = {{"", ""},
                                 {"+", "1 9f2c01ab"},
                                 {"00000000000004d2.00000002.lo", "1 9f2c01ab"},
                                 {"4d2.2.log", "1 9f2c01ab"},
                                 {"++" + kSegment, "1 9f2c01ab"},
                                 {"00000000000004d2.00000002.end", "1"},
                                 {"+00000000000004d2.00000002.end", ""}};
  for (const auto& entry : damaged) {
    EXPECT_TRUE(absl::IsDataLoss(CheckEntries(kRegion, {entry}))) << entry.first;
  }
  for (const std::string value :
       {"", "1", "1 ", "0 9f2c01ab", "-1 9f2c01ab", "1 9f2c01ab going", "1 9f2c01ab ", "1 9f2c01abc", "01 9f2c01ab",
        "65537 9f2c01ab", "4294967295 9f2c01ab", "4294967297 9f2c01ab", "\xff"}) {
    const absl::Status status = CheckEntries(kRegion, {{checkpoint, value}, {kSegment, "1 9f2c01ab"}});
    EXPECT_TRUE(absl::IsDataLoss(status)) << value;
    EXPECT_NE(status.message().find("region-7"), std::string::npos) << status;
    EXPECT_NE(status.message().find(checkpoint), std::string::npos) << status;
  }
  EXPECT_TRUE(absl::IsDataLoss(CheckEntries(kRegion, {{"+" + checkpoint, "65537 9f2c01ab"}})));
}

// Messages go to a log, in which each has one line of a limited length.
TEST(ObjectEntries, DamageIsEscapedAndShortenedInMessages) {
  const absl::Status status = CheckEntries(kRegion, {{"a\nb", std::string(1'000'000, '\n')}});
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  EXPECT_LT(status.message().size(), 500u);
}

TEST(ObjectEntries, EpochsAreToldByKeysAndNames) {
  EXPECT_EQ(EpochOf(kSegment), 2u);
  EXPECT_EQ(EpochOf("+" + kSegment), 2u);
  EXPECT_EQ(EpochOf("00000000000004d2.0000001f.end"), 31u);
  EXPECT_EQ(EpochOf("00000000000004d2.00000002.log.9f2c01ab.0"), 2u);
  for (const std::string_view text : {"", "probe.9f2c01ab", "4d2.2.log", "00000000000004d2.00000002"}) {
    EXPECT_EQ(EpochOf(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace cell

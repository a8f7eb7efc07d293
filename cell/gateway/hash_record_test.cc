// Tests hashes as values.
#include "cell/gateway/hash_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace cell::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::pair<std::string, std::string>> Fields(const HashRecord& record) {
  std::vector<std::pair<std::string, std::string>> fields;
  record.ForEach([&](std::string_view name, std::string_view value) { fields.emplace_back(name, value); });
  return fields;
}

TEST(HashRecord, KeepsTheOrder) {
  HashRecord record;
  EXPECT_TRUE(record.Set("b", "1"));
  EXPECT_TRUE(record.Set("", ""));
  EXPECT_TRUE(record.Set("a", "2"));
  EXPECT_FALSE(record.Set("b", "3"));
  EXPECT_TRUE(record.Remove(""));
  EXPECT_FALSE(record.Remove(""));
  EXPECT_EQ(record.Find(""), std::nullopt);
  EXPECT_EQ(record.Find("b"), "3");
  EXPECT_EQ(record.size(), 2u);
  const std::string value = record.Encode();
  EXPECT_TRUE(IsHash(value));
  const std::optional<HashRecord> parsed = HashRecord::Parse(value);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_THAT(Fields(*parsed), ElementsAre(Pair("b", "3"), Pair("a", "2")));
}

TEST(HashRecord, RefusesWhatIsNotAHash) {
  HashRecord record;
  record.Set("field", "value");
  const std::string value = record.Encode();
  EXPECT_FALSE(HashRecord::Parse("").has_value());
  EXPECT_FALSE(HashRecord::Parse("plain text").has_value());
  for (size_t bytes = kHashMagic.size() + 1; bytes < value.size(); ++bytes) {
    EXPECT_FALSE(HashRecord::Parse(value.substr(0, bytes)).has_value()) << bytes;
  }
  EXPECT_FALSE(HashRecord::Parse(value + "x").has_value());
  std::string huge(kHashMagic);
  huge.append(8, '\xff');  // Lengths of 4 GB each.
  EXPECT_FALSE(HashRecord::Parse(huge).has_value());
  std::string wraps(kHashMagic);  // The lengths add up to 2^32 + 1.
  wraps.append("\xff\xff\xff\xff\2\0\0\0x", 9);
  EXPECT_FALSE(HashRecord::Parse(wraps).has_value());
}

TEST(HashRecord, DoesAsAVectorDoes) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<std::string, std::string>> model;
    std::string value;
    for (int step = 0; step < 30; ++step) {
      std::optional<HashRecord> record = value.empty() ? HashRecord() : HashRecord::Parse(value);
      ASSERT_TRUE(record.has_value());
      std::vector<std::string> texts;
      texts.reserve(16);  // The record has views of them.
      for (int change = 0; change < 4; ++change) {
        const std::string& name = texts.emplace_back(1, static_cast<char>('a' + random() % 10));
        const auto at =
            std::find_if(model.begin(), model.end(), [&](const auto& field) { return field.first == name; });
        if (random() % 3 == 0) {
          EXPECT_EQ(record->Remove(name), at != model.end());
          if (at != model.end()) model.erase(at);
          continue;
        }
        const std::string& text = texts.emplace_back(std::to_string(random()));
        EXPECT_EQ(record->Set(name, text), at == model.end());
        at == model.end() ? (void)model.emplace_back(name, text) : (void)(at->second = text);
      }
      EXPECT_EQ(Fields(*record), model);
      EXPECT_EQ(record->size(), model.size());
      value = record->Encode();
    }
  }
}

}  // namespace
}  // namespace cell::gateway

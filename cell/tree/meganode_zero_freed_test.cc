// Tests that nothing of deleted and replaced pairs stays in a region's memory if freed memory is overwritten.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/region/extent_compaction.h"
#include "cell/tree/meganode.h"
#include "cell/tree/meganode_split.h"
#include "cell/tree/test_region.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"

namespace cell {
namespace {

class ZeroFreed : public ::testing::TestWithParam<bool> {
 protected:
  ZeroFreed() { region_.memory()->set_zero_freed(GetParam()); }

  std::string_view Memory() {
    return {reinterpret_cast<const char*>(region_.memory()->base()), region_.memory()->bytes()};
  }
  void Put(const std::string& key, const std::string& value) {
    ASSERT_TRUE(tree_.Put(key, value, Crc64(value, Crc64(key))).ok());
    pairs_[key] = value;
  }

  TestRegion region_{{1024, 1 << 20, 4 << 20}};
  Meganode tree_{region_.memory()};
  std::map<std::string, std::string> pairs_;
};

TEST_P(ZeroFreed, NothingStaysOfWhatIsGone) {
  Random random(1);
  // Values show the time when they were put: "<000012>". Small ones are in leaves, others outside.
  int time = 0;
  const auto value_of = [&](int at) {
    return fmt::format("<{:06}>", at) + std::string(random.Below(3) == 0 ? random.Below(600) : random.Below(40), 'v');
  };
  for (int i = 0; i < 20'000; ++i) {
    const std::string key = fmt::format("key-{:04}", random.Below(1500));
    if (random.Below(5) < 3) {
      Put(key, value_of(time++));
    } else {
      ASSERT_TRUE(tree_.Delete(key).ok());
      pairs_.erase(key);
    }
  }
  const TreeReport report = CheckTree(*region_.memory());
  EXPECT_EQ(report.error_count, 0u);
  EXPECT_EQ(report.keys, pairs_.size());
  std::map<std::string_view, int> alive;
  for (const auto& [key, value] : pairs_) ++alive[std::string_view(value).substr(0, 8)];
  int left = 0;
  const std::string_view memory = Memory();
  for (size_t at = memory.find('<'); at != std::string_view::npos; at = memory.find('<', at + 1)) {
    const std::string_view mark = memory.substr(at, 8);
    if (mark.size() != 8 || mark[7] != '>') continue;
    left += alive.contains(mark) ? 0 : 1;
  }
  if (GetParam()) {
    EXPECT_EQ(left, 0);
  } else {
    EXPECT_GT(left, 0);  // So the test can fail.
  }
}

TEST_P(ZeroFreed, NoKeyStaysEither) {
  for (int i = 0; i < 2000; ++i) Put(fmt::format("unmistakable-{:05}-key", i), std::string(i % 3 == 0 ? 300 : 10, 'v'));
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(tree_.Delete(fmt::format("unmistakable-{:05}-key", i)).ok());
  size_t left = 0;
  for (size_t at = Memory().find("-key"); at != std::string_view::npos; at = Memory().find("-key", at + 1)) ++left;
  // Keys at which nodes begin and end stay as long as the nodes.
  EXPECT_EQ(left < 400, GetParam()) << left;
}

// Returns how often `text` is in the memory of a region.
size_t Count(const RegionMemory& memory, std::string_view text) {
  const std::string_view bytes(reinterpret_cast<const char*>(memory.base()), memory.bytes());
  size_t count = 0;
  for (size_t at = bytes.find(text); at != std::string_view::npos; at = bytes.find(text, at + 1)) ++count;
  return count;
}

TEST_P(ZeroFreed, NothingStaysOfWhatASplitHasMoved) {
  for (int i = 0; i < 3000; ++i) {
    Put(fmt::format("{:05}", i), fmt::format("<{:06}>", i) + std::string(i % 3 == 0 ? 300 : 10, 'v'));
  }
  const std::optional<std::string> key = MeganodeSplit::ChooseKey(tree_);
  ASSERT_TRUE(key.has_value());
  Meganode::Range range = tree_.range();
  range.low = *key;
  TestRegion other({1024, 1 << 20, 4 << 20}, 2, range);
  Meganode right(other.memory());
  {
    MeganodeSplit split(&tree_, &right, *key);
    absl::StatusOr<bool> copied = false;
    while (copied.ok() && !*copied) copied = split.Copy(64);
    ASSERT_TRUE(copied.ok() && split.Finish().ok());
    while (!split.Reclaim(64)) continue;
  }
  ASSERT_GT(right.keys(), 500u);
  size_t left = 0;
  for (const auto& pair : pairs_) {
    if (pair.first >= *key) left += Count(*region_.memory(), pair.second.substr(0, 8));
  }
  EXPECT_EQ(left == 0, GetParam()) << left;
}

TEST_P(ZeroFreed, ACompactionLeavesOneCopy) {
  for (int i = 0; i < 4200; ++i) Put(fmt::format("{:05}", i), fmt::format("<{:06}>", i) + std::string(900, 'v'));
  for (int i = 0; i < 4200; ++i) {
    if (i % 4 == 0) continue;
    ASSERT_TRUE(tree_.Delete(fmt::format("{:05}", i)).ok());
    pairs_.erase(fmt::format("{:05}", i));
  }
  ExtentCompaction pass(&tree_, 0);
  while (!pass.ended()) ASSERT_TRUE(pass.Step(&tree_, 4096).ok());
  EXPECT_GT(pass.moved_bytes(), 100'000u);
  size_t copies = 0;
  for (const auto& pair : pairs_) copies += Count(*region_.memory(), pair.second.substr(0, 8));
  EXPECT_EQ(copies == pairs_.size(), GetParam()) << copies;
}

INSTANTIATE_TEST_SUITE_P(Settings, ZeroFreed, ::testing::Bool());

}  // namespace
}  // namespace cell

// Tests intact logs with content that no region can hold.
#include "cell/server/region/region_rebuild.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "cell/base/status_macros.h"
#include "cell/io/sim/sim_files.h"
#include "cell/log/directory_log_store.h"
#include "cell/log/region_log.h"
#include "cell/tree/tree_check.h"

namespace cell {
namespace {

constexpr uint32_t kRegion = 7;
constexpr RegionShape kShape{512, 16 << 10, 64 << 10};

struct Record {
  RecordKind kind;
  std::string key, value;
};

std::string RouteTo(uint32_t region) {
  const Pointer child = RootOf(region);
  return {reinterpret_cast<const char*>(&child), sizeof(child)};
}

Record Range(uint8_t tier, std::optional<std::string> high = {}, Pointer right = {}) {
  return {RecordKind::kRange, "", EncodeRange({tier, "", std::move(high), right})};
}

Record HashRangeOf(uint32_t first, uint32_t last, uint32_t bucket_bytes) {
  const HashRangeValue value{first, last, bucket_bytes, 0};
  return {RecordKind::kHashRange, "", {reinterpret_cast<const char*>(&value), sizeof(value)}};
}

// Rebuilds the region whose log has these records, and returns the status.
absl::Status RebuildOf(const std::vector<Record>& records, const RegionShape& shape = kShape,
                       const PairSettings& pairs = {}, TreeReport* report = nullptr, RegionHeader* header = nullptr) {
  SimDisk disk(1);
  const auto files = disk.NewHost();
  DirectoryLogStore store(files.get(), "log");
  std::string bytes;
  uint64_t sequence = 0;
  AppendRecord({kRegion, 1, ++sequence, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &bytes);
  for (const Record& one : records) AppendRecord({kRegion, 1, ++sequence, 0}, one.kind, one.key, one.value, {}, &bytes);
  RETURN_IF_ERROR(store.Open(kRegion, 1, 1, bytes).status());
  LogReplay replay(&store, kRegion);
  RETURN_IF_ERROR(replay.Open());
  const std::unique_ptr<std::byte, void (*)(void*)> base(
      static_cast<std::byte*>(std::aligned_alloc(4096, shape.region_bytes())), std::free);
  std::memset(base.get(), 0, shape.region_bytes());
  RegionMemory memory(base.get(), shape.region_bytes());
  RegionContent content;
  RETURN_IF_ERROR(RebuildRegion(replay, kRegion, shape, &memory, &content, pairs));
  if (report != nullptr) *report = CheckTree(memory);
  if (header != nullptr) *header = memory.header();
  EXPECT_TRUE(content.hash_range.has_value() || CheckTree(memory).ok());
  return absl::OkStatus();
}

TEST(RebuildRegion, MakesWhatLogsSay) {
  EXPECT_TRUE(RebuildOf({Range(0)}).ok());
  EXPECT_TRUE(RebuildOf({Range(0, "m", RootOf(8)), {RecordKind::kPut, "a", "1"}}).ok());
  EXPECT_TRUE(RebuildOf({Range(1), {RecordKind::kRoute, "", RouteTo(8)}, {RecordKind::kRoute, "a", RouteTo(9)}}).ok());
  EXPECT_TRUE(RebuildOf({HashRangeOf(0, 99, 512), {RecordKind::kPut, "a", "1"}}).ok());
}

// A region was full, and its next owner has another setting.
TEST(RebuildRegion, FitsThoughPairsWereStoredInAnotherWay) {
  std::vector<Record> records = {Range(0)};
  for (int i = 0; i < 100; ++i) records.push_back({RecordKind::kPut, fmt::format("key{:04}", i), std::string(83, 'v')});
  TreeReport report;
  // Inline they take all of the nodes.
  ASSERT_TRUE(RebuildOf(records, {512, 32 << 10, 64 << 10}, {.inline_max = 90}, &report).ok());
  EXPECT_EQ(report.inline_pairs, 100u);
  ASSERT_TRUE(RebuildOf(records, {512, 12 << 10, 64 << 10}, {.inline_max = 90}, &report).ok());
  EXPECT_EQ(report.inline_pairs, 0u);
  EXPECT_EQ(report.keys, 100u);
  // Outside they do not fit into the extents.
  ASSERT_TRUE(RebuildOf(records, {512, 32 << 10, 4096}, {.inline_max = 0}, &report).ok());
  EXPECT_EQ(report.inline_pairs, 100u);
  const absl::Status too_small = RebuildOf(records, {512, 12 << 10, 4096});
  EXPECT_TRUE(absl::IsResourceExhausted(too_small)) << too_small;
}

TEST(RebuildRegion, StampsAreTheClocks) {
  TreeReport report;
  const std::vector<Record> records = {Range(0), {RecordKind::kPut, "a", "1"}, {RecordKind::kPut, "b", "1"}};
  int asked = 0;
  ASSERT_TRUE(RebuildOf(records, kShape, {.cluster_time = [&asked] { return 1000 + ++asked; }}, &report).ok());
  EXPECT_EQ(asked, 2);
}

// A later owner gives later stamps, whatever its clock says: what was put last may be lost, and what was deleted is
// gone.
TEST(RebuildRegion, PairsKeepTheirStampsAndTheNextOnesAreLater) {
  const auto word = [](uint64_t word) { return std::string(reinterpret_cast<const char*>(&word), sizeof(word)); };
  const std::vector<Record> records = {Range(0),
                                       {RecordKind::kStampBound, "", word(100)},
                                       {RecordKind::kPutStamped, "a", word(7) + "1"},
                                       {RecordKind::kPutStamped, "b", word(50) + "1"},
                                       {RecordKind::kDelete, "b", ""}};
  TreeReport report;
  RegionHeader header;
  ASSERT_TRUE(RebuildOf(records, kShape, {.cluster_time = [] { return 3; }}, &report, &header).ok());
  EXPECT_EQ(report.keys, 1u);
  EXPECT_EQ(header.last_stamp, 100u);
  // A pair from an earlier release gets a later one in each recovery.
  const std::vector<Record> unstamped = {
      Range(0), {RecordKind::kStampBound, "", word(100)}, {RecordKind::kPut, "a", "1"}};
  ASSERT_TRUE(RebuildOf(unstamped, kShape, {.cluster_time = [] { return 3; }}, &report, &header).ok());
  EXPECT_EQ(header.last_stamp, 101u);
}

TEST(RebuildRegion, PairsKeepTheirExpiries) {
  const Expiry expiry = 7;
  const std::string value(reinterpret_cast<const char*>(&expiry), sizeof(expiry));
  TreeReport report;
  const Record expiring{RecordKind::kPutExpiring, "a", value + "1"};
  ASSERT_TRUE(RebuildOf({Range(0), expiring, {RecordKind::kPut, "b", "1"}}, kShape, {}, &report).ok());
  EXPECT_EQ(report.expiring, 1u);
  EXPECT_EQ(report.data_bytes, 4u);
  EXPECT_EQ(report.keys, 2u);
  // Pairs that have expired are left out, because a log may have more of them than the region has room for.
  const PairSettings late{.cluster_time = [] { return 8; }};
  ASSERT_TRUE(RebuildOf({Range(0), expiring, {RecordKind::kPut, "b", "1"}}, kShape, late, &report).ok());
  EXPECT_EQ(report.expiring, 0u);
  EXPECT_EQ(report.keys, 1u);
}

TEST(RebuildRegion, PairsOfATableKeepTheirExpiry) {
  const Expiry expiry = 7;
  const std::string value(reinterpret_cast<const char*>(&expiry), sizeof(expiry));
  const Record expiring{RecordKind::kPutExpiring, "a", value + "1"};
  const std::vector<Record> records = {HashRangeOf(0, UINT32_MAX, 512), expiring, {RecordKind::kPut, "b", "1"}};
  for (const int64_t now : {6, 8}) {
    RegionHeader header;
    const PairSettings settings{.cluster_time = [now] { return now; }};
    ASSERT_TRUE(RebuildOf(records, kShape, settings, nullptr, &header).ok());
    EXPECT_EQ(header.expiring, now < 7 ? 1u : 0u);
    EXPECT_EQ(header.keys, now < 7 ? 2u : 1u);
  }
}

TEST(RebuildRegion, WhatNoRegionCanHoldIsDamage) {
  const Record route{RecordKind::kRoute, "", RouteTo(8)};
  const std::vector<std::vector<Record>> logs = {
      {Range(kTiersMax), route},
      {Range(0, "m")},                   // It has an end and no right neighbour.
      {Range(0, {}, RootOf(8))},         // It has no end but a right neighbour.
      {Range(0, "m", RootOf(kRegion))},  // It is its own neighbour.
      {Range(0, "m", Pointer(8, 64))},   // The neighbour is not a root.
      {Range(0, "")},                    // It covers no key.
      {Range(0, std::string(5000, 'k'), RootOf(8))},
      {Range(1)},                                         // It has no route.
      {Range(1), {RecordKind::kRoute, "a", RouteTo(8)}},  // Keys below "a" have no route.
      {Range(1), route, {RecordKind::kRoute, "a", RouteTo(kRegion)}},
      {Range(1), route, {RecordKind::kPut, "a", "1"}},
      {Range(0), {RecordKind::kPut, std::string(400, 'k'), "1"}},
      {HashRangeOf(9, 8, 0)},
      {HashRangeOf(0, 99, 513)},
  };
  for (size_t i = 0; i < logs.size(); ++i) {
    const absl::Status status = RebuildOf(logs[i]);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << i << ": " << status;
    EXPECT_NE(status.message().find("region 7"), std::string::npos) << i << ": " << status;
  }
}

}  // namespace
}  // namespace cell

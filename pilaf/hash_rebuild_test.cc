// Checks that everything that a table has held fits into a rebuilt one.
#include "pilaf/hash_rebuild.h"

#include <map>
#include <memory>
#include <string>

#include "cell/base/random.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "pilaf/test_table.h"

namespace cell {
namespace {

using Pairs = std::map<std::string, std::string>;  // Not in the order in which they came.

// Puts and deletes until the table is as full as possible. Some pairs are too large to be inline.
Pairs Fill(TestTable* table, uint32_t bucket_bytes, uint64_t seed) {
  Random random(seed);
  Pairs pairs;
  const uint64_t units = (*table)->geometry().units;  // Units come in whole pages.
  const uint64_t keys = units * std::max<uint32_t>(bucket_bytes / 8, 8);
  const uint64_t bytes_max = 1 + random.Below(std::max<uint32_t>(bucket_bytes / 8, 8) + 40);
  for (uint64_t refused = 0; refused < 10 + units / 10;) {
    const std::string key = fmt::format("k{:06}", random.Below(keys));
    if (random.Below(5) == 0) {
      (void)*(*table)->Delete(key);
      pairs.erase(key);
      continue;
    }
    std::string value(random.Below(bytes_max), 'v');
    const absl::StatusOr<bool> put = table->Put(key, value);
    if (put.ok()) {
      pairs[key] = std::move(value);
    } else {
      EXPECT_TRUE(absl::IsResourceExhausted(put.status())) << put.status();
      ++refused;
    }
  }
  return pairs;
}

struct Built {
  absl::Status status;
  std::unique_ptr<TestTable> table;
  int orders = 0;
};

Built RebuildOf(const Pairs& pairs, const RegionShape& shape, uint32_t bucket_bytes) {
  Built built;
  const auto empty = [&]() -> absl::StatusOr<HashTable*> {
    ++built.orders;
    built.table = std::make_unique<TestTable>(shape, bucket_bytes);
    return built.table->get();
  };
  built.status = Rebuild(empty, [&pairs](const PutPair& put) -> absl::Status {
    for (const auto& [key, value] : pairs) {
      if (absl::Status status = put({key, value}); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
  return built;
}

// Slots (0), and buckets.
class RebuildTest : public testing::TestWithParam<uint32_t> {};

TEST_P(RebuildTest, WhatWasFullFitsAgain) {
  int orders = 0, rebuilt = 0;
  for (const uint32_t units : {2u, 8u, 30u, 64u, 512u}) {
    for (uint64_t seed = 1; seed <= (units > 100 ? 10 : 100); ++seed) {
      SCOPED_TRACE(fmt::format("{} units, seed {}", units, seed));
      const RegionShape shape = ShapeOf(units, 1 << 20, GetParam());
      TestTable table(shape, GetParam());
      const Pairs pairs = Fill(&table, GetParam(), seed);
      Built built = RebuildOf(pairs, shape, GetParam());
      ASSERT_TRUE(built.status.ok()) << built.status;
      EXPECT_EQ((*built.table)->keys(), pairs.size());
      EXPECT_TRUE((*built.table)->Check().ok());
      orders += built.orders;
      ++rebuilt;
    }
  }
  EXPECT_LT(orders, rebuilt + rebuilt / 100);  // A second order is hardly ever needed.
}

TEST_P(RebuildTest, WhatCannotFitIsRefused) {
  const RegionShape shape = ShapeOf(8, 1 << 16, GetParam());
  Pairs pairs;
  for (int i = 0; i < 2000; ++i) pairs[fmt::format("{}", i)] = std::string(20, 'v');
  EXPECT_TRUE(absl::IsResourceExhausted(RebuildOf(pairs, shape, GetParam()).status));
}

TEST_P(RebuildTest, AnErrorEndsIt) {
  int calls = 0;
  TestTable table(ShapeOf(8, 1 << 16, GetParam()), GetParam());
  const auto empty = [&]() -> absl::StatusOr<HashTable*> { return table.get(); };
  const absl::Status status = Rebuild(empty, [&calls](const PutPair&) {
    ++calls;
    return absl::DataLossError("damaged");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(calls, 1);
}

INSTANTIATE_TEST_SUITE_P(Layouts, RebuildTest, testing::Values(0, 512, 1024, 2048));

}  // namespace
}  // namespace cell

// Tests functions of the servers, applied and evaluated by clients, over meganodes and tables on several servers.
#include "cell/client/functions.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/functions/functions.h"
#include "tests/clusters.h"

namespace cell {
namespace {

using functions::Comparison;
using functions::ElementsOf;

template <Element T>
std::vector<T> VectorOf(std::string_view bytes) {
  const absl::StatusOr<std::vector<T>> elements = ElementsOf<T>(bytes);
  CELL_CHECK(elements.ok());
  return *elements;
}

class FunctionsTest : public ::testing::TestWithParam<Durability> {
 protected:
  static TestClusterOptions Options() {
    TestClusterOptions options = SpreadingOptions();
    options.logs.durability = GetParam();
    return options;
  }
  static ClientOptions Quiet() {
    ClientOptions options;
    options.report = false;
    return options;
  }

  SimCluster cluster_{{512, 32 << 10, 2 << 20}, {}, Options()};
  std::unique_ptr<Client> client_ = cluster_.NewClient(Quiet());
};

TEST_P(FunctionsTest, ACounterInTheTree) {
  uint64_t stamp = 0;
  for (int64_t i = 1; i <= 5; ++i) {
    const absl::StatusOr<ApplyResult> applied = client_->Apply("counter", functions::Add<int64_t>(10));
    ASSERT_TRUE(applied.ok()) << applied.status();
    EXPECT_TRUE(applied->changed);
    EXPECT_EQ(applied->existed, i > 1);
    EXPECT_EQ(VectorOf<int64_t>(applied->result), std::vector<int64_t>{10 * i});
    EXPECT_GT(applied->stamp, stamp);
    stamp = applied->stamp;
    EXPECT_EQ((*client_->GetWithStamp("counter"))->stamp, stamp);
  }
  EXPECT_EQ(client_->Apply("text", functions::AddDecimal(-7))->result, "-7");
  EXPECT_EQ(client_->Apply("text", functions::AddDecimal(50))->result, "43");
  EXPECT_EQ(*client_->Get("text"), "43");
}

TEST_P(FunctionsTest, WhatChangesNothingSaysSo) {
  EXPECT_FALSE(client_->Apply("key", functions::CompareAndSwap("a", "b"))->existed);
  ASSERT_TRUE(client_->Put("key", "a").ok());
  const uint64_t stamp = (*client_->GetWithStamp("key"))->stamp;
  absl::StatusOr<ApplyResult> swapped = client_->Apply("key", functions::CompareAndSwap("b", "c"));
  ASSERT_TRUE(swapped.ok()) << swapped.status();
  EXPECT_FALSE(swapped->changed);
  EXPECT_TRUE(swapped->existed);
  EXPECT_EQ(swapped->result, std::string(1, '\0'));
  EXPECT_EQ(swapped->stamp, stamp);
  EXPECT_EQ((*client_->GetWithStamp("key"))->stamp, stamp);
  swapped = client_->Apply("key", functions::CompareAndSwap("a", "c"));
  EXPECT_TRUE(swapped->changed);
  EXPECT_EQ(swapped->result, std::string(1, '\1'));
  EXPECT_GT(swapped->stamp, stamp);
  EXPECT_EQ(*client_->Get("key"), "c");
}

// The vectors are so large that they are in the leaf, in an extent, sent in pieces of a reply, and in pieces of a
// request.
TEST_P(FunctionsTest, Vectors) {
  for (const size_t count : {4u, 80u, 2000u, 40'000u}) {
    const std::string key = fmt::format("vector of {}", count);
    std::vector<float> numbers(count);
    for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i % 1000);
    absl::StatusOr<ApplyResult> applied = client_->Apply(key, functions::Add<float>(numbers));
    ASSERT_TRUE(applied.ok()) << applied.status();
    EXPECT_FALSE(applied->existed);
    applied = client_->Apply(key, functions::Add<float>(numbers));  // An argument as large as the value.
    ASSERT_TRUE(applied.ok()) << applied.status();
    EXPECT_EQ(applied->result, "") << "of a vector nothing is returned";
    ASSERT_TRUE(client_->Apply(key, functions::Add(1.0f)).ok());
    for (float& number : numbers) number = number * 2 + 1;
    EXPECT_EQ(VectorOf<float>(**client_->Get(key)), numbers);

    double sum = 0;
    std::vector<float> large;
    for (const float number : numbers) sum += number;
    for (const float number : numbers) {
      if (number > 3) large.push_back(number);
    }
    EXPECT_EQ(VectorOf<double>(*client_->Evaluate(key, functions::Sum<float>())), std::vector<double>{sum});
    const absl::StatusOr<std::string> filtered = client_->Evaluate(key, functions::Filter(Comparison::kGreater, 3.0f));
    ASSERT_TRUE(filtered.ok()) << filtered.status();
    EXPECT_EQ(VectorOf<float>(*filtered), large);
    EXPECT_EQ(VectorOf<uint64_t>(*client_->Evaluate(key, functions::Count(Comparison::kGreater, 3.0f))),
              std::vector<uint64_t>{large.size()});
  }
}

TEST_P(FunctionsTest, InATable) {
  for (const uint32_t bucket_bytes : {0, 1024}) {
    const std::string name = fmt::format("table{}", bucket_bytes);
    ASSERT_TRUE(cluster_.CreateTable(name, bucket_bytes, 2).ok());
    absl::StatusOr<Table> table = client_->OpenTable(name);
    ASSERT_TRUE(table.ok()) << table.status();
    for (int i = 1; i <= 3; ++i) {
      const absl::StatusOr<ApplyResult> applied = table->Apply("counter", functions::Add<uint16_t>(7));
      ASSERT_TRUE(applied.ok()) << applied.status();
      EXPECT_EQ(applied->existed, i > 1);
      EXPECT_EQ(applied->stamp, 0u);
      EXPECT_EQ(VectorOf<uint16_t>(applied->result), std::vector<uint16_t>{static_cast<uint16_t>(7 * i)});
    }
    const std::string large(kInlineValueBytesMax * 3, 'x');
    ASSERT_TRUE(table->Apply("text", functions::Append("ab")).ok());
    ASSERT_TRUE(table->Apply("text", functions::Append(large)).ok());
    EXPECT_EQ(*table->Get("text"), "ab" + large);
    const absl::StatusOr<std::string> filtered =
        table->Evaluate("text", functions::Filter<uint8_t>(Comparison::kEqual, 'x'));
    EXPECT_EQ(*filtered, large);
  }
}

TEST_P(FunctionsTest, WhatCannotBeIsRefusedAndWritesNothing) {
  ASSERT_TRUE(client_->Put("key", "five!").ok());
  ASSERT_TRUE(client_->Put("most", std::string(8, '\x7f')).ok());
  const uint64_t stamp = (*client_->GetWithStamp("key"))->stamp;
  using Code = absl::StatusCode;
  const auto apply = [&](const std::string& key, const FunctionCall& call) {
    const absl::Status status = client_->Apply(key, call).status();
    EXPECT_FALSE(IsMaybeApplied(status)) << status;
    return status.code();
  };
  EXPECT_EQ(apply("key", {"no-such-function", "x"}), Code::kInvalidArgument);
  EXPECT_EQ(apply("key", {"", "x"}), Code::kInvalidArgument);
  EXPECT_EQ(apply("key", {std::string(33, 'a'), "x"}), Code::kInvalidArgument);
  EXPECT_EQ(apply("key", {"add", "x"}), Code::kInvalidArgument);
  EXPECT_EQ(apply("key", functions::Sum<int64_t>()), Code::kInvalidArgument) << "it only reads";
  EXPECT_EQ(apply("key", functions::Add<int64_t>(1)), Code::kFailedPrecondition) << "5 bytes are no vector of i64";
  EXPECT_EQ(apply("key", functions::AddDecimal(1)), Code::kFailedPrecondition);
  EXPECT_EQ(apply("most", functions::AddChecked<int64_t>(INT64_MAX)), Code::kOutOfRange);
  EXPECT_EQ(apply("key", functions::Append(std::string(kValueBytesMax, 'v'))), Code::kOutOfRange);
  EXPECT_EQ(apply("key", functions::Append(std::string(kValueBytesMax + 1, 'v'))), Code::kInvalidArgument);
  EXPECT_EQ(apply("", functions::Append("x")), Code::kInvalidArgument);
  EXPECT_EQ(client_->Evaluate("key", functions::Append("x")).status().code(), Code::kInvalidArgument) << "it writes";
  EXPECT_EQ(client_->Evaluate("key", {"sum", std::string(5000, 'x')}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(client_->Evaluate("absent", functions::Least<int8_t>()).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(*client_->Get("key"), "five!");
  EXPECT_EQ((*client_->GetWithStamp("key"))->stamp, stamp);
  EXPECT_EQ(*client_->Get("most"), std::string(8, '\x7f'));
}

TEST_P(FunctionsTest, APairKeepsItsExpiry) {
  const auto now_ns = [this] { return static_cast<uint64_t>(cluster_.network()->now_ns()); };
  const uint64_t at_ns = now_ns() + 50'000'000;
  ASSERT_TRUE(client_->Put("key", "1", Expires::AtNs(at_ns)).ok());
  EXPECT_EQ(client_->Apply("key", functions::AddDecimal(1))->result, "2");
  Scan scan = client_->NewScan({});
  ASSERT_TRUE(*scan.Next());
  EXPECT_EQ(scan.expiry_ns(), at_ns);
  while (now_ns() < at_ns) cluster_.network()->Step();
  const absl::StatusOr<ApplyResult> again = client_->Apply("key", functions::AddDecimal(1));
  EXPECT_FALSE(again->existed);
  EXPECT_EQ(again->result, "1");
}

Task<bool> AddMany(Client* client, Table* table, int times) {
  const FunctionCall add = functions::AddDecimal(1);
  for (int i = 0; i < times; ++i) {
    const absl::StatusOr<ApplyResult> in_tree = co_await client->AsyncApply("counter", add, {});
    CELL_CHECK(in_tree.ok());
    const absl::StatusOr<ApplyResult> in_table = co_await table->AsyncApply("counter", add, {});
    CELL_CHECK(in_table.ok());
  }
  co_return true;
}

TEST_P(FunctionsTest, NoAdditionIsLost) {
  constexpr int kAtOnce = 8, kTimes = 50;
  ASSERT_TRUE(cluster_.CreateTable("t", 0, 2).ok());
  absl::StatusOr<Table> table = client_->OpenTable("t");
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<Task<bool>> tasks;
  for (int i = 0; i < kAtOnce; ++i) {
    tasks.push_back(AddMany(client_.get(), &*table, kTimes));
    tasks.back().Start();
  }
  for (Task<bool>& task : tasks) {
    while (!task.done()) client_->Poll(INT64_MAX);
  }
  EXPECT_EQ(*client_->Get("counter"), std::to_string(kAtOnce * kTimes));
  EXPECT_EQ(*table->Get("counter"), std::to_string(kAtOnce * kTimes));
}

INSTANTIATE_TEST_SUITE_P(Durabilities, FunctionsTest,
                         ::testing::Values(Durability::kNone, Durability::kAsync, Durability::kSync),
                         [](const auto& info) { return std::string(ToString(info.param)); });

}  // namespace
}  // namespace cell

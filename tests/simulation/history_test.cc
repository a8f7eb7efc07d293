#include "tests/simulation/history.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cell {
namespace {

using Kind = KeyOperation::Kind;

// Returns whether a slice from 100 to 200 can have counted `pairs` of the keys 0 to 2 after these operations on key 0.
// Key 1 is there all the time, and key 2 never.
bool CanCount(uint64_t pairs, const std::vector<KeyOperation>& operations) {
  History history(3);
  history.Add(1, {Kind::kPut, 0, 10, 1});
  for (const KeyOperation& operation : operations) history.Add(0, operation);
  history.AddCount({0, 3, 100, 200, pairs});
  return history.Check(/*may_lose=*/false, 0, 5).violations.empty();
}

TEST(History, ACountIsBetweenWhatIsCertainlyThereAndWhatIsPossiblyThere) {
  const KeyOperation put{Kind::kPut, 20, 30, 1};
  const auto counts = [](const std::vector<KeyOperation>& operations) {
    std::string counts;
    for (uint64_t pairs = 0; pairs <= 4; ++pairs) {
      if (CanCount(pairs, operations)) counts += std::to_string(pairs);
    }
    return counts;
  };
  EXPECT_EQ(counts({}), "1");
  EXPECT_EQ(counts({put}), "2");
  EXPECT_EQ(counts({put, {Kind::kDelete, 40, 50}}), "1");
  EXPECT_EQ(counts({put, {Kind::kDelete, 25, 50}}), "12");  // One may have come before the other.
  EXPECT_EQ(counts({put, {Kind::kDelete, 90, 101}}), "12");
  EXPECT_EQ(counts({put, {Kind::kDelete, 150, 160}}), "12");
  EXPECT_EQ(counts({put, {Kind::kDelete, 201, 210}}), "2");
  EXPECT_EQ(counts({put, {Kind::kDelete, 40, KeyOperation::kNever}}), "12");
  EXPECT_EQ(counts({{Kind::kPut, 199, 300, 1}}), "12");
  EXPECT_EQ(counts({{Kind::kPut, 201, 300, 1}}), "1");
  EXPECT_EQ(counts({{Kind::kPut, 20, KeyOperation::kNever, 1}, {Kind::kDelete, 40, 50}}), "12");
  EXPECT_EQ(counts({put, {Kind::kDelete, 40, 50}, {Kind::kPut, 60, 70, 2}}), "2");
}

}  // namespace
}  // namespace cell

#include "tests/simulation/linearizability.h"

#include <gtest/gtest.h>

#include "cell/base/random.h"

namespace cell {
namespace {

using Kind = KeyOperation::Kind;
constexpr int64_t kNever = KeyOperation::kNever;

struct Case {
  const char* name;
  std::vector<KeyOperation> operations;
  Linearizable outcome;
};

using Wants = KeyOperation::If;
KeyOperation If(KeyOperation operation, Wants condition, int64_t expected = 0) {
  operation.condition = condition;
  operation.expected = expected;
  return operation;
}

TEST(Linearizability, OfShortHistories) {
  const std::vector<Case> cases = {
      {"nothing", {}, Linearizable::kYes},
      {"reads what was put", {{Kind::kPut, 0, 1, 1}, {Kind::kGet, 2, 3, 1}}, Linearizable::kYes},
      {"a lost put", {{Kind::kPut, 0, 1, 1}, {Kind::kGet, 2, 3, 0}}, Linearizable::kNo},
      {"a read that overlaps a put: before it", {{Kind::kPut, 0, 9, 1}, {Kind::kGet, 2, 3, 0}}, Linearizable::kYes},
      {"and after it", {{Kind::kPut, 0, 9, 1}, {Kind::kGet, 2, 3, 1}}, Linearizable::kYes},
      {"but not after and then before",
       {{Kind::kPut, 0, 9, 1}, {Kind::kGet, 2, 3, 1}, {Kind::kGet, 4, 5, 0}},
       Linearizable::kNo},
      {"a value that nobody put", {{Kind::kGet, 2, 3, 7}}, Linearizable::kNo},
      {"a value before it was put", {{Kind::kGet, 0, 1, 1}, {Kind::kPut, 2, 3, 1}}, Linearizable::kNo},
      {"a stale read", {{Kind::kPut, 0, 1, 1}, {Kind::kPut, 2, 3, 2}, {Kind::kGet, 4, 5, 1}}, Linearizable::kNo},
      {"an unknown put that was seen", {{Kind::kPut, 0, kNever, 1}, {Kind::kGet, 2, 3, 1}}, Linearizable::kYes},
      {"and one that was not", {{Kind::kPut, 0, kNever, 1}, {Kind::kGet, 2, 3, 0}}, Linearizable::kYes},
      {"and one that comes late",
       {{Kind::kPut, 0, kNever, 1}, {Kind::kPut, 1, 2, 2}, {Kind::kGet, 3, 4, 2}, {Kind::kGet, 5, 6, 1}},
       Linearizable::kYes},
      {"but not twice",
       {{Kind::kPut, 0, kNever, 1},
        {Kind::kGet, 1, 2, 1},
        {Kind::kPut, 3, 4, 2},
        {Kind::kGet, 5, 6, 2},
        {Kind::kGet, 7, 8, 1}},
       Linearizable::kNo},
      {"what a delete tells", {{Kind::kPut, 0, 1, 1}, {Kind::kDelete, 2, 3, 0, 1}}, Linearizable::kYes},
      {"and tells wrongly", {{Kind::kPut, 0, 1, 1}, {Kind::kDelete, 2, 3, 0, 0}}, Linearizable::kNo},
      {"a put of nothing that was there", {{Kind::kPut, 0, 1, 1, 1}}, Linearizable::kNo},
      {"a put of the value that is there, which comes when another is there",
       {{Kind::kPut, 0, 1, 1},
        {Kind::kPut, 2, 20, 1, 1},
        {Kind::kDelete, 3, 4, 0, 1},
        {Kind::kPut, 5, 6, 2, 0},
        {Kind::kGet, 21, 22, 1}},
       Linearizable::kYes},
      {"a delete that is not known to have deleted, which comes when there is something",
       {{Kind::kDelete, 0, 20, 0}, {Kind::kPut, 1, 2, 1, 0}, {Kind::kGet, 21, 22, 0}},
       Linearizable::kYes},
      {"an expired value",
       {{Kind::kPut, 0, 1, 1, -1, 5}, {Kind::kGet, 2, 4, 1}, {Kind::kGet, 6, 7, 0}},
       Linearizable::kYes},
      {"a value after its expiry", {{Kind::kPut, 0, 1, 1, -1, 5}, {Kind::kGet, 6, 7, 1}}, Linearizable::kNo},
      {"no value before its expiry", {{Kind::kPut, 0, 1, 1, -1, 5}, {Kind::kGet, 2, 4, 0}}, Linearizable::kNo},
      {"either at its expiry",
       {{Kind::kPut, 0, 1, 1, -1, 5}, {Kind::kGet, 2, 5, 0}, {Kind::kDelete, 2, 6, 0, 0}},
       Linearizable::kYes},
      {"a value that was there again",
       {{Kind::kPut, 0, 1, 1, -1, 5}, {Kind::kGet, 2, 5, 0}, {Kind::kGet, 4, 8, 1}},
       Linearizable::kYes},
      {"an evicted value",
       {{.kind = Kind::kPut, .begin_ns = 0, .end_ns = 1, .value = 1, .evictable = true},
        {Kind::kGet, 2, 3, 1},
        {Kind::kGet, 4, 5, 0}},
       Linearizable::kYes},
      {"an evicted value that comes again",
       {{.kind = Kind::kPut, .begin_ns = 0, .end_ns = 1, .value = 1, .evictable = true},
        {Kind::kGet, 2, 3, 0},
        {Kind::kGet, 4, 5, 1}},
       Linearizable::kNo},
      {"a value before an evicted one",
       {{Kind::kPut, 0, 1, 1},
        {.kind = Kind::kPut, .begin_ns = 2, .end_ns = 3, .value = 2, .evictable = true},
        {Kind::kGet, 4, 5, 1}},
       Linearizable::kNo},
      {"one that must not be evicted", {{Kind::kPut, 0, 1, 1}, {Kind::kGet, 2, 3, 0}}, Linearizable::kNo},
      {"an expiry of a value that was replaced",
       {{Kind::kPut, 0, 1, 1, -1, 5}, {Kind::kPut, 2, 3, 2}, {Kind::kGet, 6, 7, 2}},
       Linearizable::kYes},
      {"a put that takes effect after its expiry",
       {{Kind::kPut, 0, 1, 1}, {Kind::kPut, 2, 9, 2, -1, 5}, {Kind::kGet, 6, 7, 1}, {Kind::kGet, 10, 11, 0}},
       Linearizable::kYes},
      {"a delete of an expired value", {{Kind::kPut, 0, 1, 1, -1, 5}, {Kind::kDelete, 6, 7, 0, 1}}, Linearizable::kNo},
      {"a put if absent, and one that is refused",
       {If({Kind::kPut, 0, 1, 1, 0}, Wants::kAbsent), If({Kind::kRefused, 2, 3, 2, 1}, Wants::kAbsent)},
       Linearizable::kYes},
      {"one that is not refused",
       {{Kind::kPut, 0, 1, 1}, If({Kind::kPut, 2, 3, 2, 1}, Wants::kAbsent)},
       Linearizable::kNo},
      {"two of the same value that are both applied",
       {{Kind::kPut, 0, 1, 1},
        If({Kind::kPut, 2, 9, 2, 1}, Wants::kValue, 1),
        If({Kind::kPut, 2, 9, 3, 1}, Wants::kValue, 1)},
       Linearizable::kNo},
      {"and one of them refused",
       {{Kind::kPut, 0, 1, 1},
        If({Kind::kPut, 2, 9, 2, 1}, Wants::kValue, 1),
        If({Kind::kRefused, 2, 9, 3, 1}, Wants::kValue, 1)},
       Linearizable::kYes},
      {"a refusal without a reason",
       {{Kind::kPut, 0, 1, 1}, If({Kind::kRefused, 2, 3, 0, 1}, Wants::kPresent)},
       Linearizable::kNo},
      {"an unknown one whose condition never holds",
       {{Kind::kPut, 0, 1, 1}, If({Kind::kPut, 2, kNever, 2}, Wants::kAbsent), {Kind::kGet, 4, 5, 2}},
       Linearizable::kNo},
      {"contains", {{Kind::kPut, 0, 1, 1}, {Kind::kContains, 2, 3, 1}}, Linearizable::kYes},
      {"contains, wrongly", {{Kind::kPut, 0, 1, 1}, {Kind::kContains, 2, 3, 0}}, Linearizable::kNo},
  };
  for (const Case& one : cases) EXPECT_EQ(CheckLinearizable(one.operations), one.outcome) << one.name;
}

// Random histories of a register: each operation happens at one moment of its interval. If one outcome is replaced by
// another value's, they are not linearizable any more, unless another order explains that too; most are found.
TEST(Linearizability, OfRandomHistories) {
  int found = 0, gave_up = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    std::vector<KeyOperation> operations;
    int64_t value = 0, next = 1, expiry_ns = kNever;
    bool evictable = false;
    for (int i = 0; i < 300; ++i) {
      const int64_t moment = 10 * i;
      KeyOperation operation{static_cast<Kind>(random.Below(4)), moment - static_cast<int64_t>(random.Below(60)),
                             moment + static_cast<int64_t>(random.Below(60))};
      if (expiry_ns < moment) value = 0, expiry_ns = kNever;
      if (evictable && random.Below(8) == 0) value = 0, expiry_ns = kNever;
      const bool there = value != 0;
      if (operation.kind <= Kind::kDelete && random.Below(3) == 0) {
        operation.condition = static_cast<Wants>(1 + random.Below(3));
        operation.expected = random.Below(2) == 0 ? value : next - 1;
        const bool holds = operation.condition == Wants::kAbsent    ? !there
                           : operation.condition == Wants::kPresent ? there
                                                                    : value == operation.expected;
        if (!holds) operation.kind = Kind::kRefused;
      }
      switch (operation.kind) {
        case Kind::kRefused:
          operation.existed = there;
          break;
        case Kind::kPut:
          operation.existed = there;
          operation.value = value = next++;
          expiry_ns = random.Below(4) == 0 ? moment + 5 + 10 * static_cast<int64_t>(random.Below(10)) : kNever;
          operation.expiry_ns = expiry_ns;
          operation.evictable = evictable = random.Below(3) == 0;
          break;
        case Kind::kDelete:
          operation.existed = there;
          value = 0;
          expiry_ns = kNever;
          break;
        case Kind::kGet:
          operation.value = value;
          break;
        case Kind::kContains:
          operation.value = there;
          break;
        case Kind::kExpire:
        case Kind::kEvict:
          break;
      }
      if (operation.kind <= Kind::kDelete && random.Below(50) == 0) operation.end_ns = kNever, operation.existed = -1;
      operations.push_back(operation);
    }
    ASSERT_EQ(CheckLinearizable(operations), Linearizable::kYes) << seed;
    std::vector<size_t> gets;
    for (size_t i = 0; i < operations.size(); ++i) {
      if (operations[i].kind == Kind::kGet) gets.push_back(i);
    }
    KeyOperation& changed = operations[gets[random.Below(gets.size())]];
    const int64_t wrong = 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(next - 1)));
    if (wrong == changed.value) continue;
    changed.value = wrong;
    found += CheckLinearizable(operations) == Linearizable::kNo;
    gave_up += CheckLinearizable(operations) == Linearizable::kGaveUp;
  }
  EXPECT_GT(found, 180);
  EXPECT_LT(gave_up, 10);
}

}  // namespace
}  // namespace cell

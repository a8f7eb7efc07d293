// Checks whether a history of one key is linearizable: whether its operations have an order that respects their times
// (an operation that ended before another began comes first) and that explains the outcome of each.
//
// The search is that of Wing and Gong (1993) with Lowe's memory of visited states (2017), which are pairs of a set of
// operations and the value after them.
#pragma once

#include <cstdint>
#include <vector>

namespace cell {

struct KeyOperation {
  // kExpire: deletes the value of this number, at its moment, and nothing else. The check adds one for each put with an
  // expiry.
  // kEvict: the same at any time from its begin on, or never. The check adds one for each put that may be evicted.
  // kRefused: a put or a delete whose condition did not hold.
  enum class Kind : uint8_t { kPut, kDelete, kGet, kContains, kExpire, kEvict, kRefused };
  // The condition of a put or a delete. With kValue, the key must have the value whose number is `expected`.
  enum class If : uint8_t { kNothing, kAbsent, kPresent, kValue };
  static constexpr int64_t kNever = INT64_MAX;

  Kind kind;
  int64_t begin_ns;
  int64_t end_ns;     // kNever: the outcome is unknown. It happened at any time after its begin, or not at all.
  int64_t value = 0;  // Put: its number, above 0. Get: what it read, 0 for nothing. Contains: 0 or 1.
  int existed = -1;   // Put, delete, refused: whether the key was reported as existing; -1: unknown.
  int64_t expiry_ns = kNever;  // Put: from this moment on its value is not there.
  bool evictable = false;      // Put: its value may go at any time.
  If condition = If::kNothing;
  int64_t expected = 0;  // Of kValue.
};

enum class Linearizable { kYes, kNo, kGaveUp };

// Checks the history of a key that is absent at first. Gives up after `steps_max` steps.
Linearizable CheckLinearizable(const std::vector<KeyOperation>& operations, uint64_t steps_max = 2'000'000);

}  // namespace cell

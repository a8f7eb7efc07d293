// Whether a history of one key is linearizable: whether its operations have an order that keeps to their times (one
// that ended before another began comes first) and in which each has the outcome that it had.
//
// The search is that of Wing and Gong (1993) with Lowe's memory of where it has been (2017): it remembers pairs of a
// set of operations and the value after them.
#pragma once

#include <cstdint>
#include <vector>

namespace cell {

struct KeyOperation {
  enum class Kind : uint8_t { kPut, kDelete, kGet, kContains };
  static constexpr int64_t kNever = INT64_MAX;

  Kind kind;
  int64_t begin_ns;
  int64_t end_ns;     // kNever: its outcome is not known. It happened at any time after its begin, or not at all.
  int64_t value = 0;  // Of a put: its number, above 0. Of a get: what it read, 0 for nothing. Of contains: 0 or 1.
  int existed = -1;   // What a put or delete told: whether the key was there; -1: not known.
};

enum class Linearizable { kYes, kNo, kGaveUp };

// A key that is absent at first. Gives up after `steps_max`.
Linearizable CheckLinearizable(std::vector<KeyOperation> operations, uint64_t steps_max = 2'000'000);

}  // namespace cell

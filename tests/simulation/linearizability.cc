#include "tests/simulation/linearizability.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "cell/base/random.h"

namespace cell {
namespace {

// An operation's call or its return, in a list in the order of time, from which ordered operations are removed.
struct Event {
  size_t operation;
  bool is_return;
  size_t previous, next;
};

class Search {
 public:
  // The expiry of operation i, if it has one, is operation expiries[i].
  Search(const std::vector<KeyOperation>& operations, const std::vector<size_t>& expiries)
      : operations_(operations), expiries_(expiries), placed_(operations.size()) {
    struct Moment {
      int64_t ns;
      bool is_return;  // At the same moment, calls come first: they may overlap.
      size_t operation;
    };
    std::vector<Moment> moments;
    for (size_t i = 0; i < operations.size(); ++i) {
      moments.push_back({operations[i].begin_ns, false, i});
      if (operations[i].end_ns == KeyOperation::kNever) continue;
      moments.push_back({operations[i].end_ns, true, i});
      ++returns_left_;
    }
    std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
      return std::tie(a.ns, a.is_return, a.operation) < std::tie(b.ns, b.is_return, b.operation);
    });
    call_.resize(operations.size());
    return_.resize(operations.size(), kEnd);
    events_.push_back({0, false, kHead, 1});  // The head.
    for (const Moment& moment : moments) {
      const size_t at = events_.size();
      (moment.is_return ? return_ : call_)[moment.operation] = at;
      events_.push_back({moment.operation, moment.is_return, at - 1, at + 1});
    }
    events_.back().next = kEnd;
  }

  Linearizable Run(uint64_t steps_max) {
    size_t at = events_[kHead].next;
    for (uint64_t steps = 0; returns_left_ > 0; ++steps) {
      if (steps == steps_max) return Linearizable::kGaveUp;
      const Event& event = events_[at];
      if (!event.is_return) {
        int64_t after = 0;
        const uint64_t mark = MarkOf(event.operation);
        const bool applies = Applies(event.operation, &after);
        // Place an operation that never changes anything as soon as it is possible: it excludes no other order.
        const bool harmless =
            applies && ChangesNothing(operations_[event.operation]) && return_[event.operation] != kEnd;
        if (harmless ||
            (applies &&
             been_.insert(Mix64((ordered_ ^ mark) + 1) ^ Mix64(static_cast<uint64_t>(after) * 2 + 1)).second)) {
          stack_.push_back({event.operation, value_, harmless});
          value_ = after;
          ordered_ ^= mark;
          TakeOut(event.operation);
          at = events_[kHead].next;
        } else {
          at = event.next;
        }
        continue;
      }
      // It had returned by here, and has no position before: try another order.
      Placed last;
      do {
        if (stack_.empty()) return Linearizable::kNo;
        last = stack_.back();
        stack_.pop_back();
        value_ = last.value_before;
        ordered_ ^= MarkOf(last.operation);
        PutBack(last.operation);
      } while (last.harmless);
      at = events_[call_[last.operation]].next;
    }
    return Linearizable::kYes;
  }

 private:
  static constexpr size_t kHead = 0;
  static constexpr size_t kEnd = SIZE_MAX;

  struct Placed {
    size_t operation;
    int64_t value_before;
    bool harmless;
  };

  // An eviction that was ordered, or not, makes no difference once its value is gone: that never comes again.
  uint64_t MarkOf(size_t operation) const {
    return operations_[operation].kind == KeyOperation::Kind::kEvict ? 0 : Mix64(operation + 1);
  }
  // Returns whether an operation changes nothing in any position. A put of the current value may change another one
  // later.
  static bool ChangesNothing(const KeyOperation& operation) {
    const bool read = operation.kind == KeyOperation::Kind::kGet || operation.kind == KeyOperation::Kind::kContains ||
                      operation.kind == KeyOperation::Kind::kRefused;
    return read || (operation.kind == KeyOperation::Kind::kDelete && operation.existed == 0);
  }
  bool Holds(const KeyOperation& operation) const {
    switch (operation.condition) {
      case KeyOperation::If::kNothing:
        return true;
      case KeyOperation::If::kAbsent:
        return value_ == 0;
      case KeyOperation::If::kPresent:
        return value_ != 0;
      case KeyOperation::If::kValue:
        return value_ == operation.expected;
    }
    return false;
  }
  bool Applies(size_t i, int64_t* after) const {
    const KeyOperation& operation = operations_[i];
    const int there = value_ != 0;
    *after = value_;
    if (operation.kind == KeyOperation::Kind::kRefused) return !Holds(operation) && operation.existed == there;
    if (!Holds(operation)) return false;
    switch (operation.kind) {
      case KeyOperation::Kind::kRefused:
        return false;  // See above.
      case KeyOperation::Kind::kPut:
        // A put that takes effect after its expiry deletes what was there.
        *after = expiries_[i] != kEnd && placed_[expiries_[i]] ? 0 : operation.value;
        return operation.existed < 0 || operation.existed == there;
      case KeyOperation::Kind::kDelete:
        *after = 0;
        return operation.existed < 0 || operation.existed == there;
      case KeyOperation::Kind::kGet:
        return operation.value == value_;
      case KeyOperation::Kind::kContains:
        return operation.value == there;
      case KeyOperation::Kind::kExpire:
        if (value_ == operation.value) *after = 0;
        return true;
      case KeyOperation::Kind::kEvict:
        *after = 0;
        return value_ == operation.value;
    }
    return false;
  }
  void Unlink(size_t at) {
    const Event& event = events_[at];
    events_[event.previous].next = event.next;
    if (event.next != kEnd) events_[event.next].previous = event.previous;
  }
  void Link(size_t at) {
    const Event& event = events_[at];
    events_[event.previous].next = at;
    if (event.next != kEnd) events_[event.next].previous = at;
  }
  void TakeOut(size_t operation) {
    placed_[operation] = true;
    Unlink(call_[operation]);
    if (return_[operation] == kEnd) return;
    Unlink(return_[operation]);
    --returns_left_;
  }
  void PutBack(size_t operation) {
    placed_[operation] = false;
    if (return_[operation] != kEnd) {
      Link(return_[operation]);
      ++returns_left_;
    }
    Link(call_[operation]);
  }

  const std::vector<KeyOperation>& operations_;
  const std::vector<size_t>& expiries_;
  std::vector<bool> placed_;  // By operation.
  std::vector<Event> events_;
  std::vector<size_t> call_, return_;
  size_t returns_left_ = 0;
  int64_t value_ = 0;
  uint64_t ordered_ = 0;  // A hash of the set of ordered operations.
  std::vector<Placed> stack_;
  absl::flat_hash_set<uint64_t> been_;
};

}  // namespace

Linearizable CheckLinearizable(const std::vector<KeyOperation>& operations, uint64_t steps_max) {
  std::vector<KeyOperation> all = operations;
  std::vector<size_t> expiries(operations.size(), SIZE_MAX);
  for (size_t i = 0; i < operations.size(); ++i) {
    const KeyOperation& put = operations[i];
    if (put.kind != KeyOperation::Kind::kPut) continue;
    if (put.evictable) all.push_back({KeyOperation::Kind::kEvict, put.begin_ns, KeyOperation::kNever, put.value});
    if (put.expiry_ns == KeyOperation::kNever) continue;
    expiries[i] = all.size();
    all.push_back({KeyOperation::Kind::kExpire, put.expiry_ns, put.expiry_ns, put.value});
  }
  expiries.resize(all.size(), SIZE_MAX);
  return Search(all, expiries).Run(steps_max);
}

}  // namespace cell

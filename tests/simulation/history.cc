#include "tests/simulation/history.h"

#include <algorithm>
#include <array>
#include <map>

namespace cell {
namespace {

using Kind = KeyOperation::Kind;

constexpr size_t kOperationsShown = 12;

// Returns the end of the shortest prefix that is wrong, so that it ends with what is wrong.
std::string Shorten(std::vector<KeyOperation> sorted) {
  std::sort(sorted.begin(), sorted.end(),
            [](const KeyOperation& a, const KeyOperation& b) { return a.begin_ns < b.begin_ns; });
  size_t low = 0, high = sorted.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const std::vector<KeyOperation> head(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(middle));
    if (CheckLinearizable(head) == Linearizable::kNo) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  std::string text;
  for (size_t i = low > kOperationsShown ? low - kOperationsShown : 0; i < std::min(low, sorted.size()); ++i) {
    static constexpr std::array kWords = {"put", "delete", "get", "contains", "expire", "evict", "refused"};
    const KeyOperation& operation = sorted[i];
    static constexpr std::array kConditions = {"", " if absent", " if present", " if its value is "};
    std::string condition = kConditions[static_cast<size_t>(operation.condition)];
    if (operation.condition == KeyOperation::If::kValue) condition += std::to_string(operation.expected);
    text += fmt::format("\n    {} {}{} (existed {}) from {} to {}", kWords[static_cast<size_t>(operation.kind)],
                        operation.value, condition, operation.existed, operation.begin_ns,
                        operation.end_ns == KeyOperation::kNever ? "?" : std::to_string(operation.end_ns));
  }
  return text;
}

}  // namespace

History::Verdict History::Check(bool may_lose, int64_t slack_ns, size_t violations_max) const {
  Verdict verdict;
  for (size_t key = 0; key < keys() && verdict.violations.size() < violations_max; ++key) {
    verdict.checked += of(key).size();
    if (may_lose && !windows_.empty()) {
      CheckLoss(key, slack_ns, &verdict);
    } else {
      CheckLinear(key, &verdict);
    }
  }
  const bool lossy = may_lose && !windows_.empty();
  for (size_t i = 0; i < counts_.size() && !lossy && verdict.violations.size() < violations_max; ++i) {
    CheckCount(counts_[i], &verdict);
  }
  return verdict;
}

bool History::CertainlyThere(size_t key, int64_t begin_ns, int64_t end_ns) const {
  int64_t deleted_ns = -1;  // The last deletion that may have happened has ended by then.
  for (const KeyOperation& operation : of(key)) {
    if (operation.kind == Kind::kDelete && operation.begin_ns <= end_ns) {
      deleted_ns = std::max(deleted_ns, operation.end_ns);
    }
    // A put that takes effect after its expiry deletes what was there.
    if (operation.expiry_ns <= end_ns) deleted_ns = std::max({deleted_ns, operation.expiry_ns, operation.end_ns});
  }
  return std::any_of(of(key).begin(), of(key).end(), [&](const KeyOperation& put) {
    return put.kind == Kind::kPut && !put.evictable && put.end_ns < begin_ns && put.begin_ns > deleted_ns;
  });
}

bool History::PossiblyThere(size_t key, int64_t begin_ns, int64_t end_ns, bool expired_too) const {
  int64_t deleted_ns = -1;  // What was put before this is certainly gone.
  for (const KeyOperation& operation : of(key)) {
    if (operation.kind == Kind::kDelete && operation.end_ns < begin_ns) {
      deleted_ns = std::max(deleted_ns, operation.begin_ns);
    }
  }
  return std::any_of(of(key).begin(), of(key).end(), [&](const KeyOperation& put) {
    return put.kind == Kind::kPut && put.begin_ns <= end_ns && put.end_ns >= deleted_ns &&
           (expired_too || put.expiry_ns >= begin_ns);
  });
}

void History::CheckCount(const Count& count, Verdict* verdict) const {
  uint64_t certain = 0, possible = 0;
  for (size_t key = count.first; key < count.end; ++key) {
    certain += CertainlyThere(key, count.begin_ns, count.end_ns);
    possible += PossiblyThere(key, count.begin_ns, count.end_ns, count.deleted);
  }
  if (count.pairs >= certain && count.pairs <= possible) return;
  verdict->violations.push_back(fmt::format(
      "{} of the keys from {} to {} were counted or deleted from {} to {}, but {} "
      "were certainly there, and {} possibly",
      count.pairs, KeyName(count.first), KeyName(count.end), count.begin_ns, count.end_ns, certain, possible));
}

void History::CheckLinear(size_t key, Verdict* verdict) const {
  switch (CheckLinearizable(of(key))) {
    case Linearizable::kYes:
      break;
    case Linearizable::kNo:
      verdict->violations.push_back(
          fmt::format("the history of {} is not linearizable:{}", KeyName(key), Shorten(of(key))));
      break;
    case Linearizable::kGaveUp:
      ++verdict->gave_up;
      break;
  }
}

// Checks that what was read was put before the read's end, and that no write acknowledged a bound before any fault
// follows the value of the last read.
void History::CheckLoss(size_t key, int64_t slack_ns, Verdict* verdict) const {
  const std::vector<KeyOperation>& history = of(key);
  std::map<int64_t, KeyOperation> puts;
  for (const KeyOperation& operation : history) {
    if (operation.kind == Kind::kPut) puts.emplace(operation.value, operation);
  }
  for (const KeyOperation& operation : history) {
    if (operation.kind != Kind::kGet || operation.value == 0) continue;
    const auto put = puts.find(operation.value);
    if (put == puts.end() || put->second.begin_ns > operation.end_ns) {
      // A put that failed plainly is in no history.
      verdict->violations.push_back(fmt::format("{} was read as {} before {} was put, or though it failed",
                                                KeyName(key), operation.value, operation.value));
    }
  }
  if (history.empty() || history.back().kind != Kind::kGet) return;
  const KeyOperation& last = history.back();
  // The time of the value, or of any reason for there being none.
  int64_t written_ns = last.value == 0 ? -1 : 0;
  for (const KeyOperation& operation : history) {
    const bool put = operation.kind == Kind::kPut;
    const bool gone = operation.expiry_ns <= last.end_ns || operation.evictable;
    const bool is_it =
        last.value == 0 ? operation.kind == Kind::kDelete || (put && gone) : put && operation.value == last.value;
    if (is_it) written_ns = std::max(written_ns, operation.end_ns);
  }
  for (const KeyOperation& operation : history) {
    const bool write = operation.kind == Kind::kPut || operation.kind == Kind::kDelete;
    if (!write || operation.begin_ns <= written_ns || operation.end_ns == KeyOperation::kNever) continue;
    const bool safe = std::none_of(windows_.begin(), windows_.end(), [&](const Window& window) {
      return operation.end_ns >= window.begin_ns - slack_ns && operation.end_ns <= window.end_ns;
    });
    if (safe) {
      verdict->violations.push_back(
          fmt::format("{} is {} at the end, but {} was acknowledged at {}, long before a fault", KeyName(key),
                      last.value, operation.value, operation.end_ns));
      return;
    }
  }
}

}  // namespace cell

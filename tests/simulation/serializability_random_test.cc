// Compares the checker of serializability with searches of all orders, by random histories.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "fmt/format.h"
#include "tests/simulation/random_transactions.h"
#include "tests/simulation/serializability.h"
#include "tests/simulation/test_transactions.h"

namespace cell {
namespace {

using ::testing::HasSubstr;
using Kind = SerializabilityResult::Kind;
using Read = TransactionRecord::Read;
using Write = TransactionRecord::Write;
constexpr uint64_t kAbsent = 0;

// Tells whether a history is serializable by trying every order.
class BruteForce {
 public:
  explicit BruteForce(const std::vector<TransactionRecord>& history) : history_(history), placed_(history.size()) {}

  bool Accepts(size_t placed = 0) {
    if (placed == history_.size()) return true;
    for (size_t i = 0; i < history_.size(); ++i) {
      if (placed_[i] || !MayComeNext(history_[i])) continue;
      const std::vector<State> before = states_;
      Place(i);
      if (Accepts(placed + 1)) return true;
      placed_[i] = false;
      states_ = before;
    }
    return false;
  }

  bool AcceptsOrder(const std::vector<size_t>& order) {
    for (const size_t i : order) {
      if (placed_[i] || !MayComeNext(history_[i])) return false;
      Place(i);
    }
    return order.size() == history_.size();
  }

 private:
  struct State {
    uint64_t stamp = 0;
    bool present = false;
  };
  void Place(size_t i) {
    for (const Write& write : history_[i].writes) {
      states_[static_cast<size_t>(write.key)] = {history_[i].stamp, !write.deletes};
    }
    placed_[i] = true;
  }
  bool MayComeNext(const TransactionRecord& next) const {
    for (size_t i = 0; i < history_.size(); ++i) {
      if (!placed_[i] && history_[i].end_ns < next.begin_ns) return false;
    }
    for (const Read& read : next.reads) {
      const State& state = states_[static_cast<size_t>(read.key)];
      if (read.stamp != (state.present ? state.stamp : 0)) return false;
    }
    return std::all_of(next.writes.begin(), next.writes.end(), [this, &next](const Write& write) {
      return next.stamp > states_[static_cast<size_t>(write.key)].stamp;
    });
  }

  const std::vector<TransactionRecord>& history_;
  std::vector<bool> placed_;
  std::vector<State> states_ = std::vector<State>(8);
};

std::string Print(const std::vector<TransactionRecord>& history) {
  std::string text;
  for (const TransactionRecord& one : history) {
    text += fmt::format("{} from {} to {}, stamp {}:", one.name, one.begin_ns, one.end_ns, one.stamp);
    for (const Read& read : one.reads) text += fmt::format(" read {}@{}", read.key, read.stamp);
    for (const Write& write : one.writes) text += fmt::format(" {} {}", write.deletes ? "delete" : "put", write.key);
    text += '\n';
  }
  return text;
}

TEST(Serializability, AcceptsSmallSerialExecutions) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Random random(seed);
    const std::vector<TransactionRecord> history = ExecuteSerially(SmallShape(&random), &random);
    ASSERT_TRUE(BruteForce(history).Accepts()) << seed << '\n' << Print(history);
    const SerializabilityResult result = CheckSerializable(history);
    ASSERT_EQ(result.kind, Kind::kYes) << seed << ": " << result.why << '\n' << Print(history);
  }
}

TEST(Serializability, AgreesWithBruteForce) {
  int accepted = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    Random random(seed);
    const std::vector<TransactionRecord> history = SmallHistory(&random);
    const bool accepts = BruteForce(history).Accepts();
    const SerializabilityResult result = CheckSerializable(history);
    ASSERT_EQ(result.kind, accepts ? Kind::kYes : Kind::kNo) << seed << ": " << result.why << '\n' << Print(history);
    ASSERT_EQ(BruteForce(history).AcceptsOrder(result.order), accepts) << seed << '\n' << Print(history);
    ++(accepts ? accepted : refused);
  }
  EXPECT_GT(accepted, 2500);
  EXPECT_GT(refused, 2500);
}

// A history in which only choices are hard. Each of some keys is put and deleted once, and readers see it as absent.
// All transactions overlap, and random ones read what others wrote, by which they come after them.
struct ChoiceHistory {
  static constexpr size_t kKeys = 5, kReaders = 10, kTransactions = 2 * kKeys + kReaders;
  static size_t PutOf(size_t key) { return 2 * key; }
  static size_t DeletionOf(size_t key) { return 2 * key + 1; }
  static size_t ReaderOf(size_t i) { return 2 * kKeys + i; }

  explicit ChoiceHistory(uint64_t seed) {
    Random random(seed);
    std::vector<uint64_t> order(kTransactions);  // Nobody reads from a later one.
    for (uint64_t& place : order) place = random.Next();
    for (size_t i = 0; i < kTransactions; ++i) {
      // Each transaction also writes a key of its own, for others to read.
      const auto place = static_cast<int64_t>(random.Below(1000));
      history.push_back(At(place, Writer(fmt::format("T{}", i), 0, 0, 1 + i, {static_cast<int>(kKeys + i)})));
    }
    for (size_t key = 0; key < kKeys; ++key) {
      const size_t put = PutOf(key), deletion = DeletionOf(key);
      history[put].writes.push_back({static_cast<int>(key), false});
      history[deletion].writes.push_back({static_cast<int>(key), true});
      after[put] |= uint64_t{1} << deletion;
      if (order[put] > order[deletion]) std::swap(order[put], order[deletion]);
    }
    for (size_t i = 0; i < kReaders; ++i) {
      history[ReaderOf(i)].reads.push_back({static_cast<int>(i % kKeys), kAbsent});
    }
    for (uint64_t tries = 80 + random.Below(100); tries > 0; --tries) {
      // Puts read nothing, and nobody reads from deletions, so that few choices are forced.
      size_t from = random.Below(kTransactions), to = random.Below(kTransactions);
      if (order[from] > order[to]) std::swap(from, to);
      const bool put = to < 2 * kKeys && to % 2 == 0, deletion = from < 2 * kKeys && from % 2 == 1;
      if (from == to || put || deletion || KeyOf(from) == KeyOf(to)) continue;
      after[from] |= uint64_t{1} << to;
      history[to].reads.push_back({static_cast<int>(kKeys + from), 1 + from});
    }
  }

  static size_t KeyOf(size_t i) { return i < 2 * kKeys ? i / 2 : (i - 2 * kKeys) % kKeys; }

  // Tries all choices.
  bool IsSerializable() const {
    for (uint64_t choices = 0; choices < uint64_t{1} << kReaders; ++choices) {
      std::vector<uint64_t> chosen = after;
      for (size_t i = 0; i < kReaders; ++i) {
        if ((choices >> i & 1) != 0) {
          chosen[ReaderOf(i)] |= uint64_t{1} << PutOf(i % kKeys);
        } else {
          chosen[DeletionOf(i % kKeys)] |= uint64_t{1} << ReaderOf(i);
        }
      }
      if (IsAcyclic(chosen)) return true;
    }
    return false;
  }
  static bool IsAcyclic(const std::vector<uint64_t>& edges) {
    uint64_t left = (uint64_t{1} << edges.size()) - 1;
    for (bool fewer = true; fewer;) {
      fewer = false;
      for (size_t i = 0; i < edges.size(); ++i) {
        if ((left >> i & 1) == 0 || (edges[i] & left) != 0) continue;
        left ^= uint64_t{1} << i;
        fewer = true;
      }
    }
    return left == 0;
  }

  std::vector<TransactionRecord> history;
  std::vector<uint64_t> after =
      std::vector<uint64_t>(kTransactions);  // By transaction: a bit for each that follows it.
};

TEST(Serializability, AgreesWithTryingAllChoices) {
  int accepted = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const ChoiceHistory choices(seed);
    const bool accepts = choices.IsSerializable();
    const SerializabilityResult result = CheckSerializable(choices.history);
    ASSERT_EQ(result.kind, accepts ? Kind::kYes : Kind::kNo) << seed << ": " << result.why;
    ++(accepts ? accepted : refused);
  }
  EXPECT_GT(accepted, 300);
  EXPECT_GT(refused, 300);
}

// All transactions overlap, and most keys come and go, so that times prove nothing and much is left to choose.
TEST(Serializability, FindsTheChoicesOfManyAbsences) {
  int gave_up = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    const std::vector<TransactionRecord> history =
        ExecuteSerially({.transactions = 60, .keys = 8, .keys_max = 4, .overlap = 1000, .deletes = 2}, &random);
    const SerializabilityResult result = CheckSerializable(history);
    ASSERT_NE(result.kind, Kind::kNo) << seed << ": " << result.why;
    gave_up += result.kind == Kind::kGaveUp;
  }
  EXPECT_EQ(gave_up, 0);
}

TEST(Serializability, OfBigHistories) {
  Random random(1);
  std::vector<TransactionRecord> history = ExecuteSerially(
      {.transactions = 20'000, .keys = 1000, .keys_max = 20, .overlap = 50, .deletes = 3, .scans = 4}, &random);
  const SerializabilityResult result = CheckSerializable(history);
  ASSERT_EQ(result.kind, Kind::kYes) << result.why;
  // Make a read stale: let a late transaction read what an early one put, and somebody has replaced in between.
  for (TransactionRecord& reader : history) {
    if (reader.begin_ns < 150'000 || reader.reads.empty() || reader.reads[0].stamp == 0) continue;
    Read& read = reader.reads[0];
    const auto early = std::find_if(history.begin(), history.end(), [&read](const TransactionRecord& writer) {
      return writer.end_ns < 50'000 &&
             std::any_of(writer.writes.begin(), writer.writes.end(),
                         [&read](const Write& write) { return write.key == read.key && !write.deletes; });
    });
    if (early == history.end()) continue;
    read.stamp = early->stamp;
    const SerializabilityResult refused = CheckSerializable(history);
    EXPECT_EQ(refused.kind, Kind::kNo);
    EXPECT_THAT(refused.why, HasSubstr(fmt::format("over stamp {}, which {} read.", read.stamp, reader.name)));
    EXPECT_THAT(refused.why, HasSubstr(fmt::format("comes before {0}: {0} began after", reader.name)));
    EXPECT_EQ(std::count(refused.why.begin(), refused.why.end(), '\n'), 2) << refused.why;
    return;
  }
  FAIL() << "no read can be made stale";
}

}  // namespace
}  // namespace cell

#include "tests/simulation/serializability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cell/base/random.h"
#include "fmt/format.h"

namespace cell {
namespace {

using ::testing::HasSubstr;
using Kind = SerializabilityResult::Kind;
using Read = TransactionRecord::Read;
using Write = TransactionRecord::Write;
constexpr int64_t kNever = TransactionRecord::kNever;
constexpr uint64_t kAbsent = 0;
constexpr int kX = 0, kY = 1, kZ = 2;

// Builds histories of transactions with names.
TransactionRecord Reader(std::string name, int64_t begin, int64_t end, std::vector<Read> reads) {
  return {begin, end, 0, std::move(reads), {}, std::move(name)};
}
TransactionRecord Writer(std::string name, int64_t begin, int64_t end, uint64_t stamp, std::vector<int> puts,
                         std::vector<Read> reads = {}) {
  TransactionRecord writer{begin, end, stamp, std::move(reads), {}, std::move(name)};
  for (const int key : puts) writer.writes.push_back({key, false});
  return writer;
}
TransactionRecord Deleter(std::string name, int64_t begin, int64_t end, uint64_t stamp, std::vector<int> keys,
                          std::vector<Read> reads = {}) {
  TransactionRecord deleter = Writer(std::move(name), begin, end, stamp, std::move(keys), std::move(reads));
  for (Write& write : deleter.writes) write.deletes = true;
  return deleter;
}

struct Case {
  const char* name;
  std::vector<TransactionRecord> history;
  Kind kind;
  const char* why = "";  // A part of it.
};

void Check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    const SerializabilityResult result = CheckSerializable(one.history);
    EXPECT_EQ(result.kind, one.kind) << one.name << ": " << result.why;
    EXPECT_THAT(result.why, HasSubstr(one.why)) << one.name;
    EXPECT_EQ(result.why.empty(), one.kind == Kind::kYes) << one.name;
  }
}

TEST(Serializability, FindsAnomaliesAndAcceptsTheirSerialCounterparts) {
  const TransactionRecord first = Writer("first", 0, 1, 1, {kX, kY});
  Check({
      {"nothing", {}, Kind::kYes},
      {"lost update",
       {first, Writer("A", 2, 9, 2, {kX}, {{kX, 1}}), Writer("B", 2, 9, 3, {kX}, {{kX, 1}})},
       Kind::kNo,
       "A comes before B: B wrote key 0 at stamp 3, after stamp 2 of A."},
      {"and without",
       {first, Writer("A", 2, 9, 2, {kX}, {{kX, 1}}), Writer("B", 2, 9, 3, {kX}, {{kX, 2}})},
       Kind::kYes},
      {"write skew",
       {first, Writer("A", 2, 9, 2, {kX}, {{kX, 1}, {kY, 1}}), Writer("B", 2, 9, 2, {kY}, {{kX, 1}, {kY, 1}})},
       Kind::kNo,
       "A comes before B: B wrote key 1 at stamp 2, over stamp 1, which A read."},
      {"and without",
       {first, Writer("A", 2, 9, 2, {kX}, {{kX, 1}, {kY, 1}}), Writer("B", 2, 9, 2, {kY}, {{kX, 2}, {kY, 1}})},
       Kind::kYes},
      {"phantoms",
       {Writer("A", 2, 9, 2, {kX}, {{kX, kAbsent}, {kY, kAbsent}}),
        Writer("B", 2, 9, 3, {kY}, {{kX, kAbsent}, {kY, kAbsent}})},
       Kind::kNo,
       "A comes before B: B put key 1 at stamp 3, and A had read it as absent."},
      {"and none",
       {Writer("A", 2, 9, 2, {kX}, {{kX, kAbsent}, {kY, kAbsent}}),
        Writer("B", 2, 9, 3, {kY}, {{kX, 2}, {kY, kAbsent}})},
       Kind::kYes},
      {"fractured read",
       {first, Writer("A", 2, 9, 2, {kX, kY}), Reader("R", 2, 9, {{kX, 2}, {kY, 1}})},
       Kind::kNo,
       "A comes before R: R read key 0 at stamp 2, which A wrote."},
      {"and a whole one", {first, Writer("A", 2, 9, 2, {kX, kY}), Reader("R", 2, 9, {{kX, 2}, {kY, 2}})}, Kind::kYes},
      {"stale read",
       {first, Writer("A", 2, 3, 2, {kX}), Reader("R", 4, 9, {{kX, 1}})},
       Kind::kNo,
       "A comes before R: R began after A had ended."},
      {"and a fresh one", {first, Writer("A", 2, 3, 2, {kX}), Reader("R", 4, 9, {{kX, 2}})}, Kind::kYes},
      {"and one that overlaps", {first, Writer("A", 2, 4, 2, {kX}), Reader("R", 4, 9, {{kX, 1}})}, Kind::kYes},
      {"long fork",
       {first, Writer("A", 2, 9, 2, {kX}), Writer("B", 2, 9, 3, {kY}), Reader("R", 2, 9, {{kX, 2}, {kY, 1}}),
        Reader("S", 2, 9, {{kX, 1}, {kY, 3}})},
       Kind::kNo,
       "S comes before A: A wrote key 0 at stamp 2, over stamp 1, which S read."},
      {"and none",
       {first, Writer("A", 2, 9, 2, {kX}), Writer("B", 2, 9, 3, {kY}), Reader("R", 2, 9, {{kX, 2}, {kY, 1}}),
        Reader("S", 2, 9, {{kX, 2}, {kY, 3}})},
       Kind::kYes},
      {"read of an aborted write",
       {first, Reader("R", 2, 9, {{kX, 7}})},
       Kind::kNo,
       "R read key 0 at stamp 7, which no committed transaction wrote."},
      {"and of one between two that committed",
       {first, Reader("R", 2, 9, {{kX, 7}}), Writer("A", 2, 9, 8, {kX})},
       Kind::kNo,
       "R read key 0 at stamp 7, which no committed transaction wrote."},
      {"and of one that committed", {first, Reader("R", 2, 9, {{kX, 7}}), Writer("A", 2, kNever, 7, {kX})}, Kind::kYes},
      {"read of another key's stamp",
       {first, Writer("A", 2, 9, 7, {kY}), Reader("R", 2, 9, {{kX, 7}})},
       Kind::kNo,
       "no committed transaction wrote"},
      {"circular information flow",
       {first, Writer("A", 2, 9, 2, {kX}, {{kY, 3}}), Writer("B", 2, 9, 3, {kY}, {{kX, 2}})},
       Kind::kNo,
       "B comes before A: A read key 1 at stamp 3, which B wrote."},
      {"and in one direction",
       {first, Writer("A", 2, 9, 2, {kX}, {{kY, 1}}), Writer("B", 2, 9, 3, {kY}, {{kX, 2}})},
       Kind::kYes},
      {"writes whose stamps contradict their times",
       {Writer("A", 2, 3, 8, {kX}), Writer("B", 4, 5, 7, {kX})},
       Kind::kNo,
       "B comes before A: A wrote key 0 at stamp 8, after stamp 7 of B."},
      {"and whose stamps do not", {Writer("A", 2, 3, 7, {kX}), Writer("B", 4, 5, 8, {kX})}, Kind::kYes},
      {"a write whose answer never came, seen late",
       {first, Writer("A", 2, kNever, 2, {kX}), Reader("R", 3, 4, {{kX, 1}}), Reader("S", 5, 6, {{kX, 2}})},
       Kind::kYes},
      {"and not seen after it was",
       {first, Writer("A", 2, kNever, 2, {kX}), Reader("R", 3, 4, {{kX, 2}}), Reader("S", 5, 6, {{kX, 1}})},
       Kind::kNo,
       "R comes before S: S began after R had ended."},
      {"and seen before its begin",
       {first, Writer("A", 5, kNever, 2, {kX}), Reader("R", 3, 4, {{kX, 2}})},
       Kind::kNo,
       "R comes before A: A began after R had ended."},
      {"an update, whose read is of the version before its own",
       {first, Writer("A", 2, 9, 2, {kX}, {{kX, 1}}), Deleter("B", 2, 9, 3, {kX}, {{kX, 2}})},
       Kind::kYes},
      {"two versions of a key read by one transaction",
       {first, Writer("A", 2, 9, 2, {kX}), Reader("R", 2, 9, {{kX, 1}, {kX, 2}})},
       Kind::kNo,
       "R comes before A"},
      {"one version read twice",
       {first, Writer("A", 2, 9, 2, {kX}), Reader("R", 2, 9, {{kX, 1}, {kX, 1}})},
       Kind::kYes},
  });
}

TEST(Serializability, TellsAShortCycle) {
  enum { kOfA, kOfR, kOf1, kOf2, kOf3 };
  const SerializabilityResult result = CheckSerializable({
      Writer("1", 0, 9, 1, {kOf1}, {{kOfR, 1}}),
      Writer("2", 0, 9, 1, {kOf2}, {{kOf1, 1}}),
      Writer("3", 0, 9, 1, {kOf3}, {{kOf2, 1}}),
      Writer("R", 0, 9, 1, {kOfR}, {{kOf3, 1}, {kOfA, 1}}),
      Writer("A", 0, 9, 1, {kOfA}, {{kOfR, 1}}),
  });
  EXPECT_EQ(result.kind, Kind::kNo);
  EXPECT_EQ(result.why,
            "Each comes before the next:\n"
            "  R comes before A: A read key 1 at stamp 1, which R wrote.\n"
            "  A comes before R: R read key 0 at stamp 1, which A wrote.");
}

TEST(Serializability, RefusesVersionsThatCannotBe) {
  const TransactionRecord first = Writer("first", 0, 1, 1, {kX, kY});
  Check({
      {"a read of its own write",
       {Writer("A", 2, 9, 2, {kX}, {{kX, 2}})},
       Kind::kNo,
       "A read key 0 at stamp 2, which it wrote itself later."},
      {"a read of what was deleted",
       {first, Deleter("D", 2, 9, 2, {kX}), Reader("R", 2, 9, {{kX, 2}})},
       Kind::kNo,
       "R read key 0 at stamp 2, at which D deleted it."},
      {"two writers of a version",
       {Writer("A", 2, 9, 2, {kX, kY}), Writer("B", 2, 9, 2, {kZ, kY})},
       Kind::kNo,
       "A and B both wrote key 1 at stamp 2."},
      {"one stamp of two keys", {Writer("A", 2, 9, 2, {kX}), Writer("B", 2, 9, 2, {kY})}, Kind::kYes},
      {"a transaction without a name",
       {Reader("", 2, 9, {{kX, 5}})},
       Kind::kNo,
       "transaction 0 read key 0 at stamp 5, which no committed transaction wrote."},
  });
}

// The key is put, deleted, put and deleted again.
TEST(Serializability, FindsTheAbsenceThatARead) {
  const auto with = [](std::vector<TransactionRecord> more) {
    std::vector<TransactionRecord> history = {Writer("put 1", 10, 11, 1, {kX}), Deleter("delete 2", 20, 21, 2, {kX}),
                                              Writer("put 3", 30, 31, 3, {kX}), Deleter("delete 4", 40, 41, 4, {kX})};
    history.insert(history.begin() + 1, more.begin(), more.end());
    return history;
  };
  const auto absent_at = [&with](int64_t begin, int64_t end) {
    return with({Reader("R", begin, end, {{kX, kAbsent}})});
  };
  const char* const kFirst = "R read key 0 as absent, but it comes after put 1, which put it, and before delete 2";
  const char* const kSecond = "R read key 0 as absent, but it comes after put 3, which put it, and before delete 4";
  Check({
      {"before the first put", absent_at(1, 2), Kind::kYes},
      {"at the first put", absent_at(1, 10), Kind::kYes},
      {"at its end", absent_at(11, 12), Kind::kYes},
      {"after it", absent_at(12, 13), Kind::kNo, kFirst},
      {"before the delete", absent_at(12, 19), Kind::kNo, kFirst},
      {"at the delete", absent_at(12, 20), Kind::kYes},
      {"after it", absent_at(22, 23), Kind::kYes},
      {"at the second put", absent_at(22, 33), Kind::kYes},
      {"after it", absent_at(32, 33), Kind::kNo, kSecond},
      {"at the second delete", absent_at(32, 40), Kind::kYes},
      {"after it", absent_at(42, 43), Kind::kYes},
      {"at any time", absent_at(0, kNever), Kind::kYes},
      {"from one presence to the next", absent_at(15, 35), Kind::kYes},
      {"a put in the first absence", with({Writer("A", 2, kNever, 7, {kY}, {{kX, kAbsent}})}), Kind::kYes},
      {"an update of an absent key, whose stamp is in a presence",
       {Writer("A", 2, 9, 1, {kX}), Writer("B", 2, 9, 2, {kX}, {{kX, kAbsent}}), Deleter("D", 2, 9, 3, {kX})},
       Kind::kNo,
       "B read key 0 as absent and wrote its stamp 2, but A had put it at stamp 1 right before."},
      {"and in an absence",
       {Writer("A", 2, 9, 1, {kX}), Deleter("D", 2, 9, 2, {kX}), Writer("B", 2, 9, 3, {kX}, {{kX, kAbsent}}),
        Deleter("E", 2, 9, 4, {kX})},
       Kind::kYes},
      {"a delete of an absent key, right after a delete",
       {Writer("A", 2, 9, 1, {kX}), Deleter("D", 2, 9, 2, {kX}), Deleter("E", 2, 9, 3, {kX}, {{kX, kAbsent}})},
       Kind::kYes},
      {"a delete of a present key that was read as absent",
       {Writer("A", 2, 9, 1, {kX}), Deleter("D", 2, 9, 2, {kX}, {{kX, kAbsent}})},
       Kind::kNo,
       "D read key 0 as absent and wrote its stamp 2, but A had put it at stamp 1 right before."},
      {"a read of an absence that another delete prolongs",
       {Writer("A", 0, 1, 1, {kX}), Deleter("D", 2, 3, 2, {kX}), Deleter("E", 4, 5, 3, {kX}),
        Reader("R", 6, 7, {{kX, kAbsent}}), Writer("B", 8, 9, 4, {kX})},
       Kind::kYes},
      {"absence that only another key refutes: the reader saw what came after the put and was seen before the delete",
       {Writer("A", 0, 99, 1, {kX, kY}), Deleter("D", 0, 99, 2, {kX}, {{kZ, 3}}),
        Writer("R", 0, 99, 3, {kZ}, {{kX, kAbsent}, {kY, 1}})},
       Kind::kNo,
       "R read key 0 as absent, but it comes after A, which put it, and before D, which deleted it:\n"
       "  A comes before R: R read key 1 at stamp 1, which A wrote.\n"
       "  R comes before D: D read key 2 at stamp 3, which R wrote."},
      {"a put long ago of what was never deleted since",
       with({Writer("last put", 50, 51, 5, {kX}), Reader("R", 60, 61, {{kX, kAbsent}})}), Kind::kNo,
       "Each comes before the next:\n"
       "  last put comes before R: R began after last put had ended.\n"
       "  R comes before last put: last put put key 0 at stamp 5, and R had read it as absent."},
  });
}

// Makes a time that overlaps with all others of its kind. Those with a lower `place` come first in the checker's order.
constexpr int64_t kWide = 1000;
TransactionRecord At(int64_t place, TransactionRecord one) {
  one.begin_ns = place - kWide;
  one.end_ns = place + kWide;
  return one;
}

TEST(Serializability, TellsWhyAnAbsenceIsTheOnlyOneLeft) {
  enum { kOfA = 3, kOfF, kOfR, kOfS };
  // R must come after D, since it saw what A wrote. Therefore S comes before G, and it comes after F.
  const SerializabilityResult result = CheckSerializable({
      At(10, Writer("A", 0, 0, 1, {kX, kOfA})),
      At(20, Writer("F", 0, 0, 1, {kY, kOfF})),
      At(30, Writer("R", 0, 0, 5, {kOfR}, {{kX, kAbsent}, {kOfA, 1}})),
      At(40, Deleter("G", 0, 0, 2, {kY}, {{kOfR, 5}})),
      At(50, Writer("S", 0, 0, 6, {kOfS}, {{kY, kAbsent}, {kOfF, 1}})),
      At(60, Deleter("D", 0, 0, 2, {kX}, {{kOfS, 6}})),
  });
  EXPECT_EQ(result.kind, Kind::kNo);
  EXPECT_EQ(result.why,
            "S read key 1 as absent, but it comes after F, which put it, and before G, which deleted it:\n"
            "  F comes before S: S read key 4 at stamp 1, which F wrote.\n"
            "  S comes before D: D read key 6 at stamp 6, which S wrote.\n"
            "  D comes before R: R read key 0 as absent, and D had deleted it at stamp 2 (1).\n"
            "  R comes before G: G read key 5 at stamp 5, which R wrote.\n"
            "  (1) Because:\n"
            "      A comes before R: R read key 3 at stamp 1, which A wrote.");
}

// R may come before A or after D, but either leaves no place for another read of an absent key, S or T.
TEST(Serializability, GoesBackToAChoice) {
  enum { kOfA = 3, kOfB, kOfF, kOfR, kOfS, kOfT, kW };
  // With others between R and D in the order, A is nearer to R. Then R comes before A at first, otherwise after D.
  for (const int others : {0, 2, 5}) {
    const TransactionRecord b = At(10, Writer("B", 0, 0, 1, {kY, kOfB}));
    const TransactionRecord f = At(11, Writer("F", 0, 0, 1, {kZ, kOfF}));
    const TransactionRecord a = At(20, Writer("A", 0, 0, 1, {kX, kOfA}));
    const TransactionRecord e = At(30, Deleter("E", 0, 0, 2, {kY}, {{kOfA, 1}}));
    const TransactionRecord s = At(40, Writer("S", 0, 0, 4, {kOfS}, {{kY, kAbsent}, {kOfB, 1}}));
    const TransactionRecord r = At(50, Writer("R", 0, 0, 5, {kOfR}, {{kX, kAbsent}, {kOfS, 4}}));
    const TransactionRecord g = At(60, Deleter("G", 0, 0, 2, {kZ}, {{kOfR, 5}}));
    const TransactionRecord t = At(70, Writer("T", 0, 0, 6, {kOfT}, {{kZ, kAbsent}, {kOfF, 1}}));
    const TransactionRecord d = At(90, Deleter("D", 0, 0, 2, {kX}, {{kOfT, 6}}));
    // These have read nothing. With the first, R may come after D, and with the second before A.
    const TransactionRecord other_d = At(90, Deleter("D", 0, 0, 2, {kX}));
    const TransactionRecord other_e = At(30, Deleter("E", 0, 0, 2, {kY}));
    // Another choice, which has nothing to do with it, comes between that of R and what contradicts it.
    const TransactionRecord u = At(45, Reader("U", 0, 0, {{kW, kAbsent}}));
    const auto check = [others](std::vector<TransactionRecord> history) {
      history.push_back(At(10, Writer("put of W", 0, 0, 1, {kW})));
      history.push_back(At(95, Deleter("delete of W", 0, 0, 2, {kW})));
      for (int i = 0; i < others; ++i) history.push_back(At(80, Reader("other", 0, 0, {})));
      return CheckSerializable(history);
    };
    const SerializabilityResult result = check({a, b, d, e, f, g, r, u, s, t});
    EXPECT_EQ(result.kind, Kind::kNo);
    const std::string of_s =
        "S read key 1 as absent, but it comes after B, which put it, and before E, which deleted it:\n"
        "  B comes before S: S read key 4 at stamp 1, which B wrote.\n"
        "  S comes before R: R read key 7 at stamp 4, which S wrote.\n"
        "  R comes before A: A put key 0 at stamp 1, and R had read it as absent (1).\n"
        "  A comes before E: E read key 3 at stamp 1, which A wrote.\n"
        "  (1) ";
    const std::string of_t =
        "T read key 2 as absent, but it comes after F, which put it, and before G, which deleted it:\n"
        "  F comes before T: T read key 5 at stamp 1, which F wrote.\n"
        "  T comes before D: D read key 8 at stamp 6, which T wrote.\n"
        "  D comes before R: R read key 0 as absent, and D had deleted it at stamp 2 (1).\n"
        "  R comes before G: G read key 6 at stamp 5, which R wrote.\n"
        "  (1) ";
    const auto indented = [](std::string text) {
      for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
        text.insert(at + 1, "    ");
      }
      return text;
    };
    EXPECT_EQ(result.why, others > 0 ? of_t + "Otherwise: " + indented(of_s + "This is assumed.")
                                     : of_s + "Otherwise: " + indented(of_t + "This is assumed."));
    EXPECT_EQ(check({a, b, other_d, e, f, g, r, u, s, t}).kind, Kind::kYes) << others;
    EXPECT_EQ(check({a, b, d, other_e, f, g, r, u, s, t}).kind, Kind::kYes) << others;
  }
}

TEST(Serializability, GivesUp) {
  std::vector<TransactionRecord> history = {Writer("A", 0, 99, 1, {kX}), Deleter("D", 0, 99, 2, {kX})};
  for (int i = 0; i < 10; ++i) history.push_back(Reader("R", 0, 99, {{kX, kAbsent}}));
  EXPECT_EQ(CheckSerializable(history, 9).kind, Kind::kGaveUp);
  EXPECT_NE(CheckSerializable(history, 9).why, "");
  EXPECT_EQ(CheckSerializable(history).kind, Kind::kYes);
  history.push_back(Reader("S", 0, 99, {{kX, 7}}));
  EXPECT_EQ(CheckSerializable(history, 9).kind, Kind::kNo);  // This needs no search.
}

// Tells whether a history is serializable by trying every order.
class BruteForce {
 public:
  explicit BruteForce(const std::vector<TransactionRecord>& history) : history_(history), placed_(history.size()) {}

  bool Accepts(size_t placed = 0) {
    if (placed == history_.size()) return true;
    for (size_t i = 0; i < history_.size(); ++i) {
      if (placed_[i] || !MayComeNext(history_[i])) continue;
      const std::vector<State> before = states_;
      for (const Write& write : history_[i].writes) {
        states_[static_cast<size_t>(write.key)] = {history_[i].stamp, !write.deletes};
      }
      placed_[i] = true;
      if (Accepts(placed + 1)) return true;
      placed_[i] = false;
      states_ = before;
    }
    return false;
  }

 private:
  struct State {
    uint64_t stamp = 0;
    bool present = false;
  };
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

struct Shape {
  size_t transactions;
  int keys;
  size_t keys_max;     // That a transaction reads or writes.
  uint64_t overlap;    // About how many transactions overlap.
  uint64_t deletes;    // One in this number of writes deletes.
  uint64_t scans = 0;  // One in this number of transactions reads adjacent keys. 0: none.
};

// Makes a history by executing transactions one after the other. Each takes effect at one moment of its time.
std::vector<TransactionRecord> ExecuteSerially(const Shape& shape, Random* random) {
  struct State {
    uint64_t stamp = 0;
    bool present = false;
  };
  std::vector<State> states(static_cast<size_t>(shape.keys));
  std::vector<TransactionRecord> history;
  for (size_t i = 0; i < shape.transactions; ++i) {
    const auto moment = static_cast<int64_t>(10 * i);
    TransactionRecord one{moment - static_cast<int64_t>(random->Below(10 * shape.overlap)),
                          moment + static_cast<int64_t>(random->Below(10 * shape.overlap))};
    one.name = fmt::format("T{}", i);
    const bool scans = shape.scans > 0 && random->Below(shape.scans) == 0;
    const auto first = static_cast<int>(random->Below(static_cast<uint64_t>(shape.keys)));
    const size_t size = scans ? shape.keys_max : 1 + random->Below(shape.keys_max);
    std::vector<int> keys;
    for (size_t k = 0; k < size; ++k) {
      keys.push_back(scans ? (first + static_cast<int>(k)) % shape.keys
                           : static_cast<int>(random->Below(static_cast<uint64_t>(shape.keys))));
    }
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    for (const int key : keys) {
      const State& state = states[static_cast<size_t>(key)];
      const uint64_t what = scans ? 0 : random->Below(3);
      if (what != 1) one.reads.push_back({key, state.present ? state.stamp : 0});
      if (what == 0) continue;
      one.writes.push_back({key, random->Below(shape.deletes) == 0});
      one.stamp = std::max(one.stamp, state.stamp + 1 + random->Below(2));
    }
    for (const Write& write : one.writes) states[static_cast<size_t>(write.key)] = {one.stamp, !write.deletes};
    if (!one.writes.empty() && random->Below(20) == 0) one.end_ns = kNever;
    history.push_back(std::move(one));
  }
  for (size_t i = history.size(); i > 1; --i) std::swap(history[i - 1], history[random->Below(i)]);
  return history;
}

Shape SmallShape(Random* random) {
  return {.transactions = 1 + random->Below(7),
          .keys = 1 + static_cast<int>(random->Below(4)),
          .keys_max = 1 + random->Below(3),
          .overlap = random->Below(2) == 0 ? 3u : 10u,
          .deletes = 1 + random->Below(3)};
}

// Changes the time, the stamp or a read of a random transaction, unless it has none.
void ChangeSomething(std::vector<TransactionRecord>* history, Random* random) {
  TransactionRecord& one = (*history)[random->Below(history->size())];
  const uint64_t what = random->Below(4);
  if (what == 0) {
    const auto shift = static_cast<int64_t>(random->Below(60)) - 30;
    one.begin_ns += shift;
    if (one.end_ns != kNever) one.end_ns += shift;
  } else if (what == 1 && !one.writes.empty()) {
    one.stamp = 1 + random->Below(8);
  } else if (!one.reads.empty()) {
    Read& read = one.reads[random->Below(one.reads.size())];
    const TransactionRecord& other = (*history)[random->Below(history->size())];
    read.stamp = random->Below(3) == 0 ? kAbsent : other.stamp;
  }
}

// Makes up transactions. Each of their reads is of a version that some transaction wrote, or of an absence.
std::vector<TransactionRecord> MakeUp(const Shape& shape, Random* random) {
  std::vector<TransactionRecord> history = ExecuteSerially(shape, random);
  std::vector<uint64_t> stamps;
  for (size_t i = 0; i < history.size(); ++i) stamps.push_back(i + 1);
  for (size_t i = history.size(); i > 1; --i) std::swap(stamps[i - 1], stamps[random->Below(i)]);
  for (size_t i = 0; i < history.size(); ++i) {
    if (!history[i].writes.empty()) history[i].stamp = stamps[i];
  }
  for (TransactionRecord& one : history) {
    for (Read& read : one.reads) {
      std::vector<uint64_t> versions = {kAbsent};
      for (const TransactionRecord& other : history) {
        for (const Write& write : other.writes) {
          if (write.key == read.key && !write.deletes && &other != &one) versions.push_back(other.stamp);
        }
      }
      read.stamp = versions[random->Below(versions.size())];
    }
  }
  return history;
}

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
    std::vector<TransactionRecord> history;
    if (random.Below(2) == 0) {
      history = MakeUp(SmallShape(&random), &random);
    } else {
      history = ExecuteSerially(SmallShape(&random), &random);
      for (uint64_t changes = 1 + random.Below(3); changes > 0; --changes) ChangeSomething(&history, &random);
    }
    const bool accepts = BruteForce(history).Accepts();
    const SerializabilityResult result = CheckSerializable(history);
    ASSERT_EQ(result.kind, accepts ? Kind::kYes : Kind::kNo) << seed << ": " << result.why << '\n' << Print(history);
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

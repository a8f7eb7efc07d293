#include "tests/simulation/serializability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cell/base/random.h"
#include "fmt/format.h"
#include "tests/simulation/test_transactions.h"

namespace cell {
namespace {

using ::testing::HasSubstr;
using Kind = SerializabilityResult::Kind;
using Read = TransactionRecord::Read;
using Write = TransactionRecord::Write;
constexpr int64_t kNever = TransactionRecord::kNever;
constexpr uint64_t kAbsent = 0;
constexpr int kX = 0, kY = 1, kZ = 2;

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

}  // namespace
}  // namespace cell

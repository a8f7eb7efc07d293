#include "tests/simulation/adya_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/simulation/serializability.h"
#include "tests/simulation/test_transactions.h"

namespace cell {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Puts key 0 and deletes it, while readers see it as absent.
std::vector<TransactionRecord> PutAndDelete() {
  return {Writer("put", 10, 20, 5, {0}), Deleter("delete", 30, 40, 6, {0}), Reader("early", 5, 45, {{0, 0}}),
          Reader("late", 50, 60, {{0, 0}})};
}

TEST(AdyaHistory, WritesOperationsInTheOrderOfTime) {
  const std::vector<TransactionRecord> history = {
      Writer("a", 10, 30, 7, {0, 1}, {{1, 0}}),
      Reader("b", 30, 40, {{0, 7}}),
      Writer("", 20, TransactionRecord::kNever, 8, {0}),
  };
  const AdyaHistory written = WriteForAdya(history, CertainAbsences(history));
  EXPECT_EQ(written.operations,
            R"({"type":"invoke","process":0,"time":10,"name":"a","value":[["r",1,null],["w",0,7],["w",1,7]],"index":0}
{"type":"invoke","process":2,"time":20,"value":[["w",0,8]],"index":1}
{"type":"invoke","process":1,"time":30,"name":"b","value":[["r",0,null]],"index":2}
{"type":"ok","process":0,"time":30,"name":"a","value":[["r",1,null],["w",0,7],["w",1,7]],"index":3}
{"type":"ok","process":1,"time":40,"name":"b","value":[["r",0,7]],"index":4}
{"type":"ok","process":2,"value":[["w",0,8]],"index":5}
)");
  EXPECT_EQ(written.order, R"({"3":7,"5":8})");
}

TEST(AdyaHistory, ReadsAnAbsenceThatFollowsFromTheOrder) {
  const std::vector<TransactionRecord> history = PutAndDelete();
  const SerializabilityResult result = CheckSerializable(history);
  ASSERT_EQ(result.kind, SerializabilityResult::kYes);
  const SeenAbsences absences = AbsencesInOrder(history, result.order);
  EXPECT_EQ(absences.at({3, 0}), 6u);
  EXPECT_EQ(AbsencesInOrder(history, {2, 0, 1, 3}).at({2, 0}), 0u);
  EXPECT_EQ(AbsencesInOrder(history, {0, 1, 2, 3}).at({2, 0}), 6u);
  EXPECT_THAT(WriteForAdya(history, absences).operations,
              ::testing::HasSubstr(R"("late","value":[["r",0,"deleted at 6"]])"));
}

TEST(AdyaHistory, LeavesOutReadsThatLeaveAChoice) {
  std::vector<TransactionRecord> history = PutAndDelete();
  EXPECT_THAT(CertainAbsences(history), IsEmpty());
  EXPECT_THAT(WriteForAdya(history, {}).operations, ::testing::HasSubstr(R"("late","value":[])"));
  history.push_back(Writer("again", 70, 80, 9, {0}, {{0, 0}, {1, 0}}));
  EXPECT_EQ(CertainAbsences(history), (SeenAbsences{{{4, 0}, 6}, {{4, 1}, 0}}));
}

TEST(AdyaHistory, ListsAllChoices) {
  const std::vector<TransactionRecord> history = PutAndDelete();
  EXPECT_THAT(AllAbsences(history, 4), SizeIs(4));
  EXPECT_THAT(AllAbsences(history, 3), IsEmpty());
  EXPECT_THAT(AllAbsences({}, 1), ElementsAre(SeenAbsences{}));
}

TEST(AdyaHistory, AddsAFailedWriterOfWhatNobodyWrote) {
  const std::vector<TransactionRecord> history = {Reader("a", 1, 2, {{0, 5}}), Reader("b", 3, 4, {{0, 5}}),
                                                  Writer("c", 5, 6, 7, {0}, {{0, 7}})};
  const std::string text = WriteForAdya(history, {}).operations;
  EXPECT_TRUE(text.starts_with(R"({"type":"invoke","process":3,"value":[["w",0,"not written: 5"]],"index":0}
{"type":"fail","process":3,"value":[["w",0,"not written: 5"]],"index":1}
{"type":"invoke","process":3,"value":[["w",0,"not written: 7"]],"index":2}
{"type":"fail","process":3,"value":[["w",0,"not written: 7"]],"index":3}
{"type":"invoke","process":0)"))
      << text;
}

}  // namespace
}  // namespace cell

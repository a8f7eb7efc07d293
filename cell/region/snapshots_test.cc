#include "cell/region/snapshots.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr SnapshotOfUser kOne{{1, 1}, 7}, kTwo{{1, 2}, 7}, kOther{{1, 1}, 8};

PairKept Value(const std::string& value) { return std::make_shared<PairBefore>(PairBefore{value}); }

class SnapshotsTest : public ::testing::Test {
 protected:
  absl::Status Still(const SnapshotOfUser& of, int64_t kept_ns = kSnapshotKeptNsMax) {
    return snapshots_.Still(of, "a", "", kept_ns, now_ns_);
  }
  bool GoOn(const SnapshotOfUser& of, bool owned = true) { return snapshots_.GoOn(of, "a", "", owned, now_ns_); }
  // Takes a snapshot of [from, to) without waiting.
  void Take(const SnapshotOfUser& of, const std::string& from = "a", const std::string& to = "",
            Snapshots* in = nullptr) {
    Snapshots& snapshots = in == nullptr ? snapshots_ : *in;
    ASSERT_TRUE(snapshots.Still(of, from, to, kSnapshotKeptNsMax, now_ns_).ok());
    snapshots.Reach(of, 1);
    ASSERT_TRUE(snapshots.GoOn(of, from, to, true, now_ns_));
  }
  void Change(const std::string& key, const std::string& before, Snapshots* in = nullptr) {
    (in == nullptr ? snapshots_ : *in).Keep(key, [&] { return Value(before); });
  }
  // Returns what was kept of a key: "-" if nothing.
  static std::string KeptOf(const Snapshots& snapshots, const SnapshotOfUser& of, const std::string& key) {
    const Snapshots::Piece* const piece = snapshots.Find(of, key);
    if (piece == nullptr) return "gone";
    const auto it = piece->kept->changed.find(key);
    if (it == piece->kept->changed.end()) return "-";
    return it->second == nullptr ? "absent" : it->second->value;
  }
  std::string KeptOf(const SnapshotOfUser& of, const std::string& key) { return KeptOf(snapshots_, of, key); }

  SnapshotMemory memory_;
  const SnapshotLimits& limits_ = memory_.limits();
  Snapshots snapshots_{&memory_};
  int64_t now_ns_ = 1;
};

TEST_F(SnapshotsTest, KeepsWhatPairsWereBeforeTheirFirstChange) {
  Take(kOne);
  Change("b", "first");
  Change("b", "second");
  snapshots_.Keep("c", [] { return nullptr; });
  EXPECT_EQ(KeptOf(kOne, "b"), "first");
  EXPECT_EQ(KeptOf(kOne, "c"), "absent");
  EXPECT_EQ(KeptOf(kOne, "d"), "-");
  Take(kTwo);
  Change("b", "third");
  EXPECT_EQ(KeptOf(kOne, "b"), "first");
  EXPECT_EQ(KeptOf(kTwo, "b"), "third");
  EXPECT_EQ(KeptOf({{2, 1}, 7}, "b"), "gone");
  EXPECT_EQ(KeptOf(kOther, "b"), "gone");
}

TEST_F(SnapshotsTest, KeepsOnlyWhatIsInTheRange) {
  Take(kOne, "c", "e");
  for (const char* const key : {"b", "c", "d", "e"}) Change(key, "before");
  EXPECT_EQ(KeptOf(kOne, "b"), "gone");
  EXPECT_EQ(KeptOf(kOne, "c"), "before");
  EXPECT_EQ(KeptOf(kOne, "d"), "before");
  EXPECT_EQ(KeptOf(kOne, "e"), "gone");
  EXPECT_EQ(snapshots_.Find(kOne, "c")->kept->changed.size(), 2u);
}

// Two snapshots that keep the same pair share it.
TEST_F(SnapshotsTest, CopiesAPairOnce) {
  Take(kOne);
  Take(kTwo);
  int copies = 0;
  snapshots_.Keep("b", [&] { return ++copies, Value("before"); });
  snapshots_.Keep("b", [&] { return ++copies, Value("later"); });
  EXPECT_EQ(copies, 1);
}

TEST_F(SnapshotsTest, AreStillUntilAllGoOn) {
  ASSERT_TRUE(Still(kOne).ok());
  ASSERT_TRUE(Still(kTwo).ok());
  EXPECT_TRUE(snapshots_.still());
  EXPECT_EQ(KeptOf(kOne, "b"), "gone");
  // This write was under way before the region was still, so it belongs to the snapshot, and nothing is kept.
  Change("b", "before");
  snapshots_.Reach(kOne, 5);
  snapshots_.Reach(kTwo, 6);
  EXPECT_TRUE(GoOn(kOne));
  EXPECT_TRUE(GoOn(kOne));  // The first answer was lost.
  EXPECT_TRUE(snapshots_.still());
  EXPECT_TRUE(GoOn(kTwo));
  EXPECT_FALSE(snapshots_.still());
  EXPECT_EQ(KeptOf(kOne, "b"), "-");
  EXPECT_EQ(snapshots_.Find(kOne, "b")->kept->time, 5u);
  EXPECT_EQ(Still(kOne).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SnapshotsTest, AreNotTakenIfSomethingWasUnderWay) {
  ASSERT_TRUE(Still(kOne).ok());
  EXPECT_FALSE(GoOn(kOne));
  EXPECT_FALSE(snapshots_.still());
  EXPECT_TRUE(snapshots_.empty());
}

TEST_F(SnapshotsTest, GoOnByThemselvesAndAreNotTakenThen) {
  ASSERT_TRUE(Still(kOne).ok());
  snapshots_.Reach(kOne, 0);
  now_ns_ += limits_.still_ns - 1;
  snapshots_.Step(now_ns_);
  EXPECT_TRUE(snapshots_.still());
  now_ns_ += 1;
  snapshots_.Step(now_ns_);
  EXPECT_FALSE(snapshots_.still());
  EXPECT_EQ(snapshots_.gone_on(), 1u);
  EXPECT_FALSE(GoOn(kOne));
}

// Whatever clients ask for, writes get most of the time.
TEST_F(SnapshotsTest, LetWritesComeFirst) {
  ASSERT_TRUE(Still(kOne).ok());
  now_ns_ += 1'000;
  snapshots_.Forget(kOne, now_ns_);
  const int64_t next_ns = now_ns_ + 1'000 * limits_.moves_ns_per_still_ns;
  now_ns_ = next_ns - 1;
  EXPECT_EQ(Still(kTwo).code(), absl::StatusCode::kUnavailable);
  now_ns_ = next_ns;
  EXPECT_TRUE(Still(kTwo).ok());
  // Another one does not make the region still for longer.
  now_ns_ += limits_.still_ns - 1;
  EXPECT_TRUE(Still(kOne).ok());
  now_ns_ += 1;
  snapshots_.Step(now_ns_);
  EXPECT_FALSE(snapshots_.still());
}

TEST_F(SnapshotsTest, EndWithTheirAge) {
  ASSERT_TRUE(Still(kOne, limits_.still_ns * 2).ok());
  snapshots_.Reach(kOne, 0);
  ASSERT_TRUE(GoOn(kOne));
  Change("b", "before");
  snapshots_.Step(now_ns_ + limits_.still_ns * 2 - 1);
  EXPECT_EQ(KeptOf(kOne, "b"), "before");
  EXPECT_GT(memory_.bytes(), 0u);
  snapshots_.Step(now_ns_ + limits_.still_ns * 2);
  EXPECT_EQ(KeptOf(kOne, "b"), "gone");
  EXPECT_EQ(memory_.bytes(), 0u);
}

TEST_F(SnapshotsTest, AreForgottenByTheirUserAlone) {
  Take(kOne);
  snapshots_.Forget(kOther, now_ns_);
  EXPECT_EQ(snapshots_.size(), 1u);
  snapshots_.Forget(kOne, now_ns_);
  EXPECT_TRUE(snapshots_.empty());
}

TEST_F(SnapshotsTest, AreLimitedForEachUser) {
  uint64_t number = 0;
  for (const uint32_t user : {7u, 8u}) {
    for (size_t i = 0; i < limits_.max / 2; ++i) ASSERT_TRUE(Still({{1, ++number}, user}).ok());
    EXPECT_EQ(Still({{1, 1000}, user}).code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(Still({{1, 1000}, 9}).code(), absl::StatusCode::kResourceExhausted);
}

// The one that keeps most has to go, in whichever region it is.
TEST_F(SnapshotsTest, EndWhenTheyKeepTooMuch) {
  memory_.set_bytes_max(10'000);
  Snapshots other(&memory_);
  Take(kOne);
  Take(kTwo, "a", "", &other);
  Change("b", std::string(7'000, 'v'), &other);
  Change("b", std::string(2'000, 'v'));
  EXPECT_EQ(memory_.ended(), 0u);
  Change("c", std::string(2'000, 'v'));
  EXPECT_EQ(memory_.ended(), 1u);
  EXPECT_EQ(KeptOf(other, kTwo, "b"), "gone");
  EXPECT_EQ(KeptOf(kOne, "c"), std::string(2'000, 'v'));
  EXPECT_LT(memory_.bytes(), 5'000u);
  EXPECT_GT(memory_.freed_bytes(), 7'000u);
  EXPECT_EQ(other.size(), 1u);
  other.Step(now_ns_);
  EXPECT_TRUE(other.empty());
  memory_.Step();
  EXPECT_EQ(memory_.freed_bytes(), 0u);
}

TEST_F(SnapshotsTest, GiveTheirUpperPartAwayAndTakeItBack) {
  Take(kOne);
  Take(kTwo, "a", "c");
  Take(kOther, "e");
  for (char key = 'a'; key <= 'j'; ++key) Change(std::string(1, key), "before");
  Snapshots upper(&memory_);
  snapshots_.SplitTo("d", &upper, now_ns_);
  EXPECT_EQ(KeptOf(kOne, "c"), "before");
  EXPECT_EQ(KeptOf(kOne, "d"), "gone");
  EXPECT_EQ(KeptOf(upper, kOne, "c"), "gone");
  for (const char* const key : {"d", "e", "j"}) EXPECT_EQ(KeptOf(upper, kOne, key), "before");
  EXPECT_EQ(KeptOf(upper, kOne, "k"), "-");
  EXPECT_EQ(KeptOf(upper, kTwo, "d"), "gone");
  EXPECT_EQ(KeptOf(upper, kOther, "d"), "gone");
  EXPECT_EQ(KeptOf(upper, kOther, "e"), "before");
  EXPECT_EQ(snapshots_.size(), 2u);
  Change("k", "between", &upper);
  Change("e", "too late", &upper);
  snapshots_.TakeIn(upper, now_ns_);
  for (const char* const key : {"c", "d", "e", "j"}) EXPECT_EQ(KeptOf(kOne, key), "before");
  EXPECT_EQ(KeptOf(kOne, "k"), "between");
  EXPECT_EQ(KeptOf(kOther, "e"), "before");
  EXPECT_EQ(KeptOf(kOther, "d"), "gone");
}

// The keys come back without what was kept meanwhile.
TEST_F(SnapshotsTest, DoNotHaveKeysThatWereElsewhere) {
  Take(kOne);
  Snapshots upper(&memory_);
  snapshots_.SplitTo("d", &upper, now_ns_);
  upper.Forget(kOne, now_ns_);
  snapshots_.TakeIn(upper, now_ns_);
  EXPECT_EQ(KeptOf(kOne, "e"), "gone");
  Change("e", "later");
  EXPECT_EQ(KeptOf(kOne, "e"), "gone");
  EXPECT_EQ(KeptOf(kOne, "c"), "-");
}

// Nobody knows of the upper part that it has to be told to go on.
TEST_F(SnapshotsTest, ThatAreBeingTakenStayWithTheLowerPart) {
  ASSERT_TRUE(Still(kOne).ok());
  Snapshots upper(&memory_);
  snapshots_.SplitTo("d", &upper, now_ns_);
  EXPECT_TRUE(upper.empty());
  EXPECT_FALSE(upper.still());
  EXPECT_TRUE(snapshots_.still());
  // The upper part has kept nothing of its keys, so the snapshot lacks them, though they come back in time.
  snapshots_.Reach(kOne, 1);
  snapshots_.TakeIn(upper, now_ns_);
  EXPECT_FALSE(GoOn(kOne));
  EXPECT_TRUE(snapshots_.empty());
}

// A join gives only what was taken, and only behind what the left part has.
TEST_F(SnapshotsTest, TakeInWhatGoesOnWhereTheyEnd) {
  Snapshots right(&memory_);
  Take(kOne, "a", "c");
  Take(kOne, "d", "", &right);
  Take(kOther, "e", "", &right);
  ASSERT_TRUE(right.Still(kTwo, "d", "", kSnapshotKeptNsMax, now_ns_).ok());
  snapshots_.TakeIn(right, now_ns_);
  EXPECT_EQ(KeptOf(kOne, "b"), "-");
  EXPECT_EQ(KeptOf(kOne, "d"), "gone");
  EXPECT_EQ(KeptOf(kOther, "e"), "-");
  EXPECT_EQ(KeptOf(kOther, "d"), "gone");
  EXPECT_EQ(KeptOf(kTwo, "d"), "gone");
  EXPECT_EQ(snapshots_.size(), 2u);
  EXPECT_FALSE(snapshots_.still());
}

// A worker that has nothing to do looks at its regions late. That makes no stillness longer, and no pause.
TEST_F(SnapshotsTest, AreNotJoinedByOthersWhenTheyAreOverdue) {
  ASSERT_TRUE(Still(kOne).ok());
  now_ns_ += 10 * limits_.still_ns;
  EXPECT_EQ(Still(kTwo).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(snapshots_.still());
  now_ns_ += limits_.still_ns * limits_.moves_ns_per_still_ns;
  EXPECT_TRUE(Still(kTwo).ok());
}

// The parts of a region that was still must take writes first, like the whole.
TEST_F(SnapshotsTest, LetWritesComeFirstAfterSplitsAndJoins) {
  ASSERT_TRUE(Still(kOne).ok());
  now_ns_ += 1'000;
  Snapshots upper(&memory_), left(&memory_);
  snapshots_.SplitTo("d", &upper, now_ns_);
  left.TakeIn(snapshots_, now_ns_);
  const int64_t next_ns = now_ns_ + 1'000 * limits_.moves_ns_per_still_ns;
  for (Snapshots* const part : {&upper, &left}) {
    EXPECT_EQ(part->Still(kTwo, "e", "", 0, next_ns - 1).code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(part->Still(kTwo, "e", "", 0, next_ns).ok());
  }
}

// Nobody knows what a damaged leaf had: the next read of it could say that a key is not there.
TEST_F(SnapshotsTest, EndWhenALeafIsDamaged) {
  Take(kOne);
  Take(kTwo, "a", "c");
  snapshots_.Damaged("d");
  EXPECT_EQ(KeptOf(kOne, "b"), "gone");
  EXPECT_EQ(KeptOf(kTwo, "b"), "-");
}

// A user with many snapshots, which share what they keep, does not end another one's.
TEST_F(SnapshotsTest, EndOfTheUserWhoseKeepMost) {
  memory_.set_bytes_max(12'000);
  Take(kOther);
  Change("b", std::string(2'000, 'v'));
  for (uint64_t i = 1; i <= 4; ++i) Take({{5, i}, 5});
  Change("c", std::string(2'000, 'v'));
  EXPECT_EQ(memory_.ended(), 1u);
  EXPECT_EQ(KeptOf(kOther, "b"), std::string(2'000, 'v'));
}

// Another server may have taken writes since it was still.
TEST_F(SnapshotsTest, AreNotTakenWithoutOwnership) {
  ASSERT_TRUE(Still(kOne).ok());
  snapshots_.Reach(kOne, 1);
  EXPECT_FALSE(GoOn(kOne, /*owned=*/false));
  EXPECT_TRUE(snapshots_.empty());
  EXPECT_FALSE(snapshots_.still());
}

// However much a snapshot has kept, its end takes no longer than a step, and memory is free before more is used.
TEST_F(SnapshotsTest, FreeWhatTheyKeptBitByBit) {
  Take(kOne);
  for (int i = 0; i < 1'000; ++i) Change(fmt::format("b{}", i), "before");
  const size_t bytes = memory_.bytes();
  snapshots_.Forget(kOne, now_ns_);
  EXPECT_EQ(memory_.bytes(), 0u);
  EXPECT_EQ(memory_.freed_bytes(), bytes);
  Take(kTwo);
  for (int i = 0; i < 400; ++i) Change(fmt::format("b{}", i), "before");
  EXPECT_LT(memory_.freed_bytes(), bytes / 4);
  EXPECT_GT(memory_.freed_bytes(), 0u);
  memory_.Step();
  EXPECT_EQ(memory_.freed_bytes(), 0u);
}

TEST_F(SnapshotsTest, AreNotAddedWhileTooMuchIsToBeFreed) {
  Take(kOne);
  for (int i = 0; i < 1'000; ++i) Change(fmt::format("b{}", i), "before");
  snapshots_.Forget(kOne, now_ns_);
  memory_.set_bytes_max(memory_.freed_bytes() / 2);
  EXPECT_EQ(Still(kTwo).code(), absl::StatusCode::kUnavailable);
  memory_.Step();
  memory_.Step();
  EXPECT_TRUE(Still(kTwo).ok());
}

}  // namespace
}  // namespace cell

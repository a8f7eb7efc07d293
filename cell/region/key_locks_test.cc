#include "cell/region/key_locks.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

constexpr KeyLocks::Owner kOne = {1, 0, 1}, kOther = {1, 1, 1};

TEST(KeyLocks, AKeyIsWrittenByOneAlone) {
  KeyLocks locks;
  EXPECT_TRUE(locks.empty());
  locks.Write("k", kOne);
  EXPECT_FALSE(locks.empty());
  for (const KeyLocks::Owner& owner : {kOther, KeyLocks::kNobody}) {
    EXPECT_FALSE(locks.MayRead("k", owner));
    EXPECT_FALSE(locks.MayWrite("k", owner));
    EXPECT_TRUE(locks.MayRead("j", owner));
    EXPECT_TRUE(locks.MayWrite("ka", owner));
  }
  EXPECT_TRUE(locks.MayRead("k", kOne));
  EXPECT_TRUE(locks.MayWrite("k", kOne));
}

TEST(KeyLocks, AKeyThatWasReadIsReadByOthersAndNotWritten) {
  KeyLocks locks;
  locks.Read("k", kOne);
  EXPECT_TRUE(locks.MayRead("k", kOther));
  EXPECT_TRUE(locks.MayRead("k"));
  EXPECT_TRUE(locks.MayWrite("k", kOne));
  EXPECT_FALSE(locks.MayWrite("k", kOther));
  locks.Read("k", kOther);
  EXPECT_FALSE(locks.MayWrite("k", kOne));
  locks.ReleaseRead("k", kOther);
  EXPECT_TRUE(locks.MayWrite("k", kOne));
  EXPECT_FALSE(locks.MayWrite("k"));
}

TEST(KeyLocks, NobodyWritesIntoARangeThatWasRead) {
  KeyLocks locks;
  locks.ReadRange("d", "g", kOne);
  EXPECT_TRUE(locks.MayWrite("c", kOther));
  EXPECT_FALSE(locks.MayWrite("d", kOther));
  EXPECT_FALSE(locks.MayWrite("fzz"));
  EXPECT_TRUE(locks.MayWrite("g"));
  EXPECT_TRUE(locks.MayWrite("e", kOne));
  EXPECT_TRUE(locks.MayRead("e"));
  locks.ReadRange("x", "", kOne);
  EXPECT_FALSE(locks.MayWrite("zzz"));
  EXPECT_TRUE(locks.MayWriteRange("a", "d"));
  EXPECT_FALSE(locks.MayWriteRange("a", "da"));
  EXPECT_TRUE(locks.MayWriteRange("g", "x"));
  EXPECT_FALSE(locks.MayWriteRange("g", ""));
  locks.ReleaseRanges(kOther);
  EXPECT_FALSE(locks.empty());
  locks.ReleaseRanges(kOne);
  EXPECT_TRUE(locks.empty());
}

TEST(KeyLocks, ARangeIsNotReadWhileAKeyOfItMayBeWritten) {
  KeyLocks locks;
  EXPECT_TRUE(locks.hides_nothing());
  locks.Write("m", kOne);
  locks.Read("r", kOne);
  EXPECT_FALSE(locks.hides_nothing());
  EXPECT_TRUE(locks.MayReadRange("a", "m"));
  EXPECT_FALSE(locks.MayReadRange("a", "n"));
  EXPECT_FALSE(locks.MayReadRange("a", ""));
  EXPECT_TRUE(locks.MayReadRange("a", "", kOne));
  EXPECT_TRUE(locks.MayReadRange("n", ""));
  EXPECT_FALSE(locks.MayWriteRange("l", "n"));
  EXPECT_FALSE(locks.MayWriteRange("q", "s"));
  EXPECT_TRUE(locks.MayWriteRange("n", "q"));
  EXPECT_TRUE(locks.HidesAny("a"));
  EXPECT_TRUE(locks.HidesAny("m", "n"));
  EXPECT_FALSE(locks.HidesAny("a", "m"));
  EXPECT_FALSE(locks.HidesAny("n"));
}

TEST(KeyLocks, OnlyTheOwnerReleases) {
  KeyLocks locks;
  locks.Write("a", kOne);
  locks.Read("b", kOne);
  locks.ReleaseWrite("a", kOther);
  locks.ReleaseRead("b", kOther);
  EXPECT_FALSE(locks.MayRead("a"));
  EXPECT_FALSE(locks.MayWrite("b"));
  locks.ReleaseWrite("a", kOne);
  EXPECT_TRUE(locks.MayWrite("a"));
  locks.ReleaseRead("b", kOne);
  EXPECT_TRUE(locks.MayWrite("b"));
  EXPECT_TRUE(locks.empty());
}

}  // namespace
}  // namespace cell

#include "cell/io/fabric/remote_regions.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "cell/io/fabric/waiter.h"

namespace cell {
namespace {

class RemoteRegionsTest : public ::testing::Test {
 protected:
  struct Access {
    std::string name;
    uint64_t bytes;
  };
  using Regions = RemoteRegions<Access>;

  static std::vector<ReadPart> PartsOf(std::initializer_list<uint32_t> regions) {
    std::vector<ReadPart> parts;
    for (const uint32_t region : regions) parts.push_back({Pointer(region, 4096), nullptr, 64});
    return parts;
  }
  // Starts a read as a fabric does: it waits for the first region that is not known.
  void Start(const std::vector<ReadPart>& parts, int64_t deadline_ns, Completion* completion) {
    const auto [readiness, blocking] = regions_.Check(parts);
    if (readiness == Regions::Readiness::kReady) return started_.push_back(completion);
    ASSERT_EQ(readiness, Regions::Readiness::kUnknown);
    regions_.Wait(parts, deadline_ns, completion);
    if (regions_.Ask(blocking->from.region())) asked_.push_back(blocking->from.region());
  }
  bool Answer(uint32_t region, std::optional<std::string> name) {
    std::optional<Access> access;
    if (name.has_value()) access = {*name, kRegionBytes};
    return regions_.Answer(
        region, std::move(access), [&](const Regions::WaitingRead& read) { refused_.push_back(read.completion); },
        [&](const Regions::WaitingRead& read) { Start(read.parts, read.deadline_ns, read.completion); });
  }

  static constexpr uint64_t kRegionBytes = 8192;

  Regions regions_;
  std::vector<uint32_t> asked_;
  std::vector<Completion*> started_, refused_;
  Waiter first_, second_;
};

TEST_F(RemoteRegionsTest, TheServerIsAskedOnceForARegion) {
  Start(PartsOf({1}), 10, &first_);
  Start(PartsOf({1}), 10, &second_);
  EXPECT_EQ(asked_, std::vector<uint32_t>{1});
  EXPECT_TRUE(Answer(1, "there"));
  EXPECT_EQ(started_, (std::vector<Completion*>{&first_, &second_}));
  EXPECT_EQ(regions_.Find(1)->name, "there");
  EXPECT_FALSE(regions_.waiting());
}

TEST_F(RemoteRegionsTest, AReadOfTwoRegionsWaitsForBoth) {
  Start(PartsOf({1, 2}), 10, &first_);
  EXPECT_TRUE(Answer(1, "one"));
  EXPECT_TRUE(started_.empty());
  EXPECT_EQ(asked_, (std::vector<uint32_t>{1, 2}));
  EXPECT_TRUE(Answer(2, "two"));
  EXPECT_EQ(started_, std::vector<Completion*>{&first_});
}

// Each answer makes more reads ask for more regions, so that the map grows while the answer is taken.
TEST_F(RemoteRegionsTest, TheMapMayGrowWhileAnAnswerIsTaken) {
  std::vector<Waiter> reads(200);
  for (uint32_t i = 0; i < reads.size(); ++i) Start(PartsOf({1, 10 + i}), 10, &reads[i]);
  EXPECT_TRUE(Answer(1, "one"));
  EXPECT_EQ(asked_.size(), 201u);
  for (uint32_t i = 0; i < reads.size(); ++i) EXPECT_TRUE(Answer(10 + i, "more"));
  EXPECT_EQ(started_.size(), reads.size());
}

TEST_F(RemoteRegionsTest, OnlyReadsOfARegionThatIsNotHeldAreRefused) {
  Start(PartsOf({1}), 10, &first_);
  Start(PartsOf({2, 1}), 10, &second_);
  EXPECT_TRUE(Answer(1, std::nullopt));
  EXPECT_EQ(refused_, (std::vector<Completion*>{&first_, &second_}));
  EXPECT_EQ(regions_.Find(1), nullptr);
  // It may come: the next read asks again.
  Start(PartsOf({1}), 10, &first_);
  EXPECT_EQ(asked_, (std::vector<uint32_t>{1, 2, 1}));
}

TEST_F(RemoteRegionsTest, OnlyWholeWordsInsideARegionAreHeld) {
  struct Case {
    uint64_t offset;
    uint32_t bytes;
    bool held;
  };
  for (const Case& each : {Case{0, kRegionBytes, true}, Case{kRegionBytes, 0, true}, Case{kRegionBytes - 8, 8, true},
                           Case{kRegionBytes - 8, 16, false}, Case{kRegionBytes + 8, 0, false},
                           Case{kRegionBytes + 8, UINT32_MAX - 7, false}, Case{4, 8, false}, Case{8, 12, false}}) {
    EXPECT_EQ(Regions::Holds({"there", kRegionBytes}, {Pointer(1, each.offset), nullptr, each.bytes}), each.held)
        << each.offset << " " << each.bytes;
  }
}

TEST_F(RemoteRegionsTest, TheFirstPartThatPreventsAReadDecides) {
  Start(PartsOf({1}), 10, &first_);
  ASSERT_TRUE(Answer(1, "there"));
  const std::vector<ReadPart> inside = PartsOf({1});
  EXPECT_EQ(regions_.Check(inside), std::pair(Regions::Readiness::kReady, static_cast<const ReadPart*>(nullptr)));
  const std::vector<ReadPart> parts = {inside[0], {Pointer(1, kRegionBytes), nullptr, 64}, PartsOf({2})[0]};
  EXPECT_EQ(regions_.Check(parts), std::pair(Regions::Readiness::kOutside, &parts[1]));
  const std::vector<ReadPart> turned = {parts[0], parts[2], parts[1]};
  EXPECT_EQ(regions_.Check(turned), std::pair(Regions::Readiness::kUnknown, &turned[1]));
}

TEST_F(RemoteRegionsTest, AnAnswerToNoQuestionIsRefused) {
  EXPECT_FALSE(Answer(1, "there"));
  Start(PartsOf({1}), 10, &first_);
  EXPECT_TRUE(Answer(1, "there"));
  EXPECT_FALSE(Answer(1, "elsewhere"));
  EXPECT_EQ(regions_.Find(1)->name, "there");
}

TEST_F(RemoteRegionsTest, AForgottenRegionIsAskedForAgainOnce) {
  regions_.Forget(1);
  Start(PartsOf({1}), 10, &first_);
  regions_.Forget(1);  // The answer to come is new enough.
  EXPECT_TRUE(Answer(1, "old"));
  regions_.Forget(1);
  regions_.Forget(1);
  EXPECT_EQ(regions_.Find(1), nullptr);
  Start(PartsOf({1}), 10, &second_);
  Start(PartsOf({1}), 10, &second_);
  EXPECT_EQ(asked_, (std::vector<uint32_t>{1, 1}));
  EXPECT_TRUE(Answer(1, "new"));
  EXPECT_EQ(regions_.Find(1)->name, "new");
}

TEST_F(RemoteRegionsTest, ReadsEndAtTheirDeadlinesAndWithTheConnection) {
  Start(PartsOf({1}), 10, &first_);
  Start(PartsOf({1}), 20, &second_);
  std::vector<Completion*> told;
  const auto tell = [&](Completion* completion) { told.push_back(completion); };
  EXPECT_EQ(regions_.Expire(9, tell), 10);
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(regions_.Expire(10, tell), 20);
  EXPECT_EQ(told, std::vector<Completion*>{&first_});
  regions_.Fail(tell);
  EXPECT_EQ(told, (std::vector<Completion*>{&first_, &second_}));
  EXPECT_FALSE(regions_.waiting());
  EXPECT_EQ(regions_.Expire(100, tell), INT64_MAX);
}

}  // namespace
}  // namespace cell

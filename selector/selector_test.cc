#include "selector/selector.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

using Choice = Selector::Choice;
using Reason = Selector::Reason;

SelectorOptions NoExploring() {
  SelectorOptions options;
  options.explore = 0;
  return options;
}

Selector Fed(const SelectorOptions& options, int server_ns, int read_ns, int rtt_ns = 1000, int reads = 5) {
  Selector selector(options, 1);
  selector.Choose(0);
  selector.ObserveRead(rtt_ns);
  for (int i = 0; i < 100; ++i) {
    selector.ObserveServer(server_ns);
    selector.ObserveRead(read_ns);
    selector.ObserveReads(reads);
  }
  return selector;
}

// Eq. 4.1 by hand: the server's queue against m times the queue that a read sees.
TEST(Selector, ComparesTheQueuesByTheirLatencies) {
  EXPECT_EQ(Fed(NoExploring(), 5'000, 2'000).Choose(1).choice, Choice::kServer);           // 4 < 5 * 1
  EXPECT_EQ(Fed(NoExploring(), 7'000, 2'000).Choose(1).choice, Choice::kClient);           // 6 > 5 * 1
  EXPECT_EQ(Fed(NoExploring(), 7'000, 2'000, 1000, 7).Choose(1).choice, Choice::kServer);  // 6 < 7 * 1
}

TEST(Selector, TriesBothPathsBeforeItJudges) {
  Selector selector(NoExploring(), 1);
  EXPECT_EQ(selector.Choose(0).choice, Choice::kServer);
  selector.ObserveServer(10);
  EXPECT_EQ(selector.Choose(0).choice, Choice::kClient);
  EXPECT_EQ(selector.Choose(0).reason, Reason::kUnknown);
}

TEST(Selector, BeginsWithFiveReadsASearchAndFollowsWhatIsSeen) {
  Selector selector(NoExploring(), 1);
  EXPECT_EQ(selector.Choose(0).reads, 5);
  for (int i = 0; i < 100; ++i) selector.ObserveReads(3);
  EXPECT_EQ(selector.Choose(0).reads, 3);
}

TEST(Selector, TakesTheWorsePathForOneSearchInAHundred) {
  for (const int run : {1, 100}) {
    SelectorOptions options;
    options.explore_run = run;
    Selector selector = Fed(options, 1'500, 2'000);
    int client = 0, runs = 0;
    Choice last = Choice::kServer;
    for (int i = 0; i < 1'000'000; ++i) {
      const Choice choice = selector.Choose(1).choice;
      client += choice == Choice::kClient;
      runs += choice == Choice::kClient && last == Choice::kServer;
      last = choice;
    }
    EXPECT_NEAR(client, 10'000, 4'000) << run;
    EXPECT_NEAR(runs * run, client, 0.03 * client) << run;
  }
}

TEST(Selector, ForgetsAfterThreeIdleSeconds) {
  Selector selector = Fed(NoExploring(), 5'000, 2'000);
  EXPECT_EQ(selector.Choose(2'900'000'000).reason, Reason::kRule);
  EXPECT_EQ(selector.Choose(6'000'000'000).reason, Reason::kUnknown);
}

TEST(MovingMean, DropsWhatIsFarOff) {
  MovingMean mean{SelectorOptions{}};
  for (int i = 0; i < 50; ++i) mean.Observe(100 + i % 3);
  mean.Observe(1'000'000);
  EXPECT_NEAR(mean.mean(), 101, 1);
}

TEST(MovingMean, IsOverTheLastHundred) {
  SelectorOptions options;
  options.outlier_deviations = 1e9;
  MovingMean mean(options);
  for (int i = 0; i < 100; ++i) mean.Observe(10 + i % 2);
  for (int i = 0; i < 100; ++i) mean.Observe(20);
  EXPECT_DOUBLE_EQ(mean.mean(), 20);
}

// A change for good looks like outliers at first; the history goes when more is dropped than kept.
TEST(MovingMean, StartsAnewWhenItDropsMoreThanItKeeps) {
  MovingMean mean{SelectorOptions{}};
  for (int i = 0; i < 100; ++i) mean.Observe(100 + i % 3);
  for (int i = 0; i < 150; ++i) mean.Observe(10'000 + i % 3);
  EXPECT_NEAR(mean.mean(), 10'001, 2);
}

}  // namespace
}  // namespace cell

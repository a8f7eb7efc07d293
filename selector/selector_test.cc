#include "selector/selector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace cell {
namespace {

using Choice = Selector::Choice;
using Reason = Selector::Reason;

SelectorOptions NoExploring() {
  SelectorOptions options = ThesisSelector();
  options.explore = 0;
  return options;
}

CommonEstimates unused;  // The thesis's rule does not use it.

Selector Fed(const SelectorOptions& options, int server_ns, int read_ns, int rtt_ns = 1000, int reads = 5) {
  Selector selector(options, 1, &unused);
  selector.Choose(0);
  selector.ObserveRead(rtt_ns);
  for (int i = 0; i < 100; ++i) {
    selector.ObserveServer(server_ns);
    selector.ObserveRead(read_ns);
    selector.ObserveReads(reads);
  }
  return selector;
}

// Checks Eq. 4.1 by hand: the server's queue against m times the queue that a read sees.
TEST(Selector, ComparesTheQueuesByTheirLatencies) {
  EXPECT_EQ(Fed(NoExploring(), 5'000, 2'000).Choose(1), Choice::kServer);           // 4 < 5 * 1
  EXPECT_EQ(Fed(NoExploring(), 7'000, 2'000).Choose(1), Choice::kClient);           // 6 > 5 * 1
  EXPECT_EQ(Fed(NoExploring(), 7'000, 2'000, 1000, 7).Choose(1), Choice::kServer);  // 6 < 7 * 1
}

TEST(Selector, TriesBothPathsBeforeItJudges) {
  Selector selector(NoExploring(), 1, &unused);
  EXPECT_EQ(selector.Choose(0), Choice::kServer);
  selector.ObserveServer(10);
  EXPECT_EQ(selector.Choose(0), Choice::kClient);
  EXPECT_EQ(selector.last_reason(), Reason::kUnknown);
}

TEST(Selector, BeginsWithFiveReadsASearchAndFollowsWhatIsSeen) {
  Selector selector(NoExploring(), 1, &unused);
  EXPECT_EQ(selector.ReadsPerSearch(), 5);
  for (int i = 0; i < 100; ++i) selector.ObserveReads(3);
  EXPECT_EQ(selector.ReadsPerSearch(), 3);
}

TEST(Selector, TakesTheWorsePathForOneSearchInAHundred) {
  Selector selector = Fed(ThesisSelector(), 1'500, 2'000);
  int client = 0;
  for (int i = 0; i < 1'000'000; ++i) client += selector.Choose(1) == Choice::kClient;
  EXPECT_NEAR(client, 10'000, 500);
}

TEST(Selector, ForgetsAfterThreeIdleSeconds) {
  Selector selector = Fed(NoExploring(), 5'000, 2'000);
  selector.Choose(2'900'000'000);
  EXPECT_EQ(selector.last_reason(), Reason::kRule);
  selector.Choose(6'000'000'000);
  EXPECT_EQ(selector.last_reason(), Reason::kUnknown);
}

// ---- Cell's rule, against two queues. Each search adds load to the queue that it goes to.

struct Queues {
  double server_ns, server_load_ns;  // Latency when empty, and what the whole load adds.
  double read_ns, read_load_ns;      // The same, for four reads.
};

// Runs `searches` searches, one every ten microseconds, and returns the server's share in the second half.
double ShareOf(Selector* selector, const Queues& queues, int searches, int64_t* now_ns) {
  double share = 0.5;  // The recent share, which determines the queues.
  int server = 0;
  for (int i = 0; i < searches; ++i) {
    const bool to_server = selector->Choose(*now_ns += 10'000) == Choice::kServer;
    share += 0.02 * (to_server - share);
    if (to_server) {
      selector->ObserveServer(static_cast<int64_t>(queues.server_ns + queues.server_load_ns * share));
    } else {
      for (int read = 0; read < 4; ++read) {
        selector->ObserveRead(static_cast<int64_t>(queues.read_ns + queues.read_load_ns * (1 - share)));
      }
      selector->ObserveReads(4);
    }
    if (i >= searches / 2) server += to_server;
  }
  return server / (searches / 2.0);
}

TEST(CellsRule, BringsBothPathsToTakeTheSame) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  int64_t now_ns = 0;
  // 10 + 60 x = 4 * (2 + 5 (1 - x)), so x = 0.225.
  EXPECT_NEAR(ShareOf(&selector, {10'000, 60'000, 2'000, 5'000}, 4'000, &now_ns), 0.225, 0.04);
  // The server becomes three times as fast: x = 0.45.
  EXPECT_NEAR(ShareOf(&selector, {10'000, 20'000, 2'000, 5'000}, 4'000, &now_ns), 0.45, 0.04);
}

// Simulates a server whose queue is M/M/1, and saturated at a load of 1 / 0.95; reads do not wait. The latencies of
// both paths are equal where 2.3 + 0.77 / (1 - 0.95 x) = 4 * 2.1, x = 0.92. The total costs are equal where 2.3 + W^2 /
// S = 4 * 2.1, x = 0.68.
double ShareOfFastServer(const ServiceTimes& times, CommonEstimates* common, const SelectorOptions& options = {}) {
  Selector selector(options, 1, common);
  double share = 0;  // The queue is empty at first.
  int server = 0;
  for (int i = 0; i < 40'000; ++i) {
    const bool to_server = selector.Choose(i * 1'000) == Choice::kServer;
    share += 0.02 * (to_server - share);
    server += to_server && i >= 20'000;
    if (to_server) {
      selector.ObserveServer(static_cast<int64_t>(2'300 + 767 / (1 - 0.95 * share)), times);
    } else {
      for (int read = 0; read < 4; ++read) selector.ObserveRead(2'100);
      selector.ObserveReads(4);
    }
  }
  return server / 20'000.0;
}

TEST(CellsRule, PaysForWhatOthersWait) {
  CommonEstimates common;
  EXPECT_NEAR(ShareOfFastServer({767, 83}, &common), 0.68, 0.05);
}

TEST(CellsRule, PaysNothingIfItIsToldSo) {
  CommonEstimates common;
  EXPECT_NEAR(ShareOfFastServer({767, 83}, &common, *ParseSelector("unpriced")), 0.92, 0.04);
  EXPECT_EQ(ParseSelector("thesis")->rule, SelectorOptions::Rule::kThesis);
  EXPECT_FALSE(ParseSelector("thesys").has_value());
}

TEST(CellsRule, PaysForBothPathsOrForNone) {
  CommonEstimates silent, half, mixed;
  EXPECT_NEAR(ShareOfFastServer({0, 0}, &silent), 0.92, 0.04);
  EXPECT_NEAR(ShareOfFastServer({767, 0}, &half), 0.92, 0.04);
  ShareOfFastServer({767, 83}, &mixed);
  EXPECT_NEAR(ShareOfFastServer({0, 0}, &mixed), 0.92, 0.04) << "another server's times are not this one's";
}

TEST(CellsRule, LooksAtTheWorsePathSeldomAndFindsOutWhenItIsBetter) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  int64_t now_ns = 0;
  EXPECT_LT(ShareOf(&selector, {90'000, 0, 2'000, 0}, 100'000, &now_ns), 0.012);
  ShareOf(&selector, {3'000, 0, 2'000, 0}, 100'000, &now_ns);  // A run comes every 60,000 to 180,000 us.
  EXPECT_GT(ShareOf(&selector, {3'000, 0, 2'000, 0}, 40'000, &now_ns), 0.98);
  EXPECT_LT(ShareOf(&selector, {90'000, 0, 2'000, 0}, 10'000, &now_ns), 0.02);
}

TEST(CellsRule, ExploresLessWhatCostsMore) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  int64_t now_ns = 0;
  // A call takes 25 times as long: 1 % of the time is spent if one in 2,400 goes there.
  EXPECT_NEAR(ShareOf(&selector, {200'000, 0, 2'000, 0}, 1'000'000, &now_ns), 1 / 2'400.0, 1 / 4'800.0);
}

// A client with 10 operations in flight whose searches take 8 us by reads, and at least `server_ns` by calls.
class Exploring : public ::testing::Test {
 protected:
  // Makes the next search, one every microsecond. Returns whether it goes to the server.
  bool Search(int64_t server_ns) {
    const bool to_server = selector_.Choose(now_ns_ += 1'000, {.in_flight = 10}) == Choice::kServer;
    if (to_server) {
      selector_.ObserveServer(server_ns);
    } else {
      SeeReads(2'000);
    }
    return to_server;
  }
  // Makes searches. Returns how often the server was tried again, after a thousand of them or more without it.
  int Attempts(int searches, int64_t server_ns) {
    int attempts = 0, since = 1'000;
    for (int i = 0; i < searches; ++i) {
      if (!Search(server_ns)) {
        ++since;
      } else if (std::exchange(since, 0) >= 1'000) {
        ++attempts;
      }
    }
    return attempts;
  }
  void SeeReads(int64_t read_ns) {
    for (int read = 0; read < 4; ++read) selector_.ObserveRead(read_ns);
    selector_.ObserveReads(4);
  }

  CommonEstimates common_;
  Selector selector_{{}, 1, &common_};
  int64_t now_ns_ = 0;
};

TEST_F(Exploring, IsDoneInRuns) {
  for (int i = 0; i < 20'000; ++i) Search(20'000);
  int server = 0, runs = 0, of_run = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    if (Search(20'000)) {
      ++of_run;
    } else if (of_run > 0) {
      EXPECT_GE(of_run, 400) << "two periods of 200 us";
      server += of_run;
      ++runs;
      of_run = 0;
    }
  }
  EXPECT_GT(runs, 3);
  EXPECT_LT(server, 10'000);
}

TEST_F(Exploring, ARunGoesOnWhileThePathGetsFaster) {
  SeeReads(100);  // Whatever is not seen for long looks like this.
  for (int i = 0; i < 20'000; ++i) Search(30'000);
  while (!Search(30'000)) continue;
  // The path is cold: it takes 30 us at first, and 4 us after a thousand searches.
  int server = 1;
  for (int i = 0; i < 30'000; ++i) server += Search(30'000 - 26 * std::min(server, 1'000));
  EXPECT_GT(server, 28'000) << "it was found to be the better one";
}

TEST_F(Exploring, WhatIsSeenWhileBothPathsAreInFlightDoesNotCount) {
  for (int i = 0; i < 20'000; ++i) Search(20'000);
  while (!Search(20'000)) continue;
  for (int i = 0; i < 100; ++i) selector_.ObserveServer(100);  // From before the run.
  for (int i = 0; i < 100; ++i) SeeReads(1'000'000);
  int server = 0;
  while (Search(20'000)) {
    if (++server == 300) SeeReads(1'000'000);
  }
  EXPECT_LT(server, 2'000);
  for (int i = 0; i < 100; ++i) SeeReads(1'000'000);  // From the run.
  for (int i = 0; i < 1'000; ++i) EXPECT_FALSE(Search(20'000));
}

// Calls look attractive whenever none was seen for a while, because one took 1 us once. They are tried again later and
// later.
TEST_F(Exploring, APathThatIsNoBetterAgainAndAgainIsTriedLessOften) {
  Search(1'000);
  EXPECT_GT(Attempts(200'000, 50'000), 4);
  Attempts(1'000'000, 50'000);
  const int later = Attempts(1'000'000, 50'000);
  EXPECT_GT(later, 1);
  EXPECT_LT(later, 10);
}

// What is known of it fades in a limited time, so that it is not tried by the runs alone, which are rare for a path as
// slow as this one.
TEST_F(Exploring, APathThatIsNoBetterIsStillTriedNowAndThen) {
  Search(1'000);
  Attempts(5'000'000, 1'000'000);
  EXPECT_GT(Attempts(10'000'000, 1'000'000), 4);
}

// Otherwise a run would go on for as long as its path gets faster, even if that stays the worse one.
TEST_F(Exploring, ARunEndsAfterItsLastPeriod) {
  for (int i = 0; i < 20'000; ++i) Search(60'000);
  while (!Search(60'000)) continue;
  // In each period a call takes about 13 % less than in the one before, and always more than twice as long as reads.
  int server = 1;
  while (server < 100'000 && Search(static_cast<int64_t>(60'000 * std::pow(1 + server / 200.0, -0.2)))) ++server;
  EXPECT_NEAR(server, 51'000, 100) << "eight periods, from 200 us to 25,600 us";
}

// Returns the server's share where a call takes 5 us, and each of two reads 2 us.
double ShareWithRest(int64_t rest_ns) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  int server = 0;
  for (int i = 0; i < 10'000; ++i) {
    if (selector.Choose(i * 10'000) == Choice::kServer) {
      server += i >= 5'000;
      selector.ObserveServer(5'000);
      continue;
    }
    for (int read = 0; read < 2; ++read) selector.ObserveRead(2'000);
    selector.ObserveReads(2);
    if (rest_ns > 0) selector.ObserveRest(rest_ns);
  }
  return server / 5'000.0;
}

TEST(CellsRule, TheCallAfterASearchBelongsToTheClientPath) {
  EXPECT_LT(ShareWithRest(0), 0.02);
  EXPECT_GT(ShareWithRest(4'000), 0.98);
}

// Returns the server's share at a server with a long queue, where a put takes the same time with and without its leaf.
// With it the put occupies the server for `rest_service_ns` instead of 3 us.
double ShareAtLongQueue(uint32_t rest_service_ns, const SelectorOptions& options = {}) {
  CommonEstimates common;
  Selector selector(options, 1, &common);
  int server = 0;
  for (int i = 0; i < 10'000; ++i) {
    const int64_t queue_ns = i < 100 ? 0 : 60'000;
    if (selector.Choose(i * 10'000) == Choice::kServer) {
      server += i >= 5'000;
      selector.ObserveServer(5'000 + queue_ns, {3'000, 83});
      continue;
    }
    for (int read = 0; read < 2; ++read) selector.ObserveRead(2'100);
    selector.ObserveReads(2);
    selector.ObserveRest(5'000 + queue_ns, {rest_service_ns, 83});
  }
  return server / 5'000.0;
}

TEST(CellsRule, WhatOccupiesTheServerForLessHasALowerPrice) {
  EXPECT_LT(ShareAtLongQueue(1'000), 0.1);
  EXPECT_GT(ShareAtLongQueue(3'000), 0.9) << "the walk is spent for nothing";
  EXPECT_GT(ShareAtLongQueue(1'000, *ParseSelector("unpriced")), 0.9);
}

// Returns the server's share where a call takes 12 us and each of two reads 2 us, and all of them 3 us more in a later
// time. The client's turns take `turn_ns`.
double ShareWithTurns(double turn_ns) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  int server = 0;
  for (int i = 0; i < 10'000; ++i) {
    const int64_t wait_ns = i < 100 ? 0 : 3'000;
    if (selector.Choose(i * 10'000, {.in_flight = 10, .turn_ns = turn_ns}) == Choice::kServer) {
      server += i >= 5'000;
      selector.ObserveServer(12'000 + wait_ns, {3'000, 83});
      continue;
    }
    for (int read = 0; read < 2; ++read) selector.ObserveRead(2'000 + wait_ns);
    selector.ObserveReads(2);
  }
  return server / 5'000.0;
}

TEST(CellsRule, WhatWaitsForTheClientsOwnCoreHasNoPrice) {
  EXPECT_GT(ShareWithTurns(0), 0.9) << "reads seem to wait in a queue that serves one in 83 ns";
  EXPECT_LT(ShareWithTurns(3'000), 0.1);
}

// Returns the server's share where a call seems to take 10 us, and each of two reads 8 us, because they wait for the
// client's core. Of that core, they take 1,000 and `read_cpu_ns`.
double ShareWithOwnCore(double busy, int64_t read_cpu_ns, int in_flight = 100) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  int server = 0;
  for (int i = 0; i < 10'000; ++i) {
    if (selector.Choose(i * 10'000, {in_flight, busy}) == Choice::kServer) {
      server += i >= 5'000;
      selector.ObserveServer(10'000);
      selector.ObserveCallCpu(1'000);
      continue;
    }
    for (int read = 0; read < 2; ++read) {
      selector.ObserveRead(8'000);
      if (read_cpu_ns > 0) selector.ObserveReadCpu(read_cpu_ns);
    }
    selector.ObserveReads(2);
  }
  return server / 5'000.0;
}

TEST(CellsRule, GoesByItsOwnCoreWhereOperationsWaitForThat) {
  EXPECT_GT(ShareWithOwnCore(0, 300), 0.98);
  EXPECT_LT(ShareWithOwnCore(1, 300), 0.02);
  EXPECT_GT(ShareWithOwnCore(1, 700), 0.98);
  EXPECT_GT(ShareWithOwnCore(0.5, 300), 0.98);
  EXPECT_GT(ShareWithOwnCore(1, 300, 1), 0.98) << "one that is alone waits for no other";
  EXPECT_GT(ShareWithOwnCore(1, 0), 0.98) << "what reads take is not known";
}

TEST_F(Exploring, NorDoesWhatItTakesOfTheClientsCore) {
  for (int i = 0; i < 20'000; ++i) Search(20'000);
  selector_.ObserveCallCpu(500);
  selector_.ObserveReadCpu(200);
  while (!Search(20'000)) continue;
  selector_.ObserveCallCpu(10);
  EXPECT_EQ(common_.call_cpu, 500);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Search(20'000));
  selector_.ObserveCallCpu(400);
  EXPECT_LT(common_.call_cpu, 500) << "now only calls are in flight";
  selector_.ObserveReadCpu(100);
  EXPECT_EQ(common_.read_cpu, 200);
}

TEST(CellsRule, FindsOutWithinAFewDozenSearches) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  int64_t now_ns = 0;
  ShareOf(&selector, {5'000, 0, 2'000, 0}, 10'000, &now_ns);
  int until = 0;  // The server has slowed down.
  for (int server = 0; until < 1'000 && server < 100; ++until) {
    if (selector.Choose(now_ns += 10'000) == Choice::kServer) {
      server = 0;
      selector.ObserveServer(100'000);
    } else {
      ++server;
      selector.ObserveRead(2'000);
    }
  }
  EXPECT_LT(until, 300);
}

// One search in a hundred waits four milliseconds because another process on the server is busy.
TEST(CellsRule, SeesPausesThatComeAgainAndAgain) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  int64_t now_ns = 0;
  int server = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (selector.Choose(now_ns += 10'000) == Choice::kServer) {
      server += i >= 10'000;
      selector.ObserveServer(i % 10 == 0 ? 4'000'000 : 5'000);
    } else {
      selector.ObserveRead(2'000);
      selector.ObserveReads(4);
    }
  }
  EXPECT_LT(server, 2'500);
}

TEST(CellsRule, AsksNoServerThatOwesItAnAnswerForLong) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  int64_t now_ns = 0;
  EXPECT_GT(ShareOf(&selector, {5'000, 0, 2'000, 0}, 10'000, &now_ns), 0.98);
  selector.BeginCall(now_ns);  // The server has owed no answer until now.
  selector.BeginCall(now_ns + 10'000);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(selector.Choose(now_ns + 15'000), Choice::kServer);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(selector.Choose(now_ns + 21'000 + i), Choice::kClient);
  }
  selector.EndCall(now_ns + 100'000);  // The server still owes the second answer, but works again.
  EXPECT_EQ(selector.Choose(now_ns + 101'000), Choice::kServer);
  EXPECT_EQ(selector.Choose(now_ns + 121'000), Choice::kClient);
  selector.EndCall(now_ns + 130'000);
  EXPECT_EQ(selector.Choose(now_ns + 999'000), Choice::kServer);
}

// A client of fifty servers asks one after the other.
TEST(CellsRule, ANewSelectorGoesByWhatItsClientHasSeenOfOtherServers) {
  const Queues queues{10'000, 60'000, 2'000, 5'000};  // x = 0.225, as above.
  CommonEstimates common;
  int64_t now_ns = 0;
  for (int i = 0; i < 50; ++i) {
    Selector selector({}, static_cast<uint64_t>(i), &common);
    ShareOf(&selector, queues, 20, &now_ns);
  }
  int server = 0;
  for (int i = 0; i < 1'000; ++i) {
    Selector selector({}, static_cast<uint64_t>(i), &common);
    server += selector.Choose(now_ns) == Choice::kServer;
    EXPECT_NE(selector.last_reason(), Reason::kUnknown);
  }
  EXPECT_NEAR(server, 225, 75);
}

// One server in ten is slow, and the client has used it a lot. Only its own selector avoids it.
TEST(CellsRule, AServerThatIsUnlikeTheOthersIsSeenToBe) {
  CommonEstimates common;
  std::vector<Selector> selectors;
  for (uint64_t i = 0; i < 10; ++i) selectors.emplace_back(SelectorOptions{}, i, &common);
  int64_t now_ns = 0;
  int slow = 0, others = 0;
  for (int i = 0; i < 100'000; ++i) {
    Selector& selector = selectors[static_cast<size_t>(i % 10)];
    const bool is_slow = i % 10 == 0;
    if (selector.Choose(now_ns += 1'000) == Choice::kServer) {
      if (i >= 50'000) ++(is_slow ? slow : others);
      selector.ObserveServer(is_slow ? 100'000 : 5'000);
    } else {
      selector.ObserveRead(2'000);
      selector.ObserveReads(4);
    }
  }
  EXPECT_LT(slow, 5'000 * 0.1);
  EXPECT_GT(others, 45'000 * 0.95);
}

// Observations of the selector's own server fade after a while. Those that the client makes of other servers do not.
TEST(CellsRule, WhatWasSeenLongAgoFadesIntoWhatTheClientSees) {
  CommonEstimates common;
  Selector seldom({}, 1, &common), often({}, 2, &common);
  int64_t now_ns = 0;
  EXPECT_LT(ShareOf(&seldom, {90'000, 0, 2'000, 0}, 10'000, &now_ns), 0.03);
  EXPECT_GT(ShareOf(&often, {3'000, 0, 2'000, 0}, 10'000, &now_ns), 0.9);
  int server = 0;
  for (int i = 0; i < 10; ++i) {
    server += seldom.Choose(now_ns += SelectorOptions{}.age_ns * 10) == Choice::kServer;
    ShareOf(&often, {3'000, 0, 2'000, 0}, 100, &now_ns);
  }
  EXPECT_GT(server, 7);
}

TEST(RunningLatency, OnePauseCountsAsAFewTimesTheMean) {
  const SelectorOptions options;
  RunningLatency latency;
  for (int i = 0; i < 2; ++i) latency.Observe(1'000, 0, options.weight, options, 0);
  latency.Observe(1e9, 0, options.weight, options, 0);
  EXPECT_NEAR(latency.At(0, 0, options.age_ns), 1'000 + options.weight * (options.sample_max - 1) * 1'000, 1);
}

TEST(RunningLatency, ASampleAfterALongTimeCountsForHalf) {
  const SelectorOptions options;
  RunningLatency latency;
  latency.Observe(1'000, 0, options.weight, options, 0);
  const int64_t now_ns = 1'000 * options.age_ns;
  latency.Observe(3'000, 0, options.weight, options, now_ns);
  EXPECT_NEAR(latency.At(now_ns, 0, options.age_ns), 2'000, 10);
}

TEST(RunningLatency, AnEmptyQueueIsForgottenAfterAWhile) {
  const SelectorOptions options;
  RunningLatency latency;
  const auto empty_after = [&](double sample, int periods) {
    latency.Observe(sample, 0, options.weight, options, periods * (options.empty_forget_ns + 1));
    return latency.empty();
  };
  EXPECT_EQ(empty_after(1'000, 0), 1'000);
  EXPECT_EQ(empty_after(5'000, 1), 1'000) << "it was seen in the period before";
  EXPECT_EQ(empty_after(5'000, 2), 5'000);
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

// A permanent change looks like outliers at first. The history is dropped when more samples are dropped than kept.
TEST(MovingMean, StartsAnewWhenItDropsMoreThanItKeeps) {
  MovingMean mean{SelectorOptions{}};
  for (int i = 0; i < 100; ++i) mean.Observe(100 + i % 3);
  for (int i = 0; i < 150; ++i) mean.Observe(10'000 + i % 3);
  EXPECT_NEAR(mean.mean(), 10'001, 2);
}

}  // namespace
}  // namespace cell

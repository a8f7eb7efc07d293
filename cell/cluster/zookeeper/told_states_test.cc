#include "cell/cluster/zookeeper/told_states.h"

#include <gtest/gtest.h>

#include <thread>

namespace cell {
namespace {

ToldStates::Told At(uint64_t version, Membership::Done done = nullptr, uint64_t session = 1) {
  ClusterState state;
  state.table.version = version;
  return {std::move(done), absl::OkStatus(), std::make_shared<const ClusterState>(std::move(state)), session};
}

TEST(ToldStates, ManyChangesLeaveTheNewestToAnOwnerThatDoesNotLook) {
  ToldStates states;
  EXPECT_TRUE(states.Take().empty());
  for (uint64_t version = 1; version <= 400; ++version) states.Tell(At(version, nullptr, 1 + version / 300));
  states.Tell(At(399, nullptr, 3));  // From a lagging follower.
  const std::vector<ToldStates::Told> told = states.Take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].state->table.version, 400u);
  EXPECT_EQ(told[0].session, 3u);
  EXPECT_TRUE(states.Take().empty());
}

TEST(ToldStates, NothingNewLeavesTheStateAsItWas) {
  ToldStates states;
  states.Tell(At(7));
  states.Tell({nullptr, absl::OkStatus(), nullptr, 2});
  const std::vector<ToldStates::Told> told = states.Take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].state->table.version, 7u);
  EXPECT_EQ(told[0].session, 2u);
}

TEST(ToldStates, EachAnswerIsToldOnceAndInOrder) {
  ToldStates states;
  std::vector<int> answered;
  uint64_t version = 0;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 100; ++j) states.Tell(At(++version));
    states.Tell(At(++version, [&answered, i](const absl::Status&) { answered.push_back(i); }));
  }
  const std::vector<ToldStates::Told> told = states.Take();
  ASSERT_EQ(told.size(), 6u);
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].state->table.version, 101 * (i / 2) + 100 + i % 2);
    EXPECT_EQ(told[i].done != nullptr, i % 2 == 1);
    if (told[i].done) told[i].done(absl::OkStatus());
  }
  EXPECT_EQ(answered, (std::vector<int>{0, 1, 2}));
}

TEST(ToldStates, NothingIsLostBetweenTwoThreads) {
  constexpr int kAnswers = 1000;
  ToldStates states;
  int answered = 0;
  std::thread teller([&states, &answered] {
    for (uint64_t i = 1; i <= kAnswers; ++i) {
      states.Tell(At(2 * i));
      states.Tell(At(2 * i + 1, [&answered](const absl::Status&) { ++answered; }));
    }
  });
  uint64_t version = 0;
  while (answered < kAnswers) {
    for (const ToldStates::Told& told : states.Take()) {
      EXPECT_GT(told.state->table.version, version);
      version = told.state->table.version;
      if (told.done) told.done(told.status);
    }
  }
  teller.join();
  EXPECT_EQ(version, 2u * kAnswers + 1);
}

}  // namespace
}  // namespace cell

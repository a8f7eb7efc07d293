// Tests plans: what seeds draw, that text gives the same plan back, and that a failing one is made smaller.
#include "tests/simulation/plan.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/simulation/plan_text.h"
#include "tests/simulation/shrink.h"

namespace cell {
namespace {

TEST(SimulationPlan, DrawsEveryFaultAndEveryKindOfCluster) {
  std::set<Fault> faults;
  std::set<Durability> durabilities;
  std::set<double> shares;
  std::set<int64_t> tides;
  std::set<double> ranges;
  std::set<bool> joins;
  std::set<int> users;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const SimulationPlan plan = SimulationPlan::Draw(seed);
    for (const FaultPlan& fault : plan.faults) faults.insert(fault.fault);
    durabilities.insert(plan.durability);
    shares.insert(plan.table_share);
    tides.insert(plan.tide_ns);
    ranges.insert(plan.range_share);
    joins.insert(plan.join.enabled);
    users.insert(plan.users);
  }
  EXPECT_EQ(faults.size(), kFaults);
  EXPECT_EQ(durabilities.size(), 3u);
  EXPECT_EQ(shares.size(), 3u);
  EXPECT_EQ(tides.size(), 5u);
  EXPECT_EQ(joins.size(), 2u);
  EXPECT_EQ(ranges.size(), 3u);
  EXPECT_EQ(users.size(), 4u);
}

TEST(SimulationPlan, WhatIsLeftOutChangesNothingElse) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Draws draws;
    SimulationPlan with = SimulationPlan::Draw(seed, draws);
    ASSERT_TRUE(draws.Set("disk full", false));
    const SimulationPlan without = SimulationPlan::Draw(seed, draws);
    std::erase_if(with.faults, [](const FaultPlan& fault) { return fault.fault == Fault::kDiskFull; });
    EXPECT_EQ(PlanText(with), PlanText(without));
  }
  Draws draws;
  EXPECT_FALSE(draws.Set("rain", true));
}

// Plans of seeds that were found before stay as they are.
TEST(SimulationPlan, GrantsAreAddedToWhatElseIsDrawn) {
  size_t with_users = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Draws draws;
    SimulationPlan with = SimulationPlan::Draw(seed, draws);
    ASSERT_TRUE(draws.Set("grants", false));
    const SimulationPlan without = SimulationPlan::Draw(seed, draws);
    ASSERT_EQ(without.users, 0);
    with_users += with.users > 0;
    with.users = 0;
    with.grants_seed = 0;
    for (ClientPlan& client : with.clients) client.user = 0;
    std::erase_if(with.faults,
                  [](const FaultPlan& fault) { return fault.fault == Fault::kGrant || fault.fault == Fault::kRevoke; });
    EXPECT_EQ(PlanText(with), PlanText(without));
  }
  EXPECT_GT(with_users, 15u);
  EXPECT_LT(with_users, 60u);
}

TEST(SimulationPlan, HalfOfAllLogsAreInObjects) {
  size_t durable = 0, in_objects = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const SimulationPlan plan = SimulationPlan::Draw(seed);
    durable += plan.durability != Durability::kNone;
    in_objects += plan.objects;
    if (!plan.objects) {
      EXPECT_FALSE(plan.Has(Fault::kLostAnswers) || plan.Has(Fault::kSilence));
      continue;
    }
    EXPECT_TRUE(plan.durability != Durability::kNone && plan.disk_in_steps && !plan.Has(Fault::kRollback));
    EXPECT_FALSE(plan.Has(Fault::kDiskError) || plan.Has(Fault::kDescriptors) || plan.Has(Fault::kSlowDirectory));
  }
  EXPECT_GT(in_objects, durable * 2 / 5);
  EXPECT_LT(in_objects, durable * 3 / 5);
}

TEST(SimulationPlan, GrantsCanBeGiven) {
  Random random(1);
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const SimulationPlan plan = SimulationPlan::Draw(seed);
    if (plan.users == 0) continue;
    RegionTable table;
    if (plan.table_share > 0) table.tables["t"];
    std::vector<SimulationPlan::Grant> grants = plan.FirstGrants();
    for (int i = 0; i < 20; ++i) grants.push_back(plan.AnyGrant(&random));
    for (const SimulationPlan::Grant& grant : grants) {
      EXPECT_EQ(table.ChangeGrant(grant.user, grant.scope, grant.rights, /*give=*/true), absl::OkStatus());
    }
  }
}

TEST(PlanText, GivesTheSamePlanBack) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const std::string text = PlanText(SimulationPlan::Draw(seed));
    const absl::StatusOr<SimulationPlan> plan = ParsePlan(text);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(PlanText(*plan), text);
  }
}

TEST(PlanText, RefusesWhatIsNoPlan) {
  EXPECT_FALSE(ParsePlan("").ok());
  EXPECT_FALSE(ParsePlan("[]").ok());
  EXPECT_FALSE(ParsePlan(R"({"servers": "three"})").ok());
  EXPECT_FALSE(ParsePlan(R"({"servers": 0})").ok());
  EXPECT_FALSE(ParsePlan(R"({"surfers": 3})").ok());
  EXPECT_FALSE(ParsePlan(R"({"durability": "maybe"})").ok());
  EXPECT_FALSE(ParsePlan(R"({"weights": [1, 0, 0, 0, 0], "paths": [1, 0, 0], "users": 1,
                             "clients": [{"seed": 1, "user": 2}]})")
                   .ok());
  EXPECT_FALSE(ParsePlan(R"({"faults": [{"at_ns": 1, "fault": "rain", "lasts_ns": 1, "seed": 1}]})").ok());
  EXPECT_TRUE(ParsePlan(R"({"seed": 3, "weights": [1, 0, 0, 0, 0], "paths": [1, 0, 0]})").ok());
}

// A plan fails as long as it has a kill and a drain, in that order, and a client with 30 operations.
TEST(Shrink, TakesAwayAllThatIsNotNeeded) {
  SimulationPlan plan = SimulationPlan::Draw(1);
  plan.faults.clear();
  plan.clients.clear();
  for (int i = 0; i < 40; ++i) {
    const Fault fault = i == 11 ? Fault::kKill : i == 29 ? Fault::kDrain : Fault::kDelay;
    plan.faults.push_back({i * 1'000, fault, 100, static_cast<uint64_t>(i)});
  }
  for (uint64_t i = 0; i < 5; ++i) plan.clients.push_back({i, 4, i % 2 == 0});
  int rounds = 0;
  const FirstFailing first_failing = [&rounds](const std::vector<SimulationPlan>& plans) -> std::optional<size_t> {
    ++rounds;
    for (size_t i = 0; i < plans.size(); ++i) {
      const SimulationPlan& one = plans[i];
      size_t at = 0;
      for (const FaultPlan& fault : one.faults) {
        if (at < 2 && fault.fault == (at == 0 ? Fault::kKill : Fault::kDrain)) ++at;
      }
      uint64_t operations = 0;
      for (const ClientPlan& client : one.clients) {
        if (!client.reads_only) operations = std::max(operations, client.operations_max);
      }
      if (at == 2 && operations >= 30) return i;
    }
    return std::nullopt;
  };
  const SimulationPlan left = Shrink(plan, first_failing, 1'000);
  ASSERT_EQ(left.faults.size(), 2u);
  EXPECT_EQ(left.faults[0].seed, 11u);  // Unchanged: its own draws are the same.
  EXPECT_EQ(left.faults[1].seed, 29u);
  ASSERT_EQ(left.clients.size(), 1u);
  EXPECT_EQ(left.clients[0].tasks, 1);
  EXPECT_LT(left.clients[0].operations_max, 60u);
  EXPECT_EQ(left.keys, 1);
  EXPECT_EQ(left.joining, 0);
  EXPECT_LT(rounds, 200);
}

TEST(Shrink, EndsWhenItsRoundsAreUsedUp) {
  int rounds = 0;
  const FirstFailing always = [&rounds](const std::vector<SimulationPlan>&) {
    ++rounds;
    return std::optional<size_t>(0);
  };
  (void)Shrink(SimulationPlan::Draw(3), always, 7);
  EXPECT_EQ(rounds, 7);
}

}  // namespace
}  // namespace cell

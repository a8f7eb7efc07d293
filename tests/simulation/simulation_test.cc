// Seeds of //tools:sim: that all are right, that a seed always has the same trace, and that each mutant is found.
#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include <set>

#include "cell/base/random.h"

namespace cell {
namespace {

TEST(SimulationPlan, DrawsEveryFaultAndEveryKindOfCluster) {
  std::set<Fault> faults;
  std::set<Durability> durabilities;
  std::set<double> shares;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const SimulationPlan plan = SimulationPlan::Draw(seed);
    faults.insert(plan.faults.begin(), plan.faults.end());
    durabilities.insert(plan.durability);
    shares.insert(plan.table_share);
  }
  EXPECT_EQ(faults.size(), kFaults);
  EXPECT_EQ(durabilities.size(), 3u);
  EXPECT_EQ(shares.size(), 3u);
}

TEST(Simulation, TheSameSeedHasTheSameTrace) {
  const SimulationPlan plan = SimulationPlan::Draw(20);
  std::vector<std::string> lines, again;
  const SimulationReport one =
      Simulate(plan, Mutant::kNone, [&lines](const std::string& line) { lines.push_back(line); });
  const SimulationReport other =
      Simulate(plan, Mutant::kNone, [&again](const std::string& line) { again.push_back(line); });
  EXPECT_GT(lines.size(), 100u);
  EXPECT_EQ(lines, again);
  EXPECT_EQ(one.trace_hash, other.trace_hash);
  EXPECT_NE(one.trace_hash, Simulate(SimulationPlan::Draw(21), Mutant::kNone).trace_hash);
}

}  // namespace
}  // namespace cell

// Checks that a seed always has the same trace.
#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cell {
namespace {

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

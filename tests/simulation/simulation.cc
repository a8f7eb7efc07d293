#include "tests/simulation/simulation.h"

#include <algorithm>
#include <utility>

#include "cell/base/check.h"
#include "tests/simulation/account.h"
#include "tests/simulation/ending.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/grant_changes.h"
#include "tests/simulation/users.h"
#include "tests/simulation/world.h"

namespace cell {

SimulationReport Simulate(const SimulationPlan& plan, Mutant mutant,
                          const std::function<void(const std::string&)>& trace) {
  World world(plan, mutant, trace);
  TransactionHistory transactions(&world);
  Users users(&world, &transactions);
  Faults faults(&world, &users);
  Ending ending(&world, &users, &transactions);

  world.journal.Trace("plan: {}", plan.Summary());
  if (world.table_keys > 0) {
    const auto room = static_cast<uint64_t>(std::max(1, plan.regions_max - 1));  // There may be only one server.
    const auto parts = static_cast<uint32_t>(std::min(1 + plan.seed % 3, room));
    const absl::Status made = world.cluster.CreateTable("t", plan.bucket_bytes, parts);
    if (!made.ok()) {  // Its server lost its session in the middle, and has made fewer parts.
      CELL_CHECK(world.cluster.table().tables.contains("t"));
      CELL_CHECK(world.RunUntil(world.now_ns() + kTimeoutNs, [&ending] { return ending.Settled(); }));
    }
    if (plan.evict != Eviction::kNone) CELL_CHECK(world.cluster.SetEviction("t", plan.evict).ok());
  }
  if (plan.users > 0) GrantChanges(&world).Enforce();
  users.Open();
  faults.Plan();
  world.RunUntil(world.now_ns() + plan.duration_ns, [] { return false; });
  faults.Heal();
  users.Stop();
  const bool ended = ending.Settle();
  users.Close(ended);
  if (ended) ending.ReadAll();
  if (ended && world.journal.right()) CheckAccount(&world);
  if (ended && world.journal.right()) ending.CheckCluster();  // Old values stay until the log has written the new ones.
  ending.CheckHistories();
  if (ended && world.journal.right()) ending.Empty();

  for (size_t i = 0; i < world.cluster.servers(); ++i) faults.Collect(i);
  world.report.ids_around = world.cluster.table().ids.around;
  SimulationReport report = std::move(world.report);
  report.simulated_ns = world.now_ns();
  report.violations = world.journal.violations();
  report.trace_hash = world.journal.hash();
  report.trace_end = world.journal.last_lines();
  return report;
}

}  // namespace cell

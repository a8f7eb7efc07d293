// One simulated cluster, its clients and its faults, from a plan; and what was wrong.
//
// What is checked
//   per key     each history of puts, deletes, gets and contains is linearizable, on all paths mixed, what scans saw
//               included: a scan says of each key that it was there with this value, or was not, at some moment of it
//   scans       keys in order, each once, in the range
//   durability  what was acknowledged is there at the end (sync: by the above; async: what was acknowledged a bound
//               before any fault)
//   errors      a write that failed plainly did not happen; one that is MaybeApplied did or did not
//   the end     faults over, every operation ends, every region is served, the trees and tables are right, and all
//               half splits and routes are there once every leaf was written to
//
// The same plan gives the same trace, always.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/simulation/plan.h"

namespace cell {

struct SimulationReport {
  std::vector<std::string> violations;  // None: all is well.
  uint64_t trace_hash = 0;
  std::vector<std::string> trace_end;  // The last lines of it.

  int64_t simulated_ns = 0;
  int64_t settled_ns = 0;  // From the end of the faults on, until everything had finished.
  std::array<uint64_t, kFaults> faults{};
  uint64_t operations = 0;  // That ended.
  uint64_t maybe = 0;       // With an outcome that is not known.
  uint64_t failed = 0;
  uint64_t checked = 0;  // In histories of keys.
  uint64_t gave_up = 0;  // Histories too tangled to be decided.
  uint64_t clients = 0;      // That came.
  int64_t latest_ns = INT64_MIN;  // After its deadline, the call that ended last.
  uint64_t scans = 0, torn = 0, splits = 0, moves = 0, recovered = 0, table_splits = 0, checkpoints = 0;
};

// `trace`: told each line; null: nobody.
SimulationReport Simulate(const SimulationPlan& plan, Mutant mutant,
                          const std::function<void(const std::string&)>& trace = nullptr);

}  // namespace cell

// Makes a failing plan smaller: faults, clients and operations are taken away while it still fails (delta debugging:
// Zeller and Hildebrandt, IEEE TSE 2002). What is left is what someone has to understand.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tests/simulation/plan.h"

namespace cell {

// Runs the plans, at the same time if it can. Returns the index of the first that fails; nothing when all are right.
using FirstFailing = std::function<std::optional<size_t>(const std::vector<SimulationPlan>& plans)>;

// Returns the smallest plan that was found to fail; `plan` itself if none smaller does. Ends after `rounds_max` calls of
// `first_failing`.
SimulationPlan Shrink(SimulationPlan plan, const FirstFailing& first_failing, int rounds_max);

}  // namespace cell

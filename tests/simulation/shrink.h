// Makes a failing plan smaller by removing faults, clients and operations while it still fails (delta debugging: Zeller
// and Hildebrandt, IEEE TSE 2002). The rest is what a person has to understand.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tests/simulation/plan.h"

namespace cell {

// Runs the plans, concurrently if possible. Returns the index of the first that fails, or nullopt if none does.
using FirstFailing = std::function<std::optional<size_t>(const std::vector<SimulationPlan>& plans)>;

// Returns the smallest plan that was found to fail, or `plan` itself. Ends after `rounds_max` calls of `first_failing`.
SimulationPlan Shrink(SimulationPlan plan, const FirstFailing& first_failing, int rounds_max);

}  // namespace cell

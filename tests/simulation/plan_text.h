// Writes and parses plans as text: JSON, one field a line, one fault a line, so that a person can read a plan and
// remove a line.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tests/simulation/plan.h"

namespace cell {

std::string PlanText(const SimulationPlan& plan);
// Parses a plan. Missing fields have their defaults. Returns InvalidArgument with what is wrong.
absl::StatusOr<SimulationPlan> ParsePlan(std::string_view text);

}  // namespace cell

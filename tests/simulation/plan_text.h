// Plans as text: JSON, one field a line, one fault a line, so that a person can read a plan and take a line out.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tests/simulation/plan.h"

namespace cell {

std::string PlanText(const SimulationPlan& plan);
// Fields that the text leaves out have their defaults. InvalidArgument: names what is wrong.
absl::StatusOr<SimulationPlan> ParsePlan(std::string_view text);

}  // namespace cell

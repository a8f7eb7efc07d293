// RegionReport is a server's check of one of its regions, parsed from JSON (WorkerReports::Check). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/tree/tree_report.h"
#include "pilaf/hash_layout.h"

namespace cell {

struct RegionReport {
  std::vector<std::string> errors;
  std::optional<HashRange> hash;  // For a part of a table. In this case only the number of keys is set in `tree`.
  TreeReport tree;
  uint64_t routes = 0;  // Number of routes, to be requested separately.
};

// Returns InvalidArgument if the text is not such a report.
absl::StatusOr<RegionReport> ParseRegionReport(std::string_view text);
// Adds the routes that a server lists to report->routes and returns their number. Returns InvalidArgument if the text
// is not a list of routes.
absl::StatusOr<size_t> ParseRoutes(std::string_view text, TreeReport* report);

}  // namespace cell

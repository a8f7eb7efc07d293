// RegionReport: what a server's check says of one of its regions, as JSON (RequestService::Check). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/tree/tree_check.h"
#include "pilaf/hash_table.h"

namespace cell {

struct RegionReport {
  std::vector<std::string> errors;
  std::optional<HashRange> hash;  // Of a part of a table; then of `tree` the count of keys alone is set.
  TreeReport tree;
  uint64_t routes = 0;  // That are to be asked for.
};

// InvalidArgument: it is no such report.
absl::StatusOr<RegionReport> ParseRegionReport(std::string_view text);
// Adds the routes that a server lists to report->routes. Returns how many those are. InvalidArgument: they are none.
absl::StatusOr<size_t> ParseRoutes(std::string_view text, TreeReport* report);

}  // namespace cell

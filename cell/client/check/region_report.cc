#include "cell/client/check/region_report.h"

#include <charconv>

#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr uint64_t kRoutesMax = uint64_t{1} << 26;  // More than any meganode can have.

absl::Status Bad(const char* what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<std::string> Unhex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    if (error != std::errc() || end != hex.data() + i + 2) return Bad("a key is not in hexadecimal digits");
    bytes.push_back(static_cast<char>(byte));
  }
  if (hex.size() % 2 != 0) return Bad("a key is not in hexadecimal digits");
  return bytes;
}

absl::StatusOr<Pointer> RootFrom(uint32_t region) {
  if (region > Pointer::kRegionMax) return Bad("a region is out of range");
  return RootOf(region);
}

absl::Status ParseTree(JsonView json, RegionReport* report) {
  TreeReport& tree = report->tree;
  ASSIGN_OR_RETURN(const auto tier, json.Get<uint32_t>("tier"));
  if (tier > UINT8_MAX) return Bad("its tier is out of range");
  tree.range.tier = static_cast<uint8_t>(tier);
  ASSIGN_OR_RETURN(const std::string low, json.Get<std::string>("low"));
  ASSIGN_OR_RETURN(tree.range.low, Unhex(low));
  if (json["high"].there()) {
    ASSIGN_OR_RETURN(const std::string high, json.Get<std::string>("high"));
    ASSIGN_OR_RETURN(tree.range.high, Unhex(high));
  }
  ASSIGN_OR_RETURN(const auto right, json.Get<uint32_t>("right"));
  if (right != 0) {
    ASSIGN_OR_RETURN(tree.range.right, RootFrom(right));
  }
  ASSIGN_OR_RETURN(report->routes, json.Get<uint64_t>("routes"));
  return report->routes <= kRoutesMax ? absl::OkStatus() : Bad("it has too many routes");
}

}  // namespace

absl::StatusOr<RegionReport> ParseRegionReport(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson(text));
  const JsonView json(parsed);
  RegionReport report;
  ASSIGN_OR_RETURN(report.tree.region, json.Get<uint32_t>("region"));
  ASSIGN_OR_RETURN(report.tree.keys, json.Get<uint64_t>("keys"));
  for (const JsonView error : json["errors"].elements()) report.errors.push_back(error.Or<std::string>("(no text)"));
  const JsonView hash = json["hash"];
  if (hash.there()) {
    HashRange range;
    ASSIGN_OR_RETURN(range.first, hash.Get<uint32_t>("first"));
    ASSIGN_OR_RETURN(range.last, hash.Get<uint32_t>("last"));
    report.hash = range;
    return report;
  }
  RETURN_IF_ERROR(ParseTree(json, &report));
  return report;
}

absl::StatusOr<size_t> ParseRoutes(std::string_view text, TreeReport* report) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text));
  if (!json.is_array()) return Bad("its routes are not a list");
  for (const JsonView one : JsonView(json).elements()) {
    const std::vector<JsonView> route = one.elements();
    const std::optional<std::string> hex = route.size() == 2 ? route[0].As<std::string>() : std::nullopt;
    const std::optional<uint32_t> region = route.size() == 2 ? route[1].As<uint32_t>() : std::nullopt;
    if (!hex.has_value() || !region.has_value()) return Bad("a route does not consist of a key and a region");
    ASSIGN_OR_RETURN(std::string key, Unhex(*hex));
    ASSIGN_OR_RETURN(const Pointer child, RootFrom(*region));
    report->routes.emplace_back(std::move(key), child);
  }
  return json.size();
}

}  // namespace cell

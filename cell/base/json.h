// Parses JSON from outside: files, znodes, and reports of servers and clients. No other code parses such JSON. No input
// makes it throw. A number that does not fit the requested type is an error; it is never converted.
//
//   ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text));
//   ASSIGN_OR_RETURN(const auto epoch, JsonView(json).Get<uint64_t>("epoch"));   // An error if it is missing.
//   const auto worker = JsonView(json)["worker"].Or<uint32_t>(0);                // A default.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace cell {

// Limits how deeply arrays and objects may be nested, because json.hpp copies and prints recursively.
inline constexpr int kJsonDepthMax = 32;

// Parses JSON text. Returns InvalidArgument if it is not JSON in UTF-8, or is nested too deeply.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text);

// Returns the text of a value, on one line if indent < 0. Replaces bytes in strings that are not UTF-8.
std::string JsonText(const nlohmann::json& value, int indent = -1);

// Refers to a JSON value, or to nothing. Valid as long as the value that it was made from.
class JsonView {
 public:
  JsonView() = default;
  JsonView(const nlohmann::json& value) : value_(&value) {}  // NOLINT: as a string_view.

  bool there() const { return value_ != nullptr; }
  bool is_object() const;
  bool is_array() const;
  // Returns the member of that name. Returns an empty view if this is not an object or has no such member.
  JsonView operator[](std::string_view name) const;
  // Return an array's elements, and an object's members. Both return nothing for any other value.
  std::vector<JsonView> elements() const;
  std::vector<std::pair<std::string, JsonView>> members() const;

  // Returns the value as a bool, uint32_t, uint64_t, double or std::string. Returns nullopt if it has another type or
  // is out of range.
  template <typename T>
  std::optional<T> As() const;
  template <typename T>
  T Or(T otherwise) const {
    return As<T>().value_or(std::move(otherwise));
  }
  // Returns the member of that name. Returns InvalidArgument if it is missing, has another type, or is out of range.
  template <typename T>
  absl::StatusOr<T> Get(std::string_view name) const {
    if (std::optional<T> value = (*this)[name].As<T>()) return *std::move(value);
    return NoSuch(name);
  }
  // Works like Get above, but returns `otherwise` if the member is missing.
  template <typename T>
  absl::StatusOr<T> Get(std::string_view name, T otherwise) const {
    if ((*this)[name].there()) return Get<T>(name);
    return otherwise;
  }

 private:
  absl::Status NoSuch(std::string_view name) const;

  const nlohmann::json* value_ = nullptr;
};

}  // namespace cell

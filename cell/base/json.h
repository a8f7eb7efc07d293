// JSON from outside: files, znodes, what servers and clients say of themselves. It is parsed here and nowhere else.
// Nothing throws, whatever the text is; a number that does not fit its type is refused, and never converted.
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

// How many arrays and objects may be inside of one another: json.hpp copies and prints recursively.
inline constexpr int kJsonDepthMax = 32;

// InvalidArgument: it is not JSON in UTF-8, or nested too deeply.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text);

// Returns the text of a value. Bytes in its strings that are not UTF-8 are replaced. indent < 0: one line.
std::string JsonText(const nlohmann::json& value, int indent = -1);

// A value, or none. It is valid as long as what it was made of.
class JsonView {
 public:
  JsonView() = default;
  JsonView(const nlohmann::json& value) : value_(&value) {}  // NOLINT: as a string_view.

  bool there() const { return value_ != nullptr; }
  bool is_object() const;
  bool is_array() const;
  // Returns the member of that name. None: this is no object, or has no such member.
  JsonView operator[](std::string_view name) const;
  // Return an array's elements, and an object's members; nothing of any other value.
  std::vector<JsonView> elements() const;
  std::vector<std::pair<std::string, JsonView>> members() const;

  // Returns the value as a bool, uint32_t, uint64_t, double or std::string. None: it is of another type, or out of range.
  template <typename T>
  std::optional<T> As() const;
  template <typename T>
  T Or(T otherwise) const {
    return As<T>().value_or(std::move(otherwise));
  }
  // Returns the member of that name. InvalidArgument: it is missing, of another type, or out of range.
  template <typename T>
  absl::StatusOr<T> Get(std::string_view name) const {
    if (std::optional<T> value = (*this)[name].As<T>()) return *std::move(value);
    return NoSuch(name);
  }
  // The same; `otherwise`, if it is missing.
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

#include "cell/base/json.h"

#include <cstdint>
#include <limits>
#include <type_traits>

#include "cell/base/bytes.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

// Returns how deeply `text` is nested, provided that it is JSON.
int DepthOf(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(std::string_view text) {
  if (DepthOf(text) > kJsonDepthMax) return absl::InvalidArgumentError("it is nested too deeply");
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("it is not valid JSON (damaged?)");
  return json;
}

std::string JsonText(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool JsonView::is_object() const { return there() && value_->is_object(); }
bool JsonView::is_array() const { return there() && value_->is_array(); }

JsonView JsonView::operator[](std::string_view name) const {
  if (!is_object()) return {};
  const auto it = value_->find(name);
  return it == value_->end() ? JsonView() : JsonView(*it);
}

std::vector<JsonView> JsonView::elements() const {
  if (!is_array()) return {};
  return {value_->begin(), value_->end()};
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  std::vector<std::pair<std::string, JsonView>> members;
  if (!is_object()) return members;
  for (auto it = value_->begin(); it != value_->end(); ++it) members.emplace_back(it.key(), *it);
  return members;
}

template <typename T>
std::optional<T> JsonView::As() const {
  if (!there()) return std::nullopt;
  if constexpr (std::is_same_v<T, bool>) {
    if (value_->is_boolean()) return value_->get<bool>();
  } else if constexpr (std::is_same_v<T, double>) {
    if (value_->is_number()) return value_->get<double>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (value_->is_string()) return value_->get<std::string>();
  } else {
    static_assert(std::is_unsigned_v<T>);
    if (value_->is_number_unsigned() && value_->get<uint64_t>() <= std::numeric_limits<T>::max()) {
      return static_cast<T>(value_->get<uint64_t>());
    }
  }
  return std::nullopt;
}
template std::optional<bool> JsonView::As() const;
template std::optional<uint32_t> JsonView::As() const;
template std::optional<uint64_t> JsonView::As() const;
template std::optional<double> JsonView::As() const;
template std::optional<std::string> JsonView::As() const;

absl::Status JsonView::NoSuch(std::string_view name) const {
  return absl::InvalidArgumentError(fmt::format(
      "{} is {}", ForMessage(name), (*this)[name].there() ? "of the wrong type, or out of range" : "missing"));
}

}  // namespace cell

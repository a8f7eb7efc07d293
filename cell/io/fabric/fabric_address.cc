#include "cell/io/fabric/fabric_address.h"

#include <algorithm>
#include <fstream>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"

namespace cell {
namespace {

constexpr std::string_view kScheme = "://";

absl::Status Bad(std::string_view text) {
  return absl::InvalidArgumentError(fmt::format(
      "{} is not a valid worker address: use tcp://HOST:PORT, verbs://HOST:PORT, shm://MACHINE/PATH or a path",
      ForMessage(text)));
}

}  // namespace

std::string_view ToString(FabricKind kind) {
  switch (kind) {
    case FabricKind::kTcp:
      return "tcp";
    case FabricKind::kVerbs:
      return "verbs";
    case FabricKind::kShm:
      return "shm";
  }
  return "?";
}

std::optional<FabricKind> ParseFabricKind(std::string_view text) {
  for (const FabricKind kind : {FabricKind::kTcp, FabricKind::kVerbs, FabricKind::kShm}) {
    if (text == ToString(kind)) return kind;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<FabricAddress>> ParseAddresses(const std::string& text) {
  std::vector<FabricAddress> addresses;
  std::string_view rest = text;
  if (rest.empty()) return Bad(text);
  if (rest.find(kScheme) == std::string_view::npos) return std::vector<FabricAddress>{{FabricKind::kShm, text, {}}};
  while (!rest.empty()) {
    const size_t scheme = rest.find(kScheme);
    if (scheme == std::string_view::npos) return Bad(text);
    const std::optional<FabricKind> kind = ParseFabricKind(rest.substr(0, scheme));
    if (!kind.has_value()) return Bad(text);
    rest.remove_prefix(scheme + kScheme.size());
    if (kind == FabricKind::kShm) {  // A path may have commas, so it is the last address.
      const size_t slash = rest.find('/');
      if (slash == std::string_view::npos || slash + 1 == rest.size()) return Bad(text);
      addresses.push_back({*kind, std::string(rest.substr(slash)), std::string(rest.substr(0, slash))});
      break;
    }
    const size_t comma = std::min(rest.find(','), rest.size());
    if (comma == 0) return Bad(text);
    addresses.push_back({*kind, std::string(rest.substr(0, comma)), {}});
    rest.remove_prefix(comma);
    if (rest.empty()) break;
    rest.remove_prefix(1);
    if (rest.empty()) return Bad(text);
  }
  return addresses;
}

std::string ToString(std::vector<FabricAddress> addresses) {
  std::stable_sort(addresses.begin(), addresses.end(), [](const auto& a, const auto& b) { return a.kind < b.kind; });
  std::string text;
  for (const FabricAddress& one : addresses) {
    if (!text.empty()) text += ",";
    text += fmt::format("{}{}{}{}", ToString(one.kind), kScheme, one.machine, one.address);
  }
  return text;
}

const std::string& ThisMachine() {
  static const std::string machine = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    file >> id;
    return id;
  }();
  return machine;
}

}  // namespace cell

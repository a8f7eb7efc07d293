#include "cell/control/authorization.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr std::string_view kScheme = "cell://";
constexpr size_t kNameBytesMax = 64;  // As that of a server.

// Reads tell where every key is and how much there is, so they are for operators, too. Clients and servers get what
// they need over the fabric.
constexpr std::array kRpcs = {
    Rpc{"Status", Role::kOperator, false},     Rpc{"Regions", Role::kOperator, false},
    Rpc{"Allocate", Role::kOperator, true},    Rpc{"Split", Role::kOperator, true},
    Rpc{"Join", Role::kOperator, true},        Rpc{"Move", Role::kOperator, true},
    Rpc{"Drain", Role::kOperator, true},       Rpc{"Rebalance", Role::kOperator, true},
    Rpc{"Checkpoint", Role::kOperator, true},  Rpc{"CreateTable", Role::kOperator, true},
    Rpc{"DropTable", Role::kOperator, true},   Rpc{"SetEviction", Role::kOperator, true},
    Rpc{"SetLogLevel", Role::kOperator, true},
};

// Returns nothing unless the URI is exactly cell://ROLE/NAME.
std::optional<Caller> Parse(std::string_view uri) {
  uri.remove_prefix(kScheme.size());
  const size_t slash = uri.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view role = uri.substr(0, slash), name = uri.substr(slash + 1);
  const bool plain =
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isgraph(c) != 0 && c != '/'; });
  if (name.empty() || name.size() > kNameBytesMax || !plain) return std::nullopt;
  for (const auto& [its, text] :
       {std::pair{Role::kOperator, "operator"}, {Role::kServer, "server"}, {Role::kClient, "client"}}) {
    if (role == text) return Caller{its, std::string(uri), {}};
  }
  return std::nullopt;
}

}  // namespace

Caller CallerOfCertificate(const std::vector<std::string>& uris) {
  std::optional<Caller> caller;
  for (const std::string& uri : uris) {
    if (!uri.starts_with(kScheme)) continue;
    if (caller.has_value()) return {};  // Which of them is meant is anyone's guess.
    caller = Parse(uri);
    if (!caller.has_value()) return {};
  }
  return caller.value_or(Caller());
}

std::string ServerUri(std::string_view server) { return fmt::format("{}server/{}", kScheme, server); }

const Rpc* FindRpc(std::string_view name) {
  const auto* const found =
      std::find_if(kRpcs.begin(), kRpcs.end(), [name](const Rpc& rpc) { return rpc.name == name; });
  return found == kRpcs.end() ? nullptr : found;
}

}  // namespace cell

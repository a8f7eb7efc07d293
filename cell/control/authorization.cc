#include "cell/control/authorization.h"

#include <algorithm>
#include <array>
#include <optional>

#include "fmt/format.h"

namespace cell {
namespace {

// Reads tell where every key is and how much there is, so they are for operators, too. Clients and servers get what
// they need over the fabric.
constexpr std::array kRpcs = {
    Rpc{"Status", Role::kOperator, false},
    Rpc{"Regions", Role::kOperator, false},
    Rpc{"Allocate", Role::kOperator, true},
    Rpc{"Split", Role::kOperator, true},
    Rpc{"Join", Role::kOperator, true},
    Rpc{"Move", Role::kOperator, true},
    Rpc{"Drain", Role::kOperator, true},
    Rpc{"Rebalance", Role::kOperator, true},
    Rpc{"Checkpoint", Role::kOperator, true},
    Rpc{"CreateTable", Role::kOperator, true},
    Rpc{"DropTable", Role::kOperator, true, true},
    Rpc{"SetEviction", Role::kOperator, true, true},
    Rpc{"ChangeGrant", Role::kOperator, true, true},
    Rpc{"EnforceGrants", Role::kOperator, true},
    Rpc{"SetLogLevel", Role::kOperator, true},
};

}  // namespace

Caller CallerOfCertificate(const std::vector<std::string>& uris) {
  const std::optional<Identity> identity = IdentityOfUris(uris);
  return identity.has_value() ? Caller{identity->role, ToString(*identity), {}} : Caller();
}

std::string ServerUri(std::string_view server) { return fmt::format("{}server/{}", kIdentityScheme, server); }

const Rpc* FindRpc(std::string_view name) {
  const auto* const found =
      std::find_if(kRpcs.begin(), kRpcs.end(), [name](const Rpc& rpc) { return rpc.name == name; });
  return found == kRpcs.end() ? nullptr : found;
}

}  // namespace cell

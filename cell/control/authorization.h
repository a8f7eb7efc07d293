// Says who may use the control plane for what. Pure. Operators may do everything. A client may make some requests about
// the pairs that it has a grant of admin for.
//
// A certificate that does not say whose it is (cell/layout/identity.h) may do nothing. Over the Unix socket the user
// who connects is the operator: the listener lets nobody else in (control_listener.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cell/layout/identity.h"

namespace cell {

// Who makes a request.
struct Caller {
  std::optional<Role> role = std::nullopt;  // Nullopt: nobody whom we know.
  std::string name = {};                    // As in the audit log: operator/NAME, client/NAME, uid/N, or empty.
  std::string from = {};                    // "unix", or IP:PORT.
};

// Returns the role and name of a certificate with these URIs.
Caller CallerOfCertificate(const std::vector<std::string>& uris);

// Returns the URI of a server's certificate.
std::string ServerUri(std::string_view server);

// A request of control.proto.
struct Rpc {
  std::string_view name;
  Role needs;              // Only this role may make it...
  bool changes;            // It changes the cluster or the server, so it is written into the audit log.
  bool of_admins = false;  // ...and clients, about pairs that they administer.
};

// Returns null if there is no such request. Nobody may make it then.
const Rpc* FindRpc(std::string_view name);

// Returns whether the caller may make a request, whatever it is about.
inline bool May(const Caller& caller, const Rpc* rpc) { return rpc != nullptr && caller.role == rpc->needs; }

}  // namespace cell

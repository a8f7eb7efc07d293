// Says who may use the control plane for what. Pure.
//
// A certificate's identity is its one URI of the form cell://ROLE/NAME. Any other certificate, and one with several
// such URIs, may do nothing. Over the Unix socket the user who connects is the operator: the listener lets nobody else
// in (control_listener.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cell {

enum class Role { kNobody, kClient, kServer, kOperator };

// Who makes a request.
struct Caller {
  Role role = Role::kNobody;
  std::string name;  // As in the audit log: operator/NAME, client/NAME, uid/N, or empty.
  std::string from;  // "unix", or IP:PORT.
};

// Returns the role and name of a certificate with these URIs. Others than cell:// ones do not count.
Caller CallerOfCertificate(const std::vector<std::string>& uris);

// Returns the URI of a server's certificate.
std::string ServerUri(std::string_view server);

// A request of control.proto.
struct Rpc {
  std::string_view name;
  Role least;    // Roles from this one on may make it.
  bool changes;  // It changes the cluster or the server, so it is written into the audit log.
};

// Returns null if there is no such request. Nobody may make it then.
const Rpc* FindRpc(std::string_view name);

inline bool May(const Caller& caller, const Rpc* rpc) { return rpc != nullptr && caller.role >= rpc->least; }

}  // namespace cell

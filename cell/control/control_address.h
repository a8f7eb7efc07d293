// Names where a server's control plane listens, as the server publishes it in the membership.
//
//   unix://MACHINE/PATH    a Unix socket, for users of that machine (ThisMachine)
//   tls://HOST:PORT        TCP with mutual TLS
//   HOST:PORT              TCP without protection (cell_server --insecure, and earlier releases)
//
// A server that listens at two of them publishes both, with a comma in between. The Unix socket is the last one,
// because its path may have commas.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cell {

struct ControlAddress {
  enum class Kind { kTls, kPlain, kUnix };
  Kind kind;
  std::string address;  // HOST:PORT, or the path.
  std::string machine;  // Of the path.

  bool operator==(const ControlAddress&) const = default;
};

// Returns InvalidArgument with what is wrong.
absl::StatusOr<std::vector<ControlAddress>> ParseControlAddresses(const std::string& text);
std::string ToString(std::vector<ControlAddress> addresses);

// Chooses the address at which a client on `machine` reaches the control plane of `server`. A client with certificates
// (`with_tls`) never talks to a port without TLS, whatever the membership says. Returns InvalidArgument or
// FailedPrecondition, with what to do, if it reaches none of them.
absl::StatusOr<ControlAddress> ChooseControlAddress(const std::string& server,
                                                    const std::vector<ControlAddress>& addresses,
                                                    const std::string& machine, bool with_tls);

// Returns this machine's id, the same as that of shm addresses (cell/io/fabric/fabric_address.h).
const std::string& ControlMachine();

}  // namespace cell

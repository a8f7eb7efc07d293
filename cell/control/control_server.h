// ControlServer is a server's control plane over gRPC (control.proto), for operators alone:
//
//   - at a Unix socket, for users that own the server, and root. Health checking and reflection are there, too
//   - at a TCP port with mutual TLS, if that is asked for, for certificates of operators (authorization.h)
//
// Changes by operators, and requests that are refused, are written into the audit log (guarded_service.h). Connections,
// threads and memory are bounded (control_listener.h, and below).
//
// gRPC's threads serve requests, and block until the worker answers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/base/clock.h"
#include "cell/control/audit_log.h"
#include "cell/control/controlled_worker.h"
#include "cell/control/tls_files.h"
#include "cell/io/exec/system_clock.h"

namespace cell {

class Auditor;

struct ControlOptions {
  std::string server = "server-0";  // The server's name.
  std::string socket;               // Path of the Unix socket; empty: none.
  std::string address;              // HOST:PORT for TCP; port 0: any free one. Empty: none.
  TlsFiles tls;                     // For TCP: all of them...
  bool insecure = false;            // ...or none, if this is set: anyone who reaches the port is an operator then.
  AuditSink* audit = nullptr;       // Outlives the server. Null: nothing is written.

  // Who may connect to the Unix socket; by default this process's user and root.
  std::function<bool(uid_t)> admits;
  mode_t socket_mode = 0600;
  size_t connections_max = 64;                              // Of each of the two.
  std::chrono::milliseconds idle{std::chrono::minutes(5)};  // Connections without a call for so long are ended.
  unsigned tls_refresh_s = 30;                              // How often `tls` is read again.
  // How long a request waits for a worker, unless it takes as long as necessary. Error messages call it a minute.
  std::chrono::milliseconds answer_timeout = std::chrono::minutes(1);
  const Clock* clock = SystemClock::Get();  // Measures `answer_timeout`.
};

// Returns the address that a server with these options publishes in the membership (control_address.h). The port of
// `address` is not 0.
std::string ControlAddressOf(const ControlOptions& options);

class ControlServer {
 public:
  // Starts the server. The workers must outlive it. Returns InvalidArgument if a file cannot be read, if an address
  // cannot be used, or if TCP would be open to everyone.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const ControlOptions& options,
                                                              std::vector<ControlledWorker*> workers);
  // Ends all requests at once with Unavailable, even if their worker does not run any more.
  ~ControlServer();

  // Returns where it listens, for the membership (control_address.h).
  const std::string& address() const { return address_; }
  // Returns how many connections there are.
  size_t connections() const;

 private:
  class RpcService;
  struct Endpoint;
  ControlServer();
  // Returns HOST:PORT.
  absl::StatusOr<std::string> ListenTcp(const ControlOptions& options);
  absl::Status ListenUnix(const ControlOptions& options);

  std::unique_ptr<RpcService> service_;
  std::unique_ptr<Auditor> auditor_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::string address_;
  std::string socket_;
};

}  // namespace cell

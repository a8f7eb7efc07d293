// ControlServer is a server's control plane over gRPC (control.proto), with health checking and reflection.
//
// gRPC's threads serve requests, and block until the worker answers.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/base/clock.h"
#include "cell/control/controlled_worker.h"
#include "cell/io/exec/system_clock.h"

namespace cell {

struct ControlOptions {
  std::string address = "127.0.0.1:0";  // Port 0: any free one.
  // PEM files. A certificate and key enable TLS. With an authority, only clients with its certificates may connect.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_authority;
  // How long a request waits for a worker, unless it takes as long as necessary. Error messages call it a minute.
  std::chrono::milliseconds answer_timeout = std::chrono::minutes(1);
  const Clock* clock = SystemClock::Get();  // Measures `answer_timeout`.
};

class ControlServer {
 public:
  // Starts the server. The workers must outlive it. Returns InvalidArgument if a file cannot be read, or if the address
  // cannot be used.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const ControlOptions& options,
                                                              std::vector<ControlledWorker*> workers);
  // Ends all requests at once with Unavailable, even if their worker does not run any more.
  ~ControlServer();

  // Returns HOST:PORT where it listens.
  const std::string& address() const { return address_; }

 private:
  class RpcService;
  ControlServer(std::unique_ptr<RpcService> service, std::string address);

  std::unique_ptr<RpcService> service_;
  std::string address_;
};

}  // namespace cell

// ControlServer: a server's control plane over gRPC (control.proto), with health checking and reflection.
//
// Its threads are gRPC's; what they ask of a worker is done on the worker's own (Worker::Post).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/server/worker.h"

namespace cell {

struct ControlOptions {
  std::string address = "127.0.0.1:0";  // Port 0: any that is free.
  // Files in PEM. With a certificate and key, TLS; with an authority too, only clients with certificates by it.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_authority;
};

class ControlServer {
 public:
  // The workers must outlive it. InvalidArgument: a file cannot be read, or the address not be listened at.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const ControlOptions& options,
                                                              std::vector<Worker*> workers);
  // Ends what is asked for at once, with Unavailable, also while its worker takes no turns any more.
  ~ControlServer();

  // HOST:PORT where it listens.
  const std::string& address() const { return address_; }

 private:
  class RpcService;
  ControlServer(std::unique_ptr<RpcService> service, std::string address);

  std::unique_ptr<RpcService> service_;
  std::string address_;
};

}  // namespace cell

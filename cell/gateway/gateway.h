// Gateway serves clients of Redis. It has some threads, each with an epoll loop over its connections and clients of the
// cluster of its own, one for each user; whichever thread is free accepts a new connection.
//
// Stop is thread-safe, and may be called by a signal handler; all else belongs to one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/client/client.h"
#include "cell/gateway/client_socket.h"
#include "cell/gateway/connection.h"
#include "cell/io/net/fd.h"

namespace cell::gateway {

struct GatewayOptions {
  ClientOptions client;                   // How to reach the cluster.
  std::string listen = "127.0.0.1:6379";  // HOST:PORT. Empty: only with TLS.
  std::string tls_listen;                 // HOST:PORT. Empty: no TLS. The files are those of TlsServer::Make.
  std::string tls_certificate, tls_key, tls_authority;
  std::string users;  // Directory with a secret file for each user (users.h). Empty: everybody is the client's user.
  size_t threads = 1;
  size_t connections_max = 10'000;
  int64_t idle_s = 0;  // A connection is closed if nothing comes for that many seconds. 0: never.
  size_t buffer_bytes_max = size_t{1} << 30;  // The sum of all requests and replies.
};

class Gateway {
 public:
  // Opens the cluster and listens. Has the errors of Client::Open; returns AlreadyExists if an address is in use, and
  // InvalidArgument for options that are not as they should be.
  static absl::StatusOr<std::unique_ptr<Gateway>> Open(const GatewayOptions& options);
  ~Gateway();
  // HOST:PORT at which it listens, empty if it does not.
  const std::string& address() const { return address_; }
  const std::string& tls_address() const { return tls_address_; }

  // Serves until Stop. Then commands in flight end, and their replies are sent.
  void Run();
  void Stop();

 private:
  class Worker;

  explicit Gateway(const GatewayOptions& options);

  const GatewayOptions options_;
  std::unique_ptr<TlsServer> tls_;
  std::unique_ptr<Totals> totals_;
  std::string address_, tls_address_;
  Fd listener_, tls_listener_, stop_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace cell::gateway

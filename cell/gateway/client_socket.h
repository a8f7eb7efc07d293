// ClientSocket is the connected socket of a client, with TLS or without. It never blocks.
//
// Not thread-safe. A TlsServer is immutable, and thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cell/io/net/fd.h"

// OpenSSL's types.
struct ssl_ctx_st;
struct ssl_st;

namespace cell::gateway {

// The certificate by which the gateway proves to clients who it is (TLS 1.2 and 1.3).
class TlsServer {
 public:
  // Reads PEM files: the certificate with those between it and its authority, and its key. With `authority`, clients
  // must have a certificate that it has signed. Returns InvalidArgument if a file is not as it should be.
  static absl::StatusOr<std::unique_ptr<TlsServer>> Make(const std::string& certificate, const std::string& key,
                                                         const std::string& authority);
  ~TlsServer();

 private:
  friend class ClientSocket;
  explicit TlsServer(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

class ClientSocket {
 public:
  // `tls` may be null, and must outlive it.
  ClientSocket(Fd socket, const TlsServer* tls);
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;
  ~ClientSocket();

  int fd() const { return socket_.get(); }

  enum class Outcome { kSome, kLater, kEnded, kBroken };
  struct Moved {
    Outcome outcome;
    size_t bytes = 0;  // With kSome, at least 1.
  };
  // Returns kEnded once the client sends no more. It may still read.
  Moved Receive(absl::Span<char> to);
  // After kLater, the same bytes, or more that begin with them, must be sent next.
  Moved Send(absl::Span<const char> from);
  // Returns whether bytes have come and were not returned. Epoll does not tell of them.
  bool pending() const;
  // Returns whether the handshake of TLS is done.
  bool established() const;
  // Tells the client that nothing more will be sent.
  void EndSending();
  // Returns whether it waits until it can send, which TLS may do in order to receive.
  bool wants_to_send() const { return wants_to_send_; }

 private:
  Moved OutcomeOf(int done);

  Fd socket_;
  ssl_st* session_ = nullptr;
  bool wants_to_send_ = false;
  bool broken_ = false;
};

}  // namespace cell::gateway

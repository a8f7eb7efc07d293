// ByteStream is one end of a TCP connection, plain or with TLS. Never blocks.
//
// It belongs to one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/io/net/byte_queue.h"
#include "cell/io/net/fd.h"
#include "cell/io/net/tls_context.h"

namespace cell {

class ByteStream {
 public:
  ByteStream() = default;
  explicit ByteStream(Fd socket) : socket_(std::move(socket)) {}
  // The session is ended before its socket is closed.
  ByteStream(ByteStream&&) = default;
  ByteStream& operator=(ByteStream&& other) noexcept {
    tls_ = std::move(other.tls_);
    socket_ = std::move(other.socket_);
    why_ = std::move(other.why_);
    return *this;
  }

  int fd() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  Fd* socket() { return &socket_; }

  // From now on all bytes are those of a TLS session over this socket, which begins with its handshake.
  void StartTls(std::unique_ptr<TlsSession> session) { tls_ = std::move(session); }
  // Returns null for a plain connection.
  TlsSession* tls() const { return tls_.get(); }

  // Appends the bytes that are there now to *to, as far as `scratch` has room, and with TLS up to one record more: what
  // is left is announced by the socket again. Returns false if the peer has closed or the connection broke.
  bool Receive(MutableBytes scratch, ByteQueue* to);
  // Sends as much as possible now from the front of *from. Returns false if the connection broke.
  bool Send(ByteQueue* from);
  // Returns why TLS broke the connection; empty if it did not.
  const std::string& why() const { return why_; }

 private:
  Fd socket_;
  std::string why_;
  std::unique_ptr<TlsSession> tls_;
};

}  // namespace cell

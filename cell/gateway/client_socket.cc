#include "cell/gateway/client_socket.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fmt/format.h"

namespace cell::gateway {
namespace {

std::string LastError() {
  char text[256];
  ::ERR_error_string_n(::ERR_peek_last_error(), text, sizeof(text));
  ::ERR_clear_error();
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsServer>> TlsServer::Make(const std::string& certificate, const std::string& key,
                                                           const std::string& authority) {
  std::unique_ptr<TlsServer> server(new TlsServer(::SSL_CTX_new(::TLS_server_method())));
  ssl_ctx_st* const context = server->context_;
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for TLS");
  ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  ::SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  if (::SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    return absl::InvalidArgumentError(fmt::format("{} has no certificate: {}", certificate, LastError()));
  }
  if (::SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return absl::InvalidArgumentError(
        fmt::format("{} has no key, or not that of {}: {}", key, certificate, LastError()));
  }
  constexpr unsigned char kSessions[] = "cell_gateway";  // Clients with certificates may resume only with this.
  ::SSL_CTX_set_session_id_context(context, kSessions, sizeof(kSessions) - 1);
  if (!authority.empty()) {
    if (::SSL_CTX_load_verify_locations(context, authority.c_str(), nullptr) != 1) {
      return absl::InvalidArgumentError(fmt::format("{} has no certificate: {}", authority, LastError()));
    }
    ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return server;
}

TlsServer::~TlsServer() { ::SSL_CTX_free(context_); }

ClientSocket::ClientSocket(Fd socket, const TlsServer* tls) : socket_(std::move(socket)) {
  if (tls == nullptr) return;
  session_ = ::SSL_new(tls->context_);
  if (session_ == nullptr || ::SSL_set_fd(session_, socket_.get()) != 1) {
    ::shutdown(socket_.get(), SHUT_RDWR);  // No memory: it ends at once.
    return;
  }
  ::SSL_set_accept_state(session_);
}

ClientSocket::~ClientSocket() {
  if (session_ == nullptr) return;
  if (established() && !broken_) ::SSL_shutdown(session_);
  ::SSL_free(session_);
  ::ERR_clear_error();
}

ClientSocket::Moved ClientSocket::OutcomeOf(int done) {
  const int error = ::SSL_get_error(session_, done);
  ::ERR_clear_error();
  wants_to_send_ = error == SSL_ERROR_WANT_WRITE;
  broken_ = error == SSL_ERROR_SSL || error == SSL_ERROR_SYSCALL;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return {Outcome::kLater};
  return {error == SSL_ERROR_ZERO_RETURN ? Outcome::kEnded : Outcome::kBroken};
}

ClientSocket::Moved ClientSocket::Receive(absl::Span<char> to) {
  if (session_ != nullptr) {
    ::ERR_clear_error();  // SSL_get_error would take an older error for one of this call.
    wants_to_send_ = false;
    size_t bytes = 0;
    const int done = ::SSL_read_ex(session_, to.data(), to.size(), &bytes);
    return done == 1 ? Moved{Outcome::kSome, bytes} : OutcomeOf(done);
  }
  while (true) {
    const ssize_t bytes = ::recv(socket_.get(), to.data(), to.size(), 0);
    if (bytes > 0) return {Outcome::kSome, static_cast<size_t>(bytes)};
    if (bytes == 0) return {Outcome::kEnded};
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {Outcome::kLater};
    if (errno != EINTR) return {Outcome::kBroken};
  }
}

ClientSocket::Moved ClientSocket::Send(absl::Span<const char> from) {
  if (session_ != nullptr) {
    ::ERR_clear_error();
    wants_to_send_ = false;
    size_t bytes = 0;
    const int done = ::SSL_write_ex(session_, from.data(), from.size(), &bytes);
    return done == 1 ? Moved{Outcome::kSome, bytes} : OutcomeOf(done);
  }
  while (true) {
    const ssize_t bytes = ::send(socket_.get(), from.data(), from.size(), MSG_NOSIGNAL);
    if (bytes > 0) return {Outcome::kSome, static_cast<size_t>(bytes)};
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {Outcome::kLater};
    if (errno != EINTR) return {Outcome::kBroken};
  }
}

bool ClientSocket::established() const { return session_ == nullptr || ::SSL_is_init_finished(session_) == 1; }

void ClientSocket::EndSending() {
  if (session_ != nullptr && established() && !broken_) {
    ::ERR_clear_error();
    ::SSL_shutdown(session_);
  }
  ::shutdown(socket_.get(), SHUT_WR);
}

bool ClientSocket::pending() const { return session_ != nullptr && ::SSL_pending(session_) > 0; }

}  // namespace cell::gateway

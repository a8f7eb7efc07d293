#include "cell/io/net/tls_context.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

// A secret is used with SHA-256, and so with this one. It is the fastest with AES instructions.
constexpr const char* kCipherOfSecrets = "TLS_AES_128_GCM_SHA256";
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr long kPeersCertificatesBytesMax = 16 << 10;

struct FreeBio {
  void operator()(BIO* bio) const { ::BIO_free(bio); }
};
struct FreeX509 {
  void operator()(X509* certificate) const { ::X509_free(certificate); }
};
struct FreeKey {
  void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
};
struct FreeNames {
  void operator()(GENERAL_NAMES* names) const { ::GENERAL_NAMES_free(names); }
};
using X509Ptr = std::unique_ptr<X509, FreeX509>;

// ---- A BIO over a socket that raises no SIGPIPE, unlike OpenSSL's own.

int SocketOf(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(::BIO_get_data(bio))); }

int WriteSocket(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(SocketOf(bio), bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReadSocket(BIO* bio, char* to, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = ::recv(SocketOf(bio), to, static_cast<size_t>(count), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (got == 0) ::BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

long ControlSocket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return ::BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO* NewSocketBio(int socket) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "cell socket");
    CELL_CHECK_NE(made, nullptr);
    ::BIO_meth_set_write(made, WriteSocket);
    ::BIO_meth_set_read(made, ReadSocket);
    ::BIO_meth_set_ctrl(made, ControlSocket);
    return made;
  }();
  BIO* bio = ::BIO_new(method);
  CELL_CHECK_NE(bio, nullptr);
  ::BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  ::BIO_set_init(bio, 1);
  return bio;
}

// ---- Certificates.

std::string LastError() {
  const unsigned long code = ::ERR_peek_last_error();
  const char* reason = ::ERR_reason_error_string(code);
  return reason != nullptr ? reason : code != 0 ? fmt::format("OpenSSL error {:x}", code) : "no reason was given";
}

absl::Status BadFile(std::string_view what) {
  absl::Status status = absl::InvalidArgumentError(fmt::format("{} is not valid: {}", what, LastError()));
  ::ERR_clear_error();
  return status;
}

std::unique_ptr<BIO, FreeBio> BioOf(const std::string& text) {
  return std::unique_ptr<BIO, FreeBio>(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Returns all certificates of a PEM text.
std::vector<X509Ptr> CertificatesOf(const std::string& pem) {
  std::vector<X509Ptr> all;
  const auto bio = BioOf(pem);
  while (X509* one = ::PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) all.emplace_back(one);
  if (!all.empty()) ::ERR_clear_error();  // The error is the end of the text.
  return all;
}

// Returns whom a certificate is for, or nullopt if it names nobody, or more than one.
std::optional<Identity> SubjectOf(X509* certificate) {
  const std::unique_ptr<GENERAL_NAMES, FreeNames> names(
      static_cast<GENERAL_NAMES*>(::X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* text = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(::ASN1_STRING_get0_data(text)),
                      static_cast<size_t>(::ASN1_STRING_length(text)));
  }
  return IdentityOfUris(uris);
}

absl::Status UseCertificate(SSL_CTX* context, const TlsCertificate& from) {
  const std::vector<X509Ptr> authorities = CertificatesOf(from.authority);
  if (authorities.empty()) return BadFile("the authority's certificate (--tls-authority)");
  for (const X509Ptr& one : authorities) {
    if (::X509_STORE_add_cert(::SSL_CTX_get_cert_store(context), one.get()) != 1) {
      return BadFile("the authority's certificate (--tls-authority)");
    }
  }
  const std::vector<X509Ptr> chain = CertificatesOf(from.certificate);
  if (chain.empty() || ::SSL_CTX_use_certificate(context, chain.front().get()) != 1) {
    return BadFile("the certificate (--tls-certificate)");
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) return BadFile("the certificate (--tls-certificate)");
  }
  const auto bio = BioOf(from.key);
  const std::unique_ptr<EVP_PKEY, FreeKey> key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (key == nullptr || ::SSL_CTX_use_PrivateKey(context, key.get()) != 1 ||
      ::SSL_CTX_check_private_key(context) != 1) {
    return BadFile("the certificate's key (--tls-key)");
  }
  return absl::OkStatus();
}

// ---- Secrets as pre-shared keys, named "ROLE/NAME ID".

constexpr size_t kIdDigits = 2 * sizeof(KeyId);

std::string NameOf(const Secret& secret) {
  std::string name = ToString(*secret.owner) + " ";
  for (const std::byte byte : secret.id) name += fmt::format("{:02x}", static_cast<int>(byte));
  return name;
}

std::optional<std::pair<Identity, KeyId>> ParseName(std::string_view name) {
  if (name.size() < kIdDigits + 1 || name[name.size() - kIdDigits - 1] != ' ') return std::nullopt;
  const std::optional<Identity> who = ParseIdentity(name.substr(0, name.size() - kIdDigits - 1));
  const std::optional<KeyId> id = ParseKeyId(name.substr(name.size() - kIdDigits));
  if (!who.has_value() || !id.has_value()) return std::nullopt;
  return std::pair(*who, *id);
}

SSL_SESSION* SessionOf(SSL* ssl, const Key& key) {
  constexpr unsigned char kCipherId[] = {0x13, 0x01};  // kCipherOfSecrets
  SSL_SESSION* session = ::SSL_SESSION_new();
  const SSL_CIPHER* cipher = ::SSL_CIPHER_find(ssl, kCipherId);
  CELL_CHECK(session != nullptr && cipher != nullptr);
  CELL_CHECK_EQ(::SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()), key.size()),
                1);
  CELL_CHECK_EQ(::SSL_SESSION_set_cipher(session, cipher), 1);
  CELL_CHECK_EQ(::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION), 1);
  return session;
}

}  // namespace

void TlsContext::Free::operator()(ssl_ctx_st* context) const { ::SSL_CTX_free(context); }
void TlsSession::Free::operator()(ssl_st* session) const { ::SSL_free(session); }

absl::StatusOr<TlsContext::Context> TlsContext::MakeContext(bool server, const Keyring& keys,
                                                            const TlsCertificate& certificate) {
  Context context(::SSL_CTX_new(server ? ::TLS_server_method() : ::TLS_client_method()));
  if (context == nullptr) return absl::InternalError(fmt::format("OpenSSL: {}", LastError()));
  SSL_CTX* const raw = context.get();
  CELL_CHECK_EQ(SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION), 1);
  CELL_CHECK_EQ(::SSL_CTX_set_ciphersuites(raw, certificate.empty() ? kCipherOfSecrets : kCiphers), 1);
  // Nothing is resumed: handshakes are rare, and tickets would outlive a secret that was retired.
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);  // Frames say where they end.
  CELL_CHECK_EQ(::SSL_CTX_set_num_tickets(raw, 0), 1);
  constexpr unsigned char kContextId[] = {'c', 'e', 'l', 'l'};  // OpenSSL wants one where clients are verified.
  if (server) CELL_CHECK_EQ(::SSL_CTX_set_session_id_context(raw, kContextId, sizeof(kContextId)), 1);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_max_cert_list(raw, kPeersCertificatesBytesMax);
  // Without a certificate there is no authority, and no certificate is accepted.
  ::SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  if (!certificate.empty()) RETURN_IF_ERROR(UseCertificate(raw, certificate));
  if (!keys.empty() && server) {
    ::SSL_CTX_set_psk_find_session_callback(
        raw, [](SSL* ssl, const unsigned char* name, size_t name_bytes, SSL_SESSION** found) {
          return TlsSession::FindSession(ssl, name, name_bytes, found);
        });
  }
  if (!keys.empty() && !server) {
    ::SSL_CTX_set_psk_use_session_callback(
        raw, [](SSL* ssl, const EVP_MD* digest, const unsigned char** name, size_t* name_bytes, SSL_SESSION** session) {
          return TlsSession::UseSecret(ssl, digest, name, name_bytes, session);
        });
  }
  return context;
}

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Make(std::shared_ptr<const Keyring> keys,
                                                                   const TlsCertificate& certificate) {
  std::shared_ptr<TlsContext> made(new TlsContext);
  made->keys_ = std::move(keys);
  ASSIGN_OR_RETURN(made->server_, MakeContext(/*server=*/true, *made->keys_, certificate));
  ASSIGN_OR_RETURN(made->client_, MakeContext(/*server=*/false, *made->keys_, certificate));
  if (!certificate.empty()) {
    made->certified_ = SubjectOf(::SSL_CTX_get0_certificate(made->server_.get()));
    if (!made->certified_.has_value()) {
      return absl::InvalidArgumentError(
          "the certificate (--tls-certificate) does not say whose it is: it needs one subject alternative name "
          "URI:cell://server/NAME, cell://operator/NAME or cell://client/NAME");
    }
  }
  return made;
}

std::unique_ptr<TlsSession> TlsContext::Accept(std::shared_ptr<const TlsContext> self, int socket) const {
  SSL* ssl = ::SSL_new(server_.get());
  CELL_CHECK_NE(ssl, nullptr);
  BIO* bio = NewSocketBio(socket);
  ::SSL_set_bio(ssl, bio, bio);
  ::SSL_set_accept_state(ssl);
  return std::unique_ptr<TlsSession>(
      new TlsSession(std::move(self), std::unique_ptr<ssl_st, TlsSession::Free>(ssl), /*server=*/true));
}

std::unique_ptr<TlsSession> TlsContext::Connect(std::shared_ptr<const TlsContext> self, int socket,
                                                const Identity& as) const {
  SSL* ssl = ::SSL_new(client_.get());
  CELL_CHECK_NE(ssl, nullptr);
  BIO* bio = NewSocketBio(socket);
  ::SSL_set_bio(ssl, bio, bio);
  ::SSL_set_connect_state(ssl);
  std::unique_ptr<TlsSession> session(
      new TlsSession(std::move(self), std::unique_ptr<ssl_st, TlsSession::Free>(ssl), /*server=*/false));
  session->own_ = keys_->Own(as);
  if (session->own_.has_value()) session->own_name_ = NameOf(*session->own_);
  return session;
}

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, std::unique_ptr<ssl_st, Free> session, bool server)
    : context_(std::move(context)), session_(std::move(session)), server_(server) {
  SSL_set_app_data(session_.get(), this);
}

TlsSession::~TlsSession() = default;

int TlsSession::FindSession(ssl_st* ssl, const unsigned char* name, size_t name_bytes, ssl_session_st** found) {
  auto* const self = static_cast<TlsSession*>(SSL_get_app_data(ssl));
  *found = nullptr;  // Then the client may still have a certificate.
  const auto named = ParseName({reinterpret_cast<const char*>(name), name_bytes});
  if (!named.has_value()) return 1;
  const std::optional<Key> key = self->context_->keys_->KeyOf(named->first, named->second);
  if (!key.has_value()) return 1;
  self->by_secret_ = named->first;
  *found = SessionOf(ssl, *key);
  return 1;
}

int TlsSession::UseSecret(ssl_st* ssl, const evp_md_st* digest, const unsigned char** name, size_t* name_bytes,
                          ssl_session_st** session) {
  const auto* const self = static_cast<const TlsSession*>(SSL_get_app_data(ssl));
  *session = nullptr;
  if (!self->own_.has_value() || (digest != nullptr && ::EVP_MD_get_type(digest) != NID_sha256)) return 1;
  *name = reinterpret_cast<const unsigned char*>(self->own_name_.data());
  *name_bytes = self->own_name_.size();
  *session = SessionOf(ssl, self->own_->key);
  return 1;
}

absl::StatusOr<bool> TlsSession::Handshake() {
  ::ERR_clear_error();
  wants_write_ = false;
  const int done = ::SSL_do_handshake(session_.get());
  if (done == 1) {
    RETURN_IF_ERROR(FindPeer());
    return true;
  }
  const int error = ::SSL_get_error(session_.get(), done);
  wants_write_ = error == SSL_ERROR_WANT_WRITE;
  if (wants_write_ || error == SSL_ERROR_WANT_READ) return false;
  return Failure();
}

// Finds out who the other side has proven to be.
absl::Status TlsSession::FindPeer() {
  if (::SSL_session_reused(session_.get()) == 1) {  // By the secret, since nothing else is resumed.
    peer_ = server_ ? by_secret_ : Identity{Role::kServer, "unnamed"};
    CELL_CHECK(peer_.has_value());
    return absl::OkStatus();
  }
  const X509Ptr certificate(::SSL_get1_peer_certificate(session_.get()));
  if (certificate == nullptr || ::SSL_get_verify_result(session_.get()) != X509_V_OK) {
    return absl::PermissionDeniedError("the other side has proven nothing");
  }
  const std::optional<Identity> subject = SubjectOf(certificate.get());
  if (!subject.has_value()) {
    return absl::PermissionDeniedError("the other side's certificate names nobody (URI:cell://ROLE/NAME)");
  }
  if (!server_ && subject->role != Role::kServer) {
    return absl::PermissionDeniedError(
        fmt::format("the other side is {} by its certificate, and not a server", ToString(*subject)));
  }
  peer_ = subject;
  return absl::OkStatus();
}

absl::Status TlsSession::Failure() const {
  const long verified = ::SSL_get_verify_result(session_.get());
  std::string why = LastError();
  const bool ended = ::ERR_peek_last_error() == 0;
  ::ERR_clear_error();
  if (verified != X509_V_OK && (server_ || context_->certified_.has_value())) {
    why = fmt::format("the other side's certificate is refused: {}", ::X509_verify_cert_error_string(verified));
  } else if (ended) {
    why = "the other side has closed the connection";
  }
  std::string hint;
  if (!server_ && ended) {
    hint = " (a server without a secret and certificates closes so)";
  } else if (!server_ && own_.has_value()) {
    hint = fmt::format(" (has the server the secret of {}? --secret-file)", own_name_);
  } else if (!server_ && verified != X509_V_OK) {
    hint = " (is --tls-authority the cluster's, and is the server's certificate still valid?)";
  } else if (!server_) {
    hint = " (does the server know this certificate's authority? --tls-certificate)";
  }
  return absl::PermissionDeniedError(fmt::format("the TLS handshake failed: {}{}", why, hint));
}

absl::StatusOr<std::optional<size_t>> TlsSession::Receive(MutableBytes to) {
  ::ERR_clear_error();
  size_t bytes = 0;
  const int done = ::SSL_read_ex(session_.get(), to.data(), to.size(), &bytes);
  if (done == 1) return bytes;
  switch (::SSL_get_error(session_.get(), done)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return std::nullopt;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    default:
      return absl::UnavailableError(fmt::format("the TLS connection broke: {}", LastError()));
  }
}

absl::StatusOr<std::optional<size_t>> TlsSession::Send(ConstBytes from) {
  ::ERR_clear_error();
  size_t bytes = 0;
  const int done = ::SSL_write_ex(session_.get(), from.data(), from.size(), &bytes);
  if (done == 1) return bytes;
  const int error = ::SSL_get_error(session_.get(), done);
  if (error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ) return std::nullopt;
  return absl::UnavailableError(fmt::format("the TLS connection broke: {}", LastError()));
}

size_t TlsSession::pending() const { return static_cast<size_t>(::SSL_pending(session_.get())); }

}  // namespace cell

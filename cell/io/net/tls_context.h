// TlsContext makes the TLS connections of an endpoint: TLS 1.3, by OpenSSL.
//
// The two sides prove who they are in one of two ways. Either by certificates: both have one, signed by the same
// authority, and its subject alternative name is the URI cell://ROLE/NAME (cell/layout/identity.h). Or by a secret
// (keyring.h), as an external pre-shared key whose name is the client's identity and the secret's id. A server accepts
// both if it has both. The client proves itself first, so a stranger gets nothing by which a secret could be guessed,
// and keys are exchanged by Diffie-Hellman in either case, so that what was recorded cannot be read later.
//
// A server is whoever knows the client's secret, or has a certificate of a server.
//
// Immutable and thread-safe. A TlsSession belongs to one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/io/net/keyring.h"
#include "cell/layout/identity.h"

// OpenSSL's types.
struct evp_md_st;
struct ssl_ctx_st;
struct ssl_session_st;
struct ssl_st;

namespace cell {

// PEM texts. All are there, or none.
struct TlsCertificate {
  std::string authority;    // Signs all certificates of the cluster.
  std::string certificate;  // Ours, and those between it and the authority.
  std::string key;

  bool empty() const { return authority.empty() && certificate.empty() && key.empty(); }
};

class TlsSession;

class TlsContext {
 public:
  // Returns InvalidArgument if a certificate or key is not valid, or does not say cell://ROLE/NAME.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Make(std::shared_ptr<const Keyring> keys,
                                                                const TlsCertificate& certificate);

  // Returns who our certificate says that we are, or nullopt without one.
  const std::optional<Identity>& certified() const { return certified_; }

  // Return a session over a connected socket that does not block. The socket must outlive it.
  std::unique_ptr<TlsSession> Accept(std::shared_ptr<const TlsContext> self, int socket) const;
  // A client that has no certificate proves that it is `as`, unless its secret is that of an identity.
  std::unique_ptr<TlsSession> Connect(std::shared_ptr<const TlsContext> self, int socket, const Identity& as) const;

 private:
  friend class TlsSession;
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  using Context = std::unique_ptr<ssl_ctx_st, Free>;

  TlsContext() = default;
  static absl::StatusOr<Context> MakeContext(bool server, const Keyring& keys, const TlsCertificate& certificate);

  std::shared_ptr<const Keyring> keys_;
  std::optional<Identity> certified_;
  Context server_, client_;
};

class TlsSession {
 public:
  ~TlsSession();

  // Goes on with the handshake. Returns true when it is done, false if the other side has to send or take something
  // first, and an error if it has failed. The error says what the user can do.
  absl::StatusOr<bool> Handshake();
  // Returns who the other side has proven that it is. For a client this is a server. REQUIRES: the handshake is done.
  const Identity& peer() const { return *peer_; }

  // Like recv and send: return the number of bytes, 0 at the end of the connection (Receive alone), or nullopt if
  // nothing can be done now, and an error if the connection is broken. `from` may move between two calls for the same
  // bytes.
  absl::StatusOr<std::optional<size_t>> Receive(MutableBytes to);
  absl::StatusOr<std::optional<size_t>> Send(ConstBytes from);
  // Returns the number of bytes that have arrived and are decrypted, which no event of the socket will announce.
  size_t pending() const;
  // Returns whether the handshake waits until the socket can be written.
  bool wants_write() const { return wants_write_; }

 private:
  friend class TlsContext;
  struct Free {
    void operator()(ssl_st* session) const;
  };

  TlsSession(std::shared_ptr<const TlsContext> context, std::unique_ptr<ssl_st, Free> session, bool server);
  absl::Status FindPeer();
  absl::Status Failure() const;

  // Called by OpenSSL during the handshake.
  static int FindSession(ssl_st* ssl, const unsigned char* name, size_t name_bytes, ssl_session_st** found);
  static int UseSecret(ssl_st* ssl, const evp_md_st* digest, const unsigned char** name, size_t* name_bytes,
                       ssl_session_st** session);

  const std::shared_ptr<const TlsContext> context_;
  const std::unique_ptr<ssl_st, Free> session_;
  const bool server_;
  std::optional<Secret> own_;          // Of a client with secrets: what it proves itself by,
  std::string own_name_;               // and the name of this key.
  std::optional<Identity> by_secret_;  // Of a server: whose secret the client has offered.
  std::optional<Identity> peer_;       // Set at the end of the handshake.
  bool wants_write_ = false;
};

}  // namespace cell

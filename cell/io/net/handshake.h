// Implements the handshake of fabrics between machines. The client says who it is and proves it, and then the server
// proves that it may know, before a call, a read or a memory key uses the connection.
//
//   client                                      server
//   Hello{purpose, who, key's id, nonce}     ->
//                                            <- Challenge{nonce}
//   Proof{HMAC(key, "client", all of these)} ->
//                                            <- Welcome{verdict, HMAC(key, "server", all of these)}
//
// `key` is the secret of the client's identity (keyring.h). HMAC is HMAC-SHA256 over the side's name, the version, the
// purpose, the identity and both nonces. Fresh nonces prevent old proofs from being used again. The names prevent one
// side's proof from being sent back to it. The client proves itself first: who has no secret gets nothing by which one
// could be guessed.
//
// Without secrets the same messages show only that both sides are Cell's, and the server believes what the client says
// that it is. Over TLS the certificate or the key of the connection has shown who the client is already, and the server
// takes that, whatever Hello says (ServerHandshake::Proven).
//
// The later bytes are neither encrypted nor signed by this: a secret alone excludes strangers, but not those who can
// change packets on the way. TLS does that (tls_context.h).
//
// Pure: bytes in, bytes out. All integers are little-endian. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cell/base/bytes.h"
#include "cell/io/net/keyring.h"
#include "cell/layout/identity.h"

namespace cell {

inline constexpr uint32_t kHandshakeVersion = 2;

using Nonce = std::array<std::byte, 32>;  // Unpredictable: from RandomNonce, except in tests.

// Returns a nonce from the operating system.
Nonce RandomNonce();

// Says what the connection is for.
enum class Purpose : uint32_t {
  kCalls = 1,
  kReads = 2,
  kVerbs = 3,  // Both, over an RDMA connection.
};

// Each message of a client begins with this in all versions.
struct HelloPrefix {
  uint64_t magic;
  uint32_t version;
  Purpose purpose;
};
struct HelloMessage {
  HelloPrefix prefix;
  Nonce nonce;
  KeyId key_id;  // Zeros without a secret.
  Role role;
  uint8_t name_bytes;
  uint8_t reserved[6];
  std::array<char, kIdentityNameBytesMax> name;  // Zeros after its end.
};
struct ChallengeMessage {
  uint64_t magic;
  uint32_t version;
  uint32_t needs_tls;  // 1: the server talks only TLS, and closes.
  Nonce nonce;
};
struct ProofMessage {
  Key proof;
};
struct WelcomeMessage {
  uint64_t magic;
  uint32_t verdict;  // 1: welcome. Any other value: refused.
  uint32_t reserved;
  Key proof;
};
static_assert(sizeof(HelloPrefix) == 16 && sizeof(HelloMessage) == 128 && sizeof(ChallengeMessage) == 48 &&
              sizeof(ProofMessage) == 32 && sizeof(WelcomeMessage) == 48);

// Returns whether a connection that begins with these bytes is one of a Cell client without TLS.
inline constexpr size_t kMagicBytes = sizeof(uint64_t);
bool BeginsHello(ConstBytes first);
// Returns the answer to such a client of a server that talks only TLS.
std::string NeedsTlsAnswer();

// The server's side. Pass it messages of wants() bytes, or a HelloMessage as a whole. `accepts` lists the purposes that
// it serves. Without secrets
// (`keys` null or empty) it believes who the client says that it is.
class ServerHandshake {
 public:
  ServerHandshake(std::shared_ptr<const Keyring> keys, const Nonce& nonce,
                  std::vector<Purpose> accepts = {Purpose::kCalls, Purpose::kReads})
      : keys_(std::move(keys)), nonce_(nonce), accepts_(std::move(accepts)) {}
  // For a connection on which the client has proven already that it is `peer`.
  static ServerHandshake Proven(Identity peer, const Nonce& nonce) {
    ServerHandshake made(nullptr, nonce);
    made.proven_ = std::move(peer);
    return made;
  }

  // Returns the size of the next message, or 0 if the handshake is done.
  size_t wants() const;
  // Takes a message and appends the answer to *answer, if there is one. After an error, send that and close. Returns
  // DataLoss if the message is not part of a handshake, has the wrong size, or comes after the end.
  absl::Status Take(ConstBytes message, std::string* answer);
  bool done() const { return state_ == State::kDone; }
  // Valid once it is done.
  Purpose purpose() const { return hello_.prefix.purpose; }
  const Identity& peer() const { return peer_; }

 private:
  enum class State { kBegin, kGreeting, kProving, kDone, kRefused };

  absl::Status TakePrefix(ConstBytes message, std::string* answer);
  absl::Status TakeHello(ConstBytes message, std::string* answer);
  absl::Status TakeProof(ConstBytes message, std::string* answer);

  std::shared_ptr<const Keyring> keys_;
  Nonce nonce_;
  std::vector<Purpose> accepts_;
  std::optional<Identity> proven_;
  State state_ = State::kBegin;
  HelloMessage hello_{};
  Identity peer_;
};

// The client's side. `self` is who it is, unless the first of its secrets is that of an identity: then it is that one.
class ClientHandshake {
 public:
  ClientHandshake(const Keyring* keys, const Identity& self, Purpose purpose, const Nonce& nonce);

  // Returns the first message.
  std::string Hello() const;
  size_t wants() const;
  // As above. Returns FailedPrecondition if the version differs or the server talks only TLS, PermissionDenied if the
  // secret differs, and DataLoss if the peer is not a Cell server.
  absl::Status Take(ConstBytes message, std::string* answer);
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State { kChallenge, kVerdict, kDone, kRefused };

  Identity self_;
  bool has_secret_ = false;
  KeyId key_id_{};
  Key key_{};
  Purpose purpose_;
  Nonce nonce_;
  Nonce server_nonce_{};
  State state_ = State::kChallenge;
};

}  // namespace cell

// Implements the handshake of fabrics between machines. Each side proves that it knows the cluster's secret, without
// revealing it, before a call, a read or a memory key uses the connection.
//
//   client                                    server
//   Hello{magic, version, purpose, nonce}  ->
//                                          <- Challenge{magic, version, nonce, HMAC(secret, "server", both nonces)}
//   Proof{HMAC(secret, "client", both)}    ->
//                                          <- Welcome{magic, verdict}
//
// HMAC is HMAC-SHA256 (RFC 2104) over the side's name, the version, the purpose and both nonces. Fresh nonces prevent
// old proofs from being used again. The names prevent one side's proof from being sent back to it. Without a secret (an
// empty one) the same messages show only that both sides are Cell's. The later bytes are neither encrypted nor signed:
// a secret excludes strangers, but not those who can change packets on the way.
//
// Pure: bytes in, bytes out. All integers are little-endian. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cell/base/bytes.h"

namespace cell {

inline constexpr uint32_t kHandshakeVersion = 1;

using Nonce = std::array<std::byte, 32>;  // Unpredictable: from RandomNonce, except in tests.
using Proof = std::array<std::byte, 32>;

// Returns a nonce from the operating system.
Nonce RandomNonce();

// Says what the connection is for.
enum class Purpose : uint32_t {
  kCalls = 1,
  kReads = 2,
  kVerbs = 3,  // Both, over an RDMA connection.
};

struct HelloMessage {
  uint64_t magic;
  uint32_t version;
  Purpose purpose;
  Nonce nonce;
};
struct ChallengeMessage {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;
  Nonce nonce;
  Proof proof;
};
struct ProofMessage {
  Proof proof;
};
struct WelcomeMessage {
  uint64_t magic;
  uint32_t verdict;  // 1: welcome. Any other value: refused.
  uint32_t reserved;
};
static_assert(sizeof(HelloMessage) == 48 && sizeof(ChallengeMessage) == 80 && sizeof(ProofMessage) == 32 &&
              sizeof(WelcomeMessage) == 16);

// The server's side. Pass it messages of wants() bytes. `accepts` lists the purposes that it serves.
class ServerHandshake {
 public:
  ServerHandshake(std::string secret, const Nonce& nonce,
                  std::vector<Purpose> accepts = {Purpose::kCalls, Purpose::kReads})
      : secret_(std::move(secret)), nonce_(nonce), accepts_(std::move(accepts)) {}

  // Returns the size of the next message, or 0 if the handshake is done.
  size_t wants() const;
  // Takes a message and appends the answer to *answer. After an error, send that and close. Returns DataLoss if the
  // message is not part of a handshake, has the wrong size, or comes after the end.
  absl::Status Take(ConstBytes message, std::string* answer);
  bool done() const { return state_ == State::kDone; }
  Purpose purpose() const { return purpose_; }  // Valid once it is done.

 private:
  enum class State { kGreeting, kProving, kDone, kRefused };

  const std::string secret_;
  const Nonce nonce_;
  const std::vector<Purpose> accepts_;
  State state_ = State::kGreeting;
  Purpose purpose_ = Purpose::kCalls;
  Nonce peer_nonce_{};
};

// The client's side.
class ClientHandshake {
 public:
  ClientHandshake(std::string secret, Purpose purpose, const Nonce& nonce)
      : secret_(std::move(secret)), purpose_(purpose), nonce_(nonce) {}

  // Returns the first message.
  std::string Hello() const;
  size_t wants() const;
  // As above. Returns FailedPrecondition if the version differs, PermissionDenied if the secret differs, and DataLoss
  // if the peer is not a Cell server.
  absl::Status Take(ConstBytes message, std::string* answer);
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State { kChallenge, kVerdict, kDone, kRefused };

  const std::string secret_;
  const Purpose purpose_;
  const Nonce nonce_;
  State state_ = State::kChallenge;
};

}  // namespace cell

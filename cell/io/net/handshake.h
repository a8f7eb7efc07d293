// The handshake of fabrics that cross machines: each side proves that it knows the cluster's secret, without telling
// it, before a call, a read or a memory key goes over the connection.
//
//   client                                    server
//   Hello{magic, version, purpose, nonce}  ->
//                                          <- Challenge{magic, version, nonce, HMAC(secret, "server", both nonces)}
//   Proof{HMAC(secret, "client", both)}    ->
//                                          <- Welcome{magic, verdict}
//
// HMAC is HMAC-SHA256 (RFC 2104) over the side's name, the version, the purpose and both nonces: fresh nonces keep old
// proofs from being used again, the names keep one side's from being sent back to it. Without a secret (an empty one)
// the same messages show only that both sides are Cell's. What follows is neither encrypted nor signed: a secret keeps
// strangers out, not those who can change packets on the way.
//
// Pure: bytes in, bytes out. All integers little-endian. Thread-safety: none.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cell/base/bytes.h"

namespace cell {

inline constexpr uint32_t kHandshakeVersion = 1;

using Nonce = std::array<std::byte, 32>;  // Unpredictable: from RandomNonce, but in tests.
using Proof = std::array<std::byte, 32>;

// From the operating system.
Nonce RandomNonce();

// What the connection is for.
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
  uint32_t verdict;  // 1: welcome. Anything else: not.
  uint32_t reserved;
};
static_assert(sizeof(HelloMessage) == 48 && sizeof(ChallengeMessage) == 80 && sizeof(ProofMessage) == 32 &&
              sizeof(WelcomeMessage) == 16);
inline constexpr size_t kHandshakeMessageBytesMax = sizeof(ChallengeMessage);

// The server's side. Feed it messages of wants() bytes. `accepts`: purposes that it serves.
class ServerHandshake {
 public:
  ServerHandshake(std::string secret, const Nonce& nonce,
                  std::vector<Purpose> accepts = {Purpose::kCalls, Purpose::kReads})
      : secret_(std::move(secret)), nonce_(nonce), accepts_(std::move(accepts)) {}

  // Bytes of the next message; 0: it is done.
  size_t wants() const;
  // Appends to *answer what is to be sent. An error: send that and close. DataLoss: that is no message of a handshake,
  // or not of its size, or the handshake is over.
  absl::Status Take(ConstBytes message, std::string* answer);
  bool done() const { return state_ == State::kDone; }
  Purpose purpose() const { return purpose_; }  // Once it is done.

 private:
  enum class State { kGreeting, kProving, kDone, kRefused };

  const std::string secret_;
  const Nonce nonce_;
  const std::vector<Purpose> accepts_;
  State state_ = State::kGreeting;
  Purpose purpose_ = Purpose::kCalls;
  Nonce peer_nonce_{};
};

// The client's.
class ClientHandshake {
 public:
  ClientHandshake(std::string secret, Purpose purpose, const Nonce& nonce)
      : secret_(std::move(secret)), purpose_(purpose), nonce_(nonce) {}

  // What is to be sent first.
  std::string Hello() const;
  size_t wants() const;
  // As above. FailedPrecondition: another version. PermissionDenied: another secret. DataLoss: that is no Cell server.
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

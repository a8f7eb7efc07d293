#include "cell/io/net/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>

#include "cell/base/check.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint64_t kHandshakeMagic = 0x313053484c4c4543;  // "CELLHS01" in memory order

template <typename Message>
void AppendMessage(const Message& message, std::string* to) {
  to->append(reinterpret_cast<const char*>(&message), sizeof(message));
}

Proof Prove(const std::string& secret, std::string_view side, Purpose purpose, const Nonce& client_nonce,
            const Nonce& server_nonce) {
  std::string text(side);
  text += fmt::format(" {} {} ", kHandshakeVersion, static_cast<uint32_t>(purpose));
  text += AsText(client_nonce);
  text += AsText(server_nonce);
  Proof proof;
  unsigned bytes = 0;
  const unsigned char* made = ::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                     reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                     reinterpret_cast<unsigned char*>(proof.data()), &bytes);
  CELL_CHECK(made != nullptr && bytes == proof.size());
  return proof;
}

// Compares in a time that does not reveal where they differ.
bool Same(const Proof& a, const Proof& b) { return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace

Nonce RandomNonce() {
  Nonce nonce;
  CELL_CHECK_EQ(::getrandom(nonce.data(), nonce.size(), 0), static_cast<ssize_t>(nonce.size()));
  return nonce;
}

size_t ServerHandshake::wants() const {
  switch (state_) {
    case State::kGreeting:
      return sizeof(HelloMessage);
    case State::kProving:
      return sizeof(ProofMessage);
    default:
      return 0;
  }
}

absl::Status ServerHandshake::Take(ConstBytes message, std::string* answer) {
  if (message.size() != wants() || wants() == 0) {
    state_ = State::kRefused;
    return absl::DataLossError("the peer is not a Cell client");
  }
  const State state = std::exchange(state_, State::kRefused);  // Stays refused unless this succeeds.
  if (state == State::kGreeting) {
    const auto hello = Load<HelloMessage>(message.data());
    if (hello.magic != kHandshakeMagic) return absl::DataLossError("the peer is not a Cell client");
    if (hello.version != kHandshakeVersion) {
      // Allows the client to report it.
      AppendMessage(ChallengeMessage{kHandshakeMagic, kHandshakeVersion, 0, {}, {}}, answer);
      return absl::FailedPreconditionError(
          fmt::format("the client has handshake version {}, this server {}", hello.version, kHandshakeVersion));
    }
    if (std::find(accepts_.begin(), accepts_.end(), hello.purpose) == accepts_.end()) {
      return absl::DataLossError("the client requested a service that this server does not offer");
    }
    purpose_ = hello.purpose;
    peer_nonce_ = hello.nonce;
    const Proof proof = Prove(secret_, "server", purpose_, peer_nonce_, nonce_);
    AppendMessage(ChallengeMessage{kHandshakeMagic, kHandshakeVersion, 0, nonce_, proof}, answer);
    state_ = State::kProving;
    return absl::OkStatus();
  }
  const bool known =
      Same(Load<ProofMessage>(message.data()).proof, Prove(secret_, "client", purpose_, peer_nonce_, nonce_));
  AppendMessage(WelcomeMessage{kHandshakeMagic, known ? 1u : 0u, 0}, answer);
  if (!known) return absl::PermissionDeniedError("the client has a different secret");
  state_ = State::kDone;
  return absl::OkStatus();
}

std::string ClientHandshake::Hello() const {
  std::string hello;
  AppendMessage(HelloMessage{kHandshakeMagic, kHandshakeVersion, purpose_, nonce_}, &hello);
  return hello;
}

size_t ClientHandshake::wants() const {
  switch (state_) {
    case State::kChallenge:
      return sizeof(ChallengeMessage);
    case State::kVerdict:
      return sizeof(WelcomeMessage);
    default:
      return 0;
  }
}

absl::Status ClientHandshake::Take(ConstBytes message, std::string* answer) {
  if (message.size() != wants() || wants() == 0) {
    state_ = State::kRefused;
    return absl::DataLossError("the peer is not a Cell server");
  }
  const State state = std::exchange(state_, State::kRefused);
  if (state == State::kChallenge) {
    const auto challenge = Load<ChallengeMessage>(message.data());
    if (challenge.magic != kHandshakeMagic) return absl::DataLossError("the peer is not a Cell server");
    if (challenge.version != kHandshakeVersion) {
      return absl::FailedPreconditionError(
          fmt::format("the server has handshake version {}, this client {}", challenge.version, kHandshakeVersion));
    }
    if (!Same(challenge.proof, Prove(secret_, "server", purpose_, nonce_, challenge.nonce))) {
      return absl::PermissionDeniedError("the server has a different secret from this client (--secret-file)");
    }
    AppendMessage(ProofMessage{Prove(secret_, "client", purpose_, nonce_, challenge.nonce)}, answer);
    state_ = State::kVerdict;
    return absl::OkStatus();
  }
  const auto welcome = Load<WelcomeMessage>(message.data());
  if (welcome.magic != kHandshakeMagic || welcome.verdict != 1) {
    return absl::PermissionDeniedError("the server refused the handshake");
  }
  state_ = State::kDone;
  return absl::OkStatus();
}

}  // namespace cell

#include "cell/io/net/handshake.h"

#include <openssl/crypto.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint64_t kHandshakeMagic = 0x313053484c4c4543;  // "CELLHS01" in memory order
constexpr size_t kAnswerBytesOfVersion1 = 80;

template <typename Message>
void AppendMessage(const Message& message, std::string* to) {
  to->append(reinterpret_cast<const char*>(&message), sizeof(message));
}

Key Prove(const Key& key, std::string_view side, Purpose purpose, const Identity& who, const Nonce& client_nonce,
          const Nonce& server_nonce) {
  std::string text(side);
  text += fmt::format(" {} {} {} ", kHandshakeVersion, static_cast<uint32_t>(purpose), ToString(who));
  text += AsText(client_nonce);
  text += AsText(server_nonce);
  return HmacSha256(key, text);
}

// Compares in a time that does not reveal where they differ.
bool Same(const Key& a, const Key& b) { return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

absl::Status NotAClient() { return absl::DataLossError("the peer is not a Cell client"); }
absl::Status NotAServer() { return absl::DataLossError("the peer is not a Cell server"); }

}  // namespace

Nonce RandomNonce() {
  Nonce nonce;
  CELL_CHECK_EQ(::getrandom(nonce.data(), nonce.size(), 0), static_cast<ssize_t>(nonce.size()));
  return nonce;
}

bool BeginsHello(ConstBytes first) {
  return first.size() >= kMagicBytes && Load<uint64_t>(first.data()) == kHandshakeMagic;
}

std::string NeedsTlsAnswer() {
  std::string answer;
  AppendMessage(ChallengeMessage{kHandshakeMagic, kHandshakeVersion, 1, {}}, &answer);
  return answer;
}

size_t ServerHandshake::wants() const {
  switch (state_) {
    case State::kBegin:
      return sizeof(HelloPrefix);
    case State::kGreeting:
      return sizeof(HelloMessage) - sizeof(HelloPrefix);
    case State::kProving:
      return sizeof(ProofMessage);
    default:
      return 0;
  }
}

absl::Status ServerHandshake::Take(ConstBytes message, std::string* answer) {
  if (state_ == State::kBegin && message.size() == sizeof(HelloMessage)) {
    RETURN_IF_ERROR(Take(message.first(sizeof(HelloPrefix)), answer));
    message.remove_prefix(sizeof(HelloPrefix));
  }
  if (message.size() != wants() || wants() == 0) {
    state_ = State::kRefused;
    return NotAClient();
  }
  switch (std::exchange(state_, State::kRefused)) {  // Stays refused unless this succeeds.
    case State::kBegin:
      return TakePrefix(message, answer);
    case State::kGreeting:
      return TakeHello(message, answer);
    default:
      return TakeProof(message, answer);
  }
}

absl::Status ServerHandshake::TakePrefix(ConstBytes message, std::string* answer) {
  const auto prefix = Load<HelloPrefix>(message.data());
  if (prefix.magic != kHandshakeMagic) return NotAClient();
  if (prefix.version != kHandshakeVersion) {
    // Allows the client to report it. Those of version 1 wait for this many bytes.
    AppendMessage(ChallengeMessage{kHandshakeMagic, kHandshakeVersion, 0, {}}, answer);
    answer->resize(std::max(answer->size(), kAnswerBytesOfVersion1));
    return absl::FailedPreconditionError(
        fmt::format("the client has handshake version {}, this server {}", prefix.version, kHandshakeVersion));
  }
  if (std::find(accepts_.begin(), accepts_.end(), prefix.purpose) == accepts_.end()) {
    return absl::DataLossError("the client requested a service that this server does not offer");
  }
  hello_.prefix = prefix;
  state_ = State::kGreeting;
  return absl::OkStatus();
}

absl::Status ServerHandshake::TakeHello(ConstBytes message, std::string* answer) {
  std::memcpy(reinterpret_cast<std::byte*>(&hello_) + sizeof(HelloPrefix), message.data(), message.size());
  const std::string_view name(hello_.name.data(), std::min<size_t>(hello_.name_bytes, hello_.name.size()));
  if (hello_.name_bytes > hello_.name.size() || !IsIdentityName(name) || hello_.role < Role::kClient ||
      hello_.role > Role::kServer) {
    return absl::DataLossError("the client does not say who it is");
  }
  peer_ = proven_.value_or(Identity{hello_.role, std::string(name)});
  AppendMessage(ChallengeMessage{kHandshakeMagic, kHandshakeVersion, 0, nonce_}, answer);
  state_ = State::kProving;
  return absl::OkStatus();
}

absl::Status ServerHandshake::TakeProof(ConstBytes message, std::string* answer) {
  const Identity claimed{hello_.role, std::string(hello_.name.data(), hello_.name_bytes)};
  // Without a secret both sides use a key of zeros. One that is not known differs from all proofs.
  Key key = keys_ == nullptr || keys_->empty() ? Key{} : Key(RandomNonce());
  if (keys_ != nullptr && !keys_->empty()) key = keys_->KeyOf(claimed, hello_.key_id).value_or(key);
  const Key expected = Prove(key, "client", hello_.prefix.purpose, claimed, hello_.nonce, nonce_);
  if (!Same(Load<ProofMessage>(message.data()).proof, expected)) {
    AppendMessage(WelcomeMessage{kHandshakeMagic, 0, 0, {}}, answer);
    return absl::PermissionDeniedError(
        fmt::format("{} has not proven its identity: it has a different secret, or none", ToString(claimed)));
  }
  const Key proof = Prove(key, "server", hello_.prefix.purpose, claimed, hello_.nonce, nonce_);
  AppendMessage(WelcomeMessage{kHandshakeMagic, 1, 0, proof}, answer);
  state_ = State::kDone;
  return absl::OkStatus();
}

ClientHandshake::ClientHandshake(const Keyring* keys, const Identity& self, Purpose purpose, const Nonce& nonce)
    : self_(self), purpose_(purpose), nonce_(nonce) {
  const std::optional<Secret> own = keys == nullptr ? std::nullopt : keys->Own(self);
  if (own.has_value()) {
    has_secret_ = true;
    self_ = *own->owner;
    key_id_ = own->id;
    key_ = own->key;
  }
  CELL_CHECK(IsIdentityName(self_.name));
}

std::string ClientHandshake::Hello() const {
  HelloMessage hello{{kHandshakeMagic, kHandshakeVersion, purpose_}, nonce_, key_id_, self_.role,
                     static_cast<uint8_t>(self_.name.size()),        {},     {}};
  std::copy(self_.name.begin(), self_.name.end(), hello.name.begin());
  std::string text;
  AppendMessage(hello, &text);
  return text;
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
    return NotAServer();
  }
  const State state = std::exchange(state_, State::kRefused);
  if (state == State::kChallenge) {
    const auto challenge = Load<ChallengeMessage>(message.data());
    if (challenge.magic != kHandshakeMagic) return NotAServer();
    if (challenge.version != kHandshakeVersion) {
      return absl::FailedPreconditionError(
          fmt::format("the server has handshake version {}, this client {}", challenge.version, kHandshakeVersion));
    }
    if (challenge.needs_tls != 0) {
      return absl::FailedPreconditionError(
          "the server talks only TLS: give this client a secret or a certificate (--secret-file, --tls-certificate)");
    }
    server_nonce_ = challenge.nonce;
    AppendMessage(ProofMessage{Prove(key_, "client", purpose_, self_, nonce_, server_nonce_)}, answer);
    state_ = State::kVerdict;
    return absl::OkStatus();
  }
  const auto welcome = Load<WelcomeMessage>(message.data());
  if (welcome.magic != kHandshakeMagic) return NotAServer();
  if (welcome.verdict != 1) {
    return absl::PermissionDeniedError(
        has_secret_ ? fmt::format("the server has a different secret from that of {} (--secret-file)", ToString(self_))
                    : "the server requires a secret (--secret-file)");
  }
  if (!Same(welcome.proof, Prove(key_, "server", purpose_, self_, nonce_, server_nonce_))) {
    return absl::PermissionDeniedError("the server does not know this client's secret: it may be another's server");
  }
  state_ = State::kDone;
  return absl::OkStatus();
}

}  // namespace cell

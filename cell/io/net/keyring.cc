#include "cell/io/net/keyring.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "cell/base/bytes.h"
#include "cell/base/check.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr std::string_view kFormat = "cell-secret-1";
constexpr std::string_view kCluster = "cluster";

std::string ToHex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<int>(byte));
  return text;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Returns whether `text` has the bytes' hex digits and nothing else.
bool FromHex(std::string_view text, std::span<std::byte> bytes) {
  if (text.size() != 2 * bytes.size()) return false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = HexDigit(text[2 * i]), low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::byte>(16 * high + low);
  }
  return true;
}

// Removes what comes before the first `separator` from *text, and that too, and returns it.
std::string_view TakeUntil(char separator, std::string_view* text) {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view taken = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return taken;
}

absl::StatusOr<Secret> ParseLine(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) words.push_back(TakeUntil(' ', &line));
  if (words.empty() || words[0] != kFormat) {
    return absl::InvalidArgumentError("does not begin with cell-secret-1 (make a secret: cellctl secret new)");
  }
  if (words.size() != 4) return absl::InvalidArgumentError("is not cell-secret-1 WHO ID KEY");
  Secret secret{};
  if (words[1] != kCluster) {
    secret.owner = ParseIdentity(words[1]);
    if (!secret.owner.has_value()) {
      return absl::InvalidArgumentError("names neither the cluster nor client/NAME, operator/NAME or server/NAME");
    }
  }
  if (!FromHex(words[2], secret.id)) return absl::InvalidArgumentError("has an id without 16 hex digits");
  if (!FromHex(words[3], secret.key)) return absl::InvalidArgumentError("has a key without 64 hex digits");
  if (!secret.owner.has_value() && secret != ClusterSecret(secret.key)) {
    return absl::InvalidArgumentError("has an id that is not its key's, so one of the two is damaged");
  }
  return secret;
}

}  // namespace

std::optional<KeyId> ParseKeyId(std::string_view text) {
  KeyId id;
  return FromHex(text, id) ? std::optional(id) : std::nullopt;
}

Key HmacSha256(const Key& key, std::string_view text) {
  Key made;
  unsigned bytes = 0;
  const unsigned char* done = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                     reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                     reinterpret_cast<unsigned char*>(made.data()), &bytes);
  CELL_CHECK(done != nullptr && bytes == made.size());
  return made;
}

Secret ClusterSecret(const Key& key) {
  const Key digest = HmacSha256(key, "cell secret id");
  Secret secret{std::nullopt, {}, key};
  std::memcpy(secret.id.data(), digest.data(), secret.id.size());
  return secret;
}

Secret SecretOf(const Secret& cluster, const Identity& owner) {
  CELL_CHECK(!cluster.owner.has_value());
  return {owner, cluster.id, HmacSha256(cluster.key, "cell identity " + ToString(owner))};
}

std::string ToLine(const Secret& secret) {
  return fmt::format("{} {} {} {}\n", kFormat, secret.owner.has_value() ? ToString(*secret.owner) : kCluster,
                     ToHex(secret.id), ToHex(secret.key));
}

absl::StatusOr<Keyring> Keyring::Parse(std::string_view text) {
  std::vector<Secret> secrets;
  size_t number = 0;
  while (!text.empty()) {
    std::string_view line = TakeUntil('\n', &text);
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    absl::StatusOr<Secret> secret = ParseLine(line);
    if (!secret.ok()) {
      return absl::InvalidArgumentError(fmt::format("line {} {}", number, std::string(secret.status().message())));
    }
    if (secrets.size() == kSecretsMax)
      return absl::InvalidArgumentError(fmt::format("it has more than {} secrets", kSecretsMax));
    secrets.push_back(*std::move(secret));
  }
  if (secrets.empty()) return absl::InvalidArgumentError("it has no secret (make one: cellctl secret new)");
  return Keyring(std::move(secrets));
}

std::optional<Secret> Keyring::Cluster() const {
  const auto it = std::find_if(secrets_.begin(), secrets_.end(), [](const Secret& s) { return !s.owner.has_value(); });
  return it == secrets_.end() ? std::nullopt : std::optional(*it);
}

std::optional<Secret> Keyring::Own(const Identity& self) const {
  if (secrets_.empty()) return std::nullopt;
  const Secret& first = secrets_.front();
  return first.owner.has_value() ? first : SecretOf(first, self);
}

std::optional<Key> Keyring::KeyOf(const Identity& peer, const KeyId& id) const {
  for (const Secret& secret : secrets_) {
    if (secret.id != id) continue;
    if (!secret.owner.has_value()) return SecretOf(secret, peer).key;
    if (*secret.owner == peer) return secret.key;
  }
  return std::nullopt;
}

}  // namespace cell

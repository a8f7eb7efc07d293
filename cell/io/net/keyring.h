// Keyring holds the secrets of a secret file. A secret has 32 random bytes, so nobody can guess it from what was seen
// on the network. Each line of a file is one:
//
//   cell-secret-1 cluster ID KEY            the cluster's secret, which servers have
//   cell-secret-1 client/alice ID KEY       the secret of one identity (cell/layout/identity.h)
//
// ID (16 hex digits) names the cluster's secret, KEY has 64 hex digits. The secret of an identity is derived from the
// cluster's by HMAC-SHA256 over the identity. So a server knows the secrets of all, and has one file. Who has the
// cluster's secret can be anybody; who has that of an identity can be nobody else.
//
// Rotation: a file may have two secrets for the same, such as the cluster's new one and its old one. The first is used
// to prove who one is; a server accepts both.
//
// Pure. Immutable, so reads from several threads need no synchronization.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/layout/identity.h"

namespace cell {

using Key = std::array<std::byte, 32>;
using KeyId = std::array<std::byte, 8>;

struct Secret {
  std::optional<Identity> owner;  // Nullopt: the cluster.
  KeyId id;
  Key key;

  bool operator==(const Secret&) const = default;
};

// Returns a secret of the cluster with this key, which should be random.
Secret ClusterSecret(const Key& key);
// Returns the secret of an identity, which is derived from the cluster's. REQUIRES: `cluster` is the cluster's.
Secret SecretOf(const Secret& cluster, const Identity& owner);
// Returns a line of a secret file, with its end.
std::string ToLine(const Secret& secret);

class Keyring {
 public:
  static constexpr size_t kSecretsMax = 1024;

  Keyring() = default;
  // REQUIRES: at most kSecretsMax.
  explicit Keyring(std::vector<Secret> secrets) : secrets_(std::move(secrets)) {}

  // Parses a secret file. Empty lines, and those that begin with #, do not count. Returns InvalidArgument with the line
  // that is wrong, or if there is no secret. Messages do not show secrets.
  static absl::StatusOr<Keyring> Parse(std::string_view text);

  bool empty() const { return secrets_.empty(); }
  const std::vector<Secret>& secrets() const { return secrets_; }
  // Returns the first secret of the cluster, or nullopt.
  std::optional<Secret> Cluster() const;
  // Returns the secret by which we prove who we are: the first of the file if it is that of an identity, else that of
  // `self`. Returns nullopt if the keyring is empty.
  std::optional<Secret> Own(const Identity& self) const;
  // Returns the key by which a peer must prove that it is `peer`, or nullopt if there is no secret with this id.
  std::optional<Key> KeyOf(const Identity& peer, const KeyId& id) const;

 private:
  std::vector<Secret> secrets_;
};

// Returns nullopt if the text does not have the id's hex digits.
std::optional<KeyId> ParseKeyId(std::string_view text);

// HMAC-SHA256 (RFC 2104).
Key HmacSha256(const Key& key, std::string_view text);

}  // namespace cell

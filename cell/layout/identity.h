// Identity says who a peer is: its role, and its name within the role. How a peer proves it depends on the fabric
// (cell/io/net/handshake.h, cell/io/fabric/shm/shm_fabric.h). Roles are ordered: each may request what those before it
// may (roles.h).
//
// As text: ROLE/NAME, such as client/alice, operator/bob, server/server-0. In certificates: the URI cell://ROLE/NAME.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cell {

enum class Role : uint8_t {
  kClient = 1,    // Reads and writes pairs.
  kOperator = 2,  // Also asks for checks.
  kServer = 3,    // Also sends what servers tell each other: routes, migrations, weights.
};

struct Identity {
  Role role = Role::kClient;
  std::string name = {};

  bool operator==(const Identity&) const = default;
};

inline constexpr size_t kIdentityNameBytesMax = 64;

// Returns whether this can be a peer's name: 1 to 64 letters, digits, and any of -_.:@+
constexpr bool IsIdentityName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.:@+").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kIdentityNameBytesMax && std::all_of(name.begin(), name.end(), allowed);
}

// Returns an identity with this name as far as it may be one: other characters become _.
inline Identity IdentityOf(Role role, std::string_view name) {
  std::string kept(name.substr(0, kIdentityNameBytesMax));
  for (char& c : kept) {
    if (!IsIdentityName({&c, 1})) c = '_';
  }
  return {role, kept.empty() ? "unnamed" : kept};
}

constexpr std::string_view ToString(Role role) {
  return role == Role::kServer ? "server" : role == Role::kOperator ? "operator" : "client";
}

constexpr std::optional<Role> ParseRole(std::string_view text) {
  for (const Role role : {Role::kClient, Role::kOperator, Role::kServer}) {
    if (text == ToString(role)) return role;
  }
  return std::nullopt;
}

inline std::string ToString(const Identity& identity) {
  return std::string(ToString(identity.role)) + "/" + identity.name;
}

// Returns nullopt if the text is not ROLE/NAME.
inline std::optional<Identity> ParseIdentity(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::optional<Role> role = ParseRole(text.substr(0, slash));
  const std::string_view name = text.substr(slash + 1);
  if (!role.has_value() || !IsIdentityName(name)) return std::nullopt;
  return Identity{*role, std::string(name)};
}

inline constexpr std::string_view kIdentityScheme = "cell://";

// Returns whose a certificate with these URIs is. Others than cell:// ones do not count. Returns nullopt unless there
// is exactly one, and it is cell://ROLE/NAME.
inline std::optional<Identity> IdentityOfUris(const std::vector<std::string>& uris) {
  std::optional<Identity> identity;
  for (const std::string& uri : uris) {
    if (!uri.starts_with(kIdentityScheme)) continue;
    if (identity.has_value()) return std::nullopt;  // Which of them is meant is anyone's guess.
    identity = ParseIdentity(std::string_view(uri).substr(kIdentityScheme.size()));
    if (!identity.has_value()) return std::nullopt;
  }
  return identity;
}

}  // namespace cell

// Makes secrets for tests out of any text.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "cell/io/net/credentials.h"

namespace cell {

inline Secret SecretOfText(std::string_view text) { return ClusterSecret(HmacSha256({}, text)); }
inline std::shared_ptr<const Keyring> KeysOf(std::string_view text) {
  return std::make_shared<const Keyring>(std::vector<Secret>{SecretOfText(text)});
}
inline std::shared_ptr<CredentialSource> CredentialsOf(std::string_view text) {
  const std::shared_ptr<const Keyring> keys = KeysOf(text);
  return std::make_shared<FixedCredentials>(Credentials{keys, *TlsContext::Make(keys, {})});
}
inline const Identity kTester{Role::kClient, "tester"};

}  // namespace cell

// Credentials are what an endpoint proves itself by to others, and checks others by: secrets (keyring.h) and
// certificates (tls_context.h). CredentialFiles reads them from files, and again when the files have changed, so that
// secrets and certificates are renewed without a restart.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "cell/io/net/keyring.h"
#include "cell/io/net/tls_context.h"

namespace cell {

// Immutable.
struct Credentials {
  std::shared_ptr<const Keyring> keys = std::make_shared<Keyring>();
  std::shared_ptr<const TlsContext> tls = nullptr;  // Null if there is neither a secret nor a certificate: no TLS.
};

// Thread-safe.
class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  // Returns the credentials for a new connection; never null. `now_ns` is on any clock that does not go back.
  virtual std::shared_ptr<const Credentials> Current(int64_t now_ns) = 0;
};

// Always the same, for tests and for endpoints without credentials.
class FixedCredentials final : public CredentialSource {
 public:
  explicit FixedCredentials(Credentials credentials = {})
      : credentials_(std::make_shared<const Credentials>(std::move(credentials))) {}
  std::shared_ptr<const Credentials> Current(int64_t) override { return credentials_; }

 private:
  const std::shared_ptr<const Credentials> credentials_;
};

class CredentialFiles final : public CredentialSource {
 public:
  struct Paths {
    std::string secret = {};  // Empty: no secret.
    // PEM files; all empty: no certificate.
    std::string authority = {};
    std::string certificate = {};
    std::string key = {};
  };

  // Says whether credentials that are valid are those that are wanted, such as of the right identity.
  using Accept = std::function<absl::Status(const Credentials&)>;

  // Reads the files. Returns InvalidArgument if one cannot be read or is not valid, if other users can read the secret
  // or the key, or if only some of the three files of a certificate are given; and what `accept` returns, which is
  // asked again each time that the files have changed.
  static absl::StatusOr<std::shared_ptr<CredentialFiles>> Open(Paths paths, Accept accept = nullptr);

  // Looks at most once a second whether the files have changed. If the new ones are not valid, warns and keeps the
  // earlier ones.
  std::shared_ptr<const Credentials> Current(int64_t now_ns) override;

 private:
  CredentialFiles(Paths paths, Accept accept) : paths_(std::move(paths)), accept_(std::move(accept)) {}

  absl::StatusOr<Credentials> ReadAndCheck() const;

  const Paths paths_;
  const Accept accept_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<const Credentials> credentials_;
  std::string seen_;  // Which files were read, or found not to be valid.
  int64_t looked_ns_ = INT64_MIN;
};

// Returns the secret file of a cluster in this directory, DIR/secret, or "" if it has none.
std::string SecretFileIn(const std::string& directory);

// Reads a secret file, which other users must not be able to read. Returns InvalidArgument if it is not valid.
absl::StatusOr<Keyring> ReadSecretFile(const std::string& path);

// Writes a secret file, which only this user can read (mode 0600), as a whole or not at all. Returns AlreadyExists if
// there is a file of this name already, unless it `replaces` that. Follows no symbolic link.
absl::Status WriteSecretFile(const std::string& path, const Keyring& keys, bool replaces);

}  // namespace cell

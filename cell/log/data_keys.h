// DataKeys are the keys by which logs, checkpoints and backups are encrypted (record_cipher.h). Each line of a key file
// is one:
//
//   cell-key-1 ID KEY
//
// KEY has 64 hex digits, of 32 random bytes. ID (16 hex digits) is derived from it, and names it in files and messages.
// The first key encrypts; all of them decrypt. So a new one is put first, and an old one stays until no file needs it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cell {

struct DataKey {
  std::array<std::byte, 32> key;

  // Returns the first 8 bytes of HMAC-SHA256(key, "cell data key").
  std::array<std::byte, 8> id() const;
  bool operator==(const DataKey&) const = default;
};

// Returns the hex digits of a key's id.
std::string IdText(const std::array<std::byte, 8>& id);

class DataKeys {
 public:
  static constexpr size_t kKeysMax = 64;

  // REQUIRES: 1 to kKeysMax.
  explicit DataKeys(std::vector<DataKey> keys) : keys_(std::move(keys)) {}

  // Parses a key file. Empty lines, and those that begin with #, do not count. Returns InvalidArgument with the line
  // that is wrong, or if there is no key. Messages do not show keys.
  static absl::StatusOr<DataKeys> Parse(std::string_view text);
  std::string ToText() const;

  const DataKey& newest() const { return keys_.front(); }
  const std::vector<DataKey>& all() const { return keys_; }
  // Returns null if there is no such key.
  const DataKey* Find(const std::array<std::byte, 8>& id) const;

 private:
  std::vector<DataKey> keys_;
};

// Reads a key file. Returns InvalidArgument, with what to do, if it cannot be read, if other users can read it, or if
// it is not valid.
absl::StatusOr<DataKeys> ReadKeyFile(const std::string& path);

// Says by which keys files are encrypted and decrypted now. Thread-safe.
class KeySource {
 public:
  virtual ~KeySource() = default;
  // May block.
  virtual std::shared_ptr<const DataKeys> Current() = 0;
  // Returns a new file's salt, which no other file has: random bytes. Simulations make theirs repeatable.
  virtual std::array<std::byte, 32> NewSalt();
  // Returns where the keys come from, for messages.
  virtual std::string name() const = 0;
  // Returns whether files that are not encrypted are read, too; and what a user is told of one if not.
  virtual bool takes_plain() const = 0;
  virtual std::string about_plain() const = 0;
};

// A key file, which is read again when it has changed. As long as it is not valid, the keys from before are used.
class KeyFile : public KeySource {
 public:
  // Returns the errors of ReadKeyFile. With `about_plain`, files that are not encrypted are not read.
  static absl::StatusOr<std::shared_ptr<KeyFile>> Open(const std::string& path, const std::string& about_plain);

  std::shared_ptr<const DataKeys> Current() override;
  std::string name() const override { return path_; }
  bool takes_plain() const override { return about_plain_.empty(); }
  std::string about_plain() const override { return about_plain_; }

 private:
  KeyFile(std::string path, std::string about_plain) : path_(std::move(path)), about_plain_(std::move(about_plain)) {}

  const std::string path_;
  const std::string about_plain_;
  std::mutex mutex_;     // Guards what follows.
  std::string version_;  // Of the file when it was last looked at.
  std::shared_ptr<const DataKeys> keys_;
};

}  // namespace cell

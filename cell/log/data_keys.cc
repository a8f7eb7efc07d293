#include "cell/log/data_keys.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/io/file/text_file.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr std::string_view kFormat = "cell-key-1";

std::string Hex(const void* bytes, size_t count) {
  return absl::BytesToHexString({static_cast<const char*>(bytes), count});
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

absl::StatusOr<DataKey> ParseLine(std::string_view line) {
  const size_t id_at = kFormat.size() + 1, key_at = id_at + 17;
  if (!line.starts_with(kFormat)) {
    return absl::InvalidArgumentError("does not begin with cell-key-1 (make a key: cellctl data-key new)");
  }
  if (line.size() != key_at + 64 || line[id_at - 1] != ' ' || line[key_at - 1] != ' ' ||
      !IsHex(line.substr(id_at, 16)) || !IsHex(line.substr(key_at))) {
    return absl::InvalidArgumentError("is not cell-key-1 ID KEY");
  }
  DataKey key;
  const std::string bytes = absl::HexStringToBytes({line.data() + key_at, 64});
  std::memcpy(key.key.data(), bytes.data(), key.key.size());
  if (IdText(key.id()) != line.substr(id_at, 16)) return absl::InvalidArgumentError("has an id of another key");
  return key;
}

// Returns what changes when the file is replaced or written.
std::string VersionOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "-";
  return fmt::format("{} {} {}.{}", info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

}  // namespace

std::array<std::byte, 8> DataKey::id() const {
  constexpr std::string_view kPurpose = "cell data key";
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac;
  unsigned int bytes = 0;
  CELL_CHECK_NE(::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                       reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size(), mac.data(), &bytes),
                nullptr);
  std::array<std::byte, 8> id;
  std::memcpy(id.data(), mac.data(), id.size());
  return id;
}

std::string IdText(const std::array<std::byte, 8>& id) { return Hex(id.data(), id.size()); }

absl::StatusOr<DataKeys> DataKeys::Parse(std::string_view text) {
  std::vector<DataKey> keys;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const absl::StatusOr<DataKey> key = ParseLine(line);
    if (!key.ok()) {
      return absl::InvalidArgumentError(fmt::format("line {} {}", number, std::string(key.status().message())));
    }
    if (keys.size() == kKeysMax) return absl::InvalidArgumentError(fmt::format("it has more than {} keys", kKeysMax));
    keys.push_back(*key);
  }
  if (keys.empty()) return absl::InvalidArgumentError("it has no key");
  return DataKeys(std::move(keys));
}

std::string DataKeys::ToText() const {
  std::string text;
  for (const DataKey& key : keys_) {
    text += fmt::format("{} {} {}\n", kFormat, IdText(key.id()), Hex(key.key.data(), key.key.size()));
  }
  return text;
}

const DataKey* DataKeys::Find(const std::array<std::byte, 8>& id) const {
  const auto it = std::find_if(keys_.begin(), keys_.end(), [&id](const DataKey& key) { return key.id() == id; });
  return it == keys_.end() ? nullptr : &*it;
}

absl::StatusOr<DataKeys> ReadKeyFile(const std::string& path) {
  const absl::StatusOr<std::optional<std::string>> text = ReadTextFile(path);
  if (!text.ok()) return absl::InvalidArgumentError(std::string(text.status().message()));
  if (!text->has_value()) {
    return absl::InvalidArgumentError(
        fmt::format("cannot read {}: there is no such file. If logs or backups were encrypted with it, bring back the "
                    "copy that you "
                    "keep elsewhere; if nothing is encrypted yet, make a key: cellctl data-key new {}",
                    path, path));
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && (info.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    return absl::InvalidArgumentError(
        fmt::format("{} can be read or changed by other users: chmod 600 {}", path, path));
  }
  absl::StatusOr<DataKeys> keys = DataKeys::Parse(**text);
  if (keys.ok()) return keys;
  return absl::InvalidArgumentError(
      fmt::format("the key file {} is not valid: {}", path, std::string(keys.status().message())));
}

std::array<std::byte, 32> KeySource::NewSalt() {
  std::array<std::byte, 32> salt;
  CELL_CHECK_EQ(::getrandom(salt.data(), salt.size(), 0), static_cast<ssize_t>(salt.size()));
  return salt;
}

absl::StatusOr<std::shared_ptr<KeyFile>> KeyFile::Open(const std::string& path, const std::string& about_plain) {
  std::shared_ptr<KeyFile> made(new KeyFile(path, about_plain));
  made->version_ = VersionOf(path);
  ASSIGN_OR_RETURN(DataKeys keys, ReadKeyFile(path));
  made->keys_ = std::make_shared<const DataKeys>(std::move(keys));
  return made;
}

std::shared_ptr<const DataKeys> KeyFile::Current() {
  const std::lock_guard lock(mutex_);
  std::string version = VersionOf(path_);
  if (version == version_) return keys_;
  version_ = std::move(version);
  absl::StatusOr<DataKeys> keys = ReadKeyFile(path_);
  if (keys.ok()) {
    keys_ = std::make_shared<const DataKeys>(*std::move(keys));
    spdlog::info("{} was read again: files are encrypted with key {} now", path_, IdText(keys_->newest().id()));
  } else {
    spdlog::warn("{}; the keys from before stay in use", std::string(keys.status().message()));
  }
  return keys_;
}

}  // namespace cell

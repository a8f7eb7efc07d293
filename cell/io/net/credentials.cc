#include "cell/io/net/credentials.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/io/file/private_file.h"
#include "cell/io/net/fd.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr size_t kFileBytesMax = size_t{256} << 10;
constexpr int64_t kLookEveryNs = 1'000'000'000;

// Returns what changes when the file is replaced or written.
std::string VersionOf(const std::string& path) {
  struct stat info {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0) return path + " -;";
  return fmt::format("{} {} {} {}.{};", path, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

std::string VersionsOf(const CredentialFiles::Paths& paths) {
  return VersionOf(paths.secret) + VersionOf(paths.authority) + VersionOf(paths.certificate) + VersionOf(paths.key);
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, bool is_private) {
  struct stat info {};
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // Does not wait for the writer of a FIFO.
  if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(fmt::format("cannot read {}", path));
  }
  if (is_private && info.st_uid != ::geteuid() && info.st_uid != 0) {
    return absl::InvalidArgumentError(
        fmt::format("{} belongs to user {}, who can replace it: make a copy that belongs to the user that needs it",
                    path, info.st_uid));
  }
  if (is_private && (info.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    return absl::InvalidArgumentError(
        fmt::format("{} can be read or changed by other users: chmod 600 {}", path, path));
  }
  std::string text(kFileBytesMax + 1, 0);
  size_t size = 0;
  for (ssize_t got = 1; got > 0 && size < text.size(); size += static_cast<size_t>(std::max<ssize_t>(got, 0))) {
    got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0) return ErrnoError(absl::StatusCode::kInvalidArgument, fmt::format("cannot read {}", path));
  }
  text.resize(size);
  if (text.size() > kFileBytesMax) {
    return absl::InvalidArgumentError(fmt::format("{} is larger than {} bytes", path, kFileBytesMax));
  }
  return text;
}

absl::StatusOr<Credentials> Read(const CredentialFiles::Paths& paths) {
  Credentials credentials;
  if (!paths.secret.empty()) {
    ASSIGN_OR_RETURN(Keyring keys, ReadSecretFile(paths.secret));
    credentials.keys = std::make_shared<const Keyring>(std::move(keys));
  }
  TlsCertificate certificate;
  const int given = !paths.authority.empty() + !paths.certificate.empty() + !paths.key.empty();
  if (given != 0 && given != 3) {
    return absl::InvalidArgumentError("--tls-certificate, --tls-key and --tls-authority are needed together");
  }
  if (given == 3) {
    ASSIGN_OR_RETURN(certificate.authority, ReadSmallFile(paths.authority, /*is_private=*/false));
    ASSIGN_OR_RETURN(certificate.certificate, ReadSmallFile(paths.certificate, /*is_private=*/false));
    ASSIGN_OR_RETURN(certificate.key, ReadSmallFile(paths.key, /*is_private=*/true));
  }
  if (given == 0 && credentials.keys->empty()) return credentials;
  ASSIGN_OR_RETURN(credentials.tls, TlsContext::Make(credentials.keys, certificate));
  return credentials;
}

}  // namespace

std::string SecretFileIn(const std::string& directory) {
  std::string path = directory + "/secret";
  return ::access(path.c_str(), F_OK) == 0 ? path : "";
}

absl::StatusOr<Keyring> ReadSecretFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, /*is_private=*/true));
  absl::StatusOr<Keyring> keys = Keyring::Parse(text);
  if (keys.ok()) return keys;
  return absl::InvalidArgumentError(
      fmt::format("the secret file {} is not valid: {}", path, std::string(keys.status().message())));
}

absl::Status WriteSecretFile(const std::string& path, const Keyring& keys, bool replaces) {
  std::string text;
  for (const Secret& secret : keys.secrets()) text += ToLine(secret);
  return WritePrivateFile(path, text, replaces);
}

absl::StatusOr<std::shared_ptr<CredentialFiles>> CredentialFiles::Open(Paths paths, Accept accept) {
  std::shared_ptr<CredentialFiles> made(new CredentialFiles(std::move(paths), std::move(accept)));
  made->seen_ = VersionsOf(made->paths_);
  ASSIGN_OR_RETURN(Credentials credentials, made->ReadAndCheck());
  made->credentials_ = std::make_shared<const Credentials>(std::move(credentials));
  return made;
}

absl::StatusOr<Credentials> CredentialFiles::ReadAndCheck() const {
  absl::StatusOr<Credentials> credentials = Read(paths_);
  if (credentials.ok() && accept_ != nullptr) RETURN_IF_ERROR(accept_(*credentials));
  return credentials;
}

std::shared_ptr<const Credentials> CredentialFiles::Current(int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (looked_ns_ != INT64_MIN && now_ns - looked_ns_ < kLookEveryNs) return credentials_;
  looked_ns_ = now_ns;
  std::string seen = VersionsOf(paths_);
  if (seen == seen_) return credentials_;
  seen_ = std::move(seen);
  absl::StatusOr<Credentials> credentials = ReadAndCheck();
  if (credentials.ok()) {
    credentials_ = std::make_shared<const Credentials>(*std::move(credentials));
    spdlog::info("new credentials are in use: their files have changed");
  } else {
    spdlog::warn("the earlier credentials stay in use: {}", std::string(credentials.status().message()));
  }
  return credentials_;
}

}  // namespace cell

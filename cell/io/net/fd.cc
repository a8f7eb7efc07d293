#include "cell/io/net/fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fmt/format.h"

namespace cell {

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

bool TryLock(const Fd& fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd.get(), F_OFD_SETLK, &lock) == 0;
}

absl::StatusOr<bool> IsLocked(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return false;
  struct flock lock {};
  lock.l_type = F_RDLCK;  // Anyone who may read the file may take such a lock. TryLock takes the other kind.
  lock.l_whence = SEEK_SET;
  if (!fd.valid() || ::fcntl(fd.get(), F_OFD_GETLK, &lock) != 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, fmt::format("cannot check whether {} is locked", path));
  }
  return lock.l_type != F_UNLCK;
}

std::string OwnerOf(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? fmt::format("user {}", info.st_uid) : "another user";
}

absl::Status ErrnoError(absl::StatusCode code, const std::string& what) {
  return absl::Status(code, fmt::format("{}: {}", what, std::strerror(errno)));
}

}  // namespace cell

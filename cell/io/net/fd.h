// A file descriptor that is owned.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cell {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Somebody else closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Locks a file for as long as `fd`, or a copy of it, is open; false: it is locked. By open file descriptions
// (F_OFD_SETLK).
bool TryLock(const Fd& fd);
// Returns whether anyone has locked a file by TryLock; false for one that is not there. Asking takes no lock. Unavailable: the
// system does not tell, as when there are no descriptors left.
absl::StatusOr<bool> IsLocked(const std::string& path);

// The text of errno, after `what`.
absl::Status ErrnoError(absl::StatusCode code, const std::string& what);

}  // namespace cell

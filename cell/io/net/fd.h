// Fd owns a file descriptor.
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
  // Gives up the ownership without closing.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Locks a file while `fd`, or a copy of it, is open. Returns false if it is locked already. Uses open file description
// locks (F_OFD_SETLK).
bool TryLock(const Fd& fd);
// Returns whether a file is locked with TryLock, and false if it does not exist. Takes no lock. Returns Unavailable if
// the system does not tell, for example because there are no descriptors left.
absl::StatusOr<bool> IsLocked(const std::string& path);

// Returns the owner of a file, for messages: "user 1000", or "another user" if the system does not tell.
std::string OwnerOf(const std::string& path);

// Returns an error with `what` and the text of errno.
absl::Status ErrnoError(absl::StatusCode code, const std::string& what);

}  // namespace cell

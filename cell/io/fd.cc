#include "cell/io/fd.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fmt/format.h"

namespace cell {

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status ErrnoError(absl::StatusCode code, const std::string& what) {
  return absl::Status(code, fmt::format("{}: {}", what, std::strerror(errno)));
}

}  // namespace cell

#include "cell/io/exec/invocation.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fmt/format.h"

namespace cell {

void EnterCallersDirectory() {
  const char* const directory = std::getenv("BUILD_WORKING_DIRECTORY");
  if (directory != nullptr && ::chdir(directory) != 0) {
    std::fputs(fmt::format("cannot enter {}: {}\n", directory, std::strerror(errno)).c_str(), stderr);
  }
}

void HoldStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // This is the lowest free number, so open returns it. Reads from closed input still fail, and so do writes.
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
  }
}

absl::Status OutputError(int error) {
  return absl::DataLossError(
      fmt::format("cannot write to standard output{}", error == 0 ? "" : fmt::format(": {}", std::strerror(error))));
}

absl::Status FlushOutput() {
  if (std::fflush(stdout) != 0) return OutputError(errno);
  return std::ferror(stdout) == 0 ? absl::OkStatus() : OutputError(0);
}

}  // namespace cell

#include "cell/io/file/private_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "cell/io/net/fd.h"
#include "fmt/format.h"

namespace cell {

absl::Status WritePrivateFile(const std::string& path, std::string_view text, bool replaces) {
  const std::string written = replaces ? path + ".new" : path;
  if (replaces) ::unlink(written.c_str());
  const Fd file(::open(written.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid() && errno == EEXIST) {
    return absl::AlreadyExistsError(fmt::format("{} exists already, and was left as it is", written));
  }
  const auto failed = [&] {
    absl::Status status = ErrnoError(absl::StatusCode::kUnavailable, fmt::format("cannot write {}", written));
    if (file.valid()) ::unlink(written.c_str());
    return status;
  };
  if (!file.valid()) return failed();
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(file.get()) != 0 ||
      (replaces && ::rename(written.c_str(), path.c_str()) != 0)) {
    return failed();
  }
  return absl::OkStatus();
}

}  // namespace cell

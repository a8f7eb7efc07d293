#include "cell/io/file/text_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cell/io/net/fd.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status Failed(const char* what, const std::string& path) {
  const auto code = errno == EACCES ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable;
  return ErrnoError(code, fmt::format("cannot {} {}", what, path));
}

}  // namespace

absl::StatusOr<std::optional<std::string>> ReadTextFile(const std::string& path) {
  return ReadTextFrom(Fd(::open(path.c_str(), kTextFileFlags)), path);
}

absl::StatusOr<std::optional<std::string>> ReadTextFrom(const Fd& fd, const std::string& path) {
  if (!fd.valid() && errno == ENOENT) return std::nullopt;
  if (!fd.valid()) return Failed("open", path);
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) return Failed("look at", path);
  if (!S_ISREG(status.st_mode)) return absl::UnavailableError(fmt::format("{} is not a regular file", path));
  const absl::Status too_large = absl::UnavailableError(fmt::format("{} is too large", path));
  if (static_cast<uint64_t>(status.st_size) > kTextFileBytesMax) return too_large;
  std::string text;
  char part[16384];
  for (;;) {
    const ssize_t got = ::read(fd.get(), part, sizeof(part));
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path);
    text.append(part, static_cast<size_t>(got));
    if (text.size() > kTextFileBytesMax) return too_large;
  }
}

absl::StatusOr<std::string> ReadNamedFile(const std::string& path) {
  absl::StatusOr<std::optional<std::string>> text = ReadTextFile(path);
  if (!text.ok()) return absl::InvalidArgumentError(std::string(text.status().message()));
  if (!text->has_value()) return absl::InvalidArgumentError(fmt::format("cannot read {}: no such file", path));
  return **std::move(text);
}

std::optional<std::string> FirstLineOf(const std::string& path) {
  absl::StatusOr<std::optional<std::string>> text = ReadTextFile(path);
  if (!text.ok() || !text->has_value()) return std::nullopt;
  return (*text)->substr(0, (*text)->find('\n'));
}

}  // namespace cell

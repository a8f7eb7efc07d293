#include "cell/control/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status Failed(const char* what, const std::string& path) {
  return ErrnoError(absl::StatusCode::kUnavailable, fmt::format("cannot {} the audit log {}", what, path));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path, const Limits& limits) {
  std::unique_ptr<AuditLog> log(new AuditLog(path, limits));
  if (const absl::Status status = log->OpenFile(); !status.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: give --audit-log a file that this user can write, or none", std::string(status.message())));
  }
  return log;
}

absl::Status AuditLog::OpenFile() {
  // O_NONBLOCK: nothing here waits for the other end of a FIFO.
  Fd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!fd.valid()) return Failed("open", path_);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return Failed("look at", path_);
  bytes_ = 0;
  if (S_ISREG(status.st_mode)) {
    if (status.st_uid != ::geteuid()) {
      return absl::UnavailableError(fmt::format("the audit log {} belongs to user {}", path_, status.st_uid));
    }
    if ((status.st_mode & 0777) != 0600 && ::fchmod(fd.get(), 0600) != 0) return Failed("protect", path_);
    bytes_ = static_cast<uint64_t>(status.st_size);
  } else if (!S_ISCHR(status.st_mode)) {
    return absl::UnavailableError(fmt::format("the audit log {} is not a regular file", path_));
  }
  char last = '\n';
  if (bytes_ > 0 && ::pread(fd.get(), &last, 1, static_cast<off_t>(bytes_ - 1)) != 1) return Failed("read", path_);
  if (last != '\n') {  // A crash cut the last line.
    if (::write(fd.get(), "\n", 1) != 1) return Failed("write", path_);
    ++bytes_;
  }
  fd_ = std::move(fd);
  return absl::OkStatus();
}

absl::Status AuditLog::Rotate() {
  for (int i = limits_.kept; i >= 1; --i) {
    const std::string from = i == 1 ? path_ : fmt::format("{}.{}", path_, i - 1);
    if (::rename(from.c_str(), fmt::format("{}.{}", path_, i).c_str()) != 0 && errno != ENOENT) {
      return Failed("rotate", path_);
    }
  }
  fd_ = Fd();
  RETURN_IF_ERROR(OpenFile());
  // A line that was synced stays, so the file's name has to.
  const std::string above = std::filesystem::path(path_).parent_path();
  const Fd directory(::open(above.empty() ? "." : above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid() || ::fsync(directory.get()) != 0) return Failed("rotate", path_);
  return absl::OkStatus();
}

absl::Status AuditLog::Append(std::string_view line, bool sync) {
  const std::lock_guard lock(mutex_);
  if (!fd_.valid()) RETURN_IF_ERROR(OpenFile());
  if (bytes_ > 0 && bytes_ + line.size() > limits_.file_bytes_max) RETURN_IF_ERROR(Rotate());
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t written = ::write(fd_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      absl::Status failed = Failed("write", path_);
      if (::ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0)
        fd_ = Fd();  // The next call ends what is left of it.
      return failed;
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  bytes_ += line.size();
  if (sync && ::fdatasync(fd_.get()) != 0 && errno != EINVAL)
    return Failed("sync", path_);  // EINVAL: no file of a disk.
  return absl::OkStatus();
}

}  // namespace cell

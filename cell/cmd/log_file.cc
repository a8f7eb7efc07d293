#include "cell/cmd/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

}  // namespace

absl::StatusOr<std::shared_ptr<LogFile>> LogFile::Open(const std::string& path, const Limits& limits) {
  Fd file(::open(path.c_str(), kFlags, 0600));
  const absl::Status anothers = absl::FailedPreconditionError(fmt::format(
      "{} is not a file of this user alone, so the log cannot go there: remove it, or give another --log-file", path));
  if (!file.valid() && (errno == ELOOP || errno == ENXIO)) return anothers;  // A link, or a FIFO without a reader.
  if (!file.valid()) return ErrnoError(absl::StatusCode::kInvalidArgument, fmt::format("cannot open {}", path));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) {
    return ErrnoError(absl::StatusCode::kInvalidArgument, fmt::format("cannot look at {}", path));
  }
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid() || info.st_nlink != 1) return anothers;
  (void)::fchmod(file.get(), 0600);  // An earlier release may have made it.
  return std::shared_ptr<LogFile>(new LogFile(path, limits, std::move(file), static_cast<uint64_t>(info.st_size)));
}

void LogFile::TakeStandardStreams() {
  const std::lock_guard lock(mutex_);
  has_streams_ = true;
  PointStandardStreams();
}

void LogFile::PointStandardStreams() {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) (void)::dup2(file_.get(), stream);
}

std::string LogFile::Old(int number) const { return fmt::format("{}.{}", path_, number); }

void LogFile::Rotate() {
  const std::string made = path_ + ".new";
  (void)::unlink(made.c_str());
  Fd next(::open(made.c_str(), kFlags | O_EXCL, 0600));
  if (!next.valid()) {
    bytes_ = limits_.bytes_max / 2;  // Tries again later.
    return;
  }
  for (int number = limits_.files - 1; number > 1; --number) {
    (void)std::rename(Old(number - 1).c_str(), Old(number).c_str());
  }
  if (limits_.files > 1) (void)std::rename(path_.c_str(), Old(1).c_str());
  (void)std::rename(made.c_str(), path_.c_str());
  file_ = std::move(next);
  bytes_ = 0;
  if (has_streams_) PointStandardStreams();
}

void LogFile::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  std::string_view rest(line.data(), line.size());
  bytes_ += rest.size();
  while (!rest.empty()) {
    const ssize_t written = ::write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // The disk is full. There is nowhere to say so.
    rest.remove_prefix(static_cast<size_t>(written));
  }
  if (bytes_ >= limits_.bytes_max) Rotate();
}

}  // namespace cell

#include "cell/io/posix_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cell/base/status_macros.h"
#include "cell/io/fd.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status Failed(const char* what, const std::string& path) {
  const absl::StatusCode code = errno == ENOENT                      ? absl::StatusCode::kNotFound
                                : errno == EEXIST                    ? absl::StatusCode::kAlreadyExists
                                : errno == ENOSPC || errno == EDQUOT ? absl::StatusCode::kResourceExhausted
                                                                     : absl::StatusCode::kUnavailable;
  return ErrnoError(code, fmt::format("cannot {} {}", what, path));
}

class PosixFile : public File {
 public:
  PosixFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::Status Append(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Failed("write", path_);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }
  absl::Status Sync() override { return ::fdatasync(fd_.get()) == 0 ? absl::OkStatus() : Failed("sync", path_); }

 private:
  const Fd fd_;
  const std::string path_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<File>> PosixFiles::Create(const std::string& path) {
  Fd fd(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return Failed("create", path);
  return std::make_unique<PosixFile>(std::move(fd), path);
}

absl::StatusOr<std::string> PosixFiles::Read(const std::string& path, uint64_t offset, uint64_t bytes) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Failed("open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Failed("look at", path);
  const auto size = static_cast<uint64_t>(info.st_size);
  std::string read(std::min(bytes, size - std::min(offset, size)), 0);
  for (size_t done = 0; done < read.size();) {
    const ssize_t got = ::pread(fd.get(), read.data() + done, read.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path);
    if (got == 0) read.resize(done);
    done += static_cast<size_t>(got);
  }
  return read;
}

absl::StatusOr<uint64_t> PosixFiles::Size(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Failed("look at", path);
  return static_cast<uint64_t>(info.st_size);
}

absl::Status PosixFiles::SyncFile(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Failed("open", path);
  return ::fdatasync(fd.get()) == 0 ? absl::OkStatus() : Failed("sync", path);
}

absl::StatusOr<std::vector<std::string>> PosixFiles::List(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename());
  }
  if (error) {
    errno = error.value();
    return Failed("list", directory);
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status PosixFiles::MakeDirectory(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0755) == 0) {
    const std::string above = std::filesystem::path(directory).parent_path();
    return SyncDirectory(above.empty() ? "." : above);
  }
  if (errno == EEXIST) return absl::OkStatus();
  const std::string above = std::filesystem::path(directory).parent_path();
  if (errno != ENOENT || above.empty() || above == directory) return Failed("make directory", directory);
  RETURN_IF_ERROR(MakeDirectory(above));
  return MakeDirectory(directory);
}

absl::Status PosixFiles::Rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus() : Failed("rename", from);
}

absl::Status PosixFiles::Remove(const std::string& path) {
  std::error_code error;
  if (std::filesystem::remove(path, error)) return absl::OkStatus();
  errno = error ? error.value() : ENOENT;
  return Failed("remove", path);
}

absl::Status PosixFiles::SyncDirectory(const std::string& directory) {
  const Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return Failed("open", directory);
  return ::fsync(fd.get()) == 0 ? absl::OkStatus() : Failed("sync", directory);
}

}  // namespace cell

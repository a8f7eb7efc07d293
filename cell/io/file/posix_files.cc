#include "cell/io/file/posix_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/io/file/text_file.h"
#include "cell/io/net/fd.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status Failed(const char* what, const std::string& path) {
  const absl::StatusCode code = errno == ENOENT                      ? absl::StatusCode::kNotFound
                                : errno == EEXIST                    ? absl::StatusCode::kAlreadyExists
                                : errno == ENOSPC || errno == EDQUOT ? absl::StatusCode::kResourceExhausted
                                                                     : absl::StatusCode::kUnavailable;
  const bool out = IsOutOfDescriptors(errno);
  absl::Status status = ErrnoError(code, fmt::format("cannot {} {}", what, path));
  if (out) MarkOutOfDescriptors(&status);
  return status;
}

// Bypasses the page cache from now on, if the file system can.
void BeginDirect(const Fd& fd) { (void)::fcntl(fd.get(), F_SETFL, O_DIRECT); }

// Uses the page cache again, because the file system refuses direct access.
absl::Status EndDirect(const Fd& fd, const std::string& path) {
  return ::fcntl(fd.get(), F_SETFL, 0) == 0 ? absl::OkStatus() : Failed("open", path);
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

// Writes whole blocks from aligned memory, past the page cache if the file system can. With 256 KB per sync on ext4
// this takes a sixth of the CPU time and a third of the time, as measured. The last block is written again with the
// data that follows it. Its earlier content is unchanged then, so a torn write does no harm.
class PosixLogFile : public File {
 public:
  PosixLogFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::Status Append(std::string_view bytes) override {
    if (buffer_.size() == 0) buffer_ = BlockBuffer(kBufferBytes);
    while (!bytes.empty()) {
      const size_t taken = std::min(bytes.size(), kBufferBytes - used_);
      std::memcpy(buffer_.data() + used_, bytes.data(), taken);
      bytes.remove_prefix(taken);
      used_ += taken;
      const size_t whole = used_ / kBlockBytes * kBlockBytes;
      const size_t padded = RoundUp(used_, kBlockBytes);
      std::memset(buffer_.data() + used_, 0, padded - used_);
      RETURN_IF_ERROR(Write({buffer_.data(), padded}));
      offset_ += whole;
      used_ -= whole;
      std::memmove(buffer_.data(), buffer_.data() + whole, used_);
    }
    return absl::OkStatus();
  }
  absl::Status Sync() override { return ::fdatasync(fd_.get()) == 0 ? absl::OkStatus() : Failed("sync", path_); }

 private:
  static constexpr size_t kBufferBytes = size_t{256} << 10;

  absl::Status Write(ConstBytes bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t written =
          ::pwrite(fd_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset_ + done));
      if (written >= 0) {
        done += static_cast<size_t>(written);
      } else if (errno == EINVAL && direct_) {
        RETURN_IF_ERROR(EndDirect(fd_, path_));
        direct_ = false;
      } else if (errno != EINTR) {
        return Failed("write", path_);
      }
    }
    return absl::OkStatus();
  }

  const Fd fd_;
  const std::string path_;
  bool direct_ = true;
  BlockBuffer buffer_;
  size_t used_ = 0;      // Bytes of the buffer: the content of the last block.
  uint64_t offset_ = 0;  // Offset of the last block.
};

class PosixDirectory : public Directory {
 public:
  // Returns null, and sets errno, if that fails.
  static std::unique_ptr<Directory> FromFd(Fd fd, const std::string& path) {
    DIR* const stream = ::fdopendir(fd.get());
    if (stream == nullptr) return nullptr;
    (void)fd.Release();  // The stream owns it now.
    return std::unique_ptr<Directory>(new PosixDirectory(stream, path));
  }
  ~PosixDirectory() override { ::closedir(stream_); }

  absl::StatusOr<std::vector<std::string>> List() override {
    std::vector<std::string> names;
    ::rewinddir(stream_);  // Get the current content, as if it were opened again.
    for (;;) {
      errno = 0;
      const dirent* const entry = ::readdir(stream_);
      if (entry == nullptr) break;
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) return Failed("list", path_);
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  PosixDirectory(DIR* stream, std::string path) : stream_(stream), path_(std::move(path)) {}

  DIR* const stream_;
  const std::string path_;
};

}  // namespace

Fd PosixFiles::OpenFd(const std::string& path, int flags) {
  return Fd(reserve_.Open([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0600); }));
}

absl::StatusOr<std::unique_ptr<File>> PosixFiles::Create(const std::string& path) {
  Fd fd = OpenFd(path, O_CREAT | O_EXCL | O_WRONLY | O_APPEND);
  if (!fd.valid()) return Failed("create", path);
  return std::make_unique<PosixFile>(std::move(fd), path);
}

absl::StatusOr<std::unique_ptr<File>> PosixFiles::CreateLog(const std::string& path) {
  Fd fd = OpenFd(path, O_CREAT | O_EXCL | O_WRONLY);
  if (!fd.valid()) return Failed("create", path);
  BeginDirect(fd);
  return std::make_unique<PosixLogFile>(std::move(fd), path);
}

absl::StatusOr<size_t> PosixFiles::Read(const std::string& path, uint64_t offset, MutableBytes to) {
  const Fd fd = OpenFd(path, O_RDONLY);
  if (!fd.valid()) return Failed("open", path);
  BeginDirect(fd);
  size_t done = 0;
  for (bool direct = true; done < to.size();) {
    const ssize_t got = ::pread(fd.get(), to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (got == 0) break;
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (errno == EINVAL && direct) {  // This also happens behind the file's last bytes if they are not a whole
                                             // block.
      RETURN_IF_ERROR(EndDirect(fd, path));
      direct = false;
    } else if (errno != EINTR) {
      return Failed("read", path);
    }
  }
  return done;
}

absl::StatusOr<std::optional<std::string>> PosixFiles::ReadText(const std::string& path) {
  const Fd fd = OpenFd(path, kTextFileFlags);
  if (!fd.valid() && IsOutOfDescriptors(errno)) return Failed("open", path);
  return ReadTextFrom(fd, path);
}

absl::StatusOr<FileStamp> PosixFiles::Stamp(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Failed("look at", path);
  return FileStamp{info.st_ino, info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

absl::StatusOr<uint64_t> PosixFiles::Size(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Failed("look at", path);
  return static_cast<uint64_t>(info.st_size);
}

absl::StatusOr<std::vector<std::string>> PosixFiles::List(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Directory> opened, Open(directory));
  return opened->List();
}

absl::StatusOr<std::unique_ptr<Directory>> PosixFiles::Open(const std::string& directory) {
  Fd fd = OpenFd(directory, O_RDONLY | O_DIRECTORY);
  if (!fd.valid()) return Failed("open", directory);
  auto opened = PosixDirectory::FromFd(std::move(fd), directory);
  if (opened == nullptr) return Failed("list", directory);
  return opened;
}

absl::Status PosixFiles::MakeDirectory(const std::string& directory) {
  const std::string above = std::filesystem::path(directory).parent_path();
  bool made = ::mkdir(directory.c_str(), 0700) == 0;
  if (!made && errno == ENOENT && !above.empty() && above != directory) {
    RETURN_IF_ERROR(MakeDirectory(above));
    // Try only once more: if `above` leads nowhere (/proc, a dangling link), there is never a directory.
    made = ::mkdir(directory.c_str(), 0700) == 0;
  }
  if (made) return SyncDirectory(above.empty() ? "." : above);
  struct stat info {};
  const int error = errno;
  if (error == EEXIST && ::stat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
  errno = error;
  return Failed("make directory", directory);
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
  const Fd fd = OpenFd(directory, O_RDONLY | O_DIRECTORY);
  if (!fd.valid()) return Failed("open", directory);
  return ::fsync(fd.get()) == 0 ? absl::OkStatus() : Failed("sync", directory);
}

}  // namespace cell

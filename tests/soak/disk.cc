// Makes a disk misbehave, with LD_PRELOAD: the soak (soak.py) decides how long a server's calls of the file system
// take, and which of them fail. Every call reads the file that SOAK_DISK names:
//
//   struct { int64_t delay_us; int64_t one_in; int64_t error; int64_t hung; }
//
// A call first waits while `hung` is not 0, and then takes `delay_us`. Then one call in `one_in` fails with `error` (0:
// none fails). The affected calls are those that write logs and checkpoints: pwrite, write to a file, fdatasync, fsync,
// rename, unlink and open with O_CREAT.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr useconds_t kHungLookUs = 5'000;

struct Disk {
  int64_t delay_us, one_in, error, hung;
};

const volatile Disk* Shared() {
  static const volatile Disk* const disk = []() -> const volatile Disk* {
    const char* const path = std::getenv("SOAK_DISK");
    const int fd = path == nullptr ? -1 : ::openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return nullptr;
    void* const at = ::mmap(nullptr, sizeof(Disk), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return at == MAP_FAILED ? nullptr : static_cast<const volatile Disk*>(at);
  }
  ();
  return disk;
}

// Waits for the disk's delay. Returns false, and sets errno, if the call fails.
bool Let() {
  static std::atomic<uint64_t> calls = 0;
  const volatile Disk* const disk = Shared();
  if (disk == nullptr) return true;
  while (disk->hung != 0) ::usleep(kHungLookUs);
  if (const int64_t delay_us = disk->delay_us; delay_us > 0) ::usleep(static_cast<useconds_t>(delay_us));
  const int64_t one_in = disk->one_in;
  if (one_in <= 0 || disk->error == 0 || ++calls % static_cast<uint64_t>(one_in) != 0) return true;
  errno = static_cast<int>(disk->error);
  return false;
}

bool IsFile(int fd) {
  struct stat status;
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

template <typename F>
F* Next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t at) {
  static const auto next = Next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return Let() ? next(fd, bytes, count, at) : -1;
}
ssize_t write(int fd, const void* bytes, size_t count) {
  static const auto next = Next<ssize_t(int, const void*, size_t)>("write");
  return fd <= 2 || !IsFile(fd) || Let() ? next(fd, bytes, count) : -1;
}
int fdatasync(int fd) {
  static const auto next = Next<int(int)>("fdatasync");
  return Let() ? next(fd) : -1;
}
int fsync(int fd) {
  static const auto next = Next<int(int)>("fsync");
  return Let() ? next(fd) : -1;
}
int rename(const char* from, const char* to) {
  static const auto next = Next<int(const char*, const char*)>("rename");
  return Let() ? next(from, to) : -1;
}
int unlink(const char* path) {
  static const auto next = Next<int(const char*)>("unlink");
  return Let() ? next(path) : -1;
}
int open(const char* path, int flags, ...) {
  static const auto next = Next<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return (flags & O_CREAT) == 0 || Let() ? next(path, flags, mode) : -1;
}

}  // extern "C"

#include "cell/io/memory/shm_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Creates a memfd of `bytes` bytes, mapped for writing. Returns null on failure.
std::byte* NewMapping(const char* name, unsigned flags, uint64_t bytes, Fd* fd) {
  *fd = Fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!fd->valid() || ::ftruncate(fd->get(), static_cast<off_t>(bytes)) != 0) return nullptr;
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

}  // namespace

absl::StatusOr<ShmMemory> ShmMemory::Create(const char* name, uint64_t bytes, Sharing sharing, bool huge_pages) {
  ShmMemory memory;
  if (huge_pages) {
    memory.bytes_ = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    memory.base_ = NewMapping(name, MFD_HUGETLB | MFD_HUGE_2MB, memory.bytes_, &memory.fd_);
    memory.huge_ = memory.base_ != nullptr;
  }
  if (memory.base_ == nullptr) {
    memory.bytes_ = (bytes + 4095) / 4096 * 4096;
    memory.base_ = NewMapping(name, 0, memory.bytes_, &memory.fd_);
  }
  if (memory.base_ == nullptr) {
    return ErrnoError(absl::StatusCode::kResourceExhausted,
                      fmt::format("cannot allocate {} bytes of shared memory", bytes));
  }
  const int seals = kSeals | (sharing == Sharing::kReadOnly ? F_SEAL_FUTURE_WRITE : 0);
  if (::fcntl(memory.fd_.get(), F_ADD_SEALS, seals) != 0) {
    return ErrnoError(absl::StatusCode::kInternal, "cannot seal shared memory");
  }
  return memory;
}

absl::StatusOr<ShmMemory> ShmMemory::Map(Fd fd, uint64_t bytes, Sharing sharing) {
  struct stat info;
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (::fstat(fd.get(), &info) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 || info.st_size < 0 ||
      static_cast<uint64_t>(info.st_size) < bytes || bytes == 0) {
    return absl::DataLossError("handshake: shared memory is too small or not sealed");
  }
  ShmMemory memory;
  memory.bytes_ = static_cast<uint64_t>(info.st_size);
  const int protection = PROT_READ | (sharing == Sharing::kReadWrite ? PROT_WRITE : 0);
  void* base = ::mmap(nullptr, memory.bytes_, protection, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoError(absl::StatusCode::kResourceExhausted, "cannot map shared memory");
  memory.base_ = static_cast<std::byte*>(base);
  memory.fd_ = std::move(fd);
  return memory;
}

ShmMemory::~ShmMemory() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

}  // namespace cell

// ShmMemory is shared memory in a memfd: created, sealed and mapped.
//
// It is sealed against shrinking, so that no mapping can ever fault with SIGBUS, whatever the other side does.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cell/io/net/fd.h"

namespace cell {

class ShmMemory {
 public:
  enum class Sharing {
    kReadOnly,   // Only mappings made before the seal can write. Others with the descriptor can only read.
    kReadWrite,  // For rings: both sides write.
  };

  // Creates zeroed memory. With `huge_pages` it is in huge pages if there are enough, and otherwise in ordinary ones.
  static absl::StatusOr<ShmMemory> Create(const char* name, uint64_t bytes, Sharing sharing, bool huge_pages);
  // Maps memory that a peer passed, after checking its size and seals.
  static absl::StatusOr<ShmMemory> Map(Fd fd, uint64_t bytes, Sharing sharing);

  ShmMemory() = default;
  ShmMemory(ShmMemory&& other) noexcept
      : fd_(std::move(other.fd_)),
        base_(std::exchange(other.base_, nullptr)),
        bytes_(other.bytes_),
        huge_(other.huge_) {}
  ShmMemory& operator=(ShmMemory&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(huge_, other.huge_);
    return *this;
  }
  ~ShmMemory();

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  bool huge() const { return huge_; }
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  bool huge_ = false;
};

}  // namespace cell

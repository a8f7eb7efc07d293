// Keeps descriptors for a server's essential work, even if connections take all that there are.
//
//   1. The server raises its limit as far as possible (RaiseDescriptorLimit).
//   2. Listeners keep no connection that leaves less than a share of the limit (LeavesEnough). It is closed at once, so
//      that its client notices.
//   3. Code that opens files for logs has a few descriptors in reserve (DescriptorReserve).
//   4. Connections that have not greeted take at most a share of the limit (GreetingMax). If there is no descriptor
//      left for a new connection, the oldest of them is closed, and the new one gets its number (LowestNumber).
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "cell/io/net/fd.h"

namespace cell {

// Returns how many descriptors this process may have open.
uint64_t DescriptorLimit();

// Raises the limit as far as this process may. Returns the new limit.
uint64_t RaiseDescriptorLimit();

// Returns whether an accepted connection may stay: a quarter of the limit, at most 1,024, is kept for regions and logs.
// The system allocates the lowest free descriptor, so the number of an accepted one says how many are in use.
bool LeavesEnough(const Fd& accepted);

// Returns how many connections that have not greeted a listener may keep: an eighth of the limit, at most 256. So those
// of one listener leave descriptors for connections to another.
size_t GreetingMax();

// Moves an open descriptor to the lowest free number if that is lower.
void LowestNumber(Fd* fd);

// Return whether a call of the system failed because there was no descriptor left, and mark a status accordingly.
// Nothing was done in this case, and the call may be repeated.
bool IsOutOfDescriptors(int error);
bool IsOutOfDescriptors(const absl::Status& status);
void MarkOutOfDescriptors(absl::Status* status);

class DescriptorReserve {
 public:
  explicit DescriptorReserve(size_t descriptors) : wanted_(descriptors) { Refill(); }

  // Returns the result of `open`: a descriptor, or -1 with errno. If it fails because there is no descriptor left,
  // closes one of the reserve and calls it again.
  int Open(const std::function<int()>& open);

 private:
  void Refill();

  const size_t wanted_;
  std::mutex mutex_;
  std::vector<Fd> spare_;  // Guarded by mutex_.
};

}  // namespace cell

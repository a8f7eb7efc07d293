// Descriptors: how a server keeps some for what must go on when connections take all that there are.
//
//   1. It raises its limit to what it may (RaiseDescriptorLimit).
//   2. Listeners take no connection that leaves less than a share of the limit (LeavesEnough): it is closed at once, so
//      that its client hears of it.
//   3. What opens files for logs has a few in reserve (DescriptorReserve), whoever took the rest.
//
//   4. Connections that have not greeted take a share of the limit at most (GreetingMax). When there is no descriptor left
//      for a newcomer, the oldest of them leaves, and the newcomer gets its number (LowestNumber).
//
// Any thread may call everything here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "cell/io/net/fd.h"

namespace cell {

// The most that this process may have open at once.
uint64_t DescriptorLimit();

// Raises the limit as far as this process may. Returns the limit then.
uint64_t RaiseDescriptorLimit();

// Whether a connection that was accepted may stay: a quarter of the limit, at most 1,024, is left for regions and logs.
// Descriptors are given out from the lowest on, so an accepted one's number says how many are in use.
bool LeavesEnough(const Fd& accepted);

// How many connections that have not greeted a listener keeps: an eighth of the limit, at most 256. So those of one
// listener leave descriptors for who comes to another.
size_t GreetingMax();

// Gives an open descriptor the lowest number that is free, if that is lower.
void LowestNumber(Fd* fd);

// Whether a call of the system failed because there was no descriptor left; and a status that says so. Nothing was done
// then, and it may be tried again.
bool IsOutOfDescriptors(int error);
bool IsOutOfDescriptors(const absl::Status& status);
void MarkOutOfDescriptors(absl::Status* status);

class DescriptorReserve {
 public:
  explicit DescriptorReserve(size_t descriptors) : wanted_(descriptors) { Refill(); }

  // What `open` returns, a descriptor or -1 with errno. While it fails for want of a descriptor, one of the reserve is
  // given up and it is called again.
  int Open(const std::function<int()>& open);

 private:
  void Refill();

  const size_t wanted_;
  std::mutex mutex_;
  std::vector<Fd> spare_;  // Guarded by mutex_.
};

}  // namespace cell

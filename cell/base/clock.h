// Clock tells a steady time in nanoseconds, real or simulated. All code that needs the time takes one of these.
#pragma once

#include <cstdint>

namespace cell {

class Clock {
 public:
  virtual ~Clock() = default;
  // Returns the nanoseconds since some moment before this process began. Never goes back. Thread-safe.
  virtual int64_t NowNs() const = 0;
};

}  // namespace cell

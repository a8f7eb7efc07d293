// Defines the log of one client process of the soak (soak.py): what it did and saw, one line each.
//
//   B OPERATION KEY KIND VALUE NS         a write begins
//   E OPERATION EXISTED NS                it was acknowledged
//   F OPERATION                           it failed plainly: it did not happen
//   R KEY KIND VALUE BEGIN_NS END_NS      a read, with its outcome
//   V TEXT                                a violation
//
// A line is passed to the system before anything follows from it, so that the log of a killed process is complete: a
// write without E or F happened at any time after it began, or never. Times are from CLOCK_MONOTONIC, which all
// processes of a machine share; keys are numbers, kinds those of KeyOperation, values identities (ValueIdentity).
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/io/net/fd.h"
#include "fmt/format.h"
#include "tests/simulation/linearizability.h"

namespace cell {

inline constexpr int64_t kAbsent = 0;
inline constexpr size_t kValueBytesMaxOfSoak = size_t{1} << 20;

// Returns the identity of a value in a history, never kAbsent. A mix of values, or a truncated one, has an identity
// that nobody put.
inline int64_t ValueIdentity(std::string_view value) { return static_cast<int64_t>(Crc64(AsBytes(value)) >> 2) + 1; }

// Returns the value with this number, of any size from 0 to `bytes_max`: mostly small ones, and those at the borders
// between inline values, messages and uploads.
inline std::string SoakValue(size_t key, uint64_t number, size_t bytes_max) {
  Random random(Mix64(number + 1) ^ key);
  const uint64_t kind = random.Below(100);
  size_t bytes = 0;
  if (kind < 10) {
    bytes = 0;
  } else if (kind < 25) {
    bytes = 1 + random.Below(16);
  } else if (kind < 70) {
    bytes = 17 + random.Below(300);
  } else if (kind < 80) {
    bytes = 4096 - 40 + random.Below(80);
  } else if (kind < 90) {
    bytes = 300 + random.Below(8 << 10);
  } else if (kind < 97) {
    bytes = random.Below(64 << 10);
  } else {
    bytes = kValueBytesMaxOfSoak - (kind == 99 ? 0 : random.Below(kValueBytesMaxOfSoak));
  }
  std::string value = fmt::format("{} {} ", key, number);
  while (value.size() < std::min(bytes, bytes_max)) {
    const uint64_t word = random.Next();
    value.append(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  value.resize(std::min(bytes, bytes_max));
  return value;
}

class OperationLog {
 public:
  explicit OperationLog(const std::string& path)
      : file_(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_CLOEXEC, 0644)) {
    CELL_CHECK(file_.valid());
  }

  void Begin(uint64_t operation, size_t key, KeyOperation::Kind kind, int64_t value, int64_t ns) {
    Write(fmt::format("B {} {} {} {} {}\n", operation, key, static_cast<int>(kind), value, ns));
  }
  void End(uint64_t operation, bool existed, int64_t ns) {
    Write(fmt::format("E {} {} {}\n", operation, existed ? 1 : 0, ns));
  }
  void Fail(uint64_t operation) { Write(fmt::format("F {}\n", operation)); }
  void Read(size_t key, KeyOperation::Kind kind, int64_t value, int64_t begin_ns, int64_t end_ns) {
    Write(fmt::format("R {} {} {} {} {}\n", key, static_cast<int>(kind), value, begin_ns, end_ns));
  }
  void Violation(std::string text) {
    for (char& c : text) {
      if (c == '\n') c = ' ';
    }
    Write("V " + text + "\n");
  }

 private:
  void Write(const std::string& line) {
    CELL_CHECK_EQ(::write(file_.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }

  const Fd file_;
};

}  // namespace cell

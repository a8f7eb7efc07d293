// Defines the log of one client process of the soak (soak.py): what it did and saw, one line each.
//
//   B OPERATION KEY KIND VALUE NS         a write begins
//   E OPERATION EXISTED NS                it was acknowledged
//   F OPERATION                           it failed plainly: it did not happen
//   R KEY KIND VALUE BEGIN_NS END_NS      a read, with its outcome
//   V TEXT                                a violation
//
// The log of a killed process is complete (LineFile): a write without E or F happened at any time after it began, or
// never. Times are from CLOCK_MONOTONIC, which all processes of a machine share; keys are numbers, kinds those of
// KeyOperation, values identities (ValueIdentity).
#pragma once

#include <cstdint>
#include <string>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "fmt/format.h"
#include "tests/simulation/linearizability.h"
#include "tests/soak/line_file.h"

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

class OperationLog : public LineFile {
 public:
  using LineFile::LineFile;

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
};

}  // namespace cell

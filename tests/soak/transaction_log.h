// Defines the log of one process that uses the soak's keys of transactions: one line for each step.
//
//   C NUMBER NS R KEY VALUE ... W KEY VALUE ...   a transaction commits. It began at NS, has read and will write this.
//   E NUMBER STAMP EXISTED NS                     it has taken effect
//   F NUMBER                                      it has written nothing, and never will
//   S KEY VALUE STAMP                             the pair of this key and value has this stamp
//   V TEXT                                        a violation
//
// A put, a delete or a get of one key is a transaction, too. A value is its identity (ValueIdentity). 0 stands for an
// absent key, and for a delete. STAMP is 0 if the store did not tell it, as for a plain put. EXISTED is whether a plain
// put or delete found a pair, and -1 for a transaction. The log of a killed process is complete (LineFile): what has
// neither E nor F may have taken effect, or may still. Times are from CLOCK_MONOTONIC.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tests/soak/line_file.h"
#include "tests/soak/operation_log.h"

namespace cell {

// A key and the identity of its value.
struct LoggedPair {
  size_t key;
  int64_t value;
};

// Returns the name of a key of transactions. Half of them come before all other keys of the soak, and half after them.
// So they are in several regions as soon as the tree is.
inline std::string TransactionKeyName(size_t key, size_t keys) {
  return fmt::format("{}{:05}", key < keys / 2 ? "a" : "t", key);
}

// Returns the value with this number, which no other put has: unlike SoakValue, it always has its number in it.
inline std::string TransactionValue(size_t key, uint64_t number, size_t bytes_max) {
  constexpr size_t kNumberBytes = 40;  // At most, with the key.
  std::string value = SoakValue(key, number, bytes_max);
  return value.size() < kNumberBytes ? fmt::format("{} {} ", key, number) : value;
}

class TransactionLog : public LineFile {
 public:
  using LineFile::LineFile;

  void Commit(uint64_t number, int64_t begin_ns, const std::vector<LoggedPair>& reads,
              const std::vector<LoggedPair>& writes) {
    std::string line = fmt::format("C {} {} R", number, begin_ns);
    for (const LoggedPair& read : reads) line += fmt::format(" {} {}", read.key, read.value);
    line += " W";
    for (const LoggedPair& write : writes) line += fmt::format(" {} {}", write.key, write.value);
    Write(line + "\n");
  }
  void End(uint64_t number, uint64_t stamp, int existed, int64_t ns) {
    Write(fmt::format("E {} {} {} {}\n", number, stamp, existed, ns));
  }
  void Fail(uint64_t number) { Write(fmt::format("F {}\n", number)); }
  void Stamp(const LoggedPair& pair, uint64_t stamp) {
    Write(fmt::format("S {} {} {}\n", pair.key, pair.value, stamp));
  }
};

}  // namespace cell

// KeysNeeded says by which keys the files in a log store are encrypted, so that no key is removed that one of them
// needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "cell/log/log_store.h"

namespace cell {

struct KeysNeeded {
  struct Files {
    uint64_t count = 0;
    std::string example;  // Name of one of them.
  };
  std::map<std::string, Files> by_key;  // By IdText of the key.
  Files plain;                          // They need no key.
};

// Looks at the first record of each log and checkpoint in the store, while servers may write there. A file without a
// whole first record, which has just been begun, or is damaged, does not count. Blocks. Returns the store's errors.
absl::StatusOr<KeysNeeded> FindKeysNeeded(LogStore* store);

}  // namespace cell

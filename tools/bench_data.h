// Makes the data of benchmarks: keys and values from a number, and the numbers that a workload requests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cell/base/random.h"

namespace cell {

inline constexpr size_t kNumberBytes = 8;  // Bytes that make a key distinct.

// Gives the prefix of keys, and the sizes of keys and values; 0: various sizes.
struct DataShape {
  size_t key_bytes = 0;     // 0: random, 8 to 64 after the prefix. Otherwise includes the prefix.
  size_t value_bytes = 0;   // 0: random, 8 to 256.
  std::string prefix = {};  // Prefix of all keys.
  bool ordered = false;     // Keys ascend with their numbers.
};

// Makes key number i: distinct for distinct i, in random order unless `ordered`. The first 8 bytes after the prefix
// make it distinct.
void MakeKey(uint64_t i, std::string* key, const DataShape& shape = {});
// Makes the value of key i. `version` distinguishes updates.
void MakeValue(uint64_t i, uint64_t version, std::string* value, const DataShape& shape = {});

// Chooses the next key: uniform, or Zipfian with theta 0.99 (Gray et al., SIGMOD 1994, as YCSB uses it), with the hot
// keys scattered over the key space.
class KeyChooser {
 public:
  KeyChooser(uint64_t keys, bool zipfian, uint64_t seed);
  uint64_t Next();
  // Works like Next, but the hot keys are the last ones (YCSB's "latest").
  uint64_t NextLatest(uint64_t keys_now);

 private:
  uint64_t Rank();

  uint64_t keys_;
  bool zipfian_;
  Random random_;
  double zeta_ = 0, alpha_ = 0, eta_ = 0;
};

}  // namespace cell

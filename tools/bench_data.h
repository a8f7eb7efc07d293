// The data that benchmarks run on: keys and values made from a number, and the numbers that a workload asks for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cell/base/random.h"

namespace cell {

inline constexpr size_t kNumberBytes = 8;  // That make a key distinct.

// How keys begin, and how long keys and values are; 0: of many lengths.
struct DataShape {
  size_t key_bytes = 0;     // 8 to 64 after the prefix, random; else with it.
  size_t value_bytes = 0;   // 8 to 256, random.
  std::string prefix = {};  // Of all keys.
};

// Key number i: distinct for distinct i, in random order. The first 8 bytes after the prefix make it distinct.
void MakeKey(uint64_t i, std::string* key, const DataShape& shape = {});
// The value of key i. `version` tells updates apart.
void MakeValue(uint64_t i, uint64_t version, std::string* value, const DataShape& shape = {});

// Which key is next: uniform, or Zipfian with theta 0.99 (Gray et al., SIGMOD 1994, as YCSB uses it), its hot keys
// scattered over the key space.
class KeyChooser {
 public:
  KeyChooser(uint64_t keys, bool zipfian, uint64_t seed);
  uint64_t Next();
  // Like Next, but the hot keys are the last ones (YCSB's "latest").
  uint64_t NextLatest(uint64_t keys_now);

 private:
  uint64_t Rank();

  uint64_t keys_;
  bool zipfian_;
  Random random_;
  double zeta_ = 0, alpha_ = 0, eta_ = 0;
};

}  // namespace cell

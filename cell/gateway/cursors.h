// The cursors of SCAN. Redis's are numbers, and Cell's scans go on from a key: this remembers which key a number means.
// Thread-safe: a client may go on with its scan on another connection.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>

namespace cell::gateway {

class Cursors {
 public:
  // Remembers a key; forgets the oldest one if there are too many. Returns its number, never 0.
  uint64_t Add(std::string key);
  // Returns the key, and keeps it: a client may ask twice. nullopt: it was forgotten, or there was none.
  std::optional<std::string> Find(uint64_t cursor);

 private:
  static constexpr size_t kMost = 100'000;

  std::mutex mutex_;
  std::mt19937_64 random_{std::random_device{}()};
  std::list<uint64_t> oldest_first_;
  std::unordered_map<uint64_t, std::string> keys_;
};

}  // namespace cell::gateway

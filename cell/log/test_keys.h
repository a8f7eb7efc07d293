// Keys for tests of what is encrypted. They are no secrets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cell/log/data_keys.h"

namespace cell {

// Returns another key for each seed.
inline DataKey TestKey(int seed) {
  DataKey key;
  for (size_t i = 0; i < key.key.size(); ++i) key.key[i] = static_cast<std::byte>(static_cast<size_t>(seed) * 31 + i);
  return key;
}

class TestKeys : public KeySource {
 public:
  explicit TestKeys(std::vector<DataKey> keys, bool plain = false)
      : keys_(std::make_shared<const DataKeys>(std::move(keys))), plain_(plain) {}

  std::shared_ptr<const DataKeys> Current() override { return keys_; }
  // Counts, so that a simulation is repeatable.
  std::array<std::byte, 32> NewSalt() override {
    std::array<std::byte, 32> salt{};
    ++salts_;
    std::memcpy(salt.data(), &salts_, sizeof(salts_));
    return salt;
  }
  std::string name() const override { return "the keys"; }
  bool takes_plain() const override { return plain_; }
  std::string about_plain() const override { return "Allow it."; }
  void Set(std::vector<DataKey> keys) { keys_ = std::make_shared<const DataKeys>(std::move(keys)); }

 private:
  std::shared_ptr<const DataKeys> keys_;
  const bool plain_;
  uint64_t salts_ = 0;
};

}  // namespace cell

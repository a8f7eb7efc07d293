#include "tools/bench_data.h"

#include <endian.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cell {
namespace {

constexpr double kTheta = 0.99;

// Resizes text to `from` bytes plus `bytes` random ones.
void Fill(uint64_t seed, size_t from, size_t bytes, std::string* text) {
  text->resize(from + bytes);
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = Mix64(seed + at);
    std::memcpy(text->data() + from + at, &word, std::min<size_t>(8, bytes - at));
  }
}

}  // namespace

void MakeKey(uint64_t i, std::string* key, const DataShape& shape) {
  const uint64_t distinct = shape.ordered ? htobe64(i) : Mix64(i + 1);
  const size_t begins = shape.prefix.size();
  const size_t bytes = shape.key_bytes != 0 ? shape.key_bytes - begins : kNumberBytes + Mix64(distinct) % 57;
  *key = shape.prefix;
  Fill(distinct, begins, bytes, key);
  std::memcpy(key->data() + begins, &distinct, kNumberBytes);
}

void MakeValue(uint64_t i, uint64_t version, std::string* value, const DataShape& shape) {
  Fill(Mix64(i) ^ version, 0, shape.value_bytes != 0 ? shape.value_bytes : 8 + Mix64(i + 77) % 249, value);
}

KeyChooser::KeyChooser(uint64_t keys, bool zipfian, uint64_t seed) : keys_(keys), zipfian_(zipfian), random_(seed) {
  if (!zipfian_) return;
  for (uint64_t i = 1; i <= keys_; ++i) zeta_ += 1 / std::pow(static_cast<double>(i), kTheta);
  const double zeta_2 = 1 + 1 / std::pow(2, kTheta);
  alpha_ = 1 / (1 - kTheta);
  eta_ = (1 - std::pow(2 / static_cast<double>(keys_), 1 - kTheta)) / (1 - zeta_2 / zeta_);
}

uint64_t KeyChooser::Rank() {
  const double u = random_.Unit();
  const double uz = u * zeta_;
  if (uz < 1) return 0;
  if (uz < 1 + std::pow(0.5, kTheta)) return 1;
  const auto rank = static_cast<uint64_t>(static_cast<double>(keys_) * std::pow(eta_ * u - eta_ + 1, alpha_));
  return rank < keys_ ? rank : keys_ - 1;
}

uint64_t KeyChooser::Next() { return zipfian_ ? Mix64(Rank()) % keys_ : random_.Below(keys_); }

uint64_t KeyChooser::NextLatest(uint64_t keys_now) {
  const uint64_t rank = zipfian_ ? Rank() : random_.Below(keys_);
  return keys_now - 1 - rank % keys_now;
}

}  // namespace cell

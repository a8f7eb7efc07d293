#include "cell/base/crc64.h"

#include <isa-l/crc64.h>

namespace cell {

uint64_t Crc64(ConstBytes bytes, uint64_t seed) {
  return crc64_ecma_refl(seed, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace cell

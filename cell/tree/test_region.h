// Holds a small formatted region in private memory.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "cell/base/check.h"
#include "cell/region/region_memory.h"
#include "cell/tree/meganode.h"

namespace cell {

class TestRegion {
 public:
  explicit TestRegion(RegionShape shape = {1024, 4 << 20, 16 << 20}, uint32_t region = 1,
                      const Meganode::Range& range = {})
      : base_(static_cast<std::byte*>(std::aligned_alloc(4096, shape.region_bytes())), std::free),
        memory_(base_.get(), shape.region_bytes()) {
    std::memset(base_.get(), 0, shape.region_bytes());
    const absl::Status status = Meganode::Format(&memory_, region, shape, range);
    if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    CELL_CHECK(status.ok());
  }

  RegionMemory* memory() { return &memory_; }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> base_;
  RegionMemory memory_;
};

}  // namespace cell

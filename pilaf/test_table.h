// Holds a small formatted hash region in private memory.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/region/region_memory.h"
#include "pilaf/hash_table.h"
#include "pilaf/lookup.h"

namespace cell {

class TestTable {
 public:
  explicit TestTable(const RegionShape& shape, uint32_t bucket_bytes = 0, uint32_t region = 1,
                     const HashRange& range = {})
      : base_(static_cast<std::byte*>(std::aligned_alloc(4096, shape.region_bytes())), std::free),
        memory_(base_.get(), shape.region_bytes()) {
    std::memset(base_.get(), 0, shape.region_bytes());
    CELL_CHECK(HashTable::Format(&memory_, region, shape, range, bucket_bytes).ok());
    table_ = HashTable::Open(&memory_);
  }

  RegionMemory* memory() { return &memory_; }
  HashTable* get() { return table_.get(); }
  HashTable* operator->() { return table_.get(); }
  absl::StatusOr<bool> Put(std::string_view key, std::string_view value, Expiry expiry = kNeverExpires) {
    return table_->Put(key, value, Crc64(value, Crc64(key)), {}, expiry);
  }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> base_;
  RegionMemory memory_;
  std::unique_ptr<HashTable> table_;
};

// The result of a lookup that reads a region's memory.
struct LookedUp {
  Lookup::Step step;
  std::string value;
  Expiry expiry;
};
inline LookedUp LookUp(TestTable& table, const std::string& key) {
  const std::unique_ptr<Lookup> lookup = NewLookup(key, HashKey(key), table->geometry());
  for (;;) {
    std::vector<ConstBytes> images;
    for (const Lookup::Read& read : lookup->wants()) images.emplace_back(table.memory()->at(read.offset), read.bytes);
    const Lookup::Step step = lookup->Visit(images);
    if (step != Lookup::Step::kRead) return {step, std::string(lookup->value()), lookup->expiry()};
  }
}

// Returns a shape for `units` slots or buckets, and room for extents.
inline RegionShape ShapeOf(uint32_t units, uint64_t extents_bytes, uint32_t bucket_bytes = 0) {
  const uint64_t unit_bytes = bucket_bytes == 0 ? sizeof(HashSlot) : bucket_bytes;
  return {1024, 4096 + RegionShape::RoundUp(units * unit_bytes, 4096), extents_bytes};
}

}  // namespace cell

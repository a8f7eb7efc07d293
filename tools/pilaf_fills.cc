// Prints how many reads a lookup takes, by the fill of a hash table (thesis, Fig. 3.4): 3-way cuckoo hashing, slots
// read one after the other; linear probing, for comparison; and Pilaf's buckets, by the size of pairs.
#include <cstdlib>
#include <memory>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/region/region_memory.h"
#include "fmt/format.h"
#include "pilaf/bucket.h"
#include "pilaf/bucket_table.h"
#include "pilaf/hash_table.h"

namespace cell {
namespace {

class Table {
 public:
  Table(uint64_t units_bytes, uint64_t extents_bytes, uint32_t bucket_bytes) {
    const RegionShape shape{1024, 4096 + units_bytes, extents_bytes};
    base_.reset(static_cast<std::byte*>(std::calloc(1, shape.region_bytes() + 4096)));
    auto* const aligned = base_.get() + (4096 - reinterpret_cast<uintptr_t>(base_.get()) % 4096);
    memory_ = RegionMemory(aligned, shape.region_bytes());
    CELL_CHECK(HashTable::Format(&memory_, 1, shape, {}, bucket_bytes).ok());
    table_ = HashTable::Open(&memory_);
  }
  HashTable* operator->() { return table_.get(); }
  // Returns false if the table is full.
  bool FillTo(double fill, size_t pair_bytes) {
    for (; table_->unit_fill() < fill; ++keys_) {
      const std::string key = fmt::format("{:012}", keys_);
      const std::string value(pair_bytes - key.size(), 'v');
      if (!table_->Put(key, value, Crc64(value, Crc64(key))).ok()) return false;
    }
    return true;
  }
  // Returns the mean number of sequential reads of slots or buckets for a stored key.
  double Reads() const {
    const std::array<uint64_t, kProbes> keys = table_->KeysByProbe();
    return static_cast<double>(keys[0] + 2 * keys[1] + 3 * keys[2]) / static_cast<double>(table_->keys());
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte[], Free> base_;
  RegionMemory memory_;
  std::unique_ptr<HashTable> table_;
  uint64_t keys_ = 0;
};

// Holds keys in as many slots as the cuckoo table has. Computes the mean and maximum number of slots that a lookup of a
// stored key reads.
struct LinearProbing {
  explicit LinearProbing(uint32_t slots) : used(slots) {}
  void FillTo(double fill) {
    for (; static_cast<double>(keys) < fill * static_cast<double>(used.size()); ++keys) {
      size_t at = SlotOf(HashKey(fmt::format("{:012}", keys)).probes[0], static_cast<uint32_t>(used.size()));
      uint64_t looked = 1;
      for (; used[at]; at = (at + 1) % used.size()) ++looked;
      used[at] = true;
      probes += looked;
      most = std::max(most, looked);
    }
  }
  std::vector<bool> used;
  uint64_t keys = 0, probes = 0, most = 0;
};

void Run() {
  Table cuckoo(uint64_t{32} << 20, uint64_t{64} << 20, 0);
  LinearProbing linear(cuckoo->geometry().units);
  std::vector<std::unique_ptr<Table>> buckets;
  const size_t pairs[] = {16, 32, 64};
  const uint32_t sizes[] = {1024, 2048};
  for (const uint32_t bytes : sizes) {
    for (size_t i = 0; i < std::size(pairs); ++i) {
      buckets.push_back(std::make_unique<Table>(uint64_t{32} << 20, 4096, bytes));
    }
  }
  fmt::print(
      "Reads for a stored key: {} slots, and buckets in as many bytes. Buckets accept no new keys above {:.0f} %.\n\n",
      linear.used.size(), 100 * BucketTable::kFillMax);
  fmt::print("| full | 3-way cuckoo: mean | longest chain | linear probing: mean | most |");
  for (const uint32_t bytes : sizes) {
    for (const size_t pair : pairs) fmt::print(" buckets of {} B, pairs of {} |", bytes, pair);
  }
  fmt::print("\n|---|---|---|---|---|");
  for (size_t i = 0; i < buckets.size(); ++i) fmt::print("---|");
  fmt::print("\n");
  bool has_room = true;
  for (const double fill : {0.1, 0.25, 0.5, 0.6, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98}) {
    if (has_room) has_room = cuckoo.FillTo(fill, 12);
    linear.FillTo(fill);
    fmt::print(
        "| {:.0f} % | {} | {} | {:.2f} | {} |", 100 * fill,
        has_room ? fmt::format("{:.2f}", cuckoo.Reads()) : fmt::format("full at {:.1f} %", 100 * cuckoo->unit_fill()),
        cuckoo->counters().longest_chain, static_cast<double>(linear.probes) / static_cast<double>(linear.keys),
        linear.most);
    for (size_t i = 0; i < buckets.size(); ++i) {
      const bool fits = buckets[i]->FillTo(fill, pairs[i % std::size(pairs)]);
      fmt::print(" {} |", fits ? fmt::format("{:.3f}", buckets[i]->Reads())
                               : fmt::format("full at {:.1f} %", 100 * (*buckets[i])->unit_fill()));
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace cell

int main() { cell::Run(); }

#include "cell/region/extent_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "cell/base/random.h"

namespace cell {
namespace {

// A region that has extents alone.
class Extents {
 public:
  explicit Extents(uint64_t bytes) : words_((kRegionHeaderBytes + bytes) / sizeof(uint64_t)) {
    RegionHeader& header = memory_.header();
    header.extents_offset = kRegionHeaderBytes;
    header.extents_bytes = bytes;
    ExtentAllocator(&memory_).Format();
  }
  RegionMemory* memory() { return &memory_; }

 private:
  std::vector<uint64_t> words_;
  RegionMemory memory_{reinterpret_cast<std::byte*>(words_.data()), words_.size() * sizeof(uint64_t)};
};

TEST(ExtentAllocator, BlocksNeverOverlapAndAllMemoryComesBack) {
  Extents region(1 << 20);
  ExtentAllocator allocator(region.memory());
  Random random(7);
  std::map<uint64_t, uint64_t> used;
  int refused = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (random.Below(100) < 55) {
      const uint64_t bytes = 1 + (random.Below(10) == 0 ? random.Below(40'000) : random.Below(400));
      const std::optional<uint64_t> offset = allocator.Allocate(bytes);
      if (!offset.has_value()) {
        ++refused;
        continue;
      }
      ASSERT_EQ(*offset % 8, 0u);
      const auto next = used.lower_bound(*offset);
      if (next != used.end()) {
        ASSERT_LE(*offset + bytes, next->first);
      }
      if (next != used.begin()) {
        ASSERT_GE(*offset, std::prev(next)->first + std::prev(next)->second);
      }
      used[*offset] = bytes;
    } else if (!used.empty()) {
      auto it = used.lower_bound(region.memory()->header().extents_offset + random.Below(1 << 20));
      if (it == used.end()) it = used.begin();
      allocator.Free(it->first);
      used.erase(it);
    }
    if (i % 10'000 == 0) {
      size_t walked = 0;
      const absl::Status status = allocator.Walk([&](uint64_t offset, uint64_t room) {
        ++walked;
        ASSERT_TRUE(used.contains(offset));
        ASSERT_GE(room, used[offset]);
      });
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(walked, used.size());
    }
  }
  EXPECT_GT(refused, 0) << "the area was never full: the test is too easy";
  for (const auto& [offset, bytes] : used) allocator.Free(offset);
  const ExtentAllocator::Usage usage = allocator.usage();
  EXPECT_EQ(usage.bytes_used, 0u);
  EXPECT_EQ(usage.largest_free_bytes, uint64_t{1} << 20);
  EXPECT_EQ(usage.fragmentation(), 0);
}

TEST(ExtentAllocator, RefusesWhatCanNeverFit) {
  Extents region(4096);
  ExtentAllocator allocator(region.memory());
  EXPECT_FALSE(allocator.Allocate(4096).has_value());  // The header takes 8 bytes.
  EXPECT_FALSE(allocator.Allocate(~uint64_t{0} / 2).has_value());
  EXPECT_TRUE(allocator.Allocate(2000).has_value());
}

// Nothing is read or written outside of the region, and the process goes on.
TEST(ExtentAllocator, DamagedMemoryIsNotFollowed) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Extents region(16 << 10);
    ExtentAllocator allocator(region.memory());
    Random random(seed);
    std::vector<uint64_t> used;
    const auto work = [&] {
      for (int i = 0; i < 100; ++i) {
        if (used.empty() || random.Below(2) == 0) {
          const std::optional<uint64_t> offset = allocator.Allocate(1 + random.Below(300));
          if (!offset.has_value()) continue;
          EXPECT_GE(*offset, kRegionHeaderBytes);
          EXPECT_LT(*offset, kRegionHeaderBytes + (16 << 10));
          used.push_back(*offset);
        } else {
          const size_t which = random.Below(used.size());
          allocator.PrefetchNeighbours(used[which]);
          allocator.Free(used[which]);
          used.erase(used.begin() + static_cast<ptrdiff_t>(which));
        }
      }
    };
    work();
    for (int i = 0; i < 40; ++i) {
      const bool in_header = random.Below(4) == 0;
      const uint64_t at = in_header ? offsetof(RegionHeader, extents) + 8 * random.Below(230)
                                    : kRegionHeaderBytes + 8 * random.Below(2 << 10);
      region.memory()->StoreWord(at, random.Below(2) == 0 ? ~uint64_t{0} : random.Below(UINT64_MAX));
    }
    work();
    (void)allocator.usage();
    found += allocator.damaged();
  }
  EXPECT_GT(found, 1000) << "the test is too easy";
}

TEST(ExtentAllocator, AWrongOffsetIsNotFreed) {
  constexpr uint64_t kInsideTheBlock = kRegionHeaderBytes + 16;
  for (const uint64_t wrong :
       {uint64_t{0}, kRegionHeaderBytes + uint64_t{1}, kInsideTheBlock, uint64_t{1} << 39, ~uint64_t{0} - 7}) {
    Extents region(4096);
    ExtentAllocator allocator(region.memory());
    ASSERT_TRUE(allocator.Allocate(100).has_value());
    allocator.Free(wrong);
    allocator.PrefetchNeighbours(wrong);
    EXPECT_TRUE(allocator.damaged());
    EXPECT_EQ(allocator.usage().blocks, 1u);
    EXPECT_FALSE(allocator.Allocate(100).has_value());
  }
}

TEST(ExtentAllocator, ABlockThatIsFreedTwiceIsNoticed) {
  Extents region(4096);
  ExtentAllocator allocator(region.memory());
  const uint64_t first = *allocator.Allocate(100);
  ASSERT_TRUE(allocator.Allocate(100).has_value());
  allocator.Free(first);
  EXPECT_FALSE(allocator.damaged());
  allocator.Free(first);
  EXPECT_TRUE(allocator.damaged());
  EXPECT_EQ(allocator.usage().blocks, 1u);
}

// Otherwise the block would be merged with another one than its neighbour, and what is between them would be given out.
TEST(ExtentAllocator, ABlockThatIsWrongAboutItsLeftNeighbourIsNotFreed) {
  Extents region(4096);
  ExtentAllocator allocator(region.memory());
  const uint64_t first = *allocator.Allocate(100);
  const uint64_t second = *allocator.Allocate(100);
  const uint64_t third = *allocator.Allocate(100);
  ASSERT_TRUE(allocator.Allocate(100).has_value());
  allocator.Free(first);
  // The high half of a block's word says how far to the left the neighbour begins. Now that leads to the first block.
  const uint64_t word = LoadWord(region.memory()->at(third - 8));
  ASSERT_EQ(word >> 32, (third - second) / 16);
  region.memory()->StoreWord(third - 8, word + (word >> 32 << 32));
  allocator.Free(third);
  EXPECT_TRUE(allocator.damaged());
  EXPECT_EQ(allocator.usage().blocks, 3u);
}

TEST(ExtentAllocatorWalk, ReportsADamagedBlock) {
  Extents region(1 << 20);
  ExtentAllocator allocator(region.memory());
  const uint64_t first = *allocator.Allocate(100);
  (void)allocator.Allocate(100);
  region.memory()->StoreWord(first - 8, 3);
  EXPECT_EQ(allocator.Walk([](uint64_t, uint64_t) {}).code(), absl::StatusCode::kDataLoss);
}

// Searches and other calls alternate in any order.
TEST(ExtentAllocator, AnExtentOutsideOfAWindowIsFreeSpaceThere) {
  constexpr uint64_t kBytes = 256 << 10;  // So much that there are blocks left to be collected for a while.
  int found = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Extents region(kBytes);
    ExtentAllocator allocator(region.memory());
    Random random(seed);
    std::map<uint64_t, uint64_t> used;
    ExtentAllocator::Window window;
    bool searching = false, collected = false;
    const auto add = [&](uint64_t offset, uint64_t bytes) {
      const auto next = used.lower_bound(offset);
      ASSERT_TRUE(next == used.end() || offset + bytes < next->first);
      ASSERT_TRUE(next == used.begin() || std::prev(next)->first + std::prev(next)->second < offset);
      used[offset] = bytes;
    };
    for (int i = 0; i < 4000; ++i) {
      const uint64_t bytes = 1 + (random.Below(10) == 0 ? random.Below(4000) : random.Below(200));
      switch (random.Below(8)) {
        case 0:
        case 1:
          if (const std::optional<uint64_t> offset = allocator.Allocate(bytes)) add(*offset, bytes);
          break;
        case 2:
        case 3:
        case 4: {
          auto it = used.lower_bound(kRegionHeaderBytes + random.Below(kBytes));
          if (it == used.end()) break;
          allocator.Free(it->first);
          used.erase(it);
          break;
        }
        case 5:
          if (random.Below(100) == 0) {
            const ExtentAllocator::Window piece = allocator.LargestFree();
            if (piece.end == 0) break;
            window = {piece.begin, std::min(piece.begin + 8000, kRegionHeaderBytes + kBytes)};
            allocator.BeginSearch(window);
            collected = false;
            searching = true;
          }
          break;
        default:
          if (!searching) break;
          if (!collected) collected = allocator.Collect();
          if (const std::optional<uint64_t> offset = allocator.AllocateOutside(bytes)) {
            ++found;
            ASSERT_FALSE(window.Has(*offset, bytes)) << *offset;
            add(*offset, bytes);
          }
      }
      if (i % 100 != 0) continue;
      size_t walked = 0;
      const absl::Status status = allocator.Walk([&](uint64_t offset, uint64_t room) {
        ++walked;
        ASSERT_TRUE(used.contains(offset) && room >= used[offset]);
      });
      ASSERT_TRUE(status.ok() && walked == used.size() && !allocator.damaged()) << status;
    }
  }
  EXPECT_GT(found, 1000) << "the test is too easy";
}

// Blocks are merged where Collect goes on, whatever their number is that it looks at in one call.
TEST(ExtentAllocator, CollectGoesOnAtABlock) {
  for (size_t at = 1; at < 600; ++at) {
    Extents region(64 << 10);
    ExtentAllocator allocator(region.memory());
    std::vector<uint64_t> used(601);
    for (uint64_t& offset : used) offset = *allocator.Allocate(24);
    allocator.BeginSearch({});
    ASSERT_FALSE(allocator.Collect());
    allocator.Free(used[at]);
    allocator.Free(used[at - 1]);
    while (!allocator.Collect()) {
    }
    const std::optional<uint64_t> offset = allocator.AllocateOutside(24);
    ASSERT_TRUE(offset.has_value() && *offset == used[at - 1] && !allocator.damaged()) << at;
  }
}

// Allocate finds room as long as one free block is as large as PieceFor says.
TEST(ExtentAllocator, APieceForAnExtentFitsIt) {
  for (uint64_t bytes = 1; bytes < 20'000; bytes += 1 + bytes / 50) {
    const uint64_t piece = ExtentAllocator::PieceFor(bytes);
    Extents region(64 << 10);
    ExtentAllocator allocator(region.memory());
    ASSERT_TRUE(allocator.Allocate((64 << 10) - piece - 8).has_value());
    ASSERT_EQ(allocator.LargestFree().end - allocator.LargestFree().begin, piece);
    EXPECT_TRUE(allocator.Fits(bytes)) << bytes;
    EXPECT_TRUE(allocator.Allocate(bytes).has_value()) << bytes;
  }
}

TEST(ExtentAllocator, FitsSaysWhetherAllocateFindsRoom) {
  Extents region(64 << 10);
  ExtentAllocator allocator(region.memory());
  Random random(3);
  std::vector<uint64_t> used;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (random.Below(100) < 55 || used.empty()) {
      const uint64_t bytes = 1 + random.Below(1000);
      const bool fits = allocator.Fits(bytes);
      const std::optional<uint64_t> offset = allocator.Allocate(bytes);
      ASSERT_EQ(fits, offset.has_value());
      if (offset.has_value()) used.push_back(*offset);
      refused += !fits;
    } else {
      const size_t which = random.Below(used.size());
      allocator.Free(used[which]);
      used.erase(used.begin() + static_cast<ptrdiff_t>(which));
    }
  }
  EXPECT_GT(refused, 100) << "the test is too easy";
}

TEST(ExtentAllocator, ASearchInDamagedMemoryEnds) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Extents region(16 << 10);
    ExtentAllocator allocator(region.memory());
    Random random(seed);
    std::vector<uint64_t> used;
    for (int i = 0; i < 60; ++i) {
      if (const std::optional<uint64_t> offset = allocator.Allocate(1 + random.Below(200))) used.push_back(*offset);
    }
    for (size_t i = 0; i < used.size(); i += 2) allocator.Free(used[i]);
    const ExtentAllocator::Window piece = allocator.LargestFree();
    allocator.BeginSearch({piece.begin, piece.begin + 1000});
    for (int i = 0; i < 40; ++i) {
      region.memory()->StoreWord(kRegionHeaderBytes + 16 * random.Below(1 << 10),
                                 random.Below(2) == 0 ? ~uint64_t{0} : random.Below(UINT64_MAX));
    }
    for (int i = 0; i < 100 && !allocator.Collect(); ++i) {
    }
    for (int i = 0; i < 20; ++i) {
      const std::optional<uint64_t> offset = allocator.AllocateOutside(1 + random.Below(200));
      if (!offset.has_value()) continue;
      EXPECT_GE(*offset, kRegionHeaderBytes);
      EXPECT_LT(*offset, kRegionHeaderBytes + (16 << 10));
    }
    found += allocator.damaged();
  }
  EXPECT_GT(found, 300) << "the test is too easy";
}

}  // namespace
}  // namespace cell

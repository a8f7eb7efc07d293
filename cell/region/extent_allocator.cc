#include "cell/region/extent_allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "cell/base/check.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint64_t kBlockHeaderBytes = 8;
constexpr uint32_t kFreeBit = 1u << 31;
constexpr int kBlocksPerStep = 256;  // Of Collect. Each may be a cache miss.

struct Class {
  int group;
  int index;
};

// Returns the class of a size. Sizes below 16 units have a class each. For larger sizes there are 16 classes for each
// power of two.
Class ClassOf(uint32_t units) {
  if (units < kExtentClasses) return {0, static_cast<int>(units)};
  const int top = std::bit_width(units) - 1;
  return {top - kExtentClassBits + 1, static_cast<int>(units >> (top - kExtentClassBits)) & (kExtentClasses - 1)};
}

}  // namespace

// Returns the region offset of a block's word. Blocks are numbered in units from one unit before the area, so that 0 is
// no block.
uint64_t ExtentAllocator::WordOffset(uint32_t at, int word) const {
  return area_ + (uint64_t{at} - 1) * kUnitBytes + static_cast<uint64_t>(word) * kWordBytes;
}

ExtentAllocator::Block ExtentAllocator::Get(uint32_t at) const {
  const uint64_t word = LoadWord(memory_->at(WordOffset(at, 0)), std::memory_order_relaxed);
  const auto units = static_cast<uint32_t>(word);
  return {units & ~kFreeBit, static_cast<uint32_t>(word >> 32), (units & kFreeBit) != 0};
}

void ExtentAllocator::Set(uint32_t at, Block block) {
  memory_->StoreWord(WordOffset(at, 0), uint64_t{block.left_units} << 32 | block.units | (block.free ? kFreeBit : 0));
}

void ExtentAllocator::Format() {
  CELL_CHECK_LE(memory_->header().extents_bytes, kExtentsBytesMax);
  search_.reset();
  state() = {};
  if (total_units() == 0) return;
  Set(1, {total_units(), 0, true});
  Link(1, total_units());
}

// Returns the next (low half) and the previous block of a free block's list.
uint64_t ExtentAllocator::Links(uint32_t at) const {
  return LoadWord(memory_->at(WordOffset(at, 1)), std::memory_order_relaxed);
}

bool ExtentAllocator::CanUnlink(uint32_t at, Block block) const {
  const uint64_t links = Links(at);
  const auto next = static_cast<uint32_t>(links);
  const auto previous = static_cast<uint32_t>(links >> 32);
  if (!block.free || next > total_units_ || previous > total_units_ || !CanLink(block.units)) return false;
  if (next != 0 && Links(next) >> 32 != at) return false;
  const Class c = ClassOf(block.units);
  return at == (previous != 0 ? static_cast<uint32_t>(Links(previous)) : state().first_free[c.group][c.index]);
}

bool ExtentAllocator::CanLink(uint32_t units) const {
  const Class c = ClassOf(units);
  return state().first_free[c.group][c.index] <= total_units_;
}

// Adds a block to its free list.
void ExtentAllocator::Link(uint32_t at, uint32_t units) {
  if (search_ != nullptr) [[unlikely]]
    Collect(at, units);
  const Class c = ClassOf(units);
  uint32_t& first = state().first_free[c.group][c.index];
  memory_->StoreWord(WordOffset(at, 1), first);
  if (first != 0) {
    const uint64_t links = Links(first);
    memory_->StoreWord(WordOffset(first, 1), (links & 0xffffffffu) | uint64_t{at} << 32);
  }
  first = at;
  state().group_bitmap |= 1u << c.group;
  state().class_bitmap[c.group] |= 1u << c.index;
}

void ExtentAllocator::Unlink(uint32_t at, uint32_t units) {
  if (search_ != nullptr) [[unlikely]]
    search_->free.erase({units, at});
  const Class c = ClassOf(units);
  const uint64_t links = Links(at);
  const auto next = static_cast<uint32_t>(links);
  const auto previous = static_cast<uint32_t>(links >> 32);
  if (next != 0) {
    const uint64_t its = Links(next);
    memory_->StoreWord(WordOffset(next, 1), (its & 0xffffffffu) | uint64_t{previous} << 32);
  }
  if (previous != 0) {
    const uint64_t its = Links(previous);
    memory_->StoreWord(WordOffset(previous, 1), (its & ~uint64_t{0xffffffffu}) | next);
    return;
  }
  state().first_free[c.group][c.index] = next;
  if (next != 0) return;
  state().class_bitmap[c.group] &= ~(1u << c.index);
  if (state().class_bitmap[c.group] == 0) state().group_bitmap &= ~(1u << c.group);
}

std::optional<uint32_t> ExtentAllocator::FindFree(uint32_t units) const {
  // Try the first block of the size's own class: a freed size is often requested again.
  const Class own = ClassOf(units);
  if (const uint32_t first = state().first_free[own.group][own.index];
      first != 0 && (!InArea(first) || Get(first).units >= units)) {
    return first;
  }
  // Round up to a class in which every block is large enough.
  uint64_t rounded = units;
  if (units >= kExtentClasses) rounded += (uint64_t{1} << (std::bit_width(units) - 1 - kExtentClassBits)) - 1;
  if (rounded >= kFreeBit) return std::nullopt;
  const Class c = ClassOf(static_cast<uint32_t>(rounded));
  int group = c.group;
  uint32_t classes = state().class_bitmap[group] & (~0u << c.index);
  if (classes == 0) {
    const uint32_t groups = state().group_bitmap & static_cast<uint32_t>(~uint64_t{0} << (group + 1));
    if (groups == 0) return std::nullopt;
    group = std::countr_zero(groups);
    if (group < kExtentGroups) classes = state().class_bitmap[group];
  }
  if (classes == 0 || classes >> kExtentClasses != 0) return 0;  // No block: memory was damaged.
  return state().first_free[group][std::countr_zero(classes)];
}

uint64_t ExtentAllocator::UnitsFor(uint64_t bytes) { return (bytes + kBlockHeaderBytes + kUnitBytes - 1) / kUnitBytes; }

std::optional<uint64_t> ExtentAllocator::Allocate(uint64_t bytes) {
  CELL_CHECK_GT(bytes, 0);
  if (damaged_ || bytes > total_units_ * kUnitBytes) return std::nullopt;
  const auto units = static_cast<uint32_t>(UnitsFor(bytes));
  const std::optional<uint32_t> found = FindFree(units);
  return found.has_value() ? Take(*found, units) : std::nullopt;
}

bool ExtentAllocator::Fits(uint64_t bytes) const {
  return !damaged_ && bytes <= total_units_ * kUnitBytes &&
         FindFree(static_cast<uint32_t>(UnitsFor(bytes))).has_value();
}

// A search looks at the first block of the size's own class, and then at larger classes only.
uint64_t ExtentAllocator::PieceFor(uint64_t bytes) {
  const uint64_t units = UnitsFor(bytes);
  return (units + (units < kExtentClasses ? 0 : units >> kExtentClassBits)) * kUnitBytes;
}

bool ExtentAllocator::Window::Has(uint64_t offset, uint64_t bytes) const {
  return offset - kBlockHeaderBytes < end && offset + bytes > begin;
}

ExtentAllocator::Window ExtentAllocator::LargestFree() const {
  const uint32_t at = FindLargest();
  if (!InArea(at)) return {};
  const uint64_t begin = WordOffset(at, 0);
  return {begin, begin + Get(at).units * kUnitBytes};
}

void ExtentAllocator::BeginSearch(const Window& window) {
  search_ = std::make_unique<Search>();
  search_->window = window;
}

// Adds a free block, if it is outside of the window.
void ExtentAllocator::Collect(uint32_t at, uint32_t units) {
  const uint64_t begin = WordOffset(at, 0);
  const Window& window = search_->window;
  if (begin >= window.end || begin + units * kUnitBytes <= window.begin) search_->free.emplace(units, at);
}

bool ExtentAllocator::Collect() {
  uint32_t& next = search_->next;
  for (int i = 0; i < kBlocksPerStep && next <= total_units_ && !damaged_; ++i) {
    const Block block = Get(next);
    if (!Sound(next, block)) [[unlikely]] {
      damaged_ = true;
      break;
    }
    if (block.free) Collect(next, block.units);
    next += block.units;
  }
  return next > total_units_ || damaged_;
}

std::optional<uint64_t> ExtentAllocator::AllocateOutside(uint64_t bytes) {
  CELL_CHECK_GT(bytes, 0);
  if (damaged_ || search_ == nullptr || bytes > total_units_ * kUnitBytes) return std::nullopt;
  const auto units = static_cast<uint32_t>(UnitsFor(bytes));
  const auto found = search_->free.lower_bound({units, 0});
  return found != search_->free.end() ? Take(found->second, units) : std::nullopt;
}

std::optional<uint64_t> ExtentAllocator::Take(uint32_t at, uint32_t units) {
  const Block block = InArea(at) ? Get(at) : Block{};
  const bool sound = Sound(at, block) && block.units >= units && CanUnlink(at, block) &&
                     (block.units == units || CanLink(block.units - units));
  if (!sound) [[unlikely]] {
    damaged_ = true;
    return std::nullopt;
  }
  Unlink(at, block.units);
  Set(at, {units, block.left_units, false});
  if (const uint32_t rest = block.units - units; rest != 0) {
    Set(at + units, {rest, units, true});
    Link(at + units, rest);
    if (const uint32_t right = at + block.units; right <= total_units()) {
      const Block neighbour = Get(right);
      Set(right, {neighbour.units, rest, neighbour.free});
    }
  }
  ++state().blocks;
  state().bytes_used += units * kUnitBytes;
  return WordOffset(at, 1);
}

void ExtentAllocator::PrefetchFree(uint64_t offset, uint64_t bytes) const {
  const uint64_t header = offset - kBlockHeaderBytes;
  const uint64_t right = header + UnitsFor(bytes) * kUnitBytes;
  Prefetch(memory_->at(header), kUnitBytes);
  Prefetch(memory_->at(right), kUnitBytes);
}

void ExtentAllocator::PrefetchNeighbours(uint64_t offset) const {
  const uint64_t place = (offset - kBlockHeaderBytes - area_) / kUnitBytes + 1;
  if (!InArea(place)) return;  // Memory was damaged.
  const auto at = static_cast<uint32_t>(place);
  const auto prefetch = [this](uint32_t block) { Prefetch(memory_->at(WordOffset(block, 0)), kUnitBytes); };
  const Block block = Get(at);
  if (block.left_units != 0) prefetch(at - block.left_units);
  const uint32_t right = at + block.units;
  if (!InArea(right) || !Get(right).free) return;
  const uint64_t links = Links(right);
  if (const auto next = static_cast<uint32_t>(links); next != 0) prefetch(next);
  if (const auto previous = static_cast<uint32_t>(links >> 32); previous != 0) prefetch(previous);
}

std::optional<uint64_t> ExtentAllocator::Store(std::string_view key, std::string_view value, std::string_view end) {
  const size_t bytes = key.size() + value.size() + end.size();
  const std::optional<uint64_t> offset = Allocate(bytes);
  if (!offset.has_value()) return std::nullopt;
  // Store whole words, some of which hold parts of two of the three. Zeros pad the last one.
  std::array<std::string_view, 3> left = {key, value, end};
  size_t done = 0;
  while (done < bytes) {
    alignas(8) std::array<std::byte, 64> line{};
    const size_t step = std::min(line.size() - (*offset + done) % line.size(), bytes - done);
    size_t filled = 0;
    for (std::string_view& part : left) {
      const size_t taken = std::min(step - filled, part.size());
      if (taken > 0) std::memcpy(line.data() + filled, part.data(), taken);
      part.remove_prefix(taken);
      filled += taken;
    }
    memory_->Store(*offset + done, line.data(), RegionShape::RoundUp(step, kWordBytes));
    done += step;
  }
  return offset;
}

void ExtentAllocator::Free(uint64_t offset) {
  if (damaged_) return;
  const uint64_t first = area_ + kBlockHeaderBytes;
  const uint64_t place = (offset - first) / kUnitBytes + 1;
  const bool extent = offset >= first && (offset - first) % kUnitBytes == 0 && InArea(place);
  auto at = static_cast<uint32_t>(place);
  Block block = extent ? Get(at) : Block{};
  // Look at everything that will be followed before anything is changed.
  bool sound = extent && Sound(at, block) && !block.free;
  const uint32_t right = at + block.units;
  Block right_block{};
  if (sound && right <= total_units()) {
    right_block = Get(right);
    sound = Sound(right, right_block) && (!right_block.free || CanUnlink(right, right_block));
  }
  const uint32_t left = at - block.left_units;
  Block left_block{};
  if (sound && block.left_units != 0) {
    left_block = Get(left);
    sound = Sound(left, left_block) && left_block.units == block.left_units &&
            (!left_block.free || CanUnlink(left, left_block));
  }
  const uint32_t together =
      block.units + (right_block.free ? right_block.units : 0) + (left_block.free ? left_block.units : 0);
  if (!sound || !CanLink(together)) [[unlikely]] {
    damaged_ = true;
    return;
  }
  if (memory_->zero_freed()) memory_->Zero(WordOffset(at, 1), block.units * kUnitBytes - kBlockHeaderBytes);
  --state().blocks;
  state().bytes_used -= block.units * kUnitBytes;
  if (right_block.free) Unlink(right, right_block.units);
  if (left_block.free) {
    Unlink(left, left_block.units);
    at = left;
    block.left_units = left_block.left_units;
  }
  block.units = together;
  if (search_ != nullptr && search_->next > at && search_->next - at < together) {
    search_->next = at;  // No block begins there any more.
  }
  Set(at, {block.units, block.left_units, true});
  if (const uint32_t next = at + block.units; next <= total_units()) {
    const Block neighbour = Get(next);
    Set(next, {neighbour.units, block.units, neighbour.free});
  }
  Link(at, block.units);
}

double ExtentAllocator::Usage::fragmentation() const {
  const uint64_t free = bytes_total - bytes_used;
  return free == 0 ? 0 : 1 - static_cast<double>(largest_free_bytes) / static_cast<double>(free);
}

ExtentAllocator::Usage ExtentAllocator::usage() const {
  Usage usage{state().blocks, state().bytes_used, memory_->header().extents_bytes, 0};
  if (const uint32_t at = FindLargest(); InArea(at)) usage.largest_free_bytes = Get(at).units * kUnitBytes;
  return usage;
}

// Returns the largest of the first free blocks of the highest class. Returns 0 if nothing is free. A class has blocks
// whose sizes differ by a sixteenth at most.
uint32_t ExtentAllocator::FindLargest() const {
  const int group = std::bit_width(state().group_bitmap) - 1;
  if (group < 0 || group >= kExtentGroups || state().class_bitmap[group] == 0) return 0;
  const int index = std::min(static_cast<int>(std::bit_width(state().class_bitmap[group])), kExtentClasses) - 1;
  uint32_t largest = 0;
  uint32_t at = state().first_free[group][index];
  for (int i = 0; i < 16 && InArea(at) && Sound(at, Get(at)); ++i) {
    if (largest == 0 || Get(at).units > Get(largest).units) largest = at;
    at = static_cast<uint32_t>(Links(at));
  }
  return largest;
}

std::optional<uint64_t> ExtentAllocator::RoomOf(uint64_t offset) const {
  const uint64_t first = area_ + kBlockHeaderBytes;
  const uint64_t place = (offset - first) / kUnitBytes + 1;
  if (offset < first || (offset - first) % kUnitBytes != 0 || !InArea(place)) return std::nullopt;
  const Block block = Get(static_cast<uint32_t>(place));
  if (block.free || !Sound(place, block)) return std::nullopt;
  return block.units * kUnitBytes - kBlockHeaderBytes;
}

absl::Status ExtentAllocator::Walk(const Visit& visit) const {
  WalkState state;
  return WalkSome(&state, SIZE_MAX, visit).status();
}

absl::StatusOr<bool> ExtentAllocator::WalkSome(WalkState* walk, size_t blocks, const Visit& visit) const {
  for (; walk->at <= total_units(); --blocks) {
    if (blocks == 0) return false;
    const auto at = static_cast<uint32_t>(walk->at);
    const Block block = Get(at);
    const auto where = [&] { return fmt::format("extent block at {:#x}", WordOffset(at, 0)); };
    if (block.units == 0 || walk->at + block.units > uint64_t{total_units()} + 1) {
      return absl::DataLossError(fmt::format("{}: its size of {} units exceeds the area", where(), block.units));
    }
    if (block.left_units != walk->left_units) {
      return absl::DataLossError(fmt::format("{}: it says that {} units are to its left, but there are {}", where(),
                                             block.left_units, walk->left_units));
    }
    if (block.free && walk->left_free) {
      return absl::DataLossError(fmt::format("{}: it is next to a free block", where()));
    }
    if (block.free) {
      walk->free_blocks.insert(walk->free_blocks.end(), at);
    } else {
      visit(WordOffset(at, 1), block.units * kUnitBytes - kBlockHeaderBytes);
    }
    walk->left_units = block.units;
    walk->left_free = block.free;
    walk->at += block.units;
  }
  for (;; --blocks) {
    if (blocks == 0) return false;
    if (walk->in_list != 0) {
      const uint32_t at = walk->in_list;
      if (walk->listed++ == walk->free_blocks.size()) break;  // The list forms a cycle.
      if (!walk->free_blocks.contains(at)) {
        return absl::DataLossError(fmt::format("a free list holds used block {}", at));
      }
      walk->in_list = static_cast<uint32_t>(Links(at));
    } else if (walk->next_class < kExtentGroups * kExtentClasses) {
      walk->in_list = state().first_free[walk->next_class / kExtentClasses][walk->next_class % kExtentClasses];
      ++walk->next_class;
    } else {
      break;
    }
  }
  if (walk->listed != walk->free_blocks.size()) {
    return absl::DataLossError(
        fmt::format("there are {} free blocks, but {} in the free lists", walk->free_blocks.size(), walk->listed));
  }
  return true;
}

}  // namespace cell

// Runs readers in threads of their own beside the writer, over the same memory. This is for ThreadSanitizer, and for
// races that no simulated order contains.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cell/base/random.h"
#include "pilaf/lookup.h"
#include "pilaf/test_table.h"

namespace cell {
namespace {

constexpr int kKeys = 200;  // Keys below kKept are never deleted.
constexpr int kKept = 100;

std::string Key(int i) { return fmt::format("key {}", i); }
std::string Value(int i, uint64_t version) {
  return fmt::format("{} {} ", i, version) + std::string((static_cast<uint64_t>(i) + version) % 150, 'v');
}

// Reads into `buffers` as a fabric does.
Lookup::Step LookUp(const std::byte* base, Lookup* lookup, std::vector<std::vector<std::byte>>* buffers) {
  for (;;) {
    buffers->resize(lookup->wants().size());
    std::vector<ConstBytes> images;
    for (size_t i = 0; i < buffers->size(); ++i) {
      (*buffers)[i].resize(lookup->wants()[i].bytes);
      CopyFromShared(base + lookup->wants()[i].offset, (*buffers)[i].data(), lookup->wants()[i].bytes);
      images.emplace_back((*buffers)[i]);
    }
    const Lookup::Step step = lookup->Visit(images);
    if (step != Lookup::Step::kRead) return step;
  }
}

class ConcurrentLookup : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Layouts, ConcurrentLookup, ::testing::Values(0, 512));  // Bucket sizes; 0: slots.

TEST_P(ConcurrentLookup, SeesWhatIsThere) {
  TestTable table(ShapeOf(GetParam() == 0 ? 240 : 40, 256 << 10, GetParam()), GetParam());
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(table.Put(Key(i), Value(i, 0)).ok()) << i;
  std::array<std::atomic<uint64_t>, kKeys> ended{};  // Versions.
  std::array<std::atomic<uint64_t>, kKeys> begun{};
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> lookups = 0, wrong = 0, gave_up = 0;
  const HashGeometry geometry = table->geometry();
  const std::byte* const base = table.memory()->base();
  std::vector<std::thread> readers;
  for (uint64_t reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&, reader] {
      Random random(reader + 1);
      std::vector<std::vector<std::byte>> buffers;
      while (!stop) {
        const int i = static_cast<int>(random.Below(kKeys));
        const std::string key = Key(i);
        const uint64_t least = ended[static_cast<size_t>(i)];
        const std::unique_ptr<Lookup> lookup = NewLookup(key, HashKey(key), geometry);
        const Lookup::Step step = LookUp(base, lookup.get(), &buffers);
        const uint64_t most = begun[static_cast<size_t>(i)];
        ++lookups;
        bool right = step == Lookup::Step::kAbsent && i >= kKept;
        for (uint64_t version = least; version <= most && step == Lookup::Step::kFound; ++version) {
          right |= lookup->value() == Value(i, version);
        }
        gave_up += step == Lookup::Step::kGaveUp;
        wrong += !right && step != Lookup::Step::kGaveUp;
      }
    });
  }
  Random random(7);
  for (uint64_t version = 1; version <= 30'000; ++version) {
    const int i = static_cast<int>(random.Below(kKeys));
    if (i >= kKept && random.Below(2) == 0) {
      ASSERT_TRUE(table->Delete(Key(i)).ok());
      continue;
    }
    // The versions of a key are consecutive.
    const uint64_t next = begun[static_cast<size_t>(i)] + 1;
    begun[static_cast<size_t>(i)] = next;
    ASSERT_TRUE(table.Put(Key(i), Value(i, next)).ok());
    ended[static_cast<size_t>(i)] = next;
    if (version % 64 == 0) std::this_thread::yield();
  }
  while (lookups < 1'000) std::this_thread::yield();
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_LT(gave_up, lookups / 10);
  EXPECT_TRUE(table->Check().ok());
  fmt::print("{} lookups beside {} writes; {} gave up\n", lookups.load(), 30'000, gave_up.load());
}

}  // namespace
}  // namespace cell

// Runs readers in threads beside a writer on the same memory, like readers of the shm fabric, where ThreadSanitizer can
// see them. Run it with --config=tsan as well.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/meganode.h"
#include "cell/tree/test_region.h"
#include "cell/tree/tree_check.h"

namespace cell {
namespace {

constexpr int kKeys = 3000;

std::string Key(int i) { return fmt::format("key{:06}", i); }
// Keys divisible by 3 are always there; the others come and go. A value says which key it belongs to.
std::string Value(int i, uint64_t version) {
  return fmt::format("{}:{}:", i, version) + std::string(version % 200, 'x');
}

// Gets a value by copying from shared memory, as a client does. Returns nullopt if the key is absent.
std::optional<std::string> Get(const RegionMemory& memory, Pointer root, std::string_view key, uint64_t* retries) {
  alignas(64) std::byte image[1024];
  std::vector<std::byte> extent;
  for (;;) {
    Walk walk(key, root);
    NodeView node;
    Walk::Step step = Walk::Step::kRead;
    while (step == Walk::Step::kRead) {
      CopyFromShared(memory.at(walk.wants().offset()), image, sizeof(image));
      const NodeFault fault = NodeView::Parse(image, walk.wants(), &node);
      if (fault != NodeFault::kNone) ++*retries;
      step = fault == NodeFault::kNone ? walk.Visit(node) : walk.Failed(fault);
    }
    if (step != Walk::Step::kArrived) continue;
    const std::optional<int> found = node.Find(key);
    if (!found.has_value()) return std::nullopt;
    const LeafPair pair = node.pair(*found);
    if (pair.is_inline) return std::string(pair.value);
    extent.resize(RoundUp(pair.pair_bytes(), kWordBytes));
    CopyFromShared(memory.at(pair.outside.extent.offset()), extent.data(), extent.size());
    const std::string_view bytes = AsText(ConstBytes(extent.data(), pair.pair_bytes()));
    if (Crc64(bytes) == pair.outside.crc && bytes.substr(0, key.size()) == key)
      return std::string(bytes.substr(key.size()));
    ++*retries;
  }
}

TEST(ConcurrentReaders, SeeOnlyWhatWasWritten) {
  TestRegion region({1024, 4 << 20, 8 << 20});
  Meganode tree(region.memory());
  // Values have 8 to 213 bytes: pairs are often inline, often not, and change from one to the other.
  const auto put = [&tree](int i, uint64_t version) {
    const std::string key = Key(i), value = Value(i, version);
    CELL_CHECK(tree.Put(key, value, Crc64(value, Crc64(key))).ok());
  };
  for (int i = 0; i < kKeys; i += 3) put(i, 0);

  std::atomic<bool> stop = false;
  std::atomic<uint64_t> gets = 0, all_retries = 0;
  std::vector<std::thread> readers;
  readers.reserve(2);
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      Random random(static_cast<uint64_t>(r));
      std::map<int, uint64_t> last;  // Versions never go back for one reader.
      uint64_t retries = 0;
      while (!stop) {
        const int i = static_cast<int>(random.Below(kKeys));
        const std::optional<std::string> value = Get(*region.memory(), tree.root(), Key(i), &retries);
        ++gets;
        if (!value.has_value()) {
          CELL_CHECK_NE(i % 3, 0);
          continue;
        }
        const uint64_t version = std::stoull(value->substr(value->find(':') + 1));
        CELL_CHECK_EQ(*value, Value(i, version));
        CELL_CHECK_GE(version, last[i]);
        last[i] = version;
      }
      all_retries += retries;
    });
  }
  Random random(99);
  for (uint64_t version = 1; version < 60'000 || gets < 20'000; ++version) {
    const int i = static_cast<int>(random.Below(kKeys));
    if (i % 3 != 0 && random.Below(3) == 0) {
      CELL_CHECK(tree.Delete(Key(i)).ok());
    } else {
      put(i, version);
    }
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  const TreeReport report = CheckTree(*region.memory());
  EXPECT_TRUE(report.ok()) << report.errors[0];
  RecordProperty("gets", static_cast<int>(gets));
  RecordProperty("retries", static_cast<int>(all_retries));
}

}  // namespace
}  // namespace cell

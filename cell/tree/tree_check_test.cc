#include "cell/tree/tree_check.h"

#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/tree/test_region.h"

namespace cell {
namespace {

// Checks that each kind of damage is reported. The tree is rebuilt for each test.
class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    for (int i = 0; i < 3000; ++i) {
      const std::string key = fmt::format("{:05}", i * 7919 % 3000);
      CELL_CHECK(tree_.Put(key, "value", Crc64(std::string_view("value"), Crc64(key))).ok());
    }
    CELL_CHECK(CheckTree(*region_.memory()).ok());
  }

  // Publishes a changed copy of the leaf of `key` with a right CRC.
  void Change(std::string_view key, const std::function<void(NodeDraft*)>& change) {
    const NodeView leaf = *tree_.LeafOf(key);
    NodeDraft draft(1024);
    draft.CopyOf(leaf);
    change(&draft);
    draft.Publish(region_.memory(), leaf.self().offset());
  }

  void ExpectError(std::string_view part) {
    const TreeReport report = CheckTree(*region_.memory());
    EXPECT_FALSE(report.ok());
    for (const std::string& error : report.errors) {
      if (error.find(part) != std::string::npos) return;
    }
    ADD_FAILURE() << "no error says \"" << part << "\"; first: " << (report.errors.empty() ? "" : report.errors[0]);
  }

  NodeHeader& HeaderOf(NodeDraft* draft) {
    return *reinterpret_cast<NodeHeader*>(const_cast<std::byte*>(draft->view().bytes()));
  }

  TestRegion region_;
  Meganode tree_{region_.memory()};
};

TEST_F(DamageTest, AFlippedBitInANode) {
  const uint64_t offset = tree_.LeafOf("01000")->self().offset() + 504;
  region_.memory()->StoreWord(offset, LoadWord(region_.memory()->at(offset)) ^ 16);
  ExpectError("versions or CRC");
}

TEST_F(DamageTest, AFlippedBitInAnExtent) {
  const uint64_t offset = tree_.Find("01000")->slot->extent.offset();
  region_.memory()->StoreWord(offset, LoadWord(region_.memory()->at(offset)) ^ (uint64_t{1} << 60));
  ExpectError("wrong CRC");
}

TEST_F(DamageTest, ANodeInAnothersPlace) {
  const Pointer other = tree_.LeafOf("02000")->self();
  Change("01000", [&](NodeDraft* draft) { HeaderOf(draft).self = other; });
  // The node now claims to be `other`, but was written back where it was read.
  ExpectError("carries another node's pointer");
}

TEST_F(DamageTest, AnInvalidatedNode) {
  region_.memory()->StoreWord(tree_.LeafOf("01000")->self().offset(), kVersionGone);
  ExpectError("was invalidated");
}

TEST_F(DamageTest, ASkippedNeighbour) {
  const Pointer over = tree_.Node(tree_.LeafOf("01000")->right()).right();
  Change("01000", [&](NodeDraft* draft) { HeaderOf(draft).right = over; });
  ExpectError("left neighbour's high key");
}

TEST_F(DamageTest, ALostKey) {
  Change("01000", [&](NodeDraft* draft) { draft->Remove(0); });
  ExpectError("no leaf points to it");
  ExpectError("says 3000 keys");
}

TEST_F(DamageTest, ASharedExtent) {
  const LeafSlot other = *tree_.Find("02000")->slot;
  Change("01000", [&](NodeDraft* draft) { draft->Repoint(0, other.extent, other.extent_bytes, other.crc); });
  ExpectError("is shared");
  ExpectError("holds another key");
}

TEST_F(DamageTest, AnExtentOutOfBounds) {
  Change("01000", [&](NodeDraft* draft) { draft->Repoint(0, Pointer(1, region_.memory()->bytes()), 64, 0); });
  ExpectError("out of bounds");
}

TEST_F(DamageTest, AFreedExtentThatIsPointedAt) {
  ExtentAllocator(region_.memory()).Free(tree_.Find("01000")->slot->extent.offset());
  ExpectError("not in use");
}

TEST_F(DamageTest, KeysOutOfOrder) {
  Change("01000", [&](NodeDraft* draft) {
    const LeafSlot slot = draft->view().leaf_slot(0);
    const std::string key = draft->view().key(0);
    draft->Remove(0);
    CELL_CHECK(draft->Insert(draft->view().count(), key, slot));
  });
  ExpectError("not greater than the previous key");
}

TEST_F(DamageTest, ARegionHeaderThatLies) {
  region_.memory()->header().nodes_used = ~uint64_t{0};
  ExpectError("its sizes are inconsistent");
  region_.memory()->header().magic = 0;
  ExpectError("not a region");
}

}  // namespace
}  // namespace cell

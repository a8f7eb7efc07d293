// Scans that meet damaged pairs and nodes.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/server/request/test_request_service.h"
#include "fmt/format.h"

namespace cell {
namespace {

class DamagedScanTest : public RequestServiceTest {
 protected:
  Meganode* tree() { return regions_.Find(1)->tree; }
  void PutAll() {
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(Put(fmt::format("{:04}", i), "value").ok());
  }
  // Flips a bit in the region, as no write does.
  void Flip(const void* at, std::byte bit = std::byte{1}) {
    memory_->base()[static_cast<const std::byte*>(at) - memory_->base()] ^= bit;
  }
  // Changes a node as no write does, and gives it a right CRC.
  void Rewrite(const NodeView& node, const std::function<void(std::byte*)>& change) {
    std::byte* const bytes = memory_->base() + node.self().offset();
    change(bytes);
    Store(bytes + offsetof(NodeHeader, crc), NodeCrc(bytes, node.node_bytes()));
  }
  std::string Scan(const std::string& from, bool down = false, bool keys_only = false) {
    return Call(MakeScanRequest(root_, from, {},
                                {.limit = 100, .reply_bytes_max = 20'000, .keys_only = keys_only, .down = down}));
  }
  // Scans, and expects `keys` entries before the damage and an error there.
  void ExpectDamage(const std::string& from, bool down, bool keys_only, size_t keys) {
    SCOPED_TRACE(fmt::format("from {} {}", from, down ? "down" : "up"));
    std::string reply = Scan(from, down, keys_only);
    if (keys > 0) {
      std::vector<ScanItem> items;
      const auto result = ParseScanReply(AsBytes(reply), &items);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(items.size(), keys);
      EXPECT_FALSE(result->done);
      reply = Scan(std::string(result->next_key), down, keys_only);
    }
    EXPECT_EQ(CodeOf(reply), absl::StatusCode::kDataLoss);
  }
};

TEST_F(DamagedScanTest, ADamagedPairIsAnErrorAndWhatIsBeforeItIsReturned) {
  for (const size_t inline_max : {64, 0}) {
    SCOPED_TRACE(inline_max);
    tree()->set_inline_max(inline_max);
    PutAll();
    Flip(tree()->ValueOf(*tree()->Find("0005")->pair).data());
    ASSERT_TRUE(Put("0010", "value").ok());  // The leaf has a right CRC.
    ExpectDamage("", false, false, 5);
    ExpectDamage("0019", true, false, 14);
    ExpectDamage("0005", false, false, 0);
    EXPECT_EQ(CodeOf(Scan("0006")), absl::StatusCode::kOk);
    EXPECT_EQ(CodeOf(Scan("", false, true)), absl::StatusCode::kOk);
  }
}

TEST_F(DamagedScanTest, AnExtentOutsideTheRegionIsAnError) {
  tree()->set_inline_max(0);
  PutAll();
  const NodeView leaf = *tree()->LeafOf("0005");
  const std::string_view entry = leaf.entry(*leaf.Find("0005"));
  Flip(entry.data() + entry.size() - sizeof(PairExtent) + 4, std::byte{64});
  ASSERT_TRUE(Put("0010", "value").ok());
  ExpectDamage("", false, false, 5);
}

// No read reaches out of the region, and the server goes on.
TEST_F(DamagedScanTest, DamagedNodesAreNotFollowed) {
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(Put(fmt::format("{:04}", i), "value").ok());
  const std::string whole(AsText(ConstBytes(memory_->base(), 512 << 10)));
  Random random(1);
  int wrong = 0;
  for (int round = 0; round < 1000; ++round) {
    std::memcpy(memory_->base(), whole.data(), whole.size());
    const uint64_t nodes = memory_->header().nodes_end;
    for (int i = 0; i < 20; ++i) {  // Fields of headers, and then anything.
      std::byte* const node = memory_->base() + kRegionHeaderBytes + random.Below(nodes) * 1024;
      node[random.Below(i % 2 == 0 ? 64 : 1024)] = static_cast<std::byte>(random.Below(256));
    }
    for (int i = 0; i < 10; ++i) {
      const std::string key = fmt::format("{:04}", random.Below(2000));
      wrong += CodeOf(Call(MakeKeyRequest(MessageKind::kGet, root_, {}, key))) != absl::StatusCode::kOk;
      wrong += CodeOf(Scan(key, random.Below(2) == 0, random.Below(2) == 0)) != absl::StatusCode::kOk;
    }
  }
  EXPECT_GT(wrong, 1000);
}

TEST_F(DamagedScanTest, AnExtentOutsideTheRegionIsNotRead) {
  tree()->set_inline_max(0);
  PutAll();
  const NodeView leaf = *tree()->LeafOf("0005");
  const std::string_view entry = leaf.entry(*leaf.Find("0005"));
  Flip(entry.data() + entry.size() - sizeof(PairExtent) + 4, std::byte{64});
  EXPECT_EQ(CodeOf(Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "0005"))), absl::StatusCode::kDataLoss);
}

// Entries that the leaf does not count any more would be missing.
TEST_F(DamagedScanTest, ADamagedLeafIsAnError) {
  PutAll();
  Flip(tree()->LeafOf("0005")->bytes() + offsetof(NodeHeader, count));
  for (const bool keys_only : {false, true}) {
    ExpectDamage("", false, keys_only, 0);
    ExpectDamage("0019", true, keys_only, 0);
  }
}

// A scan upwards follows right links, and would pass over the leaf between. The leaf has a right CRC.
TEST_F(DamagedScanTest, ARightLinkPastALeafIsNotFollowed) {
  for (int i = 0; i < 90; ++i) ASSERT_TRUE(Put(fmt::format("{:04}", i), "value").ok());
  const NodeView leaf = *tree()->LeafOf("0000");
  Rewrite(leaf,
          [&](std::byte* node) { Store(node + offsetof(NodeHeader, right), tree()->Node(leaf.right()).right()); });
  std::vector<std::string> keys;
  for (std::string from = "0000"; !from.empty();) {
    const std::string reply = Scan(from);
    std::vector<ScanItem> items;
    const auto result = ParseScanReply(AsBytes(reply), &items);
    ASSERT_TRUE(result.ok()) << result.status();
    for (const ScanItem& item : items) keys.emplace_back(item.key);
    from = result->done ? "" : std::string(result->next_key);
  }
  ASSERT_EQ(keys.size(), 90u);
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(keys[i], fmt::format("{:04}", i));
}

// Otherwise a scan that continues in the leaf would miss entries, or return them twice.
TEST_F(DamagedScanTest, KeysThatAreOutOfOrderAreAnError) {
  PutAll();
  const NodeView leaf = *tree()->LeafOf("0005");
  Flip(leaf.bytes() + sizeof(NodeHeader) + 5 * kKeyHeadBytes, std::byte{32});
  ASSERT_NE(leaf.key(5), "0005");
  ASSERT_TRUE(Put("0010", "value").ok());
  for (const bool keys_only : {false, true}) {
    ExpectDamage("", false, keys_only, 0);
    ExpectDamage("0010", false, keys_only, 0);
    ExpectDamage("0019", true, keys_only, 0);
  }
}

// The scan comes to the leaf by the right link of the leaf before it.
TEST_F(DamagedScanTest, KeysThatAreOutOfOrderInALaterLeafAreAnError) {
  for (int i = 0; i < 90; ++i) ASSERT_TRUE(Put(fmt::format("{:04}", i), "value").ok());
  const NodeView leaf = *tree()->LeafOf("0000");
  const NodeView right = tree()->Node(leaf.right());
  // The highest byte of a head, where the key is below the key before it now.
  Rewrite(right, [](std::byte* node) { node[sizeof(NodeHeader) + 5 * kKeyHeadBytes + 3] ^= std::byte{32}; });
  ASSERT_FALSE(right.InOrder());
  for (const bool keys_only : {false, true}) ExpectDamage("", false, keys_only, static_cast<size_t>(leaf.count()));
}

// The node has no entries, which would be misread. A scan that passed over it would miss those that it had.
TEST_F(DamagedScanTest, ANodeThatIsNoLeafIsAnError) {
  for (int i = 0; i < 90; ++i) ASSERT_TRUE(Put(fmt::format("{:04}", i), "value").ok());
  const NodeView leaf = *tree()->LeafOf("0000");
  const NodeView right = tree()->Node(leaf.right());
  Rewrite(right, [](std::byte* node) {
    auto* const header = reinterpret_cast<NodeHeader*>(node);
    header->level = 1;
    header->count = 0;
  });
  std::vector<ScanItem> items;
  const std::string reply = Scan("");
  const auto result = ParseScanReply(AsBytes(reply), &items);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(items.size(), static_cast<size_t>(leaf.count()));
  EXPECT_FALSE(result->done);
  EXPECT_NE(CodeOf(Scan(std::string(result->next_key))), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace cell

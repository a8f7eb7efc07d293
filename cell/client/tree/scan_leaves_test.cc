#include "cell/client/tree/scan_leaves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cell/client/tree/tree_test.h"

namespace cell {
namespace {

constexpr int kLeafAttemptsMax = 8;
constexpr size_t kAll = 1000;

class ScanLeavesTest : public TreeTest {
 protected:
  explicit ScanLeavesTest(const ClientOptions& options = Cacheless(), int inline_every = 0)
      : TreeTest(options, inline_every) {}

  using End = ScanLeaves::Leg::End;

  // Begins a scan of everything, in the tree or in the meganode of another region.
  void Begin(bool down = false, bool keys_only = false, uint32_t region = kRoot) {
    batch_.Clear();
    position_.emplace(ScanPosition::Of("", std::nullopt, down, KeyBytesMax(session_.node_bytes())));
    begin_key_ = position_->at();
    router_.emplace(Router(begin_key_));
    if (region != kRoot) CELL_CHECK(router_->GoTo(RootOf(region)).ok());
    leaves_.emplace(&session_, keys_only);
  }
  // `left`: how many entries the whole scan still wants.
  Task<absl::StatusOr<ScanLeaves::Leg>> AsyncFill(size_t wanted, uint64_t left = UINT64_MAX) {
    const absl::Status found = co_await router_->FindConnection();
    if (!found.ok()) co_return found;
    const CallContext context{Path::kClient, session_.NowNs(), session_.NowNs() + kTimeoutNs};
    co_return co_await leaves_->Fill(&*router_, &*position_, /*from_here=*/false, wanted, left, context, &batch_);
  }
  absl::StatusOr<ScanLeaves::Leg> Fill(size_t wanted, uint64_t left = UINT64_MAX) {
    return session_.Run(AsyncFill(wanted, left));
  }
  // Scans like Fill. Changes the extent of `key`, which Flip has changed before, back after it was read once, and calls
  // `then`.
  absl::StatusOr<ScanLeaves::Leg> FillAndFlipBack(
      const std::string& key, size_t wanted, const std::function<void()>& then = [] {}) {
    Task<absl::StatusOr<ScanLeaves::Leg>> filling = AsyncFill(wanted);
    filling.Start();
    while (metrics().extent_retries == 0 && !filling.done()) session_.Poll(INT64_MAX);
    CELL_CHECK(!filling.done());
    Flip(key);
    then();
    while (!filling.done()) session_.Poll(INT64_MAX);
    return filling.Take();
  }

  std::vector<std::string> Keys() {
    std::vector<std::string> keys;
    for (const Scan::Entry& entry : batch_.Entries()) keys.emplace_back(entry.key);
    return keys;
  }
  static std::vector<std::string> KeysUpTo(int end) {
    std::vector<std::string> keys;
    keys.reserve(static_cast<size_t>(end));
    for (int i = 0; i < end; ++i) keys.push_back(KeyOf(i));
    return keys;
  }

  // Checks that the batch has all pairs of the tree.
  void ExpectAllPairs(bool down) {
    std::vector<std::string> keys = KeysUpTo(kKeys);
    if (down) std::reverse(keys.begin(), keys.end());
    EXPECT_EQ(Keys(), keys);
    for (const Scan::Entry& entry : batch_.Entries()) EXPECT_EQ(entry.value, ValueOf(std::string(entry.key)));
  }

  std::string begin_key_;
  std::optional<ScanPosition> position_;
  std::optional<KeyRouter> router_;
  std::optional<ScanLeaves> leaves_;
  ScanBatch batch_;
};

// The parent names the leaves: one round brings them all, and another one their extents.
TEST_F(ScanLeavesTest, AllLeavesOfAParentComeTogetherInBothDirections) {
  for (const bool down : {false, true}) {
    SCOPED_TRACE(down);
    const uint64_t nodes = metrics().node_reads, rounds = metrics().read_rounds;
    Begin(down);
    const absl::StatusOr<ScanLeaves::Leg> leg = Fill(kAll);
    ASSERT_TRUE(leg.ok()) << leg.status();
    EXPECT_EQ(leg->end, End::kRange);
    EXPECT_EQ(metrics().read_rounds - rounds, static_cast<uint64_t>(levels() + 1));
    ExpectAllPairs(down);
    EXPECT_EQ(metrics().node_reads - nodes, static_cast<uint64_t>(levels() + leaves() - 1));
    EXPECT_EQ(router_->worker()->selector(OperationKind::kScan)->ReadsPerSearch(), levels() + 1);
  }
}

class InlineScanLeavesTest : public ScanLeavesTest {
 protected:
  InlineScanLeavesTest() : ScanLeavesTest(Cacheless(), 1) {}
};

TEST_F(InlineScanLeavesTest, InlinePairsComeWithTheirLeaves) {
  for (const bool down : {false, true}) {
    SCOPED_TRACE(down);
    Begin(down);
    ASSERT_TRUE(Fill(kAll).ok());
    ExpectAllPairs(down);
    EXPECT_EQ(metrics().extent_reads, 0u);
  }
}

TEST_F(InlineScanLeavesTest, ADamagedPairIsAnErrorAndWhatIsBeforeItIsReturned) {
  DamageInline(KeyOf(50));
  for (const bool down : {false, true}) {
    SCOPED_TRACE(down);
    Begin(down);
    ASSERT_TRUE(Fill(kAll).ok());
    EXPECT_EQ(Keys().size(), down ? 49u : 50u);
    EXPECT_EQ(position_->at(), KeyOf(50));
    batch_.Clear();
    const absl::StatusOr<ScanLeaves::Leg> leg = Fill(kAll);
    EXPECT_EQ(leg.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(leg.status().message().find(KeyOf(50)), std::string_view::npos) << leg.status();
    EXPECT_TRUE(batch_.empty());
  }
}

TEST_F(InlineScanLeavesTest, AfterADamagedPairTheScanReadsItsLeafAgain) {
  DamageInline(KeyOf(50));
  Begin();
  ASSERT_TRUE(Fill(kAll).ok());
  ASSERT_EQ(position_->at(), KeyOf(50));
  Put(&tree_, KeyOf(50));
  ASSERT_TRUE(Fill(kAll).ok());
  ExpectAllPairs(/*down=*/false);
}

// Each pair is right, and so is the CRC of the leaf, but the first two pairs have changed places.
TEST_F(InlineScanLeavesTest, ALeafWhoseKeysAreOutOfOrderIsAnError) {
  const NodeView leaf = LeafOf(KeyOf(50));
  const int slot = *leaf.Find(KeyOf(50));
  const size_t before = static_cast<size_t>(50 - slot);
  alignas(8) std::array<std::byte, kShape.node_bytes> image;
  std::memcpy(image.data(), leaf.bytes(), image.size());
  std::byte* const heads = image.data() + sizeof(NodeHeader);
  std::swap_ranges(heads, heads + kKeyHeadBytes, heads + kKeyHeadBytes);
  std::byte* const slots = heads + static_cast<size_t>(leaf.count()) * kKeyHeadBytes;
  std::swap_ranges(slots, slots + sizeof(LeafSlot), slots + sizeof(LeafSlot));
  Store(image.data() + offsetof(NodeHeader, crc), NodeCrc(image.data(), leaf.node_bytes()));
  memory_->Store(leaf.self().offset(), image.data(), image.size());
  ASSERT_FALSE(tree_.Node(leaf.self()).InOrder());
  Begin();
  ASSERT_TRUE(Fill(kAll).ok());
  EXPECT_EQ(Keys().size(), before);
  batch_.Clear();
  EXPECT_EQ(Fill(kAll).status().code(), absl::StatusCode::kDataLoss);
}

class MixedScanLeavesTest : public ScanLeavesTest {
 protected:
  MixedScanLeavesTest() : ScanLeavesTest(Cacheless(), 3) {}
};

TEST_F(MixedScanLeavesTest, OnlyOutsidePairsAreRead) {
  for (const bool down : {false, true}) {
    SCOPED_TRACE(down);
    const uint64_t extents = metrics().extent_reads;
    Begin(down);
    ASSERT_TRUE(Fill(kAll).ok());
    ExpectAllPairs(down);
    uint64_t outside = 0;
    for (int i = 0; i < kKeys; ++i) outside += !IsInline(i);
    EXPECT_EQ(metrics().extent_reads - extents, outside);
  }
}

// Entries are given back with their leaf when one of its outside pairs has changed: the inline ones before it, too.
TEST_F(MixedScanLeavesTest, ALeafWhoseExtentWasReplacedIsReadAgain) {
  ASSERT_FALSE(IsInline(2));
  Begin();
  Flip(KeyOf(2));
  ASSERT_TRUE(FillAndFlipBack(KeyOf(2), kAll).ok());
  ExpectAllPairs(/*down=*/false);
}

// The parent that names the leaf to the left may come from the cache.
class CachingScanLeavesTest : public ScanLeavesTest {
 protected:
  CachingScanLeavesTest() : ScanLeavesTest(Options()) {}
};

TEST_F(CachingScanLeavesTest, ALeafCostsOneNodeInBothDirections) {
  Begin();
  ASSERT_TRUE(Fill(kAll).ok());
  for (const bool down : {false, true}) {
    SCOPED_TRACE(down);
    const uint64_t nodes = metrics().node_reads;
    Begin(down);
    ASSERT_TRUE(Fill(kAll).ok());
    std::vector<std::string> keys = KeysUpTo(kKeys);
    if (down) std::reverse(keys.begin(), keys.end());
    EXPECT_EQ(Keys(), keys);
    EXPECT_EQ(metrics().node_reads - nodes, static_cast<uint64_t>(leaves()));
  }
}

TEST_F(ScanLeavesTest, AScanForKeysReadsNoExtents) {
  Begin(/*down=*/false, /*keys_only=*/true);
  ASSERT_TRUE(Fill(kAll).ok());
  EXPECT_EQ(Keys(), KeysUpTo(kKeys));
  EXPECT_EQ(metrics().extent_reads, 0u);
}

TEST_F(ScanLeavesTest, AFullBatchContinuesInTheLeafAsItWasRead) {
  ASSERT_GT(LeafOf(KeyOf(0)).count(), 6);
  Begin();
  ASSERT_TRUE(Fill(3).ok());
  EXPECT_EQ(Keys(), KeysUpTo(3));
  EXPECT_EQ(position_->at(), KeyOf(3));
  const uint64_t nodes = metrics().node_reads;
  ASSERT_TRUE(Fill(5).ok());
  EXPECT_EQ(Keys(), KeysUpTo(5));
  EXPECT_EQ(metrics().node_reads, nodes);
  leaves_->Forget();
  ASSERT_TRUE(Fill(6).ok());
  EXPECT_EQ(Keys(), KeysUpTo(6));
  EXPECT_EQ(metrics().node_reads, nodes + static_cast<uint64_t>(levels()));
}

TEST_F(ScanLeavesTest, ALeafWhoseExtentWasReplacedIsReadAgain) {
  uint64_t nodes = 0;
  Begin();
  Flip(KeyOf(2));
  ASSERT_TRUE(FillAndFlipBack(KeyOf(2), kAll, [&] { nodes = metrics().node_reads; }).ok());
  EXPECT_EQ(Keys(), KeysUpTo(kKeys));
  EXPECT_EQ(metrics().extent_retries, 1u);
  // The walk began again, and had read the root when the counter was seen.
  EXPECT_EQ(metrics().node_reads - nodes, static_cast<uint64_t>(levels() - 1 + leaves() - 1));
}

// The extent is the last of its leaf. Those of the leaves behind it came with it, and are right.
TEST_F(ScanLeavesTest, ALeafWhoseLastExtentWasReplacedIsReadAgain) {
  const std::string last = KeyOf(LeafOf(KeyOf(0)).count() - 1);
  Begin();
  Flip(last);
  ASSERT_TRUE(FillAndFlipBack(last, kAll).ok());
  ExpectAllPairs(/*down=*/false);
}

// The range ended in the leaf when it was read first.
TEST_F(ScanLeavesTest, ALegEndsAsTheLeafSaysThatWasReadLast) {
  const std::string last = KeyOf(kKeys - 1);
  Begin();
  Flip(last);
  const absl::StatusOr<ScanLeaves::Leg> leg = FillAndFlipBack(last, kKeys + 1, [&] {
    for (const char* const more : {"x", "y"}) Put(&tree_, last + more);
  });
  ASSERT_TRUE(leg.ok()) << leg.status();
  EXPECT_EQ(Keys().back(), last + "x");
  EXPECT_EQ(leg->end, End::kBatch);
  EXPECT_EQ(position_->at(), last + "y");
}

TEST_F(ScanLeavesTest, NoMoreLeavesAreReadThanALimitNeeds) {
  size_t entries = 0;
  NodeView leaf = LeafOf(KeyOf(0));
  for (int needed = 1; needed <= 4; ++needed, leaf = tree_.Node(leaf.right())) {
    SCOPED_TRACE(needed);
    entries += static_cast<size_t>(leaf.count());
    const uint64_t nodes = metrics().node_reads;
    Begin();
    ASSERT_TRUE(Fill(entries, /*left=*/entries).ok());
    EXPECT_EQ(Keys(), KeysUpTo(static_cast<int>(entries)));
    EXPECT_EQ(metrics().node_reads - nodes, static_cast<uint64_t>(levels() - 1 + needed));
  }
}

TEST_F(ScanLeavesTest, ALeafThatKeepsChangingEndsTheLegBehindTheLeafBeforeIt) {
  const NodeView first = LeafOf(KeyOf(0));
  const std::string border = first.high_key();
  Flip(border);
  Begin();
  const absl::Status status = Fill(kAll).status();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(metrics().extent_retries, static_cast<uint64_t>(kLeafAttemptsMax));
  EXPECT_EQ(Keys(), KeysUpTo(first.count()));
  EXPECT_EQ(position_->at(), border);
  EXPECT_EQ(router_->worker()->selector(OperationKind::kScan)->ReadsPerSearch(),
            SelectorOptions{}.reads_per_search);  // It says nothing.
}

TEST_F(ScanLeavesTest, UpwardsAMeganodeNamesItsNeighbour) {
  Meganode left(NewRegion(kOther, {0, "", "m", RootOf(kThird)}));
  for (const char* const key : {"a", "b"}) Put(&left, key);
  Begin(/*down=*/false, /*keys_only=*/false, kOther);
  const absl::StatusOr<ScanLeaves::Leg> leg = Fill(kAll);
  ASSERT_TRUE(leg.ok()) << leg.status();
  EXPECT_EQ(leg->end, End::kMeganode);
  EXPECT_EQ(leg->next, RootOf(kThird));
  EXPECT_EQ(Keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(position_->at(), "m");
}

TEST_F(ScanLeavesTest, DownwardsTheNeighbourHasToBeSearchedFor) {
  Meganode right(NewRegion(kOther, {0, "m", std::nullopt, {}}));
  for (const char* const key : {"m", "n"}) Put(&right, key);
  Begin(/*down=*/true, /*keys_only=*/false, kOther);
  const absl::StatusOr<ScanLeaves::Leg> leg = Fill(kAll);
  ASSERT_TRUE(leg.ok()) << leg.status();
  EXPECT_EQ(leg->end, End::kMeganode);
  EXPECT_TRUE(leg->next.null());
  EXPECT_EQ(Keys(), (std::vector<std::string>{"n", "m"}));
  EXPECT_LT(position_->at(), "m");
  EXPECT_EQ(metrics().restarts, 0u);
}

}  // namespace
}  // namespace cell

#include "cell/client/session/tree_reader.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/client/session/session_test.h"
#include "cell/tree/meganode.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 1 << 20, 4 << 20};
constexpr int64_t kTimeoutNs = 1'000'000'000;
constexpr int kTornReadsMax = 64;

constexpr NodeFault kFaults[] = {NodeFault::kTorn, NodeFault::kForeign, NodeFault::kGone, NodeFault::kMalformed};

std::string KeyOf(int i) { return fmt::format("key{:05}", i); }

// Walks through a meganode of some levels, in region 1 of a server.
class TreeReaderTest : public ConnectionsFixture, public ::testing::Test {
 protected:
  TreeReaderTest() : memory_(NewRegion(1, {})), tree_(memory_), to_(reader_.pool()) {
    for (int i = 0; i < 2000; ++i) Put(KeyOf(i));
    connection_ = connections_.To({"server", 0}, "server");
    CELL_CHECK(Wait(connections_.Connect(connection_)).ok());
    to_.keeps_parent = true;
  }

  static ClientOptions Options() {
    ClientOptions options;
    options.cache_level_min = 1;
    return options;
  }
  RegionMemory* NewRegion(uint32_t region, const MeganodeRange& range) {
    RegionMemory* const memory = server_->CreateRegion(region, kShape.region_bytes()).value();
    CELL_CHECK(Meganode::Format(memory, region, kShape, range).ok());
    return memory;
  }
  void Put(const std::string& key) { CELL_CHECK(tree_.Put(key, "v", Crc64("v", Crc64(key))).ok()); }

  // Begins a walk from the root of a region's meganode.
  Task<absl::StatusOr<Walk::Step>> Start(const std::string& key, uint32_t region = 1, bool use_cache = true,
                                         int64_t timeout_ns = kTimeoutNs, LeafNeighbours* neighbours = nullptr) {
    search_.emplace(connection_->selector(OperationKind::kGet));
    key_ = key;
    walk_ = Walk(key_, RootOf(region));
    Task<absl::StatusOr<Walk::Step>> walking =
        reader_.WalkToLeaf(connection_, &walk_, use_cache, &to_, loop_.NowNs() + timeout_ns, &*search_, neighbours);
    walking.Start();
    return walking;
  }
  absl::StatusOr<Walk::Step> WalkTo(const std::string& key, uint32_t region = 1, bool use_cache = true,
                                    int64_t timeout_ns = kTimeoutNs) {
    Task<absl::StatusOr<Walk::Step>> walking = Start(key, region, use_cache, timeout_ns);
    return End(&walking);
  }

  int reads() const { return search_->rounds(); }
  int levels() const { return tree_.Node(tree_.root()).level() + 1; }
  Pointer LeafOf(const std::string& key) const { return tree_.Find(key).value().leaf; }
  // Returns the node on the way to a key's leaf that is right above it.
  Pointer ParentOf(const std::string& key) const {
    NodeView node = tree_.Node(tree_.root());
    while (node.level() > 1) node = tree_.Node(node.inner_slot(node.ChildSlot(key)).child());
    return node.self();
  }

  std::string ImageOf(Pointer node) const {
    return std::string(AsText(ConstBytes(memory_->at(node.offset()), kShape.node_bytes)));
  }
  void SetImage(Pointer node, std::string_view image) {
    memory_->Store(node.offset(), AsBytes(image).data(), image.size());
  }
  void SetHeadVersion(Pointer node, uint64_t version) { memory_->StoreWord(node.offset(), version); }
  // Makes a parse of the node fail in this way.
  void Spoil(Pointer node, NodeFault fault) {
    std::string image = ImageOf(node);
    auto* const header = reinterpret_cast<NodeHeader*>(image.data());
    switch (fault) {
      case NodeFault::kTorn:
        return SetHeadVersion(node, header->head_version + 1);
      case NodeFault::kGone:
        return SetHeadVersion(node, kVersionGone);
      case NodeFault::kForeign:
        header->self = Pointer(2, node.offset());  // A node of another region is here.
        break;
      case NodeFault::kMalformed:
        header->flags = 0xff;
        break;
      case NodeFault::kNone:
        break;
    }
    header->crc = NodeCrc(AsBytes(image).data(), kShape.node_bytes);
    SetImage(node, image);
  }

  RegionMemory* const memory_;
  Meganode tree_;
  TreeReader reader_{&loop_, &connections_, &metrics_, kShape.node_bytes, Options()};
  WalkedLeaf to_;
  WorkerConnection* connection_ = nullptr;
  std::string key_;
  Walk walk_;
  std::optional<SearchReads> search_;
};

TEST_F(TreeReaderTest, ReadsEachNodeOnTheWayToTheLeaf) {
  ASSERT_GE(levels(), 3);
  const std::string key = KeyOf(1234);
  ASSERT_EQ(WalkTo(key).value(), Walk::Step::kArrived);
  EXPECT_EQ(to_.leaf.self(), LeafOf(key));
  EXPECT_TRUE(to_.leaf.Find(key).has_value());
  ASSERT_NE(to_.parent.bytes(), nullptr);
  EXPECT_EQ(to_.parent.self(), ParentOf(key));
  EXPECT_FALSE(to_.cached);
  EXPECT_EQ(reads(), levels());
  EXPECT_EQ(metrics_.node_reads, static_cast<uint64_t>(levels()));
}

TEST_F(TreeReaderTest, InnerNodesComeFromTheCacheTheSecondTime) {
  const std::string key = KeyOf(1234);
  ASSERT_TRUE(WalkTo(key).ok());
  ASSERT_EQ(WalkTo(key).value(), Walk::Step::kArrived);
  EXPECT_EQ(reads(), 1);
  EXPECT_EQ(metrics_.cache_hits, static_cast<uint64_t>(levels() - 1));
  EXPECT_EQ(to_.leaf.self(), LeafOf(key));
  EXPECT_EQ(to_.parent.self(), ParentOf(key));
  to_.keeps_parent = false;
  ASSERT_EQ(WalkTo(key).value(), Walk::Step::kArrived);
  EXPECT_EQ(to_.parent.bytes(), nullptr);
  ASSERT_EQ(WalkTo(key, 1, /*use_cache=*/false).value(), Walk::Step::kArrived);
  EXPECT_EQ(reads(), levels());
}

// The next search does not have to read what is cached from now on.
TEST_F(TreeReaderTest, ReadsThatFillTheCacheDoNotCountForTheSelector) {
  ASSERT_TRUE(WalkTo(KeyOf(1234)).ok());
  EXPECT_EQ(reads(), levels());
  search_->End();
  EXPECT_EQ(connection_->selector(OperationKind::kGet)->ReadsPerSearch(), 1);
}

// A cache with room for one node is too small for the path from the root to a leaf. Searches work, and count evictions.
TEST_F(TreeReaderTest, ACacheThatLetsNodesGoForOthersSaysSo) {
  ClientOptions options = Options();
  options.cache_bytes = kShape.node_bytes;
  TreeReader reader(&loop_, &connections_, &metrics_, kShape.node_bytes, options);
  WalkedLeaf to(reader.pool());
  ASSERT_GT(levels(), 2);
  for (int i = 0; i < 10; ++i) {
    const std::string key = KeyOf(100 * i);
    SearchReads search(connection_->selector(OperationKind::kGet));
    Walk walk(key, RootOf(1));
    Task<absl::StatusOr<Walk::Step>> walking =
        reader.WalkToLeaf(connection_, &walk, true, &to, loop_.NowNs() + kTimeoutNs, &search);
    walking.Start();
    ASSERT_EQ(End(&walking).value(), Walk::Step::kArrived);
    EXPECT_EQ(to.leaf.self(), LeafOf(key));
  }
  EXPECT_EQ(reader.nodes()->size(), 1u);
  EXPECT_EQ(metrics_.cache_evictions, static_cast<uint64_t>(10 * (levels() - 1) - 1));
}

TEST_F(TreeReaderTest, ANodeThatIsNotAsExpectedIsReadAgainUntilItIs) {
  const std::string key = KeyOf(1234);
  const Pointer leaf = LeafOf(key);
  const std::string right = ImageOf(leaf);
  for (const NodeFault fault : kFaults) {
    SCOPED_TRACE(static_cast<int>(fault));
    Spoil(leaf, fault);
    Task<absl::StatusOr<Walk::Step>> walking = Start(key);
    while (reads() < 10 && !walking.done()) Turn();
    EXPECT_FALSE(walking.done());
    SetImage(leaf, right);
    ASSERT_EQ(End(&walking).value(), Walk::Step::kArrived);
    EXPECT_EQ(to_.leaf.self(), leaf);
    EXPECT_TRUE(to_.leaf.Find(key).has_value());
  }
  EXPECT_GT(metrics_.torn, 0u);
}

TEST_F(TreeReaderTest, ANodeThatStaysTornIsReadABoundedNumberOfTimes) {
  const std::string key = KeyOf(1234);
  for (const Pointer node : {LeafOf(key), tree_.root()}) {
    Spoil(node, NodeFault::kTorn);
    const uint64_t before = metrics_.torn;
    const absl::Status status = WalkTo(key, 1, /*use_cache=*/false).status();
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_NE(status.message().find("the leaf of key \"key01234\" was not reached in"), std::string::npos) << status;
    EXPECT_EQ(metrics_.torn - before, static_cast<uint64_t>(kTornReadsMax + 1));
  }
}

// The way to the leaf comes from the cache once. After the first setback it is read.
TEST_F(TreeReaderTest, ALeafThatNeverBecomesRightEndsTheWalk) {
  const std::string key = KeyOf(1234);
  const Pointer leaf = LeafOf(key);
  const std::string right = ImageOf(leaf);
  ASSERT_TRUE(WalkTo(key).ok());
  for (const NodeFault fault : {NodeFault::kForeign, NodeFault::kGone, NodeFault::kMalformed}) {
    SCOPED_TRACE(static_cast<int>(fault));
    Spoil(leaf, fault);
    const uint64_t hits = metrics_.cache_hits;
    EXPECT_TRUE(absl::IsAborted(WalkTo(key).status()));
    EXPECT_LE(reads(), Walk::kVisitsMax + 1);
    EXPECT_EQ(metrics_.cache_hits - hits, static_cast<uint64_t>(levels() - 1));
    SetImage(leaf, right);
  }
}

TEST_F(TreeReaderTest, ARootThatIsNotThereAnyMoreRestartsTheSearch) {
  const std::string right = ImageOf(tree_.root());
  for (const NodeFault fault : {NodeFault::kForeign, NodeFault::kGone, NodeFault::kMalformed}) {
    SCOPED_TRACE(static_cast<int>(fault));
    Spoil(tree_.root(), fault);
    EXPECT_EQ(WalkTo(KeyOf(1)).value(), Walk::Step::kRestart);
    EXPECT_EQ(reads(), 1);
    SetImage(tree_.root(), right);
  }
  EXPECT_EQ(WalkTo(KeyOf(1), /*region=*/9).value(), Walk::Step::kRestart);  // The server does not hold this region.
}

TEST_F(TreeReaderTest, AKeyBelowTheMeganodeRestartsTheSearch) {
  NewRegion(2, {0, "m", std::nullopt, {}});
  EXPECT_EQ(WalkTo("a", 2).value(), Walk::Step::kRestart);
  EXPECT_TRUE(walk_.below());
}

// Otherwise each later search would take the same detour.
TEST_F(TreeReaderTest, AParentThatDoesNotKnowOfASplitIsDroppedFromTheCache) {
  const NodeView leaf = tree_.Node(LeafOf(KeyOf(1234)));
  const std::string key = leaf.key(leaf.count() - 1), before = leaf.key(leaf.count() - 2);
  const Pointer old = leaf.self(), parent = ParentOf(key);
  ASSERT_TRUE(WalkTo(key).ok());
  for (int i = 0; LeafOf(key) == old; ++i) Put(before + std::to_string(i));
  ASSERT_EQ(ParentOf(key), parent);
  ASSERT_EQ(WalkTo(key).value(), Walk::Step::kArrived);
  EXPECT_EQ(to_.leaf.self(), LeafOf(key));
  EXPECT_EQ(metrics_.moved_right, 1u);
  EXPECT_FALSE(reader_.nodes()->Find(parent).has_value());
  ASSERT_EQ(WalkTo(key).value(), Walk::Step::kArrived);
  EXPECT_EQ(metrics_.moved_right, 1u);
  ASSERT_NE(to_.parent.bytes(), nullptr);
  EXPECT_EQ(to_.parent.self(), parent);
}

// A client of a large cluster learns many routes from one read.
TEST_F(TreeReaderTest, ALeafOfRoutesLeadsOnAndItsRoutesAreKept) {
  RegionMemory* const memory = NewRegion(2, {1, "", "x", RootOf(7)});
  Meganode routes(memory);
  ASSERT_TRUE(routes.InsertRoute("", RootOf(3)).ok());
  ASSERT_TRUE(routes.InsertRoute("g", RootOf(4)).ok());
  ASSERT_TRUE(routes.InsertRoute("m", RootOf(5)).ok());
  ASSERT_EQ(WalkTo("h", 2).value(), Walk::Step::kElsewhere);
  EXPECT_FALSE(walk_.moved_right());
  EXPECT_EQ(walk_.wants(), RootOf(4));
  EXPECT_EQ(reader_.routes()->Find("a"), RootOf(3));
  EXPECT_EQ(reader_.routes()->Find("l"), RootOf(4));
  EXPECT_EQ(reader_.routes()->Find("w"), RootOf(5));
  EXPECT_EQ(reader_.routes()->Find("x"), Pointer());

  // A cached node may be older than the known routes.
  reader_.routes()->Drop("h");
  ASSERT_EQ(WalkTo("h", 2).value(), Walk::Step::kElsewhere);
  EXPECT_TRUE(to_.cached);
  EXPECT_EQ(reads(), 0);
  EXPECT_EQ(walk_.wants(), RootOf(4));
  EXPECT_EQ(reader_.routes()->Find("h"), Pointer());
}

// A search for a scan's first pair passes leaves of routes, whose neighbours the scan does not need.
TEST_F(TreeReaderTest, OnlyALeafOfPairsIsReadWithNeighbours) {
  struct Counted : LeafNeighbours {
    absl::Span<const ReadPart> ReadsWith(const ReadPart& leaf, const NodeView&) override {
      ++asked;
      return {&leaf, 1};
    }
    int asked = 0;
  } neighbours;
  Meganode routes(NewRegion(2, {1, "", std::nullopt, Pointer()}));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(routes.InsertRoute(i == 0 ? "" : KeyOf(i), RootOf(3)).ok());
  ASSERT_GT(routes.Node(routes.root()).level(), 0);
  Task<absl::StatusOr<Walk::Step>> walking = Start(KeyOf(50), 2, /*use_cache=*/false, kTimeoutNs, &neighbours);
  ASSERT_EQ(End(&walking).value(), Walk::Step::kElsewhere);
  EXPECT_EQ(neighbours.asked, 0);
  walking = Start(KeyOf(50), 1, /*use_cache=*/false, kTimeoutNs, &neighbours);
  ASSERT_EQ(End(&walking).value(), Walk::Step::kArrived);
  EXPECT_EQ(neighbours.asked, 1);
}

TEST_F(TreeReaderTest, AKeyPastTheMeganodeLeadsToItsNeighbour) {
  NewRegion(2, {0, "", "m", RootOf(7)});
  ASSERT_EQ(WalkTo("z", 2).value(), Walk::Step::kElsewhere);
  EXPECT_TRUE(walk_.moved_right());
  EXPECT_EQ(walk_.wants(), RootOf(7));
  EXPECT_EQ(metrics_.moved_right, 1u);
  EXPECT_EQ(reader_.routes()->size(), 0u);
}

// Its neighbour's id may have been used again since, for a region to the left, from where right links lead back here.
TEST_F(TreeReaderTest, ACachedNodeLeadsToItsNeighbourOnce) {
  NewRegion(2, {1, "", "m", RootOf(7)});
  ASSERT_EQ(WalkTo("z", 2).value(), Walk::Step::kElsewhere);
  EXPECT_TRUE(reader_.nodes()->Find(RootOf(2)).has_value());
  for (const int expected : {0, 1, 0}) {
    ASSERT_EQ(WalkTo("z", 2).value(), Walk::Step::kElsewhere);
    EXPECT_EQ(walk_.wants(), RootOf(7));
    EXPECT_EQ(reads(), expected);
  }
}

TEST_F(TreeReaderTest, TheDeadlineEndsAWalkWithAndWithoutReads) {
  const std::string key = KeyOf(1234);
  EXPECT_TRUE(absl::IsDeadlineExceeded(WalkTo(key, 1, /*use_cache=*/true, /*timeout_ns=*/0).status()));
  EXPECT_EQ(reads(), 1);
  ASSERT_TRUE(WalkTo(key).ok());
  const absl::Status status = WalkTo(key, 1, /*use_cache=*/true, /*timeout_ns=*/0).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_NE(status.message().find("the search for key \"key01234\" took too long"), std::string::npos) << status;
  EXPECT_EQ(reads(), 0);
}

TEST_F(TreeReaderTest, ALostServerIsReported) {
  Task<absl::StatusOr<Walk::Step>> walking = Start(KeyOf(1234));
  server_->Crash();
  EXPECT_TRUE(absl::IsUnavailable(End(&walking).status()));
  EXPECT_FALSE(connection_->up);
}

TEST_F(TreeReaderTest, AClosedClientEndsItsWalks) {
  Task<absl::StatusOr<Walk::Step>> walking = Start(KeyOf(1234));
  loop_.Close();
  ASSERT_TRUE(walking.done());
  EXPECT_TRUE(absl::IsCancelled(walking.Take().status()));
}

}  // namespace
}  // namespace cell

#include "cell/client/route/key_router.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cell/base/check.h"
#include "cell/client/session/session_test.h"
#include "cell/cluster/memory_membership.h"
#include "cell/tree/meganode.h"
#include "cell/tree/test_region.h"

namespace cell {
namespace {

constexpr int64_t kTimeoutNs = 10'000'000'000;
constexpr int kMisledMax = 8;
constexpr int kHopsMax = 1000;
constexpr uint32_t kRoot = 1, kOther = 2, kThird = 3, kLowerPart = 4, kUpperPart = 5, kNew = 6;
constexpr RegionShape kShape{512, 32 << 10, 64 << 10};

// Two servers, and a third one, which never answers. Regions 1 and 2 are on the first server, 3 is on the second. The
// table "users" has a part on each.
ClusterState State() {
  ClusterState state;
  state.shape = kShape;
  state.servers = {{"a", {{"address-a", 8}}, ""}, {"b", {{"address-b", 8}}, ""}, {"silent", {{"nowhere", 8}}, ""}};
  state.table.next_region = kNew;
  state.table.root = kRoot;
  for (const uint32_t region : {kRoot, kOther, kLowerPart}) state.table.regions[region] = {{"a", 0}, 1};
  for (const uint32_t region : {kThird, kUpperPart}) state.table.regions[region] = {{"b", 0}, 1};
  state.table.tables["users"] = {0, {{0, kLowerPart}, {1u << 31, kUpperPart}}};
  return state;
}

ClientOptions Options() {
  ClientOptions options;
  options.report = false;
  return options;
}

class KeyRouterTest : public ::testing::Test {
 protected:
  explicit KeyRouterTest(ClusterState state = State())
      : cluster_(std::make_shared<MemoryCluster>(std::move(state))),
        session_(Options(), network_.NewEndpoint(), std::make_unique<MemoryMembership>(cluster_)) {
    CELL_CHECK(a_->Listen("address-a", &service_a_).ok());
    CELL_CHECK(b_->Listen("address-b", &service_b_).ok());
  }

  KeyRouter Router(std::string_view key, int64_t timeout_ns = kTimeoutNs, const std::string* table = nullptr) {
    const int64_t now_ns = session_.NowNs();
    return KeyRouter(&session_, key, {Path::kServer, now_ns, now_ns + timeout_ns}, table);
  }
  absl::Status Find(KeyRouter* router) { return session_.Run(router->Find()); }
  // Changes the table as another member does.
  void ChangeTable(const std::function<void(RegionTable*)>& change) {
    const std::lock_guard lock(cluster_->mutex);
    change(&cluster_->state.table);
    ++cluster_->state.table.version;
  }
  void Move(uint32_t region, const std::string& server) {
    ChangeTable([&](RegionTable* table) {
      table->regions[region].owner = {server, 0};
      ++table->regions[region].epoch;
    });
  }
  void Refresh() { ASSERT_TRUE(session_.Run(session_.view()->Refresh(INT64_MAX))); }
  void PassTime(int64_t ns) { session_.Run(Sleep(ns)); }
  Task<bool> Sleep(int64_t ns) {
    co_await session_.loop()->SleepUntil(session_.NowNs() + ns);
    co_return true;
  }
  Task<absl::Status> Read(ServerConnection* server, ReadPart part) {
    co_return co_await session_.connections()->Read(server, {&part, 1}, session_.NowNs() + kTimeoutNs);
  }
  // Returns the root of a meganode of routes, which is in the region of the tree's root.
  NodeView routes_node() { return NodeView::Trusted(region_.memory()->at(kRegionHeaderBytes), kShape.node_bytes); }
  // Returns this client's own search of that meganode, which led to `child`.
  Walk WalkToChild(std::string_view key, Pointer child) {
    CELL_CHECK(Meganode(region_.memory()).InsertRoute("", child).ok());
    Walk walk(key, RootOf(kRoot));
    CELL_CHECK(walk.Visit(routes_node()) == Walk::Step::kElsewhere);
    CELL_CHECK(walk.wants() == child);
    return walk;
  }
  RouteCache* routes() { return session_.tree()->routes(); }
  const ClientMetrics& metrics() { return *session_.metrics(); }

  static RouteView Route(RouteKind kind, Pointer next = {}) { return {kind, next, {}, {}, false, false}; }
  static RouteView ChildRoute(Pointer next, std::string_view low, std::string_view high) {
    return {RouteKind::kChild, next, low, high, true, true};
  }

  SimNetwork network_{SimOptions{}};
  std::unique_ptr<SimFabric> a_ = network_.NewEndpoint();
  std::unique_ptr<SimFabric> b_ = network_.NewEndpoint();
  AnsweringService service_a_{a_.get()}, service_b_{b_.get()};
  TestRegion region_{kShape, kRoot, {1, "", std::nullopt, {}}};
  std::shared_ptr<MemoryCluster> cluster_;
  Session session_;
};

// ---- Where a search begins.

TEST_F(KeyRouterTest, ASearchBeginsAtTheRootOfTheTree) {
  KeyRouter router = Router("key");
  EXPECT_EQ(router.root(), RootOf(kRoot));
  EXPECT_EQ(router.server(), nullptr);  // There is no connection yet.
  ASSERT_TRUE(Find(&router).ok());
  ASSERT_NE(router.server(), nullptr);
  EXPECT_EQ(router.server()->worker.server, "a");
  EXPECT_EQ(router.holder().region, kRoot);
  EXPECT_EQ(router.selector(), &router.server()->searches);
  EXPECT_TRUE(router.may_use_cache());
  EXPECT_EQ(metrics().route_misses, 1u);
  EXPECT_EQ(metrics().route_hits, 0u);
}

TEST_F(KeyRouterTest, ASearchBeginsAtTheCachedRouteOfItsKey) {
  routes()->Keep("k", "l", RootOf(kThird));
  KeyRouter router = Router("key");
  EXPECT_EQ(router.root(), RootOf(kThird));
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(router.server()->worker.server, "b");
  EXPECT_EQ(metrics().route_hits, 1u);
  EXPECT_EQ(Router("l").root(), RootOf(kRoot));  // The route's range ends before this key.
}

TEST_F(KeyRouterTest, AKeyOfATableBelongsToThePartThatHasItsHash) {
  const std::string table = "users";
  for (int i = 0; i < 20; ++i) {
    const std::string key = std::to_string(i);
    const bool upper = HashKey(key).position >= 1u << 31;
    KeyRouter router = Router(key, kTimeoutNs, &table);
    EXPECT_EQ(router.root(), RootOf(upper ? kUpperPart : kLowerPart));
    ASSERT_TRUE(Find(&router).ok());
    EXPECT_EQ(router.server()->worker.server, upper ? "b" : "a");
    EXPECT_EQ(router.selector(), &router.server()->lookups);
  }
}

// ---- From meganode to meganode.

TEST_F(KeyRouterTest, AChildLeadsOnAndIsKeptIfItsRangeIsGiven) {
  KeyRouter router = Router("key");
  ASSERT_TRUE(Find(&router).ok());
  ASSERT_TRUE(router.Follow(ChildRoute(RootOf(kThird), "k", "l")).ok());
  EXPECT_EQ(router.root(), RootOf(kThird));
  EXPECT_EQ(router.server(), nullptr);  // Nothing is connected to this one's server.
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(router.server()->worker.server, "b");
  EXPECT_EQ(routes()->Find("key"), RootOf(kThird));
  EXPECT_EQ(routes()->Find("l"), Pointer());

  ASSERT_TRUE(router.Follow(Route(RouteKind::kChild, RootOf(kOther))).ok());
  EXPECT_EQ(router.root(), RootOf(kOther));
  ASSERT_NE(router.server(), nullptr);
  EXPECT_EQ(router.server()->worker.server, "a");
  EXPECT_EQ(routes()->Find("key"), RootOf(kThird));
}

TEST_F(KeyRouterTest, ARouteWithoutAnUpperBoundHoldsForAllKeysAboveIt) {
  KeyRouter router = Router("key");
  ASSERT_TRUE(router.Follow(RouteView{RouteKind::kChild, RootOf(kThird), "k", {}, true, false}).ok());
  EXPECT_EQ(routes()->Find("zzz"), RootOf(kThird));
}

TEST_F(KeyRouterTest, ANeighbourIsFollowedIfNothingCachedLedHere) {
  KeyRouter router = Router("key");
  ASSERT_TRUE(router.Follow(Route(RouteKind::kChild, RootOf(kOther))).ok());
  ASSERT_TRUE(router.Follow(Route(RouteKind::kRight, RootOf(kThird))).ok());
  EXPECT_EQ(router.root(), RootOf(kThird));
  EXPECT_TRUE(router.may_use_cache());
}

// The neighbour may be far from the key.
TEST_F(KeyRouterTest, ACachedRouteThatMisledIsDroppedAndTheSearchStartsOver) {
  routes()->Keep("k", "l", RootOf(kOther));
  KeyRouter router = Router("key");
  ASSERT_EQ(router.root(), RootOf(kOther));
  ASSERT_TRUE(router.Follow(Route(RouteKind::kRight, RootOf(kThird))).ok());
  EXPECT_EQ(router.root(), RootOf(kRoot));
  EXPECT_EQ(routes()->Find("key"), Pointer());
  EXPECT_TRUE(router.may_use_cache());
  EXPECT_EQ(metrics().lost, 0u);
}

// A cached node of routes led here. It is as wrong.
TEST_F(KeyRouterTest, ACachedNodeThatMisledIsDroppedAndTheSearchStartsOver) {
  const Walk walk = WalkToChild("key", RootOf(kOther));
  session_.tree()->nodes()->Keep(routes_node());
  KeyRouter router = Router("key");
  ASSERT_TRUE(router.Follow(walk, Walk::Step::kElsewhere, /*cached=*/true).ok());
  ASSERT_EQ(router.root(), RootOf(kOther));
  ASSERT_TRUE(session_.tree()->nodes()->Find(RootOf(kRoot)).has_value());
  ASSERT_TRUE(router.Follow(Route(RouteKind::kRight, RootOf(kThird))).ok());
  EXPECT_EQ(router.root(), RootOf(kRoot));
  EXPECT_FALSE(session_.tree()->nodes()->Find(RootOf(kRoot)).has_value());
}

TEST_F(KeyRouterTest, ANodeThatWasReadJustNowDoesNotMislead) {
  KeyRouter router = Router("key");
  ASSERT_TRUE(router.Follow(WalkToChild("key", RootOf(kOther)), Walk::Step::kElsewhere, /*cached=*/false).ok());
  ASSERT_EQ(router.root(), RootOf(kOther));
  ASSERT_TRUE(router.Follow(Route(RouteKind::kRight, RootOf(kThird))).ok());
  EXPECT_EQ(router.root(), RootOf(kThird));
}

TEST_F(KeyRouterTest, CachesThatKeepMisleadingAreBelievedInTheEnd) {
  const Walk walk = WalkToChild("key", RootOf(kOther));
  KeyRouter router = Router("key");
  for (int i = 0; i < kMisledMax; ++i) {
    ASSERT_TRUE(router.Follow(walk, Walk::Step::kElsewhere, /*cached=*/true).ok());
    ASSERT_TRUE(router.Follow(Route(RouteKind::kRight, RootOf(kThird))).ok());
    ASSERT_EQ(router.root(), RootOf(kRoot)) << i;
  }
  ASSERT_TRUE(router.Follow(walk, Walk::Step::kElsewhere, /*cached=*/true).ok());
  ASSERT_TRUE(router.Follow(Route(RouteKind::kRight, RootOf(kThird))).ok());
  EXPECT_EQ(router.root(), RootOf(kThird));
}

// Searches that begin at a root that was split would all go right.
TEST_F(KeyRouterTest, ARootOfTheTreeThatLeadsRightIsLookedUpAgainSoon) {
  ChangeTable([](RegionTable* table) { table->root = kThird; });
  KeyRouter router = Router("key");
  PassTime(50'000'000);
  ASSERT_EQ(session_.view()->root(), RootOf(kRoot));
  ASSERT_TRUE(router.Follow(Route(RouteKind::kRight, RootOf(kOther))).ok());
  PassTime(50'000'000);
  EXPECT_EQ(session_.view()->root(), RootOf(kThird));
}

TEST_F(KeyRouterTest, ASearchThatNeverArrivesEnds) {
  KeyRouter router = Router("key");
  for (int i = 0; i < kHopsMax; ++i) ASSERT_TRUE(router.GoTo(RootOf(i % 2 == 0 ? kOther : kThird)).ok());
  const absl::Status status = router.GoTo(RootOf(kOther));
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "key \"key\" was not reached through 1000 meganodes");
}

// ---- Starting over.

TEST_F(KeyRouterTest, AServerThatDoesNotHaveTheRegionAnyMoreSendsTheSearchToTheNewHolder) {
  for (const RouteKind kind : {RouteKind::kNotHeld, RouteKind::kRestart, RouteKind::kTooLow}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const uint64_t lost = metrics().lost;
    KeyRouter router = Router("key");
    ASSERT_TRUE(Find(&router).ok());
    const Holder before = router.holder();
    const std::string to = before.server->worker.server == "a" ? "b" : "a";
    Move(kRoot, to);
    ASSERT_TRUE(router.Follow(Route(kind)).ok());
    EXPECT_EQ(router.server(), nullptr);
    EXPECT_EQ(metrics().lost, lost + 1);
    ASSERT_TRUE(Find(&router).ok());
    EXPECT_EQ(router.root(), RootOf(kRoot));
    ASSERT_NE(router.server(), nullptr);
    EXPECT_EQ(router.server()->worker.server, to);
    EXPECT_EQ(router.holder().epoch, before.epoch + 1);
    EXPECT_GT(router.holder().revision, before.revision);
  }
}

TEST_F(KeyRouterTest, AWalkThatFoundNoMeganodeStartsOver) {
  KeyRouter router = Router("key");
  ASSERT_TRUE(Find(&router).ok());
  Move(kRoot, "b");
  ASSERT_TRUE(router.Follow(Walk("key", RootOf(kRoot)), Walk::Step::kRestart, /*cached=*/false).ok());
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(router.server()->worker.server, "b");
}

TEST_F(KeyRouterTest, ASearchThatWasLostUsesNoCaches) {
  routes()->Keep("k", "l", RootOf(kOther));
  KeyRouter router = Router("key");
  ASSERT_EQ(router.root(), RootOf(kOther));
  ASSERT_TRUE(router.Restart().ok());
  EXPECT_FALSE(router.may_use_cache());
  EXPECT_EQ(routes()->Find("key"), Pointer());  // It was wrong.
  routes()->Keep("k", "l", RootOf(kOther));     // Another operation has learned it again.
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(router.root(), RootOf(kRoot));
}

TEST_F(KeyRouterTest, ASearchThatWasLostBeginsAtTheNewRootOfTheTree) {
  KeyRouter router = Router("key");
  ChangeTable([](RegionTable* table) { table->root = kThird; });
  ASSERT_TRUE(router.Restart().ok());
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(router.root(), RootOf(kThird));
  EXPECT_EQ(router.server()->worker.server, "b");
}

// The server may have dropped the region and created it again elsewhere in its memory.
TEST_F(KeyRouterTest, AMeganodeThatIsNotAsExpectedIsLookedUpAgainInItsServersMemory) {
  const auto first_word = [&](KeyRouter* router) -> uint64_t {
    alignas(8) uint64_t word = 0;
    const ReadPart part{Pointer(kRoot, 0), reinterpret_cast<std::byte*>(&word), 8};
    EXPECT_TRUE(session_.Run(Read(router->server(), part)).ok());
    return word;
  };
  a_->CreateRegion(kRoot, 4096).value()->StoreWord(0, 1);
  KeyRouter router = Router("key");
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(first_word(&router), 1u);
  a_->DropRegion(kRoot);
  a_->CreateRegion(kRoot, 8192).value()->StoreWord(0, 2);
  EXPECT_EQ(first_word(&router), 1u);
  ASSERT_TRUE(router.Restart().ok());
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(first_word(&router), 2u);
}

// It may take a moment until the table shows a migration.
TEST_F(KeyRouterTest, ASearchThatIsLostAgainAndAgainPausesLongerButNotForLong) {
  KeyRouter router = Router("key");
  int64_t last_ns = 0;
  for (int i = 1; i <= 12; ++i) {
    ASSERT_TRUE(router.Restart().ok());
    const int64_t before_ns = session_.NowNs();
    ASSERT_TRUE(Find(&router).ok());
    const int64_t took_ns = session_.NowNs() - before_ns;
    if (i == 1) {
      EXPECT_LT(took_ns, 100'000);
    } else if (i < 8) {
      EXPECT_GT(took_ns, last_ns) << i;
    }
    EXPECT_LT(took_ns, 6'000'000) << i;
    last_ns = took_ns;
  }
  EXPECT_GT(last_ns, 5'000'000);
}

TEST_F(KeyRouterTest, APauseEndsAtTheDeadline) {
  KeyRouter router = Router("key", 30'000'000);
  ASSERT_TRUE(Find(&router).ok());
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(router.Restart().ok());
  PassTime(29'000'000);
  const int64_t before_ns = session_.NowNs();
  (void)Find(&router);
  EXPECT_LE(session_.NowNs() - before_ns, 1'000'000);
}

// ---- A region without a server.

TEST_F(KeyRouterTest, AServerThatDoesNotAnswerIsAskedOnceMoreUnderTheNewestTable) {
  Move(kRoot, "silent");
  Refresh();
  KeyRouter router = Router("key");
  const absl::Status status = Find(&router);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_NE(status.message().find("region 1 on silent"), std::string::npos) << status;
  EXPECT_EQ(metrics().lost, 1u);
  EXPECT_LT(session_.NowNs(), 3'000'000'000);
}

TEST_F(KeyRouterTest, ARegionThatMovedAwayFromAServerThatDoesNotAnswerIsFound) {
  Move(kRoot, "silent");
  Refresh();
  Move(kRoot, "b");
  KeyRouter router = Router("key");
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(router.server()->worker.server, "b");
}

TEST_F(KeyRouterTest, TheDeadlineEndsAnAttemptToConnect) {
  Move(kRoot, "silent");
  Refresh();
  const int64_t before_ns = session_.NowNs();
  KeyRouter router = Router("key", 10'000'000);
  EXPECT_TRUE(absl::IsUnavailable(Find(&router)));
  EXPECT_LT(session_.NowNs() - before_ns, 20'000'000);
}

// Searches for a child until they arrive there, as an operation does whose answers lead there.
absl::Status FindChild(Session* session, KeyRouter* router, Pointer child) {
  for (int i = 0; i < 1000; ++i) {
    const absl::Status status = session->Run(router->Find());
    if (!status.ok() || router->root() == child) return status;
    if (const absl::Status followed = router->GoTo(child); !followed.ok()) return followed;
  }
  return absl::InternalError("it never arrived");
}

// One of several ZooKeepers may lag.
TEST_F(KeyRouterTest, ARegionThatIsNewerThanTheTableIsWaitedFor) {
  network_.At(50'000'000, [this] {
    ChangeTable([](RegionTable* table) {
      table->next_region = kNew + 1;
      table->regions[kNew] = {{"b", 0}, 1};
    });
  });
  KeyRouter router = Router("key");
  ASSERT_TRUE(FindChild(&session_, &router, RootOf(kNew)).ok());
  EXPECT_EQ(router.root(), RootOf(kNew));
  EXPECT_EQ(router.server()->worker.server, "b");
  EXPECT_GE(session_.NowNs(), 50'000'000);
}

TEST_F(KeyRouterTest, ARegionThatIsNewerThanTheTableIsNotWaitedForBeyondTheDeadline) {
  KeyRouter router = Router("key", 50'000'000);
  EXPECT_FALSE(FindChild(&session_, &router, RootOf(kNew)).ok());
  EXPECT_GE(session_.NowNs(), 50'000'000);
  EXPECT_LT(session_.NowNs(), 60'000'000);
}

TEST_F(KeyRouterTest, ARegionThatIsGoneFromTheTableIsNotWaitedFor) {
  ChangeTable([](RegionTable* table) { table->regions.erase(kThird); });
  Refresh();
  KeyRouter router = Router("key");
  const absl::Status status = FindChild(&session_, &router, RootOf(kThird));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("region 3"), std::string::npos) << status;
  EXPECT_EQ(metrics().lost, 1u);
}

// With logs, other servers recover a region whose server is gone.
class KeyRouterWithLogsTest : public KeyRouterTest {
 protected:
  static ClusterState Recovering() {
    ClusterState state = State();
    state.durability = Durability::kSync;
    state.table.regions[kRoot].recovering = true;
    return state;
  }
  KeyRouterWithLogsTest() : KeyRouterTest(Recovering()) {}
};

TEST_F(KeyRouterWithLogsTest, ARegionIsWaitedForWhileItIsRecovered) {
  network_.At(100'000'000, [this] { ChangeTable([](RegionTable* table) { table->regions[kRoot] = {{"b", 0}, 2}; }); });
  KeyRouter router = Router("key");
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(router.server()->worker.server, "b");
  EXPECT_GE(session_.NowNs(), 100'000'000);
  EXPECT_LT(session_.NowNs(), 120'000'000);
}

TEST_F(KeyRouterWithLogsTest, ARegionThatIsStillBeingRecoveredAtTheDeadlineIsUnavailable) {
  KeyRouter router = Router("key", 100'000'000);
  const absl::Status status = Find(&router);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "region 1 is being recovered by a");
  EXPECT_GE(session_.NowNs(), 100'000'000);
  EXPECT_LT(session_.NowNs(), 110'000'000);
}

// ---- Tables.

TEST_F(KeyRouterTest, ATableThatIsNotThereIsLookedForInTheNewestTable) {
  const std::string table = "orders";
  KeyRouter missing = Router("key", kTimeoutNs, &table);
  EXPECT_EQ(missing.parts(), nullptr);
  const absl::Status status = Find(&missing);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message(), "there is no table \"orders\"");

  KeyRouter router = Router("key", kTimeoutNs, &table);
  ChangeTable([](RegionTable* table) { table->tables["orders"] = {0, {{0, kThird}}}; });
  ASSERT_TRUE(Find(&router).ok());
  ASSERT_NE(router.parts(), nullptr);
  EXPECT_EQ(router.root(), RootOf(kThird));
  EXPECT_EQ(router.server()->worker.server, "b");
}

TEST_F(KeyRouterTest, APartThatWasSplitIsFoundAfterARestart) {
  const std::string table = "users", key = "key";
  KeyRouter router = Router(key, kTimeoutNs, &table);
  ASSERT_TRUE(Find(&router).ok());
  const uint32_t position = HashKey(key).position;
  ChangeTable([&](RegionTable* table) { table->tables["users"].parts[position] = kThird; });
  ASSERT_TRUE(router.Follow(Route(RouteKind::kNotHeld)).ok());
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(router.root(), RootOf(kThird));
}

TEST_F(KeyRouterTest, ATableThatWasDroppedIsNotFound) {
  const std::string table = "users";
  KeyRouter router = Router("key", kTimeoutNs, &table);
  ASSERT_TRUE(Find(&router).ok());
  ChangeTable([](RegionTable* table) { table->tables.clear(); });
  ASSERT_TRUE(router.Follow(Route(RouteKind::kNotHeld)).ok());
  EXPECT_TRUE(absl::IsNotFound(Find(&router)));
}

// ---- A write that was refused, and the end of the client.

TEST_F(KeyRouterTest, AWriteThatWasRefusedGoesToTheNewHolderOfTheSameRegion) {
  routes()->Keep("k", "l", RootOf(kThird));
  KeyRouter router = Router("key");
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_TRUE(router.refused().ok());
  const absl::Status why = absl::UnavailableError("region 3 is migrating");
  ASSERT_TRUE(session_.Run(router.FindHolderAgain(why)));
  EXPECT_EQ(router.server()->worker.server, "b");  // It has not moved yet.
  EXPECT_EQ(router.refused(), why);

  Move(kThird, "a");
  EXPECT_FALSE(session_.Run(router.FindHolderAgain(why)));
  EXPECT_EQ(router.root(), RootOf(kThird));
  EXPECT_EQ(router.server(), nullptr);  // Nothing is connected to server a.
  ASSERT_TRUE(Find(&router).ok());
  EXPECT_EQ(router.root(), RootOf(kThird));
  EXPECT_EQ(router.server()->worker.server, "a");
  EXPECT_EQ(metrics().lost, 0u);
  EXPECT_EQ(routes()->Find("key"), RootOf(kThird));
}

TEST_F(KeyRouterTest, AClosedClientFindsNothing) {
  KeyRouter router = Router("key");
  ASSERT_TRUE(Find(&router).ok());
  session_.Close();
  Task<absl::Status> finding = router.Find();
  finding.Start();
  ASSERT_TRUE(finding.done());
  EXPECT_TRUE(absl::IsCancelled(finding.Take()));
}

}  // namespace
}  // namespace cell

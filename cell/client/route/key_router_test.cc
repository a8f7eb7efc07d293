#include "cell/client/route/key_router_test.h"

#include "pilaf/hash_layout.h"

namespace cell {
namespace {

constexpr int kMisledMax = 8;
constexpr int kHopsMax = 1000;

// ---- Where a search begins.

TEST_F(KeyRouterTest, ASearchBeginsAtTheRootOfTheTree) {
  KeyRouter router = Router("key");
  EXPECT_EQ(router.root(), RootOf(kRoot));
  EXPECT_EQ(router.worker(), nullptr);  // There is no connection yet.
  ASSERT_TRUE(FindConnection(&router).ok());
  ASSERT_NE(router.worker(), nullptr);
  EXPECT_EQ(router.worker()->worker_id.server, "a");
  EXPECT_EQ(router.holder().region, kRoot);
  EXPECT_EQ(router.selector(), router.worker()->selector(OperationKind::kGet));
  EXPECT_TRUE(router.may_use_cache());
  EXPECT_EQ(metrics().route_misses, 1u);
  EXPECT_EQ(metrics().route_hits, 0u);
}

TEST_F(KeyRouterTest, ASearchBeginsAtTheCachedRouteOfItsKey) {
  routes()->Keep("k", "l", RootOf(kThird));
  KeyRouter router = Router("key");
  EXPECT_EQ(router.root(), RootOf(kThird));
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(router.worker()->worker_id.server, "b");
  EXPECT_EQ(metrics().route_hits, 1u);
  EXPECT_EQ(Router("l").root(), RootOf(kRoot));  // The route's range ends before this key.
}

TEST_F(KeyRouterTest, AKeyOfATableBelongsToThePartThatHasItsHash) {
  const std::string table = "users";
  for (int i = 0; i < 20; ++i) {
    const std::string key = std::to_string(i);
    const bool upper = HashKey(key).position >= 1u << 31;
    KeyRouter router = Router(key, kTimeoutNs, &table);
    EXPECT_EQ(router.root(), HashRootOf(upper ? kUpperPart : kLowerPart));
    ASSERT_TRUE(FindConnection(&router).ok());
    EXPECT_EQ(router.worker()->worker_id.server, upper ? "b" : "a");
    EXPECT_EQ(router.selector(), router.worker()->selector(OperationKind::kLookup));
  }
}

// ---- From meganode to meganode.

TEST_F(KeyRouterTest, AChildLeadsOnAndIsKeptIfItsRangeIsGiven) {
  KeyRouter router = Router("key");
  ASSERT_TRUE(FindConnection(&router).ok());
  ASSERT_TRUE(router.Follow(ChildRoute(RootOf(kThird), "k", "l")).ok());
  EXPECT_EQ(router.root(), RootOf(kThird));
  EXPECT_EQ(router.worker(), nullptr);  // Nothing is connected to this one's server.
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(router.worker()->worker_id.server, "b");
  EXPECT_EQ(routes()->Find("key"), RootOf(kThird));
  EXPECT_EQ(routes()->Find("l"), Pointer());

  ASSERT_TRUE(router.Follow(Route(RouteKind::kChild, RootOf(kOther))).ok());
  EXPECT_EQ(router.root(), RootOf(kOther));
  ASSERT_NE(router.worker(), nullptr);
  EXPECT_EQ(router.worker()->worker_id.server, "a");
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
  EXPECT_EQ(metrics().restarts, 0u);
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

// Such nodes are of earlier regions with their ids, each of the tier above the other.
TEST_F(KeyRouterTest, CachedNodesThatLeadRoundInACircleAreNotFollowedForLong) {
  const Walk walk = WalkToChild("key", RootOf(kOther));
  session_.tree()->nodes()->Keep(routes_node());
  KeyRouter router = Router("key");
  int steps = 0;
  for (; router.may_use_cache(); ++steps) {
    ASSERT_LT(steps, 20);
    ASSERT_TRUE(router.Follow(walk, Walk::Step::kElsewhere, /*cached=*/true).ok());
  }
  EXPECT_FALSE(session_.tree()->nodes()->Find(RootOf(kRoot)).has_value());
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(router.root(), RootOf(kRoot));
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

// ---- Tables.

TEST_F(KeyRouterTest, ATableThatIsNotThereIsLookedForInTheNewestTable) {
  const std::string table = "orders";
  KeyRouter missing = Router("key", kTimeoutNs, &table);
  EXPECT_EQ(missing.parts(), nullptr);
  const absl::Status status = FindConnection(&missing);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message(), "there is no table \"orders\"");

  KeyRouter router = Router("key", kTimeoutNs, &table);
  ChangeTable([](RegionTable* table) { CELL_CHECK(table->CreateTable("orders", 0, kThird).ok()); });
  ASSERT_TRUE(FindConnection(&router).ok());
  ASSERT_NE(router.parts(), nullptr);
  EXPECT_EQ(router.root(), HashRootOf(kThird));
  EXPECT_EQ(router.worker()->worker_id.server, "b");
}

TEST_F(KeyRouterTest, APartThatWasSplitIsFoundAfterARestart) {
  const std::string table = "users", key = "key";
  KeyRouter router = Router(key, kTimeoutNs, &table);
  ASSERT_TRUE(FindConnection(&router).ok());
  const uint32_t position = HashKey(key).position;
  ChangeTable([&](RegionTable* table) { table->tables["users"].parts.Set(position, kThird); });
  ASSERT_TRUE(router.Follow(Route(RouteKind::kNotHeld)).ok());
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(router.root(), HashRootOf(kThird));
}

TEST_F(KeyRouterTest, ATableThatWasDroppedIsNotFound) {
  const std::string table = "users";
  KeyRouter router = Router("key", kTimeoutNs, &table);
  ASSERT_TRUE(FindConnection(&router).ok());
  ChangeTable([](RegionTable* table) { table->tables.clear(); });
  ASSERT_TRUE(router.Follow(Route(RouteKind::kNotHeld)).ok());
  EXPECT_TRUE(absl::IsNotFound(FindConnection(&router)));
}

}  // namespace
}  // namespace cell

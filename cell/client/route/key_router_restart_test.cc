#include "cell/client/route/key_router_test.h"

namespace cell {
namespace {

// ---- Starting over.

TEST_F(KeyRouterTest, AServerThatDoesNotHaveTheRegionAnyMoreSendsTheSearchToTheNewHolder) {
  for (const RouteKind kind : {RouteKind::kNotHeld, RouteKind::kRestart, RouteKind::kTooLow}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const uint64_t restarts = metrics().restarts;
    KeyRouter router = Router("key");
    ASSERT_TRUE(FindConnection(&router).ok());
    const Holder before = router.holder();
    const std::string to = before.worker->worker_id.server == "a" ? "b" : "a";
    Move(kRoot, to);
    ASSERT_TRUE(router.Follow(Route(kind)).ok());
    EXPECT_EQ(router.worker(), nullptr);
    EXPECT_EQ(metrics().restarts, restarts + 1);
    ASSERT_TRUE(FindConnection(&router).ok());
    EXPECT_EQ(router.root(), RootOf(kRoot));
    ASSERT_NE(router.worker(), nullptr);
    EXPECT_EQ(router.worker()->worker_id.server, to);
    EXPECT_EQ(router.holder().epoch, before.epoch + 1);
    EXPECT_GT(router.holder().revision, before.revision);
  }
}

// A region that is being recovered sends searches back to the root again and again, for as long as their timeout
// allows.
TEST_F(KeyRouterTest, HowOftenASearchStartsOverIsLimitedByItsDeadlineAlone) {
  KeyRouter router = Router("key", INT64_MAX);
  for (int i = 0; i < 1500; ++i) {
    ASSERT_TRUE(FindConnection(&router).ok());
    ASSERT_TRUE(router.GoTo(RootOf(kThird)).ok()) << i;
    ASSERT_TRUE(router.Restart().ok());
  }
}

TEST_F(KeyRouterTest, AWalkThatFoundNoMeganodeStartsOver) {
  KeyRouter router = Router("key");
  ASSERT_TRUE(FindConnection(&router).ok());
  Move(kRoot, "b");
  ASSERT_TRUE(router.Follow(Walk("key", RootOf(kRoot)), Walk::Step::kRestart, /*cached=*/false).ok());
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(router.worker()->worker_id.server, "b");
}

TEST_F(KeyRouterTest, ASearchThatWasLostUsesNoCaches) {
  routes()->Keep("k", "l", RootOf(kOther));
  KeyRouter router = Router("key");
  ASSERT_EQ(router.root(), RootOf(kOther));
  ASSERT_TRUE(router.Restart().ok());
  EXPECT_FALSE(router.may_use_cache());
  EXPECT_EQ(routes()->Find("key"), Pointer());  // It was wrong.
  routes()->Keep("k", "l", RootOf(kOther));     // Another operation has learned it again.
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(router.root(), RootOf(kRoot));
}

TEST_F(KeyRouterTest, ASearchThatWasLostBeginsAtTheNewRootOfTheTree) {
  KeyRouter router = Router("key");
  ChangeTable([](RegionTable* table) { table->root = kThird; });
  ASSERT_TRUE(router.Restart().ok());
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(router.root(), RootOf(kThird));
  EXPECT_EQ(router.worker()->worker_id.server, "b");
}

// The server may have dropped the region and created it again elsewhere in its memory.
TEST_F(KeyRouterTest, AMeganodeThatIsNotAsExpectedIsLookedUpAgainInItsServersMemory) {
  const auto first_word = [&](KeyRouter* router) -> uint64_t {
    alignas(8) uint64_t word = 0;
    const ReadPart part{Pointer(kRoot, 0), reinterpret_cast<std::byte*>(&word), 8};
    EXPECT_TRUE(session_.Run(Read(router->worker(), part)).ok());
    return word;
  };
  a_->CreateRegion(kRoot, 4096).value()->StoreWord(0, 1);
  KeyRouter router = Router("key");
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(first_word(&router), 1u);
  a_->DropRegion(kRoot);
  a_->CreateRegion(kRoot, 8192).value()->StoreWord(0, 2);
  EXPECT_EQ(first_word(&router), 1u);
  ASSERT_TRUE(router.Restart().ok());
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(first_word(&router), 2u);
}

// It may take a moment until the table shows a migration.
TEST_F(KeyRouterTest, ASearchThatIsLostAgainAndAgainPausesLongerButNotForLong) {
  KeyRouter router = Router("key");
  int64_t last_ns = 0;
  for (int i = 1; i <= 12; ++i) {
    ASSERT_TRUE(router.Restart().ok());
    const int64_t before_ns = session_.NowNs();
    ASSERT_TRUE(FindConnection(&router).ok());
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
  ASSERT_TRUE(FindConnection(&router).ok());
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(router.Restart().ok());
  PassTime(29'000'000);
  const int64_t before_ns = session_.NowNs();
  (void)FindConnection(&router);
  EXPECT_LE(session_.NowNs() - before_ns, 1'000'000);
}

// ---- A region without a server.

TEST_F(KeyRouterTest, AServerThatDoesNotAnswerIsAskedOnceMoreUnderTheNewestTable) {
  Move(kRoot, "silent");
  Refresh();
  KeyRouter router = Router("key");
  const absl::Status status = FindConnection(&router);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_NE(status.message().find("region 1 on silent"), std::string::npos) << status;
  EXPECT_EQ(metrics().restarts, 1u);
  EXPECT_LT(session_.NowNs(), 3'000'000'000);
}

TEST_F(KeyRouterTest, ARegionThatMovedAwayFromAServerThatDoesNotAnswerIsFound) {
  Move(kRoot, "silent");
  Refresh();
  Move(kRoot, "b");
  KeyRouter router = Router("key");
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(router.worker()->worker_id.server, "b");
}

TEST_F(KeyRouterTest, TheDeadlineEndsAnAttemptToConnect) {
  Move(kRoot, "silent");
  Refresh();
  const int64_t before_ns = session_.NowNs();
  KeyRouter router = Router("key", 10'000'000);
  EXPECT_TRUE(absl::IsUnavailable(FindConnection(&router)));
  EXPECT_LT(session_.NowNs() - before_ns, 20'000'000);
}

// Searches for a child until they arrive there, as an operation does whose answers lead there.
absl::Status FindChild(Session* session, KeyRouter* router, Pointer child) {
  for (int i = 0; i < 1000; ++i) {
    absl::Status status = session->Run(router->FindConnection());
    if (!status.ok() || router->root() == child) return status;
    if (absl::Status followed = router->GoTo(child); !followed.ok()) return followed;
  }
  return absl::InternalError("it never arrived");
}

// One of several ZooKeepers may lag.
TEST_F(KeyRouterTest, ARegionThatIsNewerThanTheTableIsWaitedFor) {
  network_.At(50'000'000, [this] {
    ChangeTable([](RegionTable* table) {
      table->ids.next = kNew + 1;
      table->regions.Set(kNew, {{"b", 0}, 1});
    });
  });
  KeyRouter router = Router("key");
  ASSERT_TRUE(FindChild(&session_, &router, RootOf(kNew)).ok());
  EXPECT_EQ(router.root(), RootOf(kNew));
  EXPECT_EQ(router.worker()->worker_id.server, "b");
  EXPECT_GE(session_.NowNs(), 50'000'000);
}

TEST_F(KeyRouterTest, ARegionThatIsNewerThanTheTableIsNotWaitedForBeyondTheDeadline) {
  KeyRouter router = Router("key", 50'000'000);
  EXPECT_FALSE(FindChild(&session_, &router, RootOf(kNew)).ok());
  EXPECT_GE(session_.NowNs(), 50'000'000);
  EXPECT_LT(session_.NowNs(), 60'000'000);
}

// The region has joined its left neighbour, and the client still has the old route.
TEST_F(KeyRouterTest, ARegionThatIsGoneFromTheTableIsSearchedForFromTheRootAgain) {
  ChangeTable([](RegionTable* table) { table->regions.Erase(kThird); });
  Refresh();
  KeyRouter router = Router("key");
  ASSERT_TRUE(session_.Run(router.FindConnection()).ok());
  ASSERT_TRUE(router.GoTo(RootOf(kThird)).ok());
  ASSERT_TRUE(session_.Run(router.FindConnection()).ok());
  EXPECT_EQ(router.root(), RootOf(kRoot));
  EXPECT_EQ(metrics().restarts, 1u);
}

TEST_F(KeyRouterTest, ARegionThatIsGoneFromTheTableIsNotSearchedForBeyondTheDeadline) {
  ChangeTable([](RegionTable* table) { table->regions.Erase(kThird); });
  Refresh();
  KeyRouter router = Router("key", 50'000'000);
  const absl::Status status = FindChild(&session_, &router, RootOf(kThird));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("region 3"), std::string::npos) << status;
  EXPECT_GE(session_.NowNs(), 50'000'000);
  EXPECT_LT(session_.NowNs(), 60'000'000);
}

TEST_F(KeyRouterTest, NothingIsSoughtInAClusterThatWasMadeAgain) {
  ChangeTable([](RegionTable* table) { table->regions.Erase(kThird); });
  Refresh();
  membership_->set_failing(absl::FailedPreconditionError("the cluster was deleted, and there is a new one"));
  KeyRouter router = Router("key");
  const absl::Status status = FindChild(&session_, &router, RootOf(kThird));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_LT(session_.NowNs(), kTimeoutNs / 2);
}

// With logs, other servers recover a region whose server is gone.
class KeyRouterWithLogsTest : public KeyRouterTest {
 protected:
  static ClusterState Recovering() {
    ClusterState state = State();
    state.durability = Durability::kSync;
    state.table.regions.Change(kRoot, [](RegionEntry* entry) { entry->recovering = true; });
    return state;
  }
  KeyRouterWithLogsTest() : KeyRouterTest(Recovering()) {}
};

TEST_F(KeyRouterWithLogsTest, ARegionIsWaitedForWhileItIsRecovered) {
  network_.At(100'000'000, [this] {
    ChangeTable([](RegionTable* table) { table->regions.Set(kRoot, {{"b", 0}, 2}); });
  });
  KeyRouter router = Router("key");
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(router.worker()->worker_id.server, "b");
  EXPECT_GE(session_.NowNs(), 100'000'000);
  EXPECT_LT(session_.NowNs(), 120'000'000);
}

TEST_F(KeyRouterWithLogsTest, ARegionThatIsStillBeingRecoveredAtTheDeadlineIsUnavailable) {
  KeyRouter router = Router("key", 100'000'000);
  const absl::Status status = FindConnection(&router);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "region 1 is being recovered by a");
  EXPECT_GE(session_.NowNs(), 100'000'000);
  EXPECT_LT(session_.NowNs(), 110'000'000);
}

// Others may take the region over, but a user who may not connect is not let in by waiting.
TEST_F(KeyRouterWithLogsTest, AServerThatThisUserMayNotConnectToIsNotWaitedFor) {
  ChangeTable([](RegionTable* table) { table->regions.Set(kRoot, {{"silent", 0}, 2}); });
  Refresh();
  WorkerConnection* const silent = session_.connections()->To({"silent", 0}, "nowhere");
  silent->why_down = absl::PermissionDeniedError("it belongs to user 7");
  silent->last_attempt_ns = session_.NowNs();
  KeyRouter router = Router("key");
  EXPECT_EQ(FindConnection(&router), absl::PermissionDeniedError("region 1 on silent: it belongs to user 7"));
  EXPECT_EQ(metrics().restarts, 1u);  // The table was read once more.
}

// ---- A write that was refused, and the end of the client.

TEST_F(KeyRouterTest, AWriteThatWasRefusedGoesToTheNewHolderOfTheSameRegion) {
  routes()->Keep("k", "l", RootOf(kThird));
  KeyRouter router = Router("key");
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_TRUE(router.refused().ok());
  const absl::Status why = absl::UnavailableError("region 3 is migrating");
  ASSERT_TRUE(session_.Run(router.FindHolderAgain(why)));
  EXPECT_EQ(router.worker()->worker_id.server, "b");  // It has not moved yet.
  EXPECT_EQ(router.refused(), why);

  Move(kThird, "a");
  EXPECT_FALSE(session_.Run(router.FindHolderAgain(why)));
  EXPECT_EQ(router.root(), RootOf(kThird));
  EXPECT_EQ(router.worker(), nullptr);  // Nothing is connected to server a.
  ASSERT_TRUE(FindConnection(&router).ok());
  EXPECT_EQ(router.root(), RootOf(kThird));
  EXPECT_EQ(router.worker()->worker_id.server, "a");
  EXPECT_EQ(metrics().restarts, 0u);
  EXPECT_EQ(routes()->Find("key"), RootOf(kThird));
}

TEST_F(KeyRouterTest, AClosedClientFindsNothing) {
  KeyRouter router = Router("key");
  ASSERT_TRUE(FindConnection(&router).ok());
  session_.Close();
  Task<absl::Status> finding = router.FindConnection();
  finding.Start();
  ASSERT_TRUE(finding.done());
  EXPECT_TRUE(absl::IsCancelled(finding.Take()));
}

}  // namespace
}  // namespace cell

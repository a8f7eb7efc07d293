#include "cell/client/session/table_view.h"

#include <gtest/gtest.h>

#include <optional>

#include "cell/base/crc64.h"
#include "cell/client/session/served_table.h"
#include "cell/client/session/session_test.h"
#include "cell/cluster/memory_membership.h"
#include "cell/layout/wire.h"

namespace cell {
namespace {

constexpr int64_t kLeaseNs = 1'000'000;

ClusterState State() {
  ClusterState state;
  state.shape = {512, 32 << 10, 64 << 10};
  state.durability = Durability::kSync;
  state.table_lease_ns = kLeaseNs;
  state.servers = {{"server", {{"server", 8}}, ""}, {"other", {{"other", 8}}, ""}};
  state.table.ids.next = 3;
  state.table.root = 1;
  state.table.regions = {{1, {{"server", 0}, 1}}, {2, {{"other", 0}, 1}}};
  return state;
}

// Says that it wakes its owner, as memberships of real clusters do. These tests poll it themselves.
class WakingMembership : public MemoryMembership {
 public:
  using MemoryMembership::MemoryMembership;
  bool SetWake(std::function<void()>) override { return true; }
  size_t Poll() override { return silent ? 0 : MemoryMembership::Poll(); }

  bool silent = false;  // Answers nothing yet.
};

class TableViewTest : public ConnectionsFixture, public ::testing::Test {
 protected:
  template <typename T>
  T Wait(Task<T> task) {
    task.Start();
    while (!task.done()) {
      view_.Poll();
      if (!task.done()) Turn();  // The membership's answer may have resumed it.
    }
    return task.Take();
  }
  // Changes the table as another member does.
  void ChangeTable(const std::function<void(RegionTable*)>& change) {
    const std::lock_guard lock(cluster_->mutex);
    change(&cluster_->state.table);
    ++cluster_->state.table.version;
    ++cluster_->state.revision;
  }
  void Refresh() { ASSERT_TRUE(Wait(view_.Refresh(INT64_MAX))); }

  std::shared_ptr<MemoryCluster> cluster_ = std::make_shared<MemoryCluster>(State());
  TableView view_{&loop_, &connections_, &metrics_, std::make_unique<WakingMembership>(cluster_), 1};
};

TEST_F(TableViewTest, AHolderIsKnownOnceItIsConnected) {
  EXPECT_EQ(view_.root(), RootOf(1));
  EXPECT_EQ(view_.HolderOf(1).worker, nullptr);
  const absl::StatusOr<WorkerConnection*> worker = Wait(view_.Connect(1));
  ASSERT_TRUE(worker.ok());
  const Holder holder = view_.HolderOf(1);
  EXPECT_EQ(holder.worker, *worker);
  EXPECT_EQ(holder.epoch, 1u);
  EXPECT_EQ(view_.AllWorkers().size(), 2u);
  const absl::Status nobody = Wait(view_.Connect(2)).status();
  EXPECT_TRUE(absl::IsUnavailable(nobody));
  EXPECT_NE(nobody.message().find("region 2 on other"), std::string::npos) << nobody;
  EXPECT_TRUE(absl::IsUnavailable(Wait(view_.Connect(7)).status()));
}

TEST_F(TableViewTest, ReadsAreTrustedForAsLongAsTheLease) {
  ASSERT_TRUE(Wait(view_.Connect(1)).ok());
  Refresh();
  const int64_t until_ns = view_.LeaseUntilNs();
  EXPECT_GT(until_ns, loop_.NowNs());
  EXPECT_LE(until_ns, loop_.NowNs() + kLeaseNs);
  const Holder holder = view_.HolderOf(1);
  EXPECT_TRUE(view_.Leased(holder));
  PassTime(until_ns + 1 - loop_.NowNs());
  EXPECT_FALSE(view_.Leased(holder));
}

// Otherwise it would be trusted under a lease that it did not begin under.
TEST_F(TableViewTest, AReadThatBeganUnderAnOlderTableIsTrustedOnlyIfTheHolderIsTheSame) {
  ASSERT_TRUE(Wait(view_.Connect(1)).ok());
  Refresh();
  const Holder holder = view_.HolderOf(1);
  ChangeTable([](RegionTable* table) { table->regions.Change(2, [](RegionEntry* entry) { entry->epoch = 2; }); });
  Refresh();
  EXPECT_TRUE(view_.Leased(holder));
  // The region went away and came back.
  ChangeTable([](RegionTable* table) { table->regions.Change(1, [](RegionEntry* entry) { entry->epoch = 2; }); });
  Refresh();
  EXPECT_FALSE(view_.Leased(holder));
  EXPECT_TRUE(view_.Leased(view_.HolderOf(1)));
}

TEST_F(TableViewTest, ARegionThatIsRecoveredHasNoHolder) {
  ASSERT_TRUE(Wait(view_.Connect(1)).ok());
  ChangeTable(
      [](RegionTable* table) { table->regions.Change(1, [](RegionEntry* entry) { entry->recovering = true; }); });
  Refresh();
  EXPECT_EQ(view_.HolderOf(1).worker, nullptr);
  EXPECT_TRUE(view_.WillBeServed(1));
  EXPECT_TRUE(absl::IsUnavailable(Wait(view_.Connect(1)).status()));
}

// A refresh that is under way may have read the table before the event for which its caller waits.
TEST_F(TableViewTest, ARefreshSeesAllThatHappenedBeforeIt) {
  view_.RefreshSoon();
  PassTime(20'000'000);
  loop_.Touch();
  view_.RefreshIfDue();  // It has made its request, and is not answered.
  ChangeTable([](RegionTable* table) { table->regions.Change(1, [](RegionEntry* entry) { entry->epoch = 5; }); });
  Refresh();
  EXPECT_EQ(view_.cluster().table.Find(1)->epoch, 5u);
}

TEST_F(TableViewTest, ARefreshIsResumedByTheAnswer) {
  Task<bool> task = view_.Refresh(INT64_MAX);
  task.Start();
  EXPECT_FALSE(task.done());
  const int64_t before_ns = loop_.NowNs();
  EXPECT_EQ(view_.Poll(), 1u);  // The answer.
  ASSERT_TRUE(task.done());
  EXPECT_TRUE(task.Take());
  EXPECT_EQ(loop_.NowNs(), before_ns);
}

TEST_F(TableViewTest, ARefreshMayAskForTheNextOneWhichIsNotAnsweredInTheSamePoll) {
  const auto twice = [this]() -> Task<bool> {
    co_await view_.Refresh(INT64_MAX);
    co_return co_await view_.Refresh(INT64_MAX);
  };
  Task<bool> task = twice();
  task.Start();
  EXPECT_EQ(view_.Poll(), 1u);
  EXPECT_FALSE(task.done());
  EXPECT_EQ(view_.Poll(), 1u);
  ASSERT_TRUE(task.done());
  EXPECT_TRUE(task.Take());
}

// Otherwise virtual time would stand still while a search refreshes again and again.
TEST_F(TableViewTest, ARefreshTakesTimeIfTheMembershipWakesNobody) {
  TableView polled(&loop_, &connections_, &metrics_, std::make_unique<MemoryMembership>(cluster_), 1);
  Task<bool> task = polled.Refresh(INT64_MAX);
  task.Start();
  EXPECT_EQ(polled.Poll(), 1u);
  EXPECT_FALSE(task.done());
  const int64_t before_ns = loop_.NowNs();
  while (!task.done()) Turn();
  EXPECT_TRUE(task.Take());
  EXPECT_GT(loop_.NowNs(), before_ns);
}

TEST_F(TableViewTest, ARefreshThatIsNotAnsweredEndsAtItsDeadline) {
  TableView polled(&loop_, &connections_, &metrics_, std::make_unique<MemoryMembership>(cluster_), 1);
  for (TableView* const view : {&view_, &polled}) {
    const int64_t deadline_ns = loop_.NowNs() + 5'000;
    Task<bool> task = view->Refresh(deadline_ns);
    task.Start();
    loop_.Wait(INT64_MAX);
    EXPECT_EQ(loop_.NowNs(), deadline_ns);
    loop_.Step();
    ASSERT_TRUE(task.done());
    EXPECT_FALSE(task.Take());
  }
}

TEST_F(TableViewTest, ARefreshThatIsNotAnsweredEndsWithTheLoop) {
  Task<bool> task = view_.Refresh(INT64_MAX);
  task.Start();
  view_.StopWaking();
  loop_.Close();
  ASSERT_TRUE(task.done());
  EXPECT_FALSE(task.Take());
}

TEST_F(TableViewTest, ARefreshThatFailedExtendsNoLease) {
  auto owned = std::make_unique<WakingMembership>(cluster_);
  WakingMembership* const membership = owned.get();
  TableView view(&loop_, &connections_, &metrics_, std::move(owned), 1);
  const auto refresh = [&] {
    Task<bool> task = view.Refresh(INT64_MAX);
    task.Start();
    while (!task.done()) view.Poll();
  };
  refresh();
  const int64_t before_ns = view.LeaseUntilNs();
  PassTime(kLeaseNs / 4);
  membership->set_failing(absl::UnavailableError("the coordinator cannot be reached"));
  refresh();
  EXPECT_EQ(view.LeaseUntilNs(), before_ns);
  membership->set_failing(absl::OkStatus());
  refresh();
  EXPECT_GT(view.LeaseUntilNs(), before_ns);
}

TEST_F(TableViewTest, AStoppedServerThatHasLeftTheClusterIsNotWaitedFor) {
  constexpr int64_t kTimeoutNs = 20'000'000'000;
  StoppedService stopped;
  const std::unique_ptr<SimFabric> other = network_.NewEndpoint();
  ASSERT_TRUE(other->Listen("other", &stopped).ok());
  WorkerConnection* const worker = *Wait(view_.Connect(2));
  const auto call = [&]() -> Task<absl::Status> {
    const OutgoingCall call{.head = "?", .reply_bytes_max = kMessageBytesMax, .deadline_ns = kTimeoutNs};
    co_return (co_await connections_.Call(worker, call)).status();
  };
  Task<absl::Status> waiting = call();
  waiting.Start();
  const auto run_until = [&](int64_t ns) {
    while (!waiting.done() && loop_.NowNs() < ns) {
      view_.Poll();
      view_.RefreshIfDue();
      Turn();
    }
  };
  run_until(kTimeoutNs / 2);
  EXPECT_FALSE(waiting.done());  // It may answer yet.
  EXPECT_TRUE(worker->up);
  cluster_->state.servers.resize(1);
  run_until(kTimeoutNs);
  ASSERT_TRUE(waiting.done());
  EXPECT_LT(loop_.NowNs(), kTimeoutNs * 2 / 3);
  EXPECT_EQ(waiting.Take().code(), absl::StatusCode::kUnknown);  // It may have been served.
  EXPECT_FALSE(worker->up);
}

TEST_F(TableViewTest, SaysWhyTheTableCouldNotBeRead) {
  auto own = std::make_unique<WakingMembership>(cluster_);
  WakingMembership* const membership = own.get();
  TableView view(&loop_, &connections_, &metrics_, std::move(own), 1);
  const auto refresh = [&] {
    Task<bool> task = view.Refresh(INT64_MAX);
    task.Start();
    while (!task.done()) view.Poll();
  };
  EXPECT_TRUE(view.failure().ok());
  membership->set_failing(absl::FailedPreconditionError("the cluster was deleted"));
  refresh();
  EXPECT_EQ(view.failure().message(), "the cluster was deleted");
  const uint64_t readings = metrics_.table_readings;
  for (int i = 0; i < 100; ++i) refresh();
  EXPECT_EQ(view.failure().message(), "the cluster was deleted");
  EXPECT_EQ(metrics_.table_readings, readings);  // However often its caller tries again.
  membership->set_failing(absl::OkStatus());
  PassTime(1'000'000'000);
  refresh();
  EXPECT_TRUE(view.failure().ok());
}

// Answers questions of clients as a server that has known the table of this age.
class AnsweringView : public TableViewTest {
 protected:
  AnsweringView() {
    service_.answer = [this](const IncomingCall& call, MutableBytes to) {
      ++questions_;
      if (!ParseHeader(call.request).ok()) return size_t{0};
      auto reply = ReplyOf<TableVersionReply>(MessageKind::kTableVersion);
      reply.cluster = Crc64(cluster_->state.uuid);
      reply.version = version_;
      reply.age_ns = age_ns_;
      Store(to.data(), reply);
      return sizeof(reply);
    };
    // All questions go to the server that is there.
    cluster_->state.servers.resize(1);
    Refresh();
    ++metrics_.node_reads;
    PassTime(kLeaseNs / 2);
  }
  // Runs the view as a session does.
  void Run(int64_t ns) {
    const int64_t until_ns = loop_.NowNs() + ns;
    while (loop_.NowNs() < until_ns) {
      connections_.CloseBroken();
      loop_.DestroyEnded();
      view_.Poll();
      loop_.Touch();
      view_.RefreshIfDue();
      if (loop_.Step() + loop_.fabric()->Poll() == 0) loop_.Wait(std::min(until_ns, loop_.NowNs() + kLeaseNs / 100));
    }
  }

  int questions_ = 0;
  uint64_t version_ = 0;
  uint64_t age_ns_ = 0;
};

TEST_F(AnsweringView, AClientThatReadsKeepsItsLeaseByTheWordOfAServer) {
  const uint64_t readings = metrics_.table_readings;
  for (int i = 0; i < 100; ++i) {
    ++metrics_.node_reads;
    Run(kLeaseNs / 10);
    ASSERT_GT(view_.LeaseUntilNs(), loop_.NowNs());
  }
  EXPECT_EQ(metrics_.table_readings, readings);
  EXPECT_GE(questions_, 20);
  EXPECT_LE(questions_, 61);
  EXPECT_EQ(metrics_.table_questions, static_cast<uint64_t>(questions_));
  EXPECT_EQ(metrics_.calls, 0u);
}

TEST_F(AnsweringView, AClientThatDoesNotReadAsksNobody) {
  Run(kLeaseNs / 2);  // For the read before.
  const int questions = questions_;
  Run(10 * kLeaseNs);
  EXPECT_EQ(questions_, questions);
}

TEST_F(AnsweringView, TheLeaseCountsFromWhenTheServerHasSeenTheTable) {
  age_ns_ = kLeaseNs / 4;
  const int64_t asked_ns = loop_.NowNs();
  Run(kLeaseNs / 100);
  ASSERT_EQ(questions_, 1);
  const int64_t from_ns = view_.LeaseUntilNs() - kLeaseNs;
  EXPECT_GE(from_ns, asked_ns - kLeaseNs / 4);
  EXPECT_LT(from_ns, asked_ns - kLeaseNs / 4 + kLeaseNs / 100);
}

TEST_F(AnsweringView, AnAnswerNeverShortensTheLease) {
  const int64_t before_ns = view_.LeaseUntilNs();
  age_ns_ = 100 * kLeaseNs;
  Run(kLeaseNs / 100);
  EXPECT_EQ(questions_, 1);
  EXPECT_GE(view_.LeaseUntilNs(), before_ns);
}

// Then the client reads the table itself.
TEST_F(AnsweringView, AServerThatCannotSayOrKnowsAnotherTableRenewsNothing) {
  const auto reads_itself = [this] {
    const uint64_t readings = metrics_.table_readings;
    const int questions = questions_;
    ++metrics_.node_reads;
    PassTime(20'000'000);  // Readings are no closer together than 10 ms.
    Run(kLeaseNs / 100);
    return questions_ == questions + 1 && metrics_.table_readings == readings + 1;
  };
  EXPECT_FALSE(reads_itself());
  age_ns_ = UINT64_MAX;
  EXPECT_TRUE(reads_itself());
  age_ns_ = 2 * kLeaseNs;
  EXPECT_TRUE(reads_itself());
  age_ns_ = 0;
  version_ = 1;
  EXPECT_TRUE(reads_itself());
  ChangeTable([](RegionTable*) {});
  EXPECT_TRUE(reads_itself());  // It learns of that version.
  EXPECT_FALSE(reads_itself());
  version_ = 0;  // This server is behind.
  EXPECT_TRUE(reads_itself());
}

// The view of a client that learns from workers, and a worker that answers it.
class LearningView : public ConnectionsFixture, public ::testing::Test {
 protected:
  LearningView() {
    cluster_->state.servers.resize(1);  // All questions go to the server that is there.
    cluster_->state.table.version = 1;
    cluster_->state.table.regions.Stored(1);
    auto membership = std::make_unique<WakingMembership>(cluster_);
    served_.state = membership->state();
    served_.Serve();
    service_.answer = [this](const IncomingCall& call, MutableBytes to) { return served_.Answer(call, to); };
    membership->SetLearns();
    membership_ = membership.get();
    view_.emplace(&loop_, &connections_, &metrics_, std::move(membership), 1);
  }
  ~LearningView() override { loop_.Close(); }
  void Turn() {
    connections_.CloseBroken();
    loop_.DestroyEnded();
    view_->Poll();
    loop_.Touch();
    view_->RefreshIfDue();
    if (loop_.Step() + loop_.fabric()->Poll() == 0) loop_.Wait(loop_.NowNs() + kLeaseNs / 1000);
  }
  void Run(int64_t ns) {
    const int64_t until_ns = loop_.NowNs() + ns;
    while (loop_.NowNs() < until_ns) Turn();
  }
  bool Refresh() {
    Task<bool> task = view_->Refresh(loop_.NowNs() + 100 * kLeaseNs);
    task.Start();
    while (!task.done()) Turn();
    return task.Take();
  }

  std::shared_ptr<MemoryCluster> cluster_ = std::make_shared<MemoryCluster>(State());
  ServedTable served_;
  WakingMembership* membership_ = nullptr;
  std::optional<TableView> view_;
};

TEST_F(LearningView, ARefreshBringsWhatTheServerKnows) {
  served_.ChangeTable([](RegionTable* table) { CELL_CHECK(table->SetRoot(1, 2).ok()); });
  ++served_.state.servers_version;
  served_.state.servers.push_back({"new", {{"new", 8}}, ""});
  served_.Serve();
  const uint64_t revision = view_->cluster().revision;
  ASSERT_TRUE(Refresh());
  EXPECT_EQ(view_->root(), RootOf(2));
  EXPECT_NE(view_->cluster().FindServer("new"), nullptr);
  EXPECT_GT(view_->cluster().revision, revision);
  EXPECT_EQ(metrics_.table_readings, 0u);
  EXPECT_GT(view_->LeaseUntilNs(), loop_.NowNs());
  EXPECT_EQ(cluster_->requests, 0u);
}

TEST_F(LearningView, ALeaseIsRenewedByATableThatIsNewer) {
  ASSERT_TRUE(Refresh());
  for (int i = 0; i < 20; ++i) {
    served_.ChangeTable([](RegionTable*) {});
    ++metrics_.node_reads;
    Run(kLeaseNs / 2);
    ASSERT_GT(view_->LeaseUntilNs(), loop_.NowNs());
  }
  EXPECT_EQ(view_->cluster().table.version, served_.state.table.version);
  EXPECT_EQ(cluster_->requests, 0u);
}

// A refresh is for what has changed before it began, of which the server may not have heard yet.
TEST_F(LearningView, ARefreshWaitsForAServerThatKnowsTheTableAsOfThen) {
  served_.age_ns = kLeaseNs / 50;
  const int64_t begun_ns = loop_.NowNs();
  ASSERT_TRUE(Refresh());
  EXPECT_GE(loop_.NowNs(), begun_ns + kLeaseNs / 50);
  EXPECT_GT(served_.questions, 1);
  EXPECT_GE(view_->LeaseUntilNs(), begun_ns + kLeaseNs);
  EXPECT_EQ(cluster_->requests, 0u);
}

TEST_F(LearningView, AnOlderTableIsNotTakenOver) {
  served_.ChangeTable([](RegionTable* table) { CELL_CHECK(table->SetRoot(1, 2).ok()); });
  ASSERT_TRUE(Refresh());
  cluster_->state.table = served_.state.table;
  served_.state.table.root = 1;
  served_.state.table.version = 1;
  served_.Serve();
  ASSERT_TRUE(Refresh());  // By the coordinator.
  EXPECT_EQ(cluster_->requests, 1u);
  EXPECT_EQ(view_->root(), RootOf(2));
}

// Another client of this process, or the coordinator, has told a newer one while this client fetched an older one.
TEST_F(LearningView, ATableThatCameMeanwhileIsNotReplacedByAnOlderOne) {
  served_.ChangeTable([](RegionTable* table) { CELL_CHECK(table->SetRoot(1, 2).ok()); });
  Task<bool> refresh = view_->Refresh(loop_.NowNs() + 100 * kLeaseNs);
  refresh.Start();
  while (served_.asked == 0) Turn();
  const auto newer = std::make_shared<ClusterState>(served_.state);
  CELL_CHECK(newer->table.SetRoot(2, 1).ok());
  ++newer->table.version;
  cluster_->state.table = newer->table;
  membership_->Learn(newer);
  while (!refresh.done()) Turn();
  EXPECT_EQ(view_->cluster().table.version, newer->table.version);
  EXPECT_EQ(view_->root(), RootOf(1));
}

TEST_F(LearningView, WithoutAServerThatAnswersTheCoordinatorIsAsked) {
  cluster_->state.table.root = 2;
  ++cluster_->state.table.version;
  const auto by_the_coordinator = [this] {
    const uint64_t requests = cluster_->requests;
    return Refresh() && cluster_->requests == requests + 1 && view_->root() == RootOf(2);
  };
  served_.age_ns = UINT64_MAX;
  EXPECT_TRUE(by_the_coordinator());
  served_.age_ns = 100 * kLeaseNs;  // It does not get any younger.
  EXPECT_TRUE(by_the_coordinator());
  served_.age_ns = 0;
  served_.state.uuid = "another";
  EXPECT_TRUE(by_the_coordinator());
  served_.state.uuid = cluster_->state.uuid;
  served_.ChangeTable([](RegionTable*) {});
  served_.ChangeTable([](RegionTable*) {});
  served_.parts.clear();
  EXPECT_TRUE(by_the_coordinator());
  server_ = nullptr;
  EXPECT_TRUE(by_the_coordinator());
}

// A server that was slow once leaves the client to a coordinator that may be cut off from it for long.
TEST_F(LearningView, AServerIsAskedFurtherWhileTheCoordinatorDoesNotAnswer) {
  membership_->silent = true;
  served_.age_ns = UINT64_MAX;
  Task<bool> refresh = view_->Refresh(loop_.NowNs() + 100 * kLeaseNs);
  refresh.Start();
  Run(2 * kLeaseNs);
  EXPECT_FALSE(refresh.done());
  EXPECT_EQ(metrics_.table_readings, 1u);
  EXPECT_LE(served_.questions, 14);
  served_.age_ns = 0;
  Run(kLeaseNs / 2);
  EXPECT_TRUE(refresh.done());
  EXPECT_GT(view_->LeaseUntilNs(), loop_.NowNs());
  // An answer that comes late ends no refresh that has begun since.
  served_.age_ns = UINT64_MAX;
  Run(2 * kLeaseNs);
  Task<bool> next = view_->Refresh(loop_.NowNs() + 100 * kLeaseNs);
  next.Start();
  Run(kLeaseNs);
  EXPECT_EQ(metrics_.table_readings, 1u);
  membership_->silent = false;
  view_->Poll();
  EXPECT_EQ(metrics_.table_readings, 1u);
  EXPECT_FALSE(next.done());
  while (!refresh.done() || !next.done()) Turn();
  EXPECT_EQ(metrics_.table_readings, 2u);
}

// The loop may be closed at any step.
TEST_F(LearningView, ARefreshMayBeBrokenOff) {
  Task<bool> task = view_->Refresh(INT64_MAX);
  task.Start();
  for (int i = 0; i < 3 && !task.done(); ++i) Turn();
  loop_.Close();
  ASSERT_TRUE(task.done());
  EXPECT_FALSE(task.Take());
}

TEST_F(TableViewTest, AViewGetsOldUnlessItIsRefreshed) {
  auto owned = std::make_unique<WakingMembership>(cluster_);
  WakingMembership* const membership = owned.get();
  TableView view(&loop_, &connections_, &metrics_, std::move(owned), 1);
  const auto old_after = [&](int minutes) {
    const int64_t until_ns = network_.now_ns() + minutes * int64_t{60'000'000'000};
    network_.At(until_ns, [] {});
    while (network_.now_ns() < until_ns) network_.Step();
    return view.IsOld(loop_.NowNs());
  };
  const auto refresh = [&] {
    Task<bool> task = view.Refresh(INT64_MAX);
    task.Start();
    while (!task.done()) view.Poll();
  };
  EXPECT_FALSE(old_after(9));
  EXPECT_TRUE(old_after(2));
  refresh();
  EXPECT_FALSE(old_after(9));
  membership->set_failing(absl::UnavailableError("the coordinator cannot be reached"));
  refresh();
  EXPECT_TRUE(old_after(2));
  membership->set_failing(absl::OkStatus());
  loop_.Touch();
  view.RefreshIfDue();  // A client that does nothing but call servers.
  for (int i = 0; i < 10; ++i) view.Poll();
  EXPECT_FALSE(old_after(9));
}

}  // namespace
}  // namespace cell

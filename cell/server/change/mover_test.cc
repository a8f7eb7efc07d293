// Checks that a target trusts nothing that a source says, neither its pages nor their content, and that a source gives
// up nothing before its target has everything.
#include "cell/server/change/mover.h"

#include <gtest/gtest.h>

#include "cell/cluster/memory_membership.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/server/worker.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 64 << 10, 176 << 10};
constexpr uint32_t kRegion = 7;
constexpr uint32_t kPages = kShape.region_bytes() / WrittenPages::kPageBytes;

// Answers each step with the runs that the test wants.
class Giver : public Service {
 public:
  explicit Giver(Fabric* fabric) : fabric_(fabric) {}
  void Serve(absl::Span<const IncomingCall> calls) override {
    for (const IncomingCall& call : calls) {
      const auto request = ParseMoveRequest(call.request);
      const MoveStep step = request->fixed.step;
      steps.push_back(step);
      if (step == MoveStep::kCancel) why = std::string(request->key);
      const bool tells = step == MoveStep::kBegin || step == MoveStep::kWritten || step == MoveStep::kFreeze;
      const MutableBytes to = fabric_->BeginReply(call);
      auto reply = ReplyOf<MoveReply>(MessageKind::kMove);
      for (const PageRun& run : tells ? runs : std::vector<PageRun>()) {
        Store(to.data() + reply.header.bytes, run);
        reply.header.bytes += sizeof(PageRun);
        ++reply.runs;
      }
      Store(to.data(), reply);
      fabric_->EndReply(call, reply.header.bytes);
    }
  }
  void Disconnected(ConnectionId) override {}
  bool Saw(MoveStep step) const { return std::find(steps.begin(), steps.end(), step) != steps.end(); }

  std::vector<PageRun> runs;
  std::vector<MoveStep> steps;
  std::string why;  // The target's reason when it cancelled.

 private:
  Fabric* fabric_;
};

class MoverTest : public ::testing::Test {
 protected:
  MoverTest() {
    ClusterState state;
    state.shape = kShape;
    state.servers = {{"taker", {{"taker", 8}}, ""}, {"giver", {{"giver", 8}}, ""}};
    state.table.next_region = kRegion + 1;
    state.table.root = 1;
    state.table.regions = {{1, {{"giver", 0}, 1}}, {kRegion, {{"giver", 0}, 1}}};
    cluster_ = std::make_shared<MemoryCluster>(state);
    Worker::Options options;
    options.self = {"taker", 0};
    options.balance.enabled = false;
    auto membership = std::make_unique<MemoryMembership>(cluster_);
    membership_ = membership.get();
    worker_ = std::make_unique<Worker>(network_.NewEndpoint(), std::move(membership), options);
    CELL_CHECK(worker_->Start("taker").ok());
    memory_ = *giver_fabric_->CreateRegion(kRegion, kShape.region_bytes());
    CELL_CHECK(giver_fabric_->Listen("giver", &giver_).ok());
  }
  ~MoverTest() override { EXPECT_TRUE(worker_->Stop().ok()); }

  // Offers the region, and waits until nothing is in progress.
  void Offer() {
    std::string offer = MakeMoveRequest(MoveStep::kOffer, kRegion, 1, 0, "giver");
    Waiter connected, answered;
    const ConnectionId connection = client_->Connect("taker", INT64_MAX, &connected);
    ASSERT_TRUE(connected.Await(client_.get()).ok());
    client_->Call(connection, AsBytes(offer), {}, kReplyBytesMin, INT64_MAX, &answered);
    for (int i = 0; i < 100'000 && (!answered.done() || !worker_->turns()->idle()); ++i) {
      client_->Poll();
      giver_fabric_->Poll();
      if (worker_->Poll() == 0) network_.Step();
    }
    ASSERT_TRUE(answered.done() && worker_->turns()->idle());
  }
  // Returns the answer to an offer that `client_` sends.
  absl::Status AnswerTo(const std::string& offer) {
    Waiter connected, answered;
    const ConnectionId connection = client_->Connect("taker", INT64_MAX, &connected);
    CELL_CHECK(connected.Await(client_.get()).ok());
    client_->Call(connection, AsBytes(offer), {}, kReplyBytesMin, INT64_MAX, &answered);
    while (!answered.done()) {
      client_->Poll();
      worker_->fabric()->Poll();
      network_.Step();
    }
    std::vector<PageRun> none;
    return ParseMoveReply(AsBytes(answered.reply()), &none).status();
  }
  bool Taken() {
    const bool held = worker_->regions()->Find(kRegion) != nullptr;
    EXPECT_EQ(held, cluster_->state.table.Find(kRegion)->owner.server == "taker");
    EXPECT_EQ(held, giver_.Saw(MoveStep::kSeal));
    return held;
  }
  void SetDraining(bool draining) {
    const auto set = [](Worker* worker, bool draining) -> Task<bool> {
      co_return (co_await worker->rebalancer()->SetDraining(draining)).ok();
    };
    worker_->turns()->Begin(set(worker_.get(), draining));
    for (int i = 0; i < 100'000 && worker_->rebalancer()->draining() != draining; ++i) {
      if (worker_->Poll() == 0) network_.Step();
    }
  }

  SimNetwork network_{{}};
  std::shared_ptr<MemoryCluster> cluster_;
  std::unique_ptr<Worker> worker_;
  MemoryMembership* membership_;  // The worker's.
  std::unique_ptr<SimFabric> giver_fabric_ = network_.NewEndpoint();
  Giver giver_{giver_fabric_.get()};
  std::unique_ptr<SimFabric> client_ = network_.NewEndpoint();
  RegionMemory* memory_;
};

// A worker that recovers its own regions needs their slots.
TEST_F(MoverTest, TakesNoneInThePlaceOfARegionThatItRecovers) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  {
    const std::lock_guard lock(cluster_->mutex);
    for (uint32_t i = 0; i < worker_->regions()->regions_max(); ++i) {
      cluster_->state.table.regions[kRegion + 1 + i] = {{"taker", 0}, 1};
    }
    ++cluster_->state.table.version;
    ++cluster_->changes;
  }
  SetDraining(true);  // It reads the table.
  SetDraining(false);
  Offer();
  EXPECT_FALSE(Taken());
  EXPECT_EQ(AnswerTo(MakeMoveRequest(MoveStep::kOffer, kRegion, 1, 0, "giver")).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(MoverTest, TakesARegionThatIsOne) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  giver_.runs = {{0, kPages}};
  Offer();
  EXPECT_TRUE(Taken());
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->epoch, 2u);
}

// A source that gets no answer for a while (because of a slow log directory) offers the region again.
TEST_F(MoverTest, ARegionThatIsOfferedTwiceIsTakenOnce) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  giver_.runs = {{0, kPages}};
  const std::string offer = MakeMoveRequest(MoveStep::kOffer, kRegion, 1, 0, "giver");
  EXPECT_TRUE(AnswerTo(offer).ok());
  EXPECT_EQ(AnswerTo(offer).code(), absl::StatusCode::kAlreadyExists);
  for (int i = 0; i < 100'000 && !worker_->turns()->idle(); ++i) {
    giver_fabric_->Poll();
    if (worker_->Poll() == 0) network_.Step();
  }
  EXPECT_TRUE(Taken());
  EXPECT_EQ(std::count(giver_.steps.begin(), giver_.steps.end(), MoveStep::kBegin), 1);
  EXPECT_EQ(AnswerTo(offer).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(MoverTest, RefusesOffersThatCannotBe) {
  EXPECT_EQ(AnswerTo(MakeMoveRequest(MoveStep::kOffer, 0, 1, 0, "giver")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AnswerTo(MakeMoveRequest(MoveStep::kOffer, Pointer::kRegionMax + 1, 1, 0, "giver")).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AnswerTo(MakeMoveRequest(MoveStep::kOffer, 5, 1, 0, "taker")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(worker_->regions()->size(), 0u);
}

TEST_F(MoverTest, TakesNothingWhileItsServerIsDrained) {
  const std::string offer = MakeMoveRequest(MoveStep::kOffer, kRegion, 1, 0, "giver");
  SetDraining(true);
  EXPECT_EQ(AnswerTo(offer).code(), absl::StatusCode::kResourceExhausted);
  SetDraining(false);
  EXPECT_TRUE(AnswerTo(offer).ok());
}

// The target also keeps nothing of an offer whose sender does not exist.
TEST_F(MoverTest, AnOfferOfAStrangerEndsAndItsRoomIsFree) {
  for (uint32_t region = 100; region < 200; ++region) {
    EXPECT_TRUE(AnswerTo(MakeMoveRequest(MoveStep::kOffer, region, 1, 0, fmt::format("stranger-{}", region))).ok());
    for (int i = 0; i < 100'000 && !worker_->turns()->idle(); ++i) {
      if (worker_->Poll() == 0) network_.Step();
    }
    EXPECT_TRUE(worker_->turns()->idle());
    EXPECT_EQ(worker_->regions()->size(), 0u);
  }
  EXPECT_NE(worker_->service()->StatusJson(0, 1).find("\"connections_to_servers\":0"), std::string::npos);
}

// A connection to a server that leaves the cluster is closed, though nobody uses it any more.
TEST_F(MoverTest, KeepsNoConnectionToAServerThatHasLeft) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  giver_.runs = {{0, kPages}};
  Offer();
  ASSERT_TRUE(Taken());
  const auto connections = [this] {
    return nlohmann::json::parse(worker_->service()->StatusJson(0, 1))["connections_to_servers"].get<size_t>();
  };
  EXPECT_EQ(connections(), 1u);
  cluster_->state.servers.pop_back();
  const auto refresh = [](Worker* worker) -> Task<bool> {
    co_return (co_await worker->rebalancer()->SetDraining(false)).ok();
  };
  worker_->turns()->Begin(refresh(worker_.get()));
  for (int i = 0; i < 100'000 && connections() > 0; ++i) {
    if (worker_->Poll() == 0) network_.Step();
  }
  EXPECT_EQ(connections(), 0u);
}

TEST_F(MoverTest, RefusesPagesThatAreNone) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  for (const PageRun& run : std::vector<PageRun>{
           {kPages, 1}, {kPages - 1, 2}, {0, 0}, {0, 65}, {0, UINT32_MAX}, {UINT32_MAX, 1}, {UINT32_MAX, UINT32_MAX}}) {
    giver_.runs = {{0, 1}, run};
    giver_.why.clear();
    Offer();
    EXPECT_FALSE(Taken()) << run.first << " " << run.pages;
    EXPECT_EQ(giver_.why, "giver.0 names pages that are none");
  }
}

TEST_F(MoverTest, RefusesARegionOfAnotherIdOrShape) {
  giver_.runs = {{0, kPages}};
  const auto refused = [this](const std::function<void(RegionHeader*)>& change) {
    CELL_CHECK(Meganode::Format(memory_, kRegion, kShape).ok());
    change(&memory_->header());
    Offer();
    return !Taken();
  };
  EXPECT_TRUE(refused([](RegionHeader* header) { header->magic = 0; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->region = kRegion + 1; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->node_bytes = 4096; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->node_count = UINT32_MAX; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->extents_bytes *= 2; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->nodes_end = UINT32_MAX; }));
  EXPECT_TRUE(refused([](RegionHeader* header) { header->nodes_used = 99; }));
  EXPECT_FALSE(refused([](RegionHeader*) {}));
}

// The source has taken the region back between the seal and the table. The target must not serve it.
TEST_F(MoverTest, AnEpochThatHasPassedIsNotTaken) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  giver_.runs = {{0, kPages}};
  worker_->sync_points()->on_reach = [this](std::string_view point) {
    if (point != "move: taker: before the table") return;
    CELL_CHECK(cluster_->state.table.Move(kRegion, 1, {"giver", 0}).ok());
  };
  Offer();
  EXPECT_EQ(worker_->regions()->Find(kRegion), nullptr);
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->owner.server, "giver");
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->epoch, 2u);
}

// The source was taken for dead meanwhile, and this worker has claimed the region, with exactly the epoch that the
// migration would end with. Its recovery may have less than the copy, or more; only the recovery counts.
TEST_F(MoverTest, ARegionThatIsBeingRecoveredHereIsNotTaken) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  giver_.runs = {{0, kPages}};
  worker_->sync_points()->on_reach = [this](std::string_view point) {
    if (point != "move: taker: before the table") return;
    CELL_CHECK(cluster_->state.table.Claim(kRegion, 1, {"taker", 0}).ok());
  };
  Offer();
  EXPECT_EQ(worker_->regions()->Find(kRegion), nullptr);
  EXPECT_TRUE(cluster_->state.table.Find(kRegion)->recovering);
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->epoch, 2u);
}

// Here the worker is the source, and the test is the target.
class GiverTest : public MoverTest {
 protected:
  static constexpr uint32_t kOwn = kRegion + 1;

  GiverTest() {
    region_ = *worker_->regions()->Create(kOwn, {});
    // More runs than fit into a short reply.
    for (uint32_t page = 0; page < kPages; page += 2) region_->written->Mark(page * WrittenPages::kPageBytes, 1);
    cluster_->state.table.next_region = kOwn + 1;
    cluster_->state.table.regions[kOwn] = {{"taker", 0}, 1};
    ++cluster_->state.table.version;
    Give();
    taker_ = Connect();
  }
  void Turn() {
    if (client_->Poll() + giver_fabric_->Poll() + worker_->Poll() > 0) return;
    network_.At(network_.now_ns() + 1'000, [] {});  // Time passes when nothing happens.
    network_.Step();
  }
  // Runs until the region has been offered.
  void Give() {
    const auto give = [](Worker* worker) -> Task<bool> {
      WorkerId to{"giver", 0};
      co_return (co_await worker->mover()->Give(kOwn, std::move(to))).ok();
    };
    giver_.steps.clear();
    worker_->turns()->Begin(give(worker_.get()));
    for (int i = 0; i < 100'000 && !giver_.Saw(MoveStep::kOffer); ++i) Turn();
    CELL_CHECK(giver_.Saw(MoveStep::kOffer));
  }
  ConnectionId Connect() {
    Waiter connected;
    const ConnectionId connection = client_->Connect("taker", INT64_MAX, &connected);
    CELL_CHECK(connected.Await(client_.get()).ok());
    return connection;
  }
  // Makes a step and returns the number of pages that did not fit into the answer. Adds the pages in it to told_.
  absl::StatusOr<uint32_t> Ask(ConnectionId taker, MoveStep step, uint64_t epoch = 1) {
    const std::string request = MakeMoveRequest(step, kOwn, epoch);
    Waiter answered;
    client_->Call(taker, AsBytes(request), {}, kReplyBytesMin, INT64_MAX, &answered);
    while (!answered.done()) Turn();
    std::vector<PageRun> runs;
    ASSIGN_OR_RETURN(const MoveReply reply, ParseMoveReply(AsBytes(answered.reply()), &runs));
    for (const PageRun& run : runs) {
      for (uint32_t page = run.first; page < run.first + run.pages; ++page) told_.insert(page);
    }
    return reply.more;
  }

  HeldRegion* region_;
  ConnectionId taker_;
  std::set<uint32_t> told_;
};

TEST_F(GiverTest, SealsWhatItsTakerHasBeenToldOfAlone) {
  EXPECT_FALSE(Ask(taker_, MoveStep::kSeal).ok());
  ASSERT_TRUE(Ask(taker_, MoveStep::kBegin).ok());
  EXPECT_FALSE(Ask(taker_, MoveStep::kSeal).ok());
  while (Ask(taker_, MoveStep::kWritten).value_or(0) > 0) {
  }
  for (uint32_t page = 1; page < kPages; page += 2) region_->written->Mark(page * WrittenPages::kPageBytes, 1);
  absl::StatusOr<uint32_t> more = Ask(taker_, MoveStep::kFreeze);
  ASSERT_GT(more.value_or(0), 0u);
  EXPECT_FALSE(Ask(taker_, MoveStep::kSeal).ok());
  while (more.value_or(0) > 0) more = Ask(taker_, MoveStep::kWritten);
  EXPECT_FALSE(Ask(taker_, MoveStep::kDone).ok());
  EXPECT_EQ(region_->state(), RegionState::kFrozen);
  EXPECT_TRUE(Ask(taker_, MoveStep::kSeal).ok());
  EXPECT_EQ(region_->state(), RegionState::kSealed);
  EXPECT_EQ(told_.size(), kPages);
  EXPECT_TRUE(Ask(taker_, MoveStep::kDone).ok());
  EXPECT_EQ(worker_->regions()->Find(kOwn), nullptr);
}

TEST_F(GiverTest, AnswersItsTakerAlone) {
  const auto refused = [this](ConnectionId taker, MoveStep step, uint64_t epoch) {
    return absl::IsFailedPrecondition(Ask(taker, step, epoch).status());
  };
  EXPECT_TRUE(refused(taker_, MoveStep::kBegin, 2));
  EXPECT_TRUE(Ask(taker_, MoveStep::kBegin).ok());
  const ConnectionId other = Connect();
  for (const MoveStep step : {MoveStep::kBegin, MoveStep::kWritten, MoveStep::kFreeze, MoveStep::kSeal, MoveStep::kDone,
                              MoveStep::kCancel}) {
    EXPECT_TRUE(refused(other, step, 1)) << static_cast<int>(step);
    EXPECT_TRUE(refused(taker_, step, 2)) << static_cast<int>(step);
  }
  EXPECT_TRUE(Ask(taker_, MoveStep::kFreeze).ok());
}

// A target that gave up already knew of some written pages. The next target must be told of them again.
TEST_F(GiverTest, TheNextTakerIsToldOfAllPages) {
  const auto begin = [this] {
    absl::StatusOr<uint32_t> more = Ask(taker_, MoveStep::kBegin);
    while (more.value_or(0) > 0) more = Ask(taker_, MoveStep::kWritten);
    EXPECT_TRUE(more.ok()) << more.status();
    return std::exchange(told_, {});
  };
  const std::set<uint32_t> first = begin();
  EXPECT_GE(first.size(), kPages / 2);
  ASSERT_TRUE(Ask(taker_, MoveStep::kCancel).ok());
  for (int i = 0; i < 100'000 && !worker_->turns()->idle(); ++i) Turn();
  ASSERT_FALSE(region_->claimed());
  EXPECT_EQ(region_->state(), RegionState::kServing);
  Give();
  EXPECT_EQ(begin(), first);
}

TEST_F(GiverTest, ATakerWhoseConnectionEndsIsNotWaitedFor) {
  ASSERT_TRUE(Ask(taker_, MoveStep::kBegin).ok());
  ASSERT_TRUE(Ask(taker_, MoveStep::kFreeze).ok());
  const int64_t begun_ns = network_.now_ns();
  client_->Disconnect(taker_);
  for (int i = 0; i < 100'000 && region_->claimed(); ++i) Turn();
  ASSERT_FALSE(region_->claimed());
  EXPECT_EQ(region_->state(), RegionState::kServing);
  EXPECT_LT(network_.now_ns() - begun_ns, Worker::Options().silence_ns / 2);
}

// A region is frozen once. A target that asks again, even after the seal, is refused, and nothing changes.
TEST_F(GiverTest, ARegionIsFrozenOnce) {
  absl::StatusOr<uint32_t> more = Ask(taker_, MoveStep::kBegin);
  while (more.value_or(0) > 0) more = Ask(taker_, MoveStep::kWritten);
  more = Ask(taker_, MoveStep::kFreeze);
  while (more.value_or(0) > 0) more = Ask(taker_, MoveStep::kWritten);
  EXPECT_FALSE(Ask(taker_, MoveStep::kFreeze).ok());
  EXPECT_EQ(region_->state(), RegionState::kFrozen);
  ASSERT_TRUE(Ask(taker_, MoveStep::kSeal).ok());
  EXPECT_FALSE(Ask(taker_, MoveStep::kFreeze).ok());
  EXPECT_EQ(region_->state(), RegionState::kSealed);
}

// The table says that the region stays here, but it was recovered elsewhere since.
TEST_F(GiverTest, ARegionThatIsLostMeanwhileIsNotReadAgain) {
  const auto root = [this] { return LoadWord(region_->memory->at(kRegionHeaderBytes)); };
  const uint64_t serving = root();
  absl::StatusOr<uint32_t> more = Ask(taker_, MoveStep::kBegin);
  while (more.value_or(0) > 0) more = Ask(taker_, MoveStep::kWritten);
  more = Ask(taker_, MoveStep::kFreeze);
  while (more.value_or(0) > 0) more = Ask(taker_, MoveStep::kWritten);
  ASSERT_TRUE(Ask(taker_, MoveStep::kSeal).ok());
  EXPECT_NE(root(), serving);
  membership_->set_unreachable(true);
  ASSERT_TRUE(Ask(taker_, MoveStep::kCancel).ok());  // It reads the table again and again.
  region_->ChangeState(RegionState::kLost);
  membership_->set_unreachable(false);
  for (int i = 0; i < 100'000 && region_->claimed(); ++i) Turn();
  ASSERT_FALSE(region_->claimed());
  ASSERT_EQ(worker_->regions()->Find(kOwn), region_);
  EXPECT_EQ(cluster_->state.table.Find(kOwn)->epoch, 2u);
  EXPECT_TRUE(region_->lost());
  EXPECT_NE(root(), serving);
}

}  // namespace
}  // namespace cell

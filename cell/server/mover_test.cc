// A taker trusts nothing of what a giver says: neither its pages nor what is in them.
#include "cell/server/mover.h"

#include <gtest/gtest.h>

#include "cell/cluster/memory_membership.h"
#include "cell/io/sim_fabric.h"
#include "cell/io/waiter.h"
#include "cell/server/worker.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 32 << 10, 64 << 10};
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
  std::string why;  // The taker's, when it cancelled.

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
    options.steward.self = {"taker", 0};
    options.steward.balance = false;
    worker_ = std::make_unique<Worker>(network_.NewEndpoint(), std::make_unique<MemoryMembership>(cluster_), options);
    CELL_CHECK(worker_->Start("taker").ok());
    memory_ = *giver_fabric_->CreateRegion(kRegion, kShape.region_bytes());
    CELL_CHECK(giver_fabric_->Listen("giver", &giver_).ok());
  }
  ~MoverTest() override { EXPECT_TRUE(worker_->Stop().ok()); }

  // Offers the region, and waits until nothing goes on.
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
  // The answer to an offer, sent from `client_`.
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

  SimNetwork network_{{}};
  std::shared_ptr<MemoryCluster> cluster_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<SimFabric> giver_fabric_ = network_.NewEndpoint();
  Giver giver_{giver_fabric_.get()};
  std::unique_ptr<SimFabric> client_ = network_.NewEndpoint();
  RegionMemory* memory_;
};

TEST_F(MoverTest, TakesARegionThatIsOne) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  giver_.runs = {{0, kPages}};
  Offer();
  EXPECT_TRUE(Taken());
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->epoch, 2u);
}

// A giver that hears nothing for a while (a slow log directory) gives up and offers the region again.
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

// Nor does it keep anything of one who offers what it is not there to give.
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

// A server that leaves the cluster takes its connection with it, though nobody asks it anything any more.
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
  const auto refresh = [](Worker* worker) -> Task<bool> { co_return (co_await worker->steward()->SetDraining(false)).ok(); };
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

// Between the seal and the table the giver has taken the region back: it is not served here.
TEST_F(MoverTest, AnEpochThatHasPassedIsNotTaken) {
  ASSERT_TRUE(Meganode::Format(memory_, kRegion, kShape).ok());
  giver_.runs = {{0, kPages}};
  worker_->points()->on_reach = [this](std::string_view point) {
    if (point != "move: taker: before the table") return;
    CELL_CHECK(cluster_->state.table.Move(kRegion, 1, {"giver", 0}).ok());
  };
  Offer();
  EXPECT_EQ(worker_->regions()->Find(kRegion), nullptr);
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->owner.server, "giver");
  EXPECT_EQ(cluster_->state.table.Find(kRegion)->epoch, 2u);
}

}  // namespace
}  // namespace cell

#include "cell/server/request/request_service.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/functions/arguments.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/layout/wire_function.h"
#include "cell/server/request/test_request_service.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"

namespace cell {
namespace {

using std::string_view_literals::operator""sv;

TEST_F(RequestServiceTest, ItsStatusNamesAFailedLog) {
  HeldRegion* const region = regions_.Find(1);
  EXPECT_EQ(service_.reports().StatusJson(0, 1).find("its log failed"), std::string::npos);
  region->SetLog(std::make_shared<RegionLog>(1, 1, 1, nullptr), false);
  region->log->Fail(absl::UnavailableError("EIO"));
  EXPECT_NE(service_.reports().StatusJson(0, 1).find("accepts no writes, its log failed: EIO"), std::string::npos);
}

TEST_F(RequestServiceTest, PutThenGet) {
  EXPECT_EQ(Put("key", "value")->existed, 0u);
  EXPECT_EQ(Put("key", "other")->existed, 1u);
  const std::string reply = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "key"));
  const auto get = ParseGetReply(AsBytes(reply));
  ASSERT_TRUE(get.ok());
  EXPECT_EQ(get->value, "other");
}

// A get's value goes into its reply only if the client has room for it there.
TEST_F(RequestServiceTest, AGetsReplyIsNoLargerThanItsRoom) {
  ASSERT_TRUE(Put("key", std::string(500, 'v')).ok());
  for (const size_t room : {size_t{300}, sizeof(GetReply) + 499, sizeof(GetReply) + 500}) {
    const std::string reply = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "key"), "", room);
    ASSERT_LE(reply.size(), room);
    const auto get = ParseGetReply(AsBytes(reply));
    ASSERT_TRUE(get.ok()) << get.status();
    EXPECT_EQ(get->fixed.found, 1u);
    EXPECT_EQ(get->fixed.value_bytes, 500u);
    EXPECT_EQ(get->fixed.follows, room == sizeof(GetReply) + 500 ? kFollowsValue : 0);
  }
}

TEST_F(RequestServiceTest, AGetSendsTheStateOfTheLeafThatItIsAskedFor) {
  ASSERT_TRUE(Put("key", std::string(500, 'v')).ok());
  const std::string_view mortal = "mortal";
  const uint64_t crc = Crc64(std::string_view("value"), Crc64(mortal));
  const std::string put = MakePutRequest(root_, {}, crc, mortal, 5, 0, kExpiresAfter | 1'000'000'000);
  ASSERT_EQ(CodeOf(Call(put, "value")), absl::StatusCode::kOk);
  const auto leaf_of = [&](std::string_view key, size_t room = 1'000) {
    const std::string reply = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, key, 0, /*wants_leaf=*/true), "", room);
    return ParseGetReply(AsBytes(reply))->leaf;
  };
  const std::string plain = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "key"));
  EXPECT_FALSE(ParseGetReply(AsBytes(plain))->leaf.has_value());
  const std::optional<NodeState> before = leaf_of("key");
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(before->self.region(), root_.region());
  EXPECT_EQ(leaf_of("absent"), before) << "the same leaf";
  EXPECT_FALSE(leaf_of(mortal).has_value()) << "the pair may expire";
  EXPECT_FALSE(leaf_of("key", sizeof(GetReply) + 500 + sizeof(NodeState) - 1).has_value());
  ASSERT_TRUE(Put("key", "other").ok());
  const std::optional<NodeState> after = leaf_of("key");
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(after->self, before->self);
  EXPECT_GT(after->head_version, before->head_version);
}

// An evaluation may take long, so it is served after what has come with it, and then as scans are. Here it finds the
// put.
TEST_F(RequestServiceTest, AnEvaluationComesAfterThePutsOfItsBatch) {
  ASSERT_TRUE(Put("key", "a").ok());
  const std::string predicate = PredicateArgument<uint8_t>(Comparison::kGreaterEqual, 0);
  const FunctionOnKey filter{"key", "filter", static_cast<uint32_t>(predicate.size())};
  const std::string evaluate = MakeFunctionRequest(MessageKind::kEvaluate, root_, filter);
  const std::string put = MakePutRequest(root_, {}, Crc64(std::string("keyb")), "key", 1, 0);
  const uint64_t before = service_.batches();
  Reply found, written;
  client_->Call(connection_, AsBytes(evaluate), AsBytes(predicate), kMessageBytesMax, INT64_MAX, &found);
  client_->Call(connection_, AsBytes(put), AsBytes(std::string_view("b")), kMessageBytesMax, INT64_MAX, &written);
  for (int i = 0; i < 1000 && !(found.done && written.done); ++i) Turn();
  ASSERT_EQ(service_.batches(), before + 1) << "they must come together";
  const auto reply = ParseFunctionReply(AsBytes(found.bytes), MessageKind::kEvaluate);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->value, "b");
}

TEST_F(RequestServiceTest, ScansGoOnWhereTheReplyWasFull) {
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(Put(fmt::format("{:04}", i), std::string(i % 90, 'v')).ok());
  for (const bool down : {false, true}) {
    const std::string to = down ? "0005" : "0450";
    std::string from = down ? "0449" : "0005";
    std::vector<std::string> keys;
    int calls = 0;
    for (bool done = false; !done; ++calls) {
      const std::string reply =
          Call(MakeScanRequest(root_, from, to, {.limit = 100, .reply_bytes_max = 2000, .down = down}), "", 2000);
      std::vector<ScanItem> items;
      const auto result = ParseScanReply(AsBytes(reply), &items);
      ASSERT_TRUE(result.ok()) << result.status();
      for (const ScanItem& item : items) {
        keys.emplace_back(item.key);
        EXPECT_EQ(item.value.size(), std::stoul(keys.back()) % 90);
      }
      done = result->done;
      from = result->next_key;
    }
    ASSERT_EQ(keys.size(), 445u);
    EXPECT_GT(calls, 5);
    if (down) std::reverse(keys.begin(), keys.end());
    EXPECT_EQ(keys.front(), "0005");
    EXPECT_EQ(keys.back(), "0449");
    EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
  }
}

TEST_F(RequestServiceTest, BadRequestsGetAClearError) {
  const auto code = [this](const std::string& head, const std::string& body = "") { return CodeOf(Call(head, body)); };
  EXPECT_EQ(code(""), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("nonsense"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(MakeTextRequest(static_cast<MessageKind>(99))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseRouteReply(AsBytes(Call(MakeKeyRequest(MessageKind::kGet, Pointer(9, 4096), {}, "k"))))->kind,
            RouteKind::kNotHeld);
  EXPECT_EQ(code(MakeKeyRequest(MessageKind::kGet, root_, {}, "")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(MakeKeyRequest(MessageKind::kGet, root_, {}, std::string(300, 'k'))),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(MakePutRequest(root_, {}, 1, "k", 1, 0), "v"), absl::StatusCode::kInvalidArgument);  // Wrong CRC.
  EXPECT_EQ(code(MakeFetchRequest(Pointer(1, 0), 64)), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(MakeFetchRequest(Pointer(1, memory_->bytes() - 64), 128)), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(MakeFetchRequest(Pointer(1, Pointer::kOffsetMax - 7), 60'000)), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(MakeScanRequest(root_, "", {}, {.limit = 0, .reply_bytes_max = 4096})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(MakeScanRequest(root_, "", {}, {.limit = 1, .reply_bytes_max = 20})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(MakeTextRequest(MessageKind::kReport, "not json")), absl::StatusCode::kInvalidArgument);
}

// Sends mutated requests of every kind. Each gets an answer, and the tree stays whole.
TEST_F(RequestServiceTest, MutatedRequestsDoNoHarm) {
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(Put(fmt::format("{:04}", i), "value").ok());
  const std::string to = "0200";
  const std::vector<std::string> seeds = {
      MakeKeyRequest(MessageKind::kSearch, root_, {}, "0100"),
      MakeKeyRequest(MessageKind::kGet, root_, {}, "0100"),
      MakePutRequest(root_, root_, Crc64(std::string_view("v"), Crc64(std::string_view("0100"))), "0100", 1, 0) + "v",
      MakeKeyRequest(MessageKind::kDelete, root_, root_, "0100"),
      MakeScanRequest(root_, "0100", to, {.limit = 10, .reply_bytes_max = 4096}),
      MakeFetchRequest(Pointer(1, 1 << 20), 64),
      MakeUploadRequest(1, 0, 4) + "data"};
  Random random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string message = seeds[random.Below(seeds.size())];
    for (uint64_t flips = 1 + random.Below(3); flips > 0; --flips) {
      message[8 + random.Below(message.size() - 8)] ^= static_cast<char>(1 << random.Below(8));
    }
    ASSERT_GE(Call(message, "", kReplyBytesMin + random.Below(8000)).size(), sizeof(ReplyHeader));
  }
  const TreeReport report = CheckTree(*memory_);
  EXPECT_TRUE(report.ok()) << report.errors[0];
}

TEST_F(RequestServiceTest, StatusAndCheckAreJson) {
  ASSERT_TRUE(Put("key", "value").ok());
  const std::string status(Call(MakeTextRequest(MessageKind::kStatus)));
  EXPECT_NE(status.find("\"keys\":1"), std::string::npos) << status;
  const std::string check(Call(MakeTextRequest(MessageKind::kCheck, "1")));
  EXPECT_NE(check.find("\"error_count\":0"), std::string::npos) << check;
}

TEST_F(RequestServiceTest, SaysWhichRegionTableItKnowsAndHowOldThatIs) {
  const auto ask = [this] { return ParseTableVersionReply(AsBytes(Call(MakeTableVersionRequest(0)))); };
  const auto read = [this] {
    table_.Step();
    while (membership_.pending()) membership_.Poll();
  };
  absl::StatusOr<TableVersionReply> reply = ask();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->version, 0u);
  EXPECT_EQ(reply->age_ns, UINT64_MAX);
  membership_.Change([](RegionTable*) { return absl::OkStatus(); }, [](const absl::Status&) {});
  const int64_t read_ns = server_->NowNs();
  read();
  reply = ask();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->version, 1u);
  EXPECT_EQ(reply->cluster, Crc64(membership_.state().uuid));
  EXPECT_GT(reply->age_ns, 0u);
  EXPECT_LE(reply->age_ns, static_cast<uint64_t>(server_->NowNs() - read_ns));
}

// A split has made some of its nodes, which lead to others that are not there yet. Nobody is led to the region, but any
// peer can name it.
TEST_F(RequestServiceTest, ServesNothingOfARegionThatIsBeingFilled) {
  HeldRegion* const filled = *regions_.Create(2, {}, RegionState::kFilling);
  ASSERT_TRUE(filled->tree->Put("key", "value", Crc64("value", Crc64("key"))).ok());
  const auto kind_of = [](const std::string& reply) {
    const absl::StatusOr<RouteView> route = ParseRouteReply(AsBytes(reply));
    return route.ok() ? std::optional(route->kind) : std::nullopt;
  };
  const auto ask = [&](const std::string& head, const std::string& body = "") { return kind_of(Call(head, body)); };
  const Pointer root = RootOf(2);
  const auto all = [&] {
    return std::vector<std::optional<RouteKind>>{
        ask(MakeKeyRequest(MessageKind::kSearch, root, {}, "key")),
        ask(MakeKeyRequest(MessageKind::kGet, root, {}, "key")),
        ask(MakeKeyRequest(MessageKind::kDelete, root, {}, "other")),
        ask(MakePutRequest(root, {}, Crc64("x", Crc64("other")), "other", 1, 0), "x"),
        ask(MakeScanRequest(root, "", std::nullopt, {10, kMessageBytesMax})),
        ask(MakeRangeRequest(MessageKind::kCount, root, "", "")),
        ask(MakeRangeRequest(MessageKind::kDeleteRange, root, "a", "b"))};
  };
  EXPECT_EQ(all(), std::vector<std::optional<RouteKind>>(7, RouteKind::kNotHeld));
  EXPECT_EQ(filled->tree->keys(), 1u);
  filled->ChangeState(RegionState::kServing);
  EXPECT_EQ(all(), std::vector<std::optional<RouteKind>>(7, std::nullopt));
}

TEST_F(RequestServiceTest, AClientOfAnotherVersionIsTold) {
  std::string request = MakeKeyRequest(MessageKind::kSearch, root_, {}, "k");
  auto header = Load<MessageHeader>(AsBytes(request).data());
  header.version = kWireVersion + 1;
  std::memcpy(request.data(), &header, sizeof(header));
  const absl::Status status = ParseSearchReply(AsBytes(Call(request))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("protocol version"), absl::string_view::npos) << status;
}

// Checks the times that a client's selector uses. Without a model of the machine they are unknown.
TEST_F(RequestServiceTest, EveryReplySaysWhatItTook) {
  ASSERT_TRUE(Put("k", "v").ok());
  EXPECT_EQ(TimesOf(AsBytes(Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "k")))).read_ns, 0u);

  MachineModel machine;
  machine.read_ns = 700;
  const std::unique_ptr<SimFabric> server = network_.NewEndpoint(network_.NewHost(machine));
  server->set_call_cost([](ConstBytes) { return 3'000; });
  Regions regions(server.get(), {1024, 1 << 20, 8 << 20}, 8);
  MemoryMembership membership(std::make_shared<MemoryCluster>(ClusterState()));
  ServedRegions served(server.get(), &regions, &membership);
  RequestService service(ContextOf(server.get(), &regions), &served, &held_, {}, {"modelled", true});
  ASSERT_TRUE(regions.Create(1, {}).ok());
  ASSERT_TRUE(server->Listen("modelled", &service).ok());
  connection_ = *ConnectTo(client_.get(), "modelled");
  ASSERT_TRUE(Put("k", "v").ok());
  for (const MessageKind kind : {MessageKind::kSearch, MessageKind::kGet, MessageKind::kDelete}) {
    for (const Pointer root : {root_, RootOf(2)}) {  // The worker does not hold the second region, so the reply is a
                                                     // route.
      for (const std::string& key : {std::string("k"), std::string(4096, 'k')}) {
        const ServiceTimes times = TimesOf(AsBytes(Call(MakeKeyRequest(kind, root, {}, key))));
        EXPECT_EQ(times.call_ns, 3'000u);
        EXPECT_EQ(times.read_ns, 700u);
      }
    }
  }
  EXPECT_EQ(TimesOf(AsBytes(Call(MakeScanRequest(root_, "a", std::nullopt, {10, 4096})))).call_ns, 3'000u);
  EXPECT_EQ(TimesOf(AsBytes("no reply at all"sv)).call_ns, 0u);
}

// A table's region is not searched for nodes, whatever a message asks for. Keys outside of its range are not reported
// either.
TEST_F(RequestServiceTest, ATablesRegionHasNoOrder) {
  RegionContent content;
  content.hash_range = HashRange{0, UINT32_MAX / 2};
  ASSERT_TRUE(regions_.Create(2, content).ok());
  const Pointer root = HashRootOf(2);
  int here = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string key = fmt::format("{}", i);
    const std::string put = MakePutRequest(root, {}, Crc64("v", Crc64(key)), key, 1, 0);
    const std::string reply = Call(put, "v");
    if (IsRoute(AsBytes(reply))) {
      EXPECT_EQ(ParseRouteReply(AsBytes(reply))->kind, RouteKind::kNotHeld);
      continue;
    }
    ++here;
    const std::string got = Call(MakeKeyRequest(MessageKind::kGet, root, {}, key));
    EXPECT_EQ(ParseGetReply(AsBytes(got))->value, "v");
    const std::string scan = Call(MakeScanRequest(root, key, std::nullopt, {10, 4096, false, false}));
    EXPECT_EQ(CodeOf(scan), absl::StatusCode::kInvalidArgument);
    const std::string route = Call(MakeRouteRequest(MessageKind::kAddRoute, RootOf(2), 1, key, RootOf(1), 1));
    EXPECT_EQ(CodeOf(route), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_GT(here, 30);
  EXPECT_LT(here, 70);
  EXPECT_EQ(CodeOf(Call(MakeKeyRequest(MessageKind::kGet, root, {}, ""))), absl::StatusCode::kInvalidArgument);
}

// A client may have kept a route to a region whose id has been used again since, for something else.
TEST_F(RequestServiceTest, WhoTakesARegionForSomethingElseIsSentAway) {
  RegionContent content;
  content.hash_range = HashRange();
  ASSERT_TRUE(regions_.Create(2, content).ok());
  const std::string key = "key", value = "v";
  for (const Pointer root : {RootOf(2), HashRootOf(1)}) {
    const std::string put = MakePutRequest(root, {}, Crc64(value, Crc64(key)), key, 1, 0);
    const std::string scan = MakeScanRequest(root, key, std::nullopt, {10, 4096, false, false});
    for (const std::string& reply : {Call(put, value), Call(MakeKeyRequest(MessageKind::kGet, root, {}, key)),
                                     Call(MakeKeyRequest(MessageKind::kDelete, root, {}, key)), Call(scan)}) {
      const absl::StatusOr<RouteView> route = ParseRouteReply(AsBytes(reply));
      ASSERT_TRUE(IsRoute(AsBytes(reply)) && route.ok()) << route.status();
      EXPECT_EQ(route->kind, RouteKind::kNotHeld);
    }
  }
  EXPECT_EQ(regions_.Find(2)->store->keys(), 0u);
}

}  // namespace
}  // namespace cell

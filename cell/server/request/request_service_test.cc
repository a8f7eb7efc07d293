#include "cell/server/request/request_service.h"

#include <gtest/gtest.h>

#include <memory>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

using std::string_view_literals::operator""sv;

class Reply : public Completion {
 public:
  void Done(const absl::Status& status, ConstBytes reply) override {
    done = true;
    CELL_CHECK(status.ok());
    bytes = std::string(AsText(reply));
  }
  bool done = false;
  std::string bytes;
};

// Handles a step of a migration as a test wants.
struct Migrations : MigrationHandler {
  size_t ServeMigration(ConnectionId, ConstBytes, MutableBytes to) override {
    on_move();
    return WriteTextReply(to, MessageKind::kMigration, "");
  }
  void Disconnected(ConnectionId) override {}

  std::function<void()> on_move = [] {};
};

// Says whether a full region will have room, as a test wants.
struct Room : RoomMaker {
  bool MakeRoom(HeldRegion*) override { return will_have; }
  void FreeAll() override {}

  bool will_have = false;
};

class RequestServiceTest : public ::testing::Test {
 protected:
  RequestServiceTest() {
    memory_ = (*regions_.Create(1, {}))->memory;
    CELL_CHECK(server_->Listen("server", &service_).ok());
    connection_ = *ConnectTo(client_.get(), "server");
  }

  std::string Call(const std::string& head, const std::string& body = "", size_t room = kMessageBytesMax) {
    Reply reply;
    client_->Call(connection_, AsBytes(head), AsBytes(body), room, INT64_MAX, &reply);
    while (!reply.done) {
      client_->Wait(INT64_MAX);
      client_->Poll();
    }
    return reply.bytes;
  }
  absl::StatusOr<WriteReply> Put(const std::string& key, const std::string& value) {
    const auto crc = Crc64(value, Crc64(key));
    const std::string reply = Call(MakePutRequest(root_, {}, crc, key, static_cast<uint32_t>(value.size()), 0), value);
    return ParseWriteReply(AsBytes(reply), MessageKind::kPut);
  }
  // Sends a put, and runs the server until it has seen it.
  void SendPut(const std::string& key, const std::string& value, Reply* reply) {
    const std::string head =
        MakePutRequest(root_, {}, Crc64(value, Crc64(key)), key, static_cast<uint32_t>(value.size()), 0);
    client_->Call(connection_, AsBytes(head), AsBytes(value), kMessageBytesMax, INT64_MAX, reply);
    const uint64_t before = service_.writes()->held().size(1);
    for (int i = 0; i < 1000 && service_.writes()->held().size(1) == before && !reply->done; ++i) Turn();
  }
  void Turn() {
    network_.Step();
    server_->Poll();
    client_->Poll();
  }
  absl::StatusCode CodeOf(const std::string& reply) {
    CELL_CHECK_GE(reply.size(), sizeof(ReplyHeader));
    return static_cast<absl::StatusCode>(Load<ReplyHeader>(AsBytes(reply).data()).code);
  }

  WorkerContext ContextOf(Fabric* fabric, Regions* regions) {
    WorkerContext context;
    context.fabric = fabric;
    context.clock = fabric;
    context.regions = regions;
    context.status = &status_;
    return context;
  }

  SimNetwork network_{{}};
  std::unique_ptr<SimFabric> server_ = network_.NewEndpoint();
  Regions regions_{server_.get(), {1024, 1 << 20, 8 << 20}, 8};
  MemoryMembership membership_{std::make_shared<MemoryCluster>(ClusterState())};
  Migrations migrations_;
  StatusReport status_;
  ServedRegions served_{server_.get(), &regions_, &membership_};
  HeldWrites held_;
  Room room_;
  RequestService service_{
      ContextOf(server_.get(), &regions_), &served_, &held_, {&migrations_, &room_}, {"test", true}};
  RegionMemory* memory_;
  std::unique_ptr<SimFabric> client_ = network_.NewEndpoint();
  ConnectionId connection_;
  const Pointer root_{1, kRegionHeaderBytes};
};

TEST_F(RequestServiceTest, ItsStatusNamesAFailedLog) {
  HeldRegion* const region = regions_.Find(1);
  EXPECT_EQ(service_.StatusJson(0, 1).find("its log failed"), std::string::npos);
  region->SetLog(std::make_shared<RegionLog>(1, 1, 1, nullptr), false);
  region->log->Fail(absl::UnavailableError("EIO"));
  EXPECT_NE(service_.StatusJson(0, 1).find("accepts no writes, its log failed: EIO"), std::string::npos);
}

// A large value that is overwritten while it is fetched arrives whole, as it was when it was requested, and only at the
// peer that requested it.
TEST_F(RequestServiceTest, ACopyIsFetchedWholeWhateverIsWrittenMeanwhile) {
  const std::string old(3 * kInlineValueBytesMax, 'o');
  ASSERT_TRUE(Put("key", old).ok());
  const std::string reply = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "key", 2));
  const auto get = ParseGetReply(AsBytes(reply));
  ASSERT_TRUE(get.ok());
  EXPECT_EQ(get->fixed.copied, 2u);
  EXPECT_EQ(get->fixed.value_bytes, old.size());
  const auto fetch = [this](uint64_t offset, uint32_t bytes, uint16_t copy) -> std::string {
    const std::string piece = Call(MakeFetchRequest(Pointer(0, offset), bytes, copy));
    const auto got = ParseBytesReply(AsBytes(piece), MessageKind::kFetch);
    return got.ok() ? std::string(AsText(*got)) : std::string(absl::StatusCodeToString(got.status().code()));
  };
  std::string found;
  for (uint64_t at = 0; at < old.size(); at += kInlineValueBytesMax) {
    ASSERT_TRUE(Put("key", std::string(old.size(), static_cast<char>('a' + at / kInlineValueBytesMax))).ok());
    EXPECT_EQ(fetch(0, 8, 1), "OUT_OF_RANGE");
    EXPECT_EQ(fetch(old.size() - 8, 16, 2), "OUT_OF_RANGE");
    const ConnectionId mine = std::exchange(connection_, *ConnectTo(client_.get(), "server"));
    EXPECT_EQ(fetch(0, 8, 2), "OUT_OF_RANGE");
    connection_ = mine;
    found += fetch(at, kInlineValueBytesMax, 2);
  }
  EXPECT_EQ(found, old);
  EXPECT_EQ(Crc64(found, Crc64("key"sv)), get->fixed.crc);
  EXPECT_EQ(fetch(0, 8, 2), "OUT_OF_RANGE");  // It was dropped after its last byte.
}

TEST(ValueCopies, AreBoundedAndGoWithTheirPeer) {
  ValueCopies copies(100);
  copies.Keep(1, 1, std::string(40, 'a'));
  copies.Keep(2, 1, std::string(40, 'b'));
  copies.Keep(1, 2, std::string(40, 'c'));  // The oldest copy makes room.
  EXPECT_FALSE(copies.Find(1, 1, 0, 1).has_value());
  EXPECT_EQ(copies.Find(2, 1, 39, 1), "b");
  EXPECT_FALSE(copies.Find(2, 1, 39, 2).has_value());
  EXPECT_FALSE(copies.Find(2, 1, UINT64_MAX, 2).has_value());
  copies.Keep(2, 1, "another");
  EXPECT_EQ(copies.bytes(), 47u);
  copies.Disconnected(1);
  EXPECT_EQ(copies.bytes(), 7u);
  copies.Fetched(2, 1, 6);
  EXPECT_EQ(copies.Find(2, 1, 0, 7), "another");
  copies.Fetched(2, 1, 7);
  EXPECT_EQ(copies.bytes(), 0u);
}

TEST_F(RequestServiceTest, PutThenGet) {
  EXPECT_EQ(Put("key", "value")->existed, 0u);
  EXPECT_EQ(Put("key", "other")->existed, 1u);
  const std::string reply = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "key"));
  const auto get = ParseGetReply(AsBytes(reply));
  ASSERT_TRUE(get.ok());
  EXPECT_EQ(get->value, "other");
}

TEST_F(RequestServiceTest, LargeValuesAreUploadedAndFetchedInPieces) {
  std::string value(300'000, 'v');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7 / 3);
  for (size_t at = 0; at < value.size(); at += kUploadPartBytesMax) {
    const std::string part = value.substr(at, kUploadPartBytesMax);
    EXPECT_EQ(CodeOf(Call(MakeUploadRequest(2, static_cast<uint32_t>(at), static_cast<uint32_t>(part.size())), part)),
              absl::StatusCode::kOk);
  }
  const uint64_t crc = Crc64(value, Crc64(std::string_view("big")));
  EXPECT_EQ(CodeOf(Call(MakePutRequest(root_, {}, crc, "big", 300'000, 2))), absl::StatusCode::kOk);
  const std::string reply = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "big"));
  const auto get = ParseGetReply(AsBytes(reply));
  ASSERT_TRUE(get.ok());
  EXPECT_EQ(get->fixed.inlined, 0);
  std::string all;
  while (all.size() < 300'003) {
    const size_t bytes = std::min<size_t>(60'000, 300'003 - all.size());
    const std::string piece = Call(MakeFetchRequest(Pointer(1, get->fixed.extent.offset() + all.size()), bytes));
    all += AsText(*ParseBytesReply(AsBytes(piece), MessageKind::kFetch));
  }
  EXPECT_EQ(all, "big" + value);
}

TEST_F(RequestServiceTest, AnUploadThatDoesNotGoOnWhereItWasIsRefused) {
  EXPECT_EQ(CodeOf(Call(MakeUploadRequest(1, 10, 3), "abc")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Call(MakeUploadRequest(1, 0, 3), "abc")), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(Call(MakePutRequest(root_, {}, 0, "k", 4, 1))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Call(MakeUploadRequest(5, 0, 3), "abc")), absl::StatusCode::kInvalidArgument);
}

// A client that gave up a put uses its upload's number again, while the put still waits here.
TEST_F(RequestServiceTest, APutThatWaitsDoesNotTakeTheNextUploadOfItsNumber) {
  const std::string old(1'000, 'o'), next(1'000, 'n');
  const auto piece = [this](uint32_t at, const std::string& bytes) {
    return CodeOf(Call(MakeUploadRequest(2, at, static_cast<uint32_t>(bytes.size())), bytes));
  };
  const auto put = [this](const std::string& key, const std::string& value) {
    return MakePutRequest(root_, {}, Crc64(value, Crc64(key)), key, static_cast<uint32_t>(value.size()), 2);
  };
  ASSERT_EQ(piece(0, old), absl::StatusCode::kOk);
  regions_.Find(1)->ChangeState(RegionState::kFrozen);
  Reply waits;
  client_->Call(connection_, AsBytes(put("old", old)), {}, kMessageBytesMax, INT64_MAX, &waits);
  for (int i = 0; i < 1000 && service_.writes()->held().size(1) == 0; ++i) Turn();
  ASSERT_EQ(service_.writes()->held().size(1), 1u);
  ASSERT_EQ(piece(0, next.substr(0, 600)), absl::StatusCode::kOk);
  regions_.Find(1)->Unfreeze();
  EXPECT_EQ(service_.writes()->RetryHeld(), 1u);
  EXPECT_EQ(piece(600, next.substr(600)), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(Call(put("next", next))), absl::StatusCode::kOk);
  while (!waits.done) Turn();
  EXPECT_EQ(CodeOf(waits.bytes), absl::StatusCode::kCancelled);
  const std::string got = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "next"));
  EXPECT_EQ(ParseGetReply(AsBytes(got))->value, next);
}

// Uploads take a server's memory. No answered put, whatever its answer, may leave an upload behind.
TEST_F(RequestServiceTest, APutThatIsAnsweredLeavesNoUploadBehind) {
  const auto upload = [this](const std::string& value) {
    return CodeOf(Call(MakeUploadRequest(2, 0, static_cast<uint32_t>(value.size())), value));
  };
  const std::string value(60'000, 'v');
  const uint64_t crc = Crc64(value, Crc64(std::string_view("k")));
  for (const Pointer root : {root_, Pointer(9, kRegionHeaderBytes)}) {  // Here, and routed elsewhere.
    for (const uint64_t its : {crc, crc + 1}) {
      ASSERT_EQ(upload(value), absl::StatusCode::kOk);
      EXPECT_EQ(service_.uploads().bytes(), value.size());
      (void)Call(MakePutRequest(root, {}, its, "k", 60'000, 2));
      EXPECT_EQ(service_.uploads().bytes(), 0u);
    }
  }
  ASSERT_EQ(upload(value), absl::StatusCode::kOk);
  client_->Disconnect(connection_);
  for (int i = 0; i < 100; ++i) Turn();
  EXPECT_EQ(service_.uploads().bytes(), 0u);
}

TEST_F(RequestServiceTest, AnUploadThatIsLeftAloneExpires) {
  ASSERT_EQ(CodeOf(Call(MakeUploadRequest(2, 0, 3), "abc")), absl::StatusCode::kOk);
  service_.Step();
  EXPECT_EQ(service_.uploads().bytes(), 3u);
  network_.At(network_.now_ns() + 10'000'000'000, [] {});
  const int64_t until_ns = network_.now_ns() + 10'000'000'000;
  while (network_.now_ns() < until_ns) network_.Step();
  service_.Step();
  EXPECT_EQ(service_.uploads().bytes(), 0u);
  EXPECT_EQ(CodeOf(Call(MakePutRequest(root_, {}, 0, "k", 3, 2))), absl::StatusCode::kUnavailable);
}

// A write that waits for its region's migration is not acknowledged by a server that others may have taken for dead
// since.
TEST_F(RequestServiceTest, AWriteThatWaitedIsNotAcknowledgedAfterTheLeaseHasLapsed) {
  for (const bool lapses : {false, true}) {
    SCOPED_TRACE(lapses);
    membership_.set_lease_until_ns(server_->NowNs() + 1'000'000);
    regions_.Find(1)->ChangeState(RegionState::kFrozen);
    Reply reply;
    SendPut("key", lapses ? "after" : "before", &reply);
    ASSERT_EQ(service_.writes()->held().size(1), 1u);
    EXPECT_FALSE(reply.done);
    if (lapses) membership_.set_lease_until_ns(server_->NowNs() - 1);
    regions_.Find(1)->Unfreeze();
    EXPECT_EQ(service_.writes()->RetryHeld(), 1u);
    while (!reply.done) Turn();
    EXPECT_EQ(CodeOf(reply.bytes), lapses ? absl::StatusCode::kUnavailable : absl::StatusCode::kOk);
  }
  membership_.set_lease_until_ns(INT64_MAX);
  const std::string got = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "key"));
  EXPECT_EQ(ParseGetReply(AsBytes(got))->value, "before");
}

// A step of a migration drops a region that is the target of a write in the same batch.
TEST_F(RequestServiceTest, AWriteToARegionThatIsJustGivenAwayIsLedOn) {
  migrations_.on_move = [this] { regions_.Drop(1); };
  Reply moved, put;
  client_->Call(connection_, AsBytes(MakeMigrationRequest(MigrationStep::kDone, 1, 1)), {}, kMessageBytesMax, INT64_MAX,
                &moved);
  const std::string head = MakePutRequest(root_, {}, Crc64("v"sv, Crc64("k"sv)), "k", 1, 0);
  client_->Call(connection_, AsBytes(head), AsBytes("v"sv), kMessageBytesMax, INT64_MAX, &put);
  while (!moved.done || !put.done) Turn();
  EXPECT_EQ(nlohmann::json::parse(service_.StatusJson(0, 1))["batches"], 1);  // They came together.
  const absl::StatusOr<RouteView> route = ParseRouteReply(AsBytes(put.bytes));
  ASSERT_TRUE(route.ok()) << route.status();
  EXPECT_EQ(route->kind, RouteKind::kNotHeld);
}

// A split, or a checkpoint or a sync before it, may take longer than writes may wait. That says nothing about the
// cluster's room, so the client tries again.
TEST_F(RequestServiceTest, AWriteToARegionThatIsFullForNowIsToBeTriedAgain) {
  const std::string value(kInlineValueBytesMax, 'v');
  absl::Status full;
  for (int i = 0; full.ok(); ++i) full = Put(fmt::format("{:05}", i), value).status();
  ASSERT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  room_.will_have = true;
  Reply first, second;
  SendPut("z", value, &first);
  const std::string erase = MakeKeyRequest(MessageKind::kDelete, root_, {}, "z");
  client_->Call(connection_, AsBytes(erase), {}, kMessageBytesMax, INT64_MAX, &second);
  for (int i = 0; i < 1000 && service_.writes()->held().size(1) < 2; ++i) Turn();
  ASSERT_EQ(service_.writes()->held().size(1), 2u);
  EXPECT_EQ(service_.writes()->RetryHeld(),
            0u);  // A later write does not overtake it, though there is room for it.
  room_.will_have = false;
  EXPECT_EQ(service_.writes()->RetryHeld(), 2u);
  for (const bool ends : {false, true}) {
    SCOPED_TRACE(ends);
    room_.will_have = true;
    Reply reply;
    SendPut("z", value, &reply);
    ASSERT_EQ(service_.writes()->held().size(1), 1u);
    EXPECT_EQ(service_.writes()->RetryHeld(), 0u);
    if (ends) {
      room_.will_have = false;  // The split has failed, and there is no room for another region.
    } else {
      const int64_t end_ns = server_->NowNs() + 1'100'000'000;
      while (server_->NowNs() < end_ns) server_->Wait(end_ns);
    }
    EXPECT_EQ(service_.writes()->RetryHeld(), 1u);
    while (!reply.done) Turn();
    EXPECT_EQ(CodeOf(reply.bytes), ends ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable);
  }
  // A region that waits for its own route, because the tier above has no room, counts as permanently full.
  room_.will_have = true;
  const RegionClaim claim(regions_.Find(1), ClaimPurpose::kRouteBlocked);
  Reply reply;
  SendPut("z", value, &reply);
  ASSERT_EQ(service_.writes()->held().size(1), 1u);
  const int64_t end_ns = server_->NowNs() + 1'100'000'000;
  while (server_->NowNs() < end_ns) server_->Wait(end_ns);
  EXPECT_EQ(service_.writes()->RetryHeld(), 1u);
  while (!reply.done) Turn();
  EXPECT_EQ(CodeOf(reply.bytes), absl::StatusCode::kResourceExhausted);
}

// Nor does a write wait for a migration that takes longer.
TEST_F(RequestServiceTest, AWriteDoesNotWaitForEverForItsRegionsMove) {
  regions_.Find(1)->ChangeState(RegionState::kFrozen);
  Reply reply;
  SendPut("key", "value", &reply);
  ASSERT_EQ(service_.writes()->held().size(1), 1u);
  EXPECT_EQ(service_.writes()->RetryHeld(), 0u);
  const int64_t end_ns = server_->NowNs() + 1'100'000'000;
  while (server_->NowNs() < end_ns) server_->Wait(end_ns);
  ASSERT_EQ(service_.writes()->RetryHeld(), 1u);
  while (!reply.done) Turn();
  EXPECT_EQ(CodeOf(reply.bytes), absl::StatusCode::kUnavailable);
}

// The memory of waiting writes is bounded.
TEST_F(RequestServiceTest, AWriteBeyondAllThatMayWaitIsRefused) {
  constexpr size_t kMore = 4;
  std::vector<Reply> replies(4096 + kMore);
  regions_.Find(1)->ChangeState(RegionState::kFrozen);
  const auto done = [&replies] {
    return static_cast<size_t>(
        std::count_if(replies.begin(), replies.end(), [](const Reply& reply) { return reply.done; }));
  };
  const std::string put = MakePutRequest(root_, {}, Crc64("v"sv, Crc64("k"sv)), "k", 1, 0);
  for (Reply& reply : replies) {
    client_->Call(connection_, AsBytes(put), AsBytes("v"), kReplyBytesMin, INT64_MAX, &reply);
  }
  for (int i = 0; i < 100'000 && (!replies.back().done || done() < kMore); ++i) Turn();
  EXPECT_EQ(done(), kMore);
  EXPECT_EQ(service_.writes()->held().size(1), replies.size() - kMore);
  EXPECT_EQ(CodeOf(replies.back().bytes), absl::StatusCode::kUnavailable);
  regions_.Find(1)->Unfreeze();
  EXPECT_EQ(service_.writes()->RetryHeld(), replies.size() - kMore);
  for (int i = 0; i < 100'000 && done() < replies.size(); ++i) Turn();
  EXPECT_EQ(CodeOf(replies.front().bytes), absl::StatusCode::kOk);
}

TEST_F(RequestServiceTest, ARouteThatNoNodeTakesIsRefused) {
  RegionContent content;
  content.range.tier = 1;
  ASSERT_TRUE(regions_.Create(2, content).ok());
  ASSERT_TRUE(regions_.Find(2)->tree->InsertRoute("", RootOf(3)).ok());
  const auto add = [this](const std::string& key) {
    return CodeOf(Call(MakeAddRouteRequest(RootOf(2), 1, key, RootOf(1))));
  };
  EXPECT_EQ(add("key"), absl::StatusCode::kOk);
  const size_t longest = regions_.Find(2)->tree->key_bytes_max();
  EXPECT_EQ(add(std::string(longest, 'k')), absl::StatusCode::kOk);
  for (const size_t bytes : {longest + 1, size_t{4096}, size_t{60'000}}) {
    EXPECT_EQ(add(std::string(bytes, 'k')), absl::StatusCode::kInvalidArgument) << bytes;
  }
  const TreeReport report = CheckTree(*regions_.Find(2)->memory);
  EXPECT_TRUE(report.ok()) << report.errors[0];
  EXPECT_EQ(report.routes.size(), 3u);
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
  const Pointer root = RootOf(2);
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
    const std::string route = Call(MakeAddRouteRequest(root, 1, key, RootOf(1)));
    EXPECT_EQ(CodeOf(route), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_GT(here, 30);
  EXPECT_LT(here, 70);
  EXPECT_EQ(CodeOf(Call(MakeKeyRequest(MessageKind::kGet, root, {}, ""))), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cell

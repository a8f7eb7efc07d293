// Tests the contracts that every fabric must keep: the suite FabricConformance over a Harness. Each fabric's test
// instantiates it.
#pragma once

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cell/io/fabric/fabric_harness.h"
#include "cell/io/fabric/waiter.h"
#include "cell/layout/wire.h"
#include "cell/region/region_memory.h"

namespace cell {

class FabricConformance : public ::testing::TestWithParam<MakeHarness> {
 protected:
  static constexpr uint64_t kRegionBytes = 1 << 20;
  static constexpr int64_t kSecondNs = 1'000'000'000;

  void SetUp() override {
    harness_ = GetParam()();
    if (const std::string missing = harness_->Missing(); !missing.empty()) GTEST_SKIP() << missing;
    server_ = harness_->NewEndpoint();
    client_ = harness_->NewEndpoint();
    service_ = std::make_unique<EchoService>(server_.get());
    memory_ = *server_->CreateRegion(7, kRegionBytes);
    for (uint64_t at = 0; at < kRegionBytes; at += 8) memory_->StoreWord(at, at * 3);
    ASSERT_TRUE(server_->Listen(harness_->Address(0), service_.get()).ok());
    harness_->Run(server_.get());
    running_ = true;
    connection_ = *ConnectTo(client_.get(), harness_->Address(0));
  }
  void TearDown() override {
    client_.reset();
    StopServer();
  }
  void StopServer() {
    if (running_) harness_->Stop(server_.get());
    running_ = false;
  }

  absl::Status Read(Pointer from, std::byte* to, uint32_t bytes) {
    Waiter waiter;
    const ReadPart part{from, to, bytes};
    client_->Read(connection_, {&part, 1}, Soon(), &waiter);
    return waiter.Await(client_.get());
  }
  int64_t Soon() { return client_->NowNs() + 10 * kSecondNs; }

  std::unique_ptr<FabricHarness> harness_;
  std::unique_ptr<Fabric> server_, client_;
  std::unique_ptr<EchoService> service_;
  RegionMemory* memory_ = nullptr;
  ConnectionId connection_ = 0;
  bool running_ = false;
};

TEST_P(FabricConformance, ReadsWhatTheServerStored) {
  for (const uint32_t bytes : {8u, 64u, 1024u, 65536u}) {
    std::vector<uint64_t> to(bytes / 8);
    ASSERT_TRUE(Read(Pointer(7, 4096), reinterpret_cast<std::byte*>(to.data()), bytes).ok());
    for (size_t i = 0; i < to.size(); ++i) ASSERT_EQ(to[i], (4096 + i * 8) * 3);
  }
}

// Creates and drops regions while clients are connected.
TEST_P(FabricConformance, RegionsMadeAfterConnectingCanBeReadAndDroppedOnesAreGone) {
  alignas(8) std::byte to[64] = {};
  EXPECT_EQ(Read(Pointer(9, 0), to, 8).code(), absl::StatusCode::kOutOfRange);
  StopServer();
  RegionMemory* memory = *server_->CreateRegion(9, kRegionBytes);
  memory->StoreWord(4096, 99);
  harness_->Run(server_.get());
  running_ = true;
  ASSERT_TRUE(Read(Pointer(9, 4096), to, 8).ok());
  EXPECT_EQ(Load<uint64_t>(to), 99u);
  StopServer();
  server_->DropRegion(9);
  EXPECT_EQ(server_->free_regions(), 1u);
  memory = *server_->CreateRegion(10, kRegionBytes);  // In the same memory.
  EXPECT_EQ(LoadWord(memory->at(4096)), 99u);
  harness_->Run(server_.get());
  running_ = true;
  client_->ForgetRegion(connection_, 9);
  EXPECT_EQ(Read(Pointer(9, 4096), to, 8).code(), absl::StatusCode::kOutOfRange);
  ASSERT_TRUE(Read(Pointer(10, 4096), to, 8).ok());
  EXPECT_EQ(Load<uint64_t>(to), 99u);
  // The region is created again, elsewhere. Once it is forgotten, the next read uses the new location.
  StopServer();
  memory = *server_->CreateRegion(9, 2 * kRegionBytes);
  memory->StoreWord(4096, 1);
  harness_->Run(server_.get());
  running_ = true;
  ASSERT_TRUE(Read(Pointer(9, 4096), to, 8).ok());
  EXPECT_EQ(Load<uint64_t>(to), 1u);
  for (uint64_t round = 2; round < 20; ++round) {
    StopServer();
    server_->DropRegion(9);
    memory = *server_->CreateRegion(9, (round + 1) * kRegionBytes);
    memory->StoreWord(4096, round);
    harness_->Run(server_.get());
    running_ = true;
    client_->ForgetRegion(connection_, 9);
    ASSERT_TRUE(Read(Pointer(9, 4096), to, 8).ok());
    ASSERT_EQ(Load<uint64_t>(to), round);
  }
}

// A region that is being rebuilt from a log is visible to nobody: neither to peers that look for it now, nor to those
// that knew it before.
TEST_P(FabricConformance, AStagedRegionIsReadOnceItIsPublished) {
  alignas(8) std::byte to[64] = {};
  const auto serve = [this](const std::function<void()>& change) {
    StopServer();
    change();
    harness_->Run(server_.get());
    running_ = true;
  };
  RegionMemory* memory = nullptr;
  serve([&] {
    memory = *server_->CreateRegion(9, kRegionBytes);
    memory->StoreWord(4096, 1);
  });
  ASSERT_TRUE(Read(Pointer(9, 4096), to, 8).ok());  // The client may have mapped it now.
  serve([&] {
    server_->DropRegion(9);
    memory = *server_->CreateStagedRegion(9, kRegionBytes);
    memory->StoreWord(4096, 2);
  });
  EXPECT_TRUE(!Read(Pointer(9, 4096), to, 8).ok() || Load<uint64_t>(to) == 1);
  client_->ForgetRegion(connection_, 9);
  EXPECT_EQ(Read(Pointer(9, 4096), to, 8).code(), absl::StatusCode::kOutOfRange);
  serve([&] { server_->PublishRegion(9); });
  client_->ForgetRegion(connection_, 9);
  ASSERT_TRUE(Read(Pointer(9, 4096), to, 8).ok());
  EXPECT_EQ(Load<uint64_t>(to), 2u);
  // Another region may use the memory.
  serve([&] {
    server_->DropRegion(9);
    const size_t free = server_->free_regions();
    memory = *server_->CreateStagedRegion(10, kRegionBytes);
    EXPECT_EQ(server_->free_regions(), free - 1);
  });
}

TEST_P(FabricConformance, PreparedMemoryServesTheNextRegion) {
  StopServer();
  absl::StatusOr<bool> ready = false;
  for (int slices = 0; ready.ok() && !*ready; ++slices) {
    ASSERT_LE(slices, 8);
    EXPECT_EQ(server_->free_regions(), 0u);
    ready = server_->PrepareRegion(kRegionBytes, kRegionBytes / 8);
  }
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_EQ(server_->free_regions(), 1u);
  RegionMemory* memory = *server_->CreateRegion(9, kRegionBytes);
  EXPECT_EQ(server_->free_regions(), 0u);
  for (uint64_t at = 0; at < kRegionBytes; at += 512) ASSERT_EQ(LoadWord(memory->at(at)), 0u);
  memory->StoreWord(64, 5);
  harness_->Run(server_.get());
  running_ = true;
  alignas(8) std::byte to[8] = {};
  ASSERT_TRUE(Read(Pointer(9, 64), to, 8).ok());
  EXPECT_EQ(Load<uint64_t>(to), 5u);
}

TEST_P(FabricConformance, CallsMayBeAnsweredLater) {
  const auto server = harness_->NewEndpoint();
  PatientService service;
  ASSERT_TRUE(server->Listen(harness_->Address(2), &service).ok());
  Waiter connected, first, second;
  const ConnectionId connection = client_->Connect(harness_->Address(2), Soon(), &connected);
  const auto until = [&](const std::function<bool()>& done) {
    for (int i = 0; i < 1'000'000 && !done(); ++i) {
      if (server->Poll() + client_->Poll() == 0) client_->Wait(client_->NowNs() + 1'000);
      server->Wait(server->NowNs() + 1'000);
    }
    ASSERT_TRUE(done());
  };
  until([&] { return connected.done(); });
  client_->Call(connection, AsBytes("1"), {}, kReplyBytesMin, Soon(), &first);
  client_->Call(connection, AsBytes("2"), {}, kReplyBytesMin, Soon(), &second);
  until([&] { return service.kept.size() == 2; });
  EXPECT_FALSE(first.done() || second.done());
  for (const size_t i : {size_t{1}, size_t{0}}) {
    const MutableBytes to = server->BeginReply(service.kept[i]);
    to[0] = static_cast<std::byte>('a' + i);
    server->EndReply(service.kept[i], 1);
    until([&] { return (i == 1 ? second : first).done(); });
  }
  EXPECT_EQ(first.reply(), "a");
  EXPECT_EQ(second.reply(), "b");
}

TEST_P(FabricConformance, ReadsSeveralPartsAtOnce) {
  std::vector<uint64_t> to(16 * 20);
  std::vector<ReadPart> parts;
  for (uint64_t i = 0; i < 20; ++i)
    parts.push_back({Pointer(7, i * 5000 * 8), reinterpret_cast<std::byte*>(&to[i * 16]), 128});
  Waiter waiter;
  client_->Read(connection_, parts, Soon(), &waiter);
  ASSERT_TRUE(waiter.Await(client_.get()).ok());
  for (size_t i = 0; i < 20; ++i) {
    for (size_t j = 0; j < 16; ++j) ASSERT_EQ(to[i * 16 + j], (i * 5000 * 8 + j * 8) * 3);
  }
}

TEST_P(FabricConformance, RefusesReadsOutsideTheRegions) {
  alignas(8) std::byte to[64] = {};
  const auto code = [&](Pointer from, uint32_t bytes) { return Read(from, to, bytes).code(); };
  EXPECT_EQ(code(Pointer(7, kRegionBytes - 56), 64), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(Pointer(7, kRegionBytes + 64), 8), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(Pointer(7, Pointer::kOffsetMax - 7), 64), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(Pointer(8, 0), 8), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(Pointer(), 8), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(Pointer(7, 4), 8), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(Pointer(7, 0), 12), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(Pointer(7, kRegionBytes - 64), 64), absl::StatusCode::kOk);
}

TEST_P(FabricConformance, OnlyReadersRead) {
  if (!harness_->ClientsAreClients()) GTEST_SKIP() << "the certificate of these clients is a server's";
  const auto set_readers = [this](Readers readers) {
    harness_->Stop(server_.get());
    server_->SetReaders(std::move(readers));
    harness_->Run(server_.get());
  };
  std::byte to[8];
  set_readers({false, {"another"}});
  EXPECT_TRUE(absl::IsPermissionDenied(Read(Pointer(7, 8), to, 8)));
  Waiter called;
  client_->Call(connection_, AsBytes("call"), {}, kReplyBytesMin, Soon(), &called);
  EXPECT_TRUE(called.Await(client_.get()).ok());  // The connection goes on.
  set_readers({false, {"another", client_->self().name}});
  ASSERT_TRUE(Read(Pointer(7, 8), to, 8).ok());
  EXPECT_EQ(Load<uint64_t>(to), 24u);
  // Who loses access may lose its connection, and reads nothing over the next one.
  set_readers({false, {}});
  absl::Status lost = Read(Pointer(7, 8), to, 8);
  while (lost.ok()) lost = Read(Pointer(7, 8), to, 8);  // Until it hears that it has lost its connection.
  if (absl::IsUnavailable(lost)) {
    client_->Disconnect(connection_);
    connection_ = *ConnectTo(client_.get(), harness_->Address(0));
    lost = Read(Pointer(7, 8), to, 8);
  }
  EXPECT_TRUE(absl::IsPermissionDenied(lost)) << lost;
  // Operators and servers always may.
  const auto peer = harness_->NewEndpoint();
  peer->SetSelf({Role::kServer, "server-1"});
  const ConnectionId connection = *ConnectTo(peer.get(), harness_->Address(0));
  Waiter read;
  const ReadPart part{Pointer(7, 8), to, 8};
  peer->Read(connection, {&part, 1}, Soon(), &read);
  EXPECT_TRUE(read.Await(peer.get()).ok());
}

TEST_P(FabricConformance, AnswersCallsOfEverySize) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{4096}, kMessageBytesMax}) {
    const std::string head(bytes / 2, 'a');
    const std::string body(bytes - bytes / 2, 'b');
    Waiter waiter;
    client_->Call(connection_, AsBytes(head), AsBytes(body), kMessageBytesMax, Soon(), &waiter);
    ASSERT_TRUE(waiter.Await(client_.get()).ok());
    EXPECT_EQ(waiter.reply(), std::string(bytes / 2, 'A') + std::string(bytes - bytes / 2, 'B'));
  }
}

// Makes more calls than the rings hold. The others wait, in order, and all are answered.
TEST_P(FabricConformance, ManyCallsInFlightAllComeBack) {
  std::vector<std::unique_ptr<Waiter>> waiters;
  std::vector<std::string> requests;
  for (int i = 0; i < 3000; ++i) {
    requests.push_back(fmt::format("call {} ", i) + std::string(static_cast<size_t>(i) % 700, 'x'));
    waiters.push_back(std::make_unique<Waiter>());
    client_->Call(connection_, AsBytes(requests.back()), {}, i % 50 == 0 ? kMessageBytesMax : 4096, Soon(),
                  waiters.back().get());
  }
  for (size_t i = 0; i < waiters.size(); ++i) {
    const absl::Status status = waiters[i]->Await(client_.get());
    ASSERT_TRUE(status.ok()) << i << ": " << status;
    std::string want = requests[i];
    for (char& c : want) c = static_cast<char>(std::toupper(c));
    ASSERT_EQ(waiters[i]->reply(), want);
  }
}

TEST_P(FabricConformance, ACallPastItsDeadlineEnds) {
  StopServer();
  Waiter late;
  const int64_t deadline_ns = client_->NowNs() + 20'000'000;
  client_->Call(connection_, AsBytes("late"), {}, kReplyBytesMin, deadline_ns, &late);
  EXPECT_EQ(late.AwaitDeadline(client_.get(), deadline_ns).code(), absl::StatusCode::kDeadlineExceeded);
  harness_->Run(server_.get());
  running_ = true;
  Waiter next;  // The late reply is dropped, and does not answer this call.
  client_->Call(connection_, AsBytes("next"), {}, kReplyBytesMin, Soon(), &next);
  ASSERT_TRUE(next.Await(client_.get()).ok());
  EXPECT_EQ(next.reply(), "NEXT");
}

// The deadline applies wherever the read waits: for the region's location, the server or the network. One Wait ends at
// the deadline.
TEST_P(FabricConformance, AReadPastItsDeadlineEndsAndItsMemoryIsNotWrittenAnyMore) {
  StopServer();
  (*server_->CreateRegion(9, kRegionBytes))->StoreWord(4096, 1);  // The client has never read there.
  harness_->Run(server_.get());
  const bool silent = harness_->Silence(server_.get());
  running_ = false;
  std::vector<uint64_t> to(2048, 77);
  const ReadPart part{Pointer(9, 4096), reinterpret_cast<std::byte*>(to.data()), 16384};
  Waiter late;
  const int64_t deadline_ns = client_->NowNs() + 20'000'000;
  client_->Read(connection_, {&part, 1}, deadline_ns, &late);
  late.AwaitDeadline(client_.get(), deadline_ns);
  if (silent) {
    EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  std::fill(to.begin(), to.end(), 77);
  harness_->Run(server_.get());
  running_ = true;
  alignas(8) std::byte word[8];
  ASSERT_TRUE(Read(Pointer(9, 4096), word, 8).ok());
  EXPECT_EQ(Load<uint64_t>(word), 1u);
  EXPECT_EQ(std::count(to.begin(), to.end(), 77u), 2048);
}

// After a request has ended at its deadline, Wait still ends at the deadlines of the others.
TEST_P(FabricConformance, ADeadlineCountsWhenAnEarlierOneHasPassed) {
  const bool silent = harness_->Silence(server_.get());
  running_ = false;
  alignas(8) std::byte to[8];
  const ReadPart part{Pointer(9, 0), to, 8};  // The client has never read in this region.
  const auto call = [&](int64_t deadline_ns, Waiter* waiter) {
    client_->Call(connection_, AsBytes("call"), {}, kReplyBytesMin, deadline_ns, waiter);
  };
  const auto read = [&](int64_t deadline_ns, Waiter* waiter) {
    client_->Read(connection_, {&part, 1}, deadline_ns, waiter);
  };
  const auto connect = [&](int64_t deadline_ns, Waiter* waiter) {
    client_->Connect(harness_->Address(0), deadline_ns, waiter);
  };
  const std::function<void(int64_t, Waiter*)> requests[] = {call, read, connect};
  for (const auto& request : requests) {
    Waiter early, late;
    const int64_t early_ns = client_->NowNs() + 20'000'000, late_ns = early_ns + 20'000'000;
    call(early_ns, &early);
    request(late_ns, &late);
    EXPECT_EQ(early.AwaitDeadline(client_.get(), early_ns).code(), absl::StatusCode::kDeadlineExceeded);
    late.AwaitDeadline(client_.get(), late_ns);
    if (silent) {
      EXPECT_FALSE(late.status().ok());
    }
  }
}

TEST_P(FabricConformance, WhenTheServerIsGoneAllFails) {
  StopServer();
  Waiter sent;
  client_->Call(connection_, AsBytes("sent"), {}, kReplyBytesMin, Soon(), &sent);
  client_->Poll();
  server_.reset();
  EXPECT_EQ(sent.Await(client_.get()).code(), absl::StatusCode::kUnknown);
  Waiter later;
  client_->Call(connection_, AsBytes("later"), {}, kReplyBytesMin, Soon(), &later);
  EXPECT_EQ(later.Await(client_.get()).code(), absl::StatusCode::kUnavailable);
  alignas(8) std::byte to[8];
  EXPECT_EQ(Read(Pointer(7, 0), to, 8).code(), absl::StatusCode::kUnavailable);
}

TEST_P(FabricConformance, DisconnectEndsWhatIsInFlightAndTheServerLearns) {
  Waiter call, read;
  alignas(8) std::byte to[8];
  const ReadPart part{Pointer(7, 0), to, 8};
  client_->Call(connection_, AsBytes("x"), {}, kReplyBytesMin, Soon(), &call);
  client_->Read(connection_, {&part, 1}, Soon(), &read);
  client_->Disconnect(connection_);
  call.Await(client_.get());
  read.Await(client_.get());
  const absl::StatusOr<ConnectionId> again = ConnectTo(client_.get(), harness_->Address(0));
  ASSERT_TRUE(again.ok());
  Waiter next;
  client_->Call(*again, AsBytes("again"), {}, kReplyBytesMin, Soon(), &next);
  ASSERT_TRUE(next.Await(client_.get()).ok());
  for (int i = 0; i < 1000 && service_->disconnected == 0; ++i) client_->Wait(client_->NowNs() + 1'000'000);
  EXPECT_EQ(service_->disconnected, 1);
}

// A second region would share the first one's memory, which could go to another region when either is dropped.
TEST_P(FabricConformance, ARegionIsMadeOnce) {
  StopServer();
  const auto code = [](const absl::StatusOr<RegionMemory*>& made) { return made.status().code(); };
  const size_t free = server_->free_regions();
  EXPECT_EQ(code(server_->CreateRegion(7, kRegionBytes)), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(server_->CreateRegion(7, 2 * kRegionBytes)), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(server_->CreateStagedRegion(7, kRegionBytes)), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(server_->CreateStagedRegion(9, kRegionBytes).ok());
  EXPECT_EQ(code(server_->CreateRegion(9, kRegionBytes)), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(server_->CreateStagedRegion(9, kRegionBytes)), absl::StatusCode::kAlreadyExists);
  server_->DropRegion(9);  // Drops the existing region, and no other.
  EXPECT_EQ(server_->free_regions(), free + 1);
  server_->DropRegion(9);
  server_->PublishRegion(9);
  EXPECT_EQ(server_->free_regions(), free + 1);
  RegionMemory* const other = *server_->CreateRegion(10, kRegionBytes);
  EXPECT_NE(other->base(), memory_->base());
  other->StoreWord(4096, 5);
  harness_->Run(server_.get());
  running_ = true;
  alignas(8) std::byte to[8] = {};
  ASSERT_TRUE(Read(Pointer(7, 4096), to, 8).ok());
  EXPECT_EQ(Load<uint64_t>(to), 4096u * 3);
  EXPECT_EQ(Read(Pointer(9, 4096), to, 8).code(), absl::StatusCode::kOutOfRange);
}

TEST_P(FabricConformance, RefusesRegionsThatNoPointerCouldNameAWordOf) {
  StopServer();
  for (const uint32_t region : {0u, Pointer::kRegionMax + 1, UINT32_MAX}) {
    EXPECT_EQ(server_->CreateRegion(region, kRegionBytes).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(server_->CreateStagedRegion(region, kRegionBytes).status().code(), absl::StatusCode::kInvalidArgument);
  }
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{4097}, Pointer::kOffsetMax + 1, UINT64_MAX}) {
    EXPECT_EQ(server_->CreateRegion(9, bytes).status().code(), absl::StatusCode::kInvalidArgument) << bytes;
    EXPECT_EQ(server_->CreateStagedRegion(9, bytes).status().code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
  ASSERT_TRUE(server_->CreateRegion(Pointer::kRegionMax, 8).ok());
  harness_->Run(server_.get());
  running_ = true;
  alignas(8) std::byte to[16] = {};
  EXPECT_TRUE(Read(Pointer(Pointer::kRegionMax, 0), to, 8).ok());
  EXPECT_EQ(Read(Pointer(Pointer::kRegionMax, 0), to, 16).code(), absl::StatusCode::kOutOfRange);
}

// Requests on a connection that never existed, or is gone, are refused and do no harm to others.
TEST_P(FabricConformance, ConnectionsThatAreNotThere) {
  const ConnectionId never = connection_ + 1000;
  client_->Disconnect(never);
  client_->ForgetRegion(never, 7);
  const ConnectionId gone = *ConnectTo(client_.get(), harness_->Address(0));
  client_->Disconnect(gone);
  client_->Disconnect(gone);
  client_->ForgetRegion(gone, 7);
  alignas(8) std::byte to[8] = {};
  const ReadPart part{Pointer(7, 0), to, 8};
  for (const ConnectionId id : {never, gone}) {
    Waiter read, call;
    client_->Read(id, {&part, 1}, Soon(), &read);
    client_->Call(id, AsBytes("x"), {}, kReplyBytesMin, Soon(), &call);
    EXPECT_FALSE(read.done() || call.done());  // The completions are called from Poll, like all others.
    EXPECT_EQ(read.Await(client_.get()).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(call.Await(client_.get()).code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_TRUE(Read(Pointer(7, 8), to, 8).ok());
  EXPECT_EQ(Load<uint64_t>(to), 24u);
}

TEST_P(FabricConformance, ReadsOfNothing) {
  alignas(8) std::byte to[8] = {std::byte{9}};
  Waiter nothing;
  client_->Read(connection_, {}, Soon(), &nothing);
  EXPECT_TRUE(nothing.Await(client_.get()).ok());
  EXPECT_TRUE(Read(Pointer(7, 64), to, 0).ok());
  EXPECT_TRUE(Read(Pointer(7, kRegionBytes), to, 0).ok());
  EXPECT_EQ(Read(Pointer(7, kRegionBytes + 8), to, 0).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Read(Pointer(8, 0), to, 0).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(to[0], std::byte{9});
}

// One bad part fails the whole read. The next read succeeds.
TEST_P(FabricConformance, OnePartOutsideRefusesTheRead) {
  alignas(8) std::byte to[24] = {};
  for (const Pointer outside : {Pointer(7, kRegionBytes), Pointer(8, 0)}) {
    const ReadPart parts[] = {{Pointer(7, 8), to, 8}, {outside, to + 8, 8}, {Pointer(7, 16), to + 16, 8}};
    Waiter read;
    client_->Read(connection_, parts, Soon(), &read);
    EXPECT_EQ(read.Await(client_.get()).code(), absl::StatusCode::kOutOfRange);
  }
  EXPECT_TRUE(Read(Pointer(7, 8), to, 8).ok());
  EXPECT_EQ(Load<uint64_t>(to), 24u);
}

TEST_P(FabricConformance, ReplyIsCutByNobodyButTheServer) {
  for (const size_t room : {kReplyBytesMin, kReplyBytesMin + 1, kMessageBytesMax}) {
    const std::string request(kMessageBytesMax, 'r');
    Waiter call;
    client_->Call(connection_, AsBytes(request), {}, room, Soon(), &call);
    ASSERT_TRUE(call.Await(client_.get()).ok());
    EXPECT_EQ(call.reply().size(), room);  // EchoService cuts the reply to its room.
  }
}

TEST_P(FabricConformance, AServerThatSaysNothingIsGivenUpInTime) {
  const bool silent = harness_->Silence(server_.get());
  running_ = false;
  Waiter connected, cancelled;
  const int64_t deadline_ns = client_->NowNs() + 20'000'000;
  client_->Connect(harness_->Address(0), deadline_ns, &connected);
  connected.AwaitDeadline(client_.get(), deadline_ns);
  // Disconnecting an attempt ends it at once, with one call of its completion.
  const ConnectionId id = client_->Connect(harness_->Address(0), Soon(), &cancelled);
  client_->Disconnect(id);
  client_->Poll();
  ASSERT_TRUE(cancelled.done());
  if (silent) {
    EXPECT_EQ(connected.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(cancelled.status().code(), absl::StatusCode::kUnavailable);
  }
  harness_->Run(server_.get());
  running_ = true;
  alignas(8) std::byte to[8] = {};
  EXPECT_TRUE(Read(Pointer(7, 8), to, 8).ok());
}

// A client tries for days to reach a server that is gone, or loses its connection again and again.
TEST_P(FabricConformance, ConnectionsThatFailOrEndLeaveNothing) {
  if (!harness_->Real()) GTEST_SKIP() << "nothing of it is the process's";
  constexpr int kRounds = 400;
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto fail = [&] {
    for (int i = 0; i < kRounds; ++i) {
      ASSERT_EQ(ConnectTo(client_.get(), harness_->Address(1)).status().code(), absl::StatusCode::kUnavailable);
    }
    client_->Poll();
  };
  const auto lose = [&] {
    for (int i = 0; i < kRounds / 10; ++i) {
      const absl::StatusOr<ConnectionId> connection = ConnectTo(client_.get(), harness_->Address(0));
      ASSERT_TRUE(connection.ok()) << connection.status();
      client_->Disconnect(*connection);
    }
    client_->Poll();
    for (int i = 0; i < 10'000 && harness_->PeersOf(server_.get()) > 1; ++i)
      client_->Wait(client_->NowNs() + 1'000'000);
  };
  fail();
  lose();
  const auto before = descriptors();
  // A leak goes on, but libraries fill their caches, and a thread of the server may still have to free something.
  bool leaks = true;
  for (int i = 0; i < 20 && leaks; ++i) {
    const size_t bytes = ::mallinfo2().uordblks;
    fail();
    lose();
    leaks = ::mallinfo2().uordblks >= bytes + kRounds * 64;
  }
  EXPECT_FALSE(leaks);
  for (int i = 0; i < 10'000 && descriptors() > before; ++i) client_->Wait(client_->NowNs() + 1'000'000);
  EXPECT_LE(descriptors(), before);
  alignas(8) std::byte to[8] = {};
  EXPECT_TRUE(Read(Pointer(7, 8), to, 8).ok());  // The first connection still works.
}

TEST_P(FabricConformance, AddressesThatCannotBe) {
  for (const char* address : {"", " ", "no such place", "shm:", "tcp:host", "256.256.256.256:1", "/", "host:99999"}) {
    EXPECT_EQ(ConnectTo(client_.get(), address).status().code(), absl::StatusCode::kUnavailable) << address;
  }
}

TEST_P(FabricConformance, AnAddressServesOnce) {
  const std::unique_ptr<Fabric> other = harness_->NewEndpoint();
  EXPECT_EQ(other->Listen(harness_->Address(0), service_.get()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ConnectTo(client_.get(), harness_->Address(1)).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace cell

// Runs a RequestService and a client in a simulated network, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/server/request/request_service.h"

namespace cell {

class Reply final : public Completion {
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
  size_t ServeMigration(const IncomingCall&, MutableBytes to) override {
    on_move();
    return WriteTextReply(to, MessageKind::kMigration, "");
  }
  void Disconnected(ConnectionId) override {}

  std::function<void()> on_move = [] {};
};

// Says whether a full region will have room, as a test wants.
struct Room : RoomMaker {
  bool MakeRoom(HeldRegion*) override { return will_have; }

  bool will_have = false;
};

class RequestServiceTest : public ::testing::Test {
 protected:
  RequestServiceTest() {
    memory_ = (*regions_.Create(1, {}))->memory;
    CELL_CHECK(server_->Listen("server", &service_).ok());
    client_->SetSelf({Role::kServer, "peer"});  // It may send everything.
    connection_ = *ConnectTo(client_.get(), "server");
  }
  ~RequestServiceTest() override {
    scheduler_.Stop();
    while (!scheduler_.idle()) scheduler_.Step();
  }

  std::string Call(const std::string& head, const std::string& body = "", size_t room = kMessageBytesMax) {
    Reply reply;
    client_->Call(connection_, AsBytes(head), AsBytes(body), room, INT64_MAX, &reply);
    while (!reply.done) {
      client_->Wait(client_->NowNs() + 100'000);  // No answer comes to some requests before the worker's next turn.
      service_.ServeWaiting();
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
    service_.ServeWaiting();
    client_->Poll();
    scheduler_.Step();
  }
  absl::StatusCode CodeOf(const std::string& reply) {
    CELL_CHECK_GE(reply.size(), sizeof(ReplyHeader));
    return static_cast<absl::StatusCode>(Load<ReplyHeader>(AsBytes(reply).data()).code);
  }

  WorkerContext ContextOf(Fabric* fabric, Regions* regions) {
    WorkerContext context;
    context.fabric = fabric;
    context.clock = fabric;
    context.membership = &membership_;
    context.scheduler = &scheduler_;
    context.regions = regions;
    context.status = &status_;
    return context;
  }

  SimNetwork network_{{}};
  std::unique_ptr<SimFabric> server_ = network_.NewEndpoint();
  Scheduler scheduler_{server_.get()};
  int64_t cluster_time_ns_ = 0;  // 0: there is no clock.
  Regions regions_{
      server_.get(), {1024, 1 << 20, 8 << 20}, 8, {kInlineMaxDefault, [this] { return cluster_time_ns_; }}};
  MemoryMembership membership_{std::make_shared<MemoryCluster>(ClusterState())};
  Migrations migrations_;
  StatusReport status_;
  ServedRegions served_{server_.get(), &regions_, &membership_};
  HeldWrites held_;
  Room room_;
  TableRefresher table_{ContextOf(server_.get(), &regions_), TableRefresher::kNever};
  RequestService service_{
      ContextOf(server_.get(), &regions_), &served_, &held_, {&migrations_, &room_, &table_}, {"test", true}};
  RegionMemory* memory_;
  std::unique_ptr<SimFabric> client_ = network_.NewEndpoint();
  ConnectionId connection_;
  const Pointer root_{1, kRegionHeaderBytes};
};

}  // namespace cell

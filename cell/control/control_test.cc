#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>

#include "cell/cluster/memory_membership.h"
#include "cell/control/control_client.h"
#include "cell/control/control_server.h"
#include "cell/io/sim/sim_fabric.h"

namespace cell {
namespace {

// Sends one message to a method by its name, and returns the answer, like a tool that was not built with our protocol.
std::string Ask(const std::string& address, const std::string& method, const std::string& message) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  if (!wait()) return "no call";
  const grpc::Slice slice(message);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  if (!wait()) return "no write";
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  if (!wait()) return "no read";
  grpc::Slice whole;
  if (!reply.DumpToSingleSlice(&whole).ok()) return "no slice";
  context.TryCancel();
  return {reinterpret_cast<const char*>(whole.begin()), whole.size()};
}

TEST(ControlServer, TellsOfItsHealthAndItsServices) {
  const auto server = ControlServer::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  // HealthCheckRequest{} and HealthCheckResponse{status: SERVING}.
  EXPECT_EQ(Ask((*server)->address(), "/grpc.health.v1.Health/Check", ""), std::string("\x08\x01"));
  // ServerReflectionRequest{list_services: ""}.
  const std::string services =
      Ask((*server)->address(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
          std::string("\x3a\x00", 2));
  EXPECT_NE(services.find("cell.control.Control"), std::string::npos);
  EXPECT_NE(services.find("grpc.health.v1.Health"), std::string::npos);
}

TEST(ControlServer, RefusesWhatItCannotDo) {
  const auto server = ControlServer::Start({}, {});
  ASSERT_TRUE(server.ok());
  const auto client = ControlClient::Open((*server)->address(), {});
  ASSERT_TRUE(client.ok());
  EXPECT_EQ((*client)->Split(7).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*client)->SetLogLevel("loud").code(), absl::StatusCode::kInvalidArgument);
  ControlOptions options;
  options.address = "nowhere";
  EXPECT_EQ(ControlServer::Start(options, {}).status().code(), absl::StatusCode::kInvalidArgument);
  options = {};
  options.tls_certificate = options.tls_key = "/no/such/file";
  EXPECT_EQ(ControlServer::Start(options, {}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto nobody = ControlClient::Open("127.0.0.1:1", {});
  ASSERT_TRUE(nobody.ok());
  const absl::Status status = (*nobody)->Split(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("127.0.0.1:1"), std::string::npos);
}

// A drain repeatedly asks a worker how much is left. A worker that has ended, and does not run any more, does not
// answer.
TEST(ControlServer, EndsWhatWaitsForAWorkerThatHasEnded) {
  ClusterState state;
  state.shape = {512, 32 << 10, 64 << 10};
  state.servers = {{"server-0", {{"server-0", 8}}, ""}, {"server-1", {{"server-1", 8}}, ""}};
  const auto cluster = std::make_shared<MemoryCluster>(state);
  SimNetwork network{{}};
  Worker::Options options;
  options.self = {"server-0", 0};
  Worker worker(network.NewEndpoint(), std::make_unique<MemoryMembership>(cluster), options);
  ASSERT_TRUE(worker.Start("server-0").ok());
  auto server = ControlServer::Start({}, {&worker});
  ASSERT_TRUE(server.ok());
  const auto client = ControlClient::Open((*server)->address(), {});
  ASSERT_TRUE(client.ok());
  auto drained = std::async(std::launch::async, [&] { return (*client)->Drain(false); });
  while (cluster->state.table.draining.empty()) {
    worker.Poll();
    network.Step();
  }
  EXPECT_TRUE(worker.Stop().ok());
  server->reset();
  EXPECT_EQ(drained.get().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cell

// Provides a simulated server for tests of a session's parts, and a loop that is polled as in Session::Poll.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cell/base/check.h"
#include "cell/client/session/connections.h"
#include "cell/io/sim/sim_fabric.h"

namespace cell {

// Answers each request as a test wants.
class AnsweringService final : public Service {
 public:
  explicit AnsweringService(Fabric* fabric) : fabric_(fabric) {}

  void Serve(absl::Span<const IncomingCall> calls) override {
    for (const IncomingCall& call : calls) {
      const MutableBytes to = fabric_->BeginReply(call);
      const absl::StatusOr<MessageHeader> header = ParseHeader(call.request);
      const bool refused = header.ok() && header->kind == refuses;
      fabric_->EndReply(call,
                        refused ? WriteErrorReply(to, header->kind, absl::UnimplementedError("")) : answer(call, to));
    }
  }
  void Disconnected(ConnectionId) override { ++disconnected; }

  std::function<size_t(const IncomingCall&, MutableBytes)> answer = [](const IncomingCall&, MutableBytes to) {
    return WriteTextReply(to, MessageKind::kUpload, "");
  };
  // Requests of this kind are refused instead, for example questions about the cluster by clients that connect.
  std::optional<MessageKind> refuses;
  int disconnected = 0;

 private:
  Fabric* const fabric_;
};

// Serves nothing, as a server that was stopped.
class StoppedService final : public Service {
 public:
  void Serve(absl::Span<const IncomingCall>) override {}
  void Disconnected(ConnectionId) override {}
};

class ConnectionsFixture {
 protected:
  ConnectionsFixture() { CELL_CHECK(server_->Listen("server", &service_).ok()); }

  // Does what there is to do, or lets time pass.
  void Turn() {
    connections_.CloseBroken();
    loop_.DestroyEnded();
    loop_.Touch();
    if (loop_.Step() + loop_.fabric()->Poll() == 0) loop_.Wait(loop_.NowNs() + 1'000'000);
  }
  template <typename T>
  T Wait(Task<T> task) {
    task.Start();
    return End(&task);
  }
  // Waits for a task that was started.
  template <typename T>
  T End(Task<T>* task) {
    while (!task->done()) Turn();
    return task->Take();
  }
  void PassTime(int64_t ns) {
    const int64_t until_ns = loop_.NowNs() + ns;
    while (loop_.NowNs() < until_ns) {
      if (loop_.fabric()->Poll() == 0) loop_.Wait(until_ns);
    }
  }
  Task<absl::Status> Read(WorkerConnection* worker, ReadPart part, SearchReads* search = nullptr) {
    co_return co_await connections_.Read(worker, {&part, 1}, loop_.NowNs() + 1'000'000'000, search);
  }
  Task<absl::StatusOr<std::string>> Call(WorkerConnection* worker, std::string request, Feedback feedback = {}) {
    const OutgoingCall call{
        .head = request, .reply_bytes_max = kMessageBytesMax, .deadline_ns = loop_.NowNs() + 1'000'000'000};
    const absl::StatusOr<ConstBytes> reply = co_await connections_.Call(worker, call, feedback);
    if (!reply.ok()) co_return reply.status();
    co_return std::string(AsText(*reply));
  }

  SimNetwork network_{SimOptions{}};
  std::unique_ptr<SimFabric> server_ = network_.NewEndpoint();
  AnsweringService service_{server_.get()};
  ClientOptions options_;
  ClientMetrics metrics_;
  ClientLoop loop_{network_.NewEndpoint()};
  Connections connections_{&loop_, &metrics_, options_};
};

}  // namespace cell

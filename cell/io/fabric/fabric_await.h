// Defines awaitables over a fabric: a read, a call or a connection in a coroutine.
//
// The coroutine resumes from the fabric's Poll. The arguments live in its frame until then.
#pragma once

#include <coroutine>
#include <string>
#include <string_view>
#include <utility>

#include "cell/io/fabric/fabric.h"

namespace cell {

struct ReadAwaiter : Completion {
  Fabric* fabric;
  ConnectionId connection;
  absl::Span<const ReadPart> parts;
  int64_t deadline_ns;
  absl::Status status;
  std::coroutine_handle<> handle;

  ReadAwaiter(Fabric* fabric, ConnectionId connection, absl::Span<const ReadPart> parts, int64_t deadline_ns)
      : fabric(fabric), connection(connection), parts(parts), deadline_ns(deadline_ns) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    handle = awaiting;
    fabric->Read(connection, parts, deadline_ns, this);
  }
  void Done(const absl::Status& result, ConstBytes) override {
    if (!result.ok()) status = result;
    handle.resume();
  }
  absl::Status await_resume() { return std::move(status); }
};

// A request to be sent. Its bytes must live until it is answered.
struct OutgoingCall {
  std::string_view head;
  std::string_view body = {};
  size_t reply_bytes_max;
  int64_t deadline_ns;
};

// The reply's bytes are valid until the awaiting coroutine suspends again.
struct CallAwaiter : Completion {
  Fabric* fabric;
  ConnectionId connection;
  OutgoingCall call;
  absl::StatusOr<ConstBytes> reply;
  std::coroutine_handle<> handle;

  CallAwaiter(Fabric* fabric, ConnectionId connection, const OutgoingCall& call)
      : fabric(fabric), connection(connection), call(call) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    handle = awaiting;
    fabric->Call(connection, AsBytes(call.head), AsBytes(call.body), call.reply_bytes_max, call.deadline_ns, this);
  }
  void Done(const absl::Status& result, ConstBytes bytes) override {
    if (result.ok()) {
      reply = bytes;
    } else {
      reply = result;
    }
    handle.resume();
  }
  absl::StatusOr<ConstBytes> await_resume() { return std::move(reply); }
};

struct ConnectAwaiter : Completion {
  Fabric* fabric;
  std::string address;
  int64_t deadline_ns;
  ConnectionId connection = 0;
  absl::Status status;
  std::coroutine_handle<> handle;

  ConnectAwaiter(Fabric* fabric, std::string address, int64_t deadline_ns)
      : fabric(fabric), address(std::move(address)), deadline_ns(deadline_ns) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    handle = awaiting;
    connection = fabric->Connect(address, deadline_ns, this);
  }
  void Done(const absl::Status& result, ConstBytes) override {
    status = result;
    handle.resume();
  }
  absl::StatusOr<ConnectionId> await_resume() {
    if (!status.ok()) return std::move(status);
    return connection;
  }
};

}  // namespace cell

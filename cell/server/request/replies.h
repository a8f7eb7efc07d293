// Replies composes replies in the fabric's memory, and counts them. Not thread-safe: used only on the worker's thread.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"
#include "cell/server/request/served_regions.h"

namespace cell {

class Replies {
 public:
  // The fabric must outlive this.
  Replies(Fabric* fabric, uint32_t node_bytes) : fabric_(fabric), node_bytes_(node_bytes) {}

  // Begins a reply. End or Finish must follow before another reply begins.
  MutableBytes Begin(const IncomingCall& call) { return fabric_->BeginReply(call); }
  // Ends the reply in `to`, and adds the call's service times.
  void End(const IncomingCall& call, MessageKind kind, MutableBytes to, size_t bytes) {
    ++served_[static_cast<size_t>(kind)];
    Send(call, to, bytes);
  }
  // Ends the reply in `to`, which may be a route, or sends an error instead.
  void Finish(const IncomingCall& call, MessageKind kind, MutableBytes to, const absl::StatusOr<size_t>& bytes) {
    if (!bytes.ok()) {
      ++refused_;
      return Send(call, to, WriteErrorReply(to, kind, bytes.status()));
    }
    if (!IsRoute({to.data(), *bytes})) return End(call, kind, to, *bytes);
    ++routed_;
    Send(call, to, *bytes);
  }
  void Error(const IncomingCall& call, MessageKind kind, const absl::Status& status) {
    Finish(call, kind, Begin(call), status);
  }
  void Route(const IncomingCall& call, const Target& target, std::string_view key) {
    ++routed_;
    const MutableBytes to = Begin(call);
    Send(call, to, WriteRoute(to, target, key));
  }

  uint64_t served(MessageKind kind) const { return served_[static_cast<size_t>(kind)]; }
  uint64_t routed() const { return routed_; }
  uint64_t refused() const { return refused_; }

 private:
  void Send(const IncomingCall& call, MutableBytes to, size_t bytes) {
    const ServiceTimes times = fabric_->TimesOf(call, node_bytes_);
    if (times.read_ns != 0) SetTimes(to, times);
    fabric_->EndReply(call, bytes);
  }

  Fabric* const fabric_;
  const uint32_t node_bytes_;
  std::array<uint64_t, 33> served_{};  // Indexed by MessageKind.
  uint64_t routed_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace cell

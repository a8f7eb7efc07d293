// Liar is a server of a simulated cluster that gives the same text as its answer to every request.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "cell/base/check.h"
#include "cell/layout/wire.h"
#include "tests/sim_cluster.h"

namespace cell {

class Liar : public Service {
 public:
  Liar(std::unique_ptr<SimFabric> fabric, const std::string& address) : fabric_(std::move(fabric)) {
    CELL_CHECK(fabric_->Listen(address, this).ok());
  }
  void Say(std::string text) { text_ = std::move(text); }
  void Poll() { fabric_->Poll(); }
  void Serve(absl::Span<const IncomingCall> calls) override {
    for (const IncomingCall& call : calls) {
      const absl::StatusOr<MessageHeader> header = ParseHeader(call.request);
      CELL_CHECK(header.ok());
      const MutableBytes to = fabric_->BeginReply(call);
      fabric_->EndReply(call, WriteTextReply(to, header->kind, text_));
    }
  }
  void Disconnected(ConnectionId) override {}

 private:
  const std::unique_ptr<SimFabric> fabric_;
  std::string text_;
};

}  // namespace cell

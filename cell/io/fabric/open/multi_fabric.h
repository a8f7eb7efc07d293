// MultiFabric: several real fabrics as one endpoint, over the same regions.
//
// A server listens on all that its address names (fabric_address.h). A client takes, of those that a server offers and
// that it has itself, the first that answers of: shm, where the server is on this machine; verbs; tcp. So a laptop, a
// cluster of ordinary hosts and one with RDMA run the same programs with the same flags.
//
// A fabric that has had nothing to do for some polls is polled less often, so that one that is idle costs the busy one
// next to nothing.
//
// One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cell/io/fabric/connection_table.h"
#include "cell/io/fabric/fabric_address.h"
#include "cell/io/fabric/polling_fabric.h"
#include "cell/io/net/fd.h"

namespace cell {

class MultiFabric : public PollingFabric {
 public:
  MultiFabric(Polling polling, std::shared_ptr<RegionPool> pool);
  ~MultiFabric() override;
  // Before anything else: this endpoint has it. Its regions must be those of the pool.
  void Add(FabricKind kind, std::unique_ptr<PollingFabric> fabric);

  // At every address of `addresses`. After an error this endpoint is of no use.
  absl::Status Listen(const std::string& addresses, Service* service) override;
  MutableBytes BeginReply(const IncomingCall& call) override;
  void EndReply(const IncomingCall& call, size_t bytes) override;
  ServiceTimes TimesOf(const IncomingCall& call, uint64_t read_bytes) const override;
  size_t peers() const override;

  ConnectionId Connect(const std::string& addresses, int64_t deadline_ns, Completion* completion) override;
  void Disconnect(ConnectionId connection) override;
  void ForgetRegion(ConnectionId connection, uint32_t region) override;
  void Read(ConnectionId connection, absl::Span<const ReadPart> parts, int64_t deadline_ns,
            Completion* completion) override;
  void Call(ConnectionId connection, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
            Completion* completion) override;
  // Which fabric the connection takes. It must have been connected.
  FabricKind KindOf(ConnectionId connection) const;

  size_t Poll() override;
  void Flush() override;
  bool HasWork() const override;
  bool BeginSleep() override;
  int wait_fd() const override { return epoll_.get(); }
  void EndSleep() override;
  void AfterWait() override;
  int64_t NextDeadlineNs() const override;

 private:
  class PartService;
  class Attempt;
  struct Part {
    FabricKind kind;
    std::unique_ptr<PartService> service;
    std::unique_ptr<PollingFabric> fabric;
    bool used = false;     // It listens, or has been asked to connect.
    mutable int idle = 0;  // Polls since it had something to do.
  };
  struct Route {
    Part* part = nullptr;  // Null: gone, or no fabric leads there.
    ConnectionId id = 0;
    std::unique_ptr<Attempt> attempt;
  };

  Part* PartOf(FabricKind kind);
  void Use(Part* part);
  IncomingCall InnerCall(const IncomingCall& call, Part** part) const;
  void TryNext(Route* route);
  // Null: not connected, or not any more.
  Route* Live(ConnectionId connection) const;

  Fd epoll_;
  bool closing_ = false;
  ConnectionTable<Route> routes_;      // Outlives the parts, which tell its attempts when they end.
  std::vector<ConnectionId> ended_;    // Disconnected, or could not be made: to be removed by the next Poll.
  std::vector<std::unique_ptr<Part>> parts_;
  uint32_t polls_ = 0;
  mutable uint32_t checks_ = 0;
};

}  // namespace cell

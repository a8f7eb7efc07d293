// MultiFabric combines several real fabrics into one endpoint, over the same regions.
//
// A server listens on all fabrics that its address names (fabric_address.h). A client tries the fabrics that both sides
// have, and takes the first that answers: shm if the server is on this machine, then verbs, then tcp. So a laptop, a
// cluster of ordinary hosts and one with RDMA run the same programs with the same flags.
//
// A fabric that has had nothing to do for some polls is polled less often, so that an idle one costs the busy one next
// to nothing.
//
// Not thread-safe.
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
  // Adds a fabric. REQUIRES: no other function was called before, and the fabric's regions are those of the pool.
  void Add(FabricKind kind, std::unique_ptr<PollingFabric> fabric);
  void SetSelf(Identity self) override;
  void SetReaders(Readers readers) override;

  // Listens at every address of `addresses`. After an error this endpoint must not be used.
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
  // Returns the fabric that a connection uses. REQUIRES: it was connected.
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
    bool used = false;     // It listens, or was asked to connect.
    mutable int idle = 0;  // Polls since it last had something to do.
  };
  struct Route {
    Part* part = nullptr;  // Null: gone, or no fabric could connect.
    ConnectionId id = 0;
    std::unique_ptr<Attempt> attempt;
  };

  Part* PartOf(FabricKind kind);
  void Use(Part* part);
  IncomingCall InnerCall(const IncomingCall& call, Part** part) const;
  void TryNext(Route* route);
  // Returns null if the connection is not connected (any more).
  Route* Live(ConnectionId connection) const;

  Fd epoll_;
  bool closing_ = false;
  ConnectionTable<Route> routes_;    // Outlives the parts, which call its attempts when they are destroyed.
  std::vector<ConnectionId> ended_;  // Disconnected or failed; removed by the next Poll.
  std::vector<std::unique_ptr<Part>> parts_;
  uint32_t polls_ = 0;
  mutable uint32_t checks_ = 0;
};

}  // namespace cell

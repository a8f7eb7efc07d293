// SimFabric: an endpoint of a SimNetwork.
//
// Serving a call costs its server's core time, so that calls queue; reads cost it nothing. An endpoint is polled by
// whoever has it, as any other; or it is driven: then the network calls whenever there is something to do, which is
// what thousands of clients need. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cell/io/sim/sim_network.h"

namespace cell {

class SimFabric : public Fabric {
 public:
  ~SimFabric() override;

  absl::StatusOr<RegionMemory*> CreateRegion(uint32_t region, uint64_t bytes) override {
    return MakeRegion(region, bytes, /*staged=*/false);
  }
  absl::StatusOr<RegionMemory*> CreateStagedRegion(uint32_t region, uint64_t bytes) override {
    return MakeRegion(region, bytes, /*staged=*/true);
  }
  void PublishRegion(uint32_t region) override;
  void DropRegion(uint32_t region) override;
  absl::StatusOr<bool> PrepareRegion(uint64_t bytes, uint64_t slice) override;
  size_t free_regions() const override { return dropped_.size(); }
  absl::Status Listen(const std::string& address, Service* service) override;
  MutableBytes BeginReply(const IncomingCall& call) override;
  void EndReply(const IncomingCall& call, size_t bytes) override;
  // By the machine model; nothing without one.
  ServiceTimes TimesOf(const IncomingCall& call, uint64_t read_bytes) const override;
  size_t peers() const override;

  ConnectionId Connect(const std::string& address, int64_t deadline_ns, Completion* completion) override;
  void Disconnect(ConnectionId connection) override;
  void ForgetRegion(ConnectionId connection, uint32_t region) override {
    if (connection < connections_.size()) connections_[connection].mapped.erase(region);
  }
  void Read(ConnectionId connection, absl::Span<const ReadPart> parts, int64_t deadline_ns,
            Completion* completion) override;
  void Call(ConnectionId connection, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
            Completion* completion) override;

  size_t Poll() override;
  void Wait(int64_t until_ns) override;
  // The host's clock.
  int64_t NowNs() const override { return host_->ToLocal(network_->now_ns()); }

  SimHost* host() const { return host_; }
  // Reads and calls of this endpoint that have not ended.
  size_t in_flight() const {
    size_t count = 0;
    for (const Connection& connection : connections_) count += connection.pending.size();
    return count;
  }
  // Calls to this endpoint that have come and are not served.
  size_t queued() const { return queued_.size(); }
  // From now on the network calls `turn` whenever this endpoint has completions to tell, and when the time has come
  // that Wait was asked for last, which returns at once. `turn` polls whoever this endpoint is of. Null: it is
  // polled again.
  void Drive(std::function<void()> turn);
  // What a call costs the core, in nanoseconds, instead of SimOptions::call_service_ns.
  void set_call_cost(std::function<int64_t(ConstBytes request)> cost) { call_cost_ = std::move(cost); }
  // How long its core has worked on calls.
  int64_t busy_ns() const { return busy_ns_; }

  // As if its process had died: peers lose it, its memory can be read no more, and whatever it still does has no
  // effect.
  void Crash();

  // A paused endpoint serves no calls; its memory can still be read, as that of a stopped process can.
  void SetPaused(bool paused);

 private:
  friend class SimNetwork;

  struct Region {
    std::unique_ptr<std::byte, void (*)(void*)> bytes;
    RegionMemory memory;
    bool staged = false;
    std::set<uint32_t> former = {};  // All that were here.
  };
  struct Peer {
    SimFabric* client;  // Null: gone.
    ConnectionId connection;
    int64_t in_order_ns = 0;
  };
  struct Pending {
    Completion* completion;
    bool is_read;
    int64_t deadline_ns;  // By the host's clock.
  };
  struct Connection {
    SimFabric* server = nullptr;  // Null: gone.
    ConnectionId peer = 0;
    uint64_t operations = 0;
    int64_t in_order_ns = 0;
    std::map<uint64_t, Pending> pending;  // Operations.
    // Where regions were when they were first read. They are read there even when they were dropped since, as memory
    // that was mapped or registered once can be.
    std::map<uint32_t, RegionMemory*> mapped;
  };
  struct Request {
    ConnectionId peer;
    uint64_t id;
    std::string bytes;
    size_t reply_bytes_max;
    int64_t cost_ns = 0;  // Of the core.
  };
  struct Ready {
    Completion* completion;
    absl::Status status;
    std::string reply;
  };

  SimFabric(SimNetwork* network, SimHost* host);

  struct Reply {
    ConnectionId peer;
    uint64_t id;
    std::string bytes;
  };

  absl::StatusOr<RegionMemory*> MakeRegion(uint32_t region, uint64_t bytes, bool staged);
  std::unique_ptr<Region> NewRegion(uint64_t bytes) const;
  void ScheduleServe();
  void Send(Reply reply, int64_t at_ns);
  void Deliver(Reply reply, int64_t sent_ns, int64_t ns);
  void ServeQueued();
  void Tell(Completion* completion, absl::Status status, std::string reply = {});
  void WakeAt(int64_t at_ns);
  void TakeTurn();
  void BeginTransfer(SimNetwork::Transfer transfer, uint64_t bytes);
  // Whether a read of these parts has to wait until the server hands a region over.
  bool NotHandedOver(const Connection& connection, absl::Span<const ReadPart> parts) const;
  void ReadWhenHandedOver(ConnectionId connection, std::vector<ReadPart> parts, int64_t deadline_ns,
                          Completion* completion);
  void TryConnect(ConnectionId id, const std::string& address, int64_t deadline_ns, Completion* completion);
  void LosePeers();
  void PeerGoes(ConnectionId peer);
  void BreakConnectionsTo(SimHost* host);
  // When what is sent now leaves: when the core is done with what came before.
  int64_t LeavesNs() const { return std::max(network_->now_ns(), core_free_ns_); }
  void Finish(ConnectionId connection, uint64_t operation, absl::Status status, std::string reply);
  void ExpireAt(int64_t deadline_ns);
  void Expire();
  void LoseServer(ConnectionId connection);

  SimNetwork* const network_;
  SimHost* const host_;
  std::shared_ptr<bool> alive_;  // Events hold it: they do nothing for an endpoint that is gone.

  std::string address_;
  Service* service_ = nullptr;
  bool paused_ = false;
  bool crashed_ = false;
  bool serve_scheduled_ = false;
  int64_t busy_until_ns_ = 0;
  bool serving_ = false;
  std::map<uint32_t, std::unique_ptr<Region>> regions_;
  std::vector<std::unique_ptr<Region>> dropped_;
  std::vector<Peer> peers_;
  std::vector<Request> queued_;
  std::vector<Request> served_;  // Now.
  std::vector<std::byte> reply_;
  std::vector<Reply> replies_;  // Of the calls being served.
  std::function<int64_t(ConstBytes)> call_cost_;
  int64_t busy_ns_ = 0;

  std::function<void()> turn_;   // Null: it is polled.
  int64_t wake_ns_ = INT64_MAX;  // The next turn.
  bool waited_ = false;          // In this turn.
  int64_t core_free_ns_ = 0;     // Of a client.

  std::vector<Connection> connections_;
  int64_t expire_ns_ = INT64_MAX;  // When Expire comes next: no operation has an earlier deadline.
  std::map<ConnectionId, Completion*> connecting_;  // To where nobody answers.
  std::vector<Ready> ready_;
};

}  // namespace cell

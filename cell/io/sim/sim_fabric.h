// SimFabric is an endpoint of a SimNetwork.
//
// Serving a call takes time of its server's core, so calls queue; reads take none. An endpoint is polled by its owner
// like any other, or it is driven: then the network calls it whenever there is something to do, which thousands of
// clients need. Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cell/io/sim/sim_network.h"
#include "cell/region/region_memory.h"

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
  void SetReaders(Readers readers) override { readers_ = std::move(readers); }
  absl::Status Listen(const std::string& address, Service* service) override;
  MutableBytes BeginReply(const IncomingCall& call) override;
  void EndReply(const IncomingCall& call, size_t bytes) override;
  // Returns times according to the machine model, or zeros without one.
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
  // Returns the time of the host's clock.
  int64_t NowNs() const override { return host_->ToLocal(network_->now_ns()); }
  uint64_t UniqueNumber() override { return ++network_->unique_numbers_; }
  int64_t AheadNs() const override { return std::max<int64_t>(0, work_ns_ - network_->now_ns()); }

  SimHost* host() const { return host_; }
  // Returns the number of reads and calls of this endpoint that have not ended.
  size_t in_flight() const {
    size_t count = 0;
    for (const Connection& connection : connections_) count += connection.pending.size();
    return count;
  }
  // Returns the number of calls to this endpoint that have arrived and are not served.
  size_t queued() const { return queued_.size(); }
  // Makes the network call `turn` whenever this endpoint has completions to call, and at the time that was last passed
  // to Wait, which then returns at once. `turn` polls the owner of this endpoint. Null: the endpoint is polled again.
  void Drive(std::function<void()> turn);
  // Sets the time that a call takes of the core, in nanoseconds, instead of SimOptions::call_service_ns.
  void set_call_cost(std::function<int64_t(ConstBytes request)> cost) { call_cost_ = std::move(cost); }
  // Returns how long its core has worked on calls.
  int64_t busy_ns() const { return busy_ns_; }

  // Simulates the death of its process: peers lose the connection, its memory cannot be read any more, and its further
  // calls have no effect.
  void Crash();

  // Pauses the endpoint: it serves no calls, but its memory can still be read, as that of a stopped process.
  void SetPaused(bool paused);

 private:
  friend class SimNetwork;

  struct Region {
    std::unique_ptr<std::byte, void (*)(void*)> bytes;
    RegionMemory memory;
    bool staged = false;
    std::set<uint32_t> former = {};  // All regions that were here.
  };
  struct Peer {
    SimFabric* client;  // Null: gone.
    ConnectionId connection;
    Identity identity;
    int64_t in_order_ns = 0;
  };
  struct Pending {
    Completion* completion;
    bool is_read;
    int64_t deadline_ns;  // On the host's clock.
    size_t parts = 0;     // Of a read.
  };
  struct Connection {
    SimFabric* server = nullptr;  // Null: gone.
    ConnectionId peer = 0;
    uint64_t operations = 0;
    int64_t in_order_ns = 0;
    std::map<uint64_t, Pending> pending;  // Operations.
    // Locations of regions when they were first read. Later reads go there even if the region was dropped since, as
    // with memory that was mapped or registered once.
    std::map<uint32_t, RegionMemory*> mapped;
  };
  struct Request {
    ConnectionId peer;
    uint64_t id;
    std::string bytes;
    size_t reply_bytes_max;
    int64_t cost_ns = 0;  // Time on the core.
  };
  struct Ready {
    Completion* completion;
    absl::Status status;
    std::string reply;
    int64_t work_ns;  // Of this core.
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
  // `read_parts`: the parts of the read that has ended; 0: it is not a read.
  void Tell(Completion* completion, absl::Status status, std::string reply = {}, size_t read_parts = 0);
  void WakeAt(int64_t at_ns);
  void TakeTurn();
  void BeginTransfer(SimNetwork::Transfer transfer, uint64_t bytes);
  // Returns whether a read of these parts has to wait until the server hands over a region.
  bool NotHandedOver(const Connection& connection, absl::Span<const ReadPart> parts) const;
  void ReadWhenHandedOver(ConnectionId connection, std::vector<ReadPart> parts, int64_t deadline_ns,
                          Completion* completion);
  void RefuseRead(ConnectionId connection, int64_t deadline_ns, Completion* completion);
  void TryConnect(ConnectionId id, const std::string& address, int64_t deadline_ns, Completion* completion);
  void LosePeers();
  void PeerGoes(ConnectionId peer);
  void BreakConnectionsTo(SimHost* host);
  // Returns when something that is sent now leaves: when the core has finished its earlier work.
  int64_t LeavesNs() const { return std::max(network_->now_ns(), core_free_ns_); }
  void Finish(ConnectionId connection, uint64_t operation, absl::Status status, std::string reply);
  void ExpireAt(int64_t deadline_ns);
  void Expire();
  void LoseServer(ConnectionId connection);

  SimNetwork* const network_;
  SimHost* const host_;
  std::shared_ptr<bool> alive_;  // Events hold it. They do nothing if the endpoint is gone.

  std::string address_;
  Service* service_ = nullptr;
  Readers readers_;
  bool paused_ = false;
  bool crashed_ = false;
  bool serve_scheduled_ = false;
  int64_t busy_until_ns_ = 0;
  bool serving_ = false;
  std::map<uint32_t, std::unique_ptr<Region>> regions_;
  std::vector<std::unique_ptr<Region>> dropped_;
  std::deque<Peer> peers_;
  std::vector<Request> queued_;
  std::vector<Request> served_;  // The calls that are being served.
  std::vector<std::byte> reply_;
  std::vector<Reply> replies_;  // Replies to the calls that are being served.
  std::function<int64_t(ConstBytes)> call_cost_;
  int64_t busy_ns_ = 0;

  std::function<void()> turn_;   // Null: the endpoint is polled.
  int64_t wake_ns_ = INT64_MAX;  // Time of the next turn.
  bool waited_ = false;          // Wait was called in this turn.
  int64_t core_free_ns_ = 0;     // When the core of a client is free.
  int64_t work_ns_ = 0;          // How far it has come: before the completion that is running, if one is.

  std::vector<Connection> connections_;
  int64_t expire_ns_ = INT64_MAX;                   // When Expire runs next. No operation has an earlier deadline.
  std::map<ConnectionId, Completion*> connecting_;  // Connects to addresses where nobody answers.
  std::vector<Ready> ready_;
};

}  // namespace cell

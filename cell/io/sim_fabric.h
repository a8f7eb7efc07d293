// SimNetwork and SimFabric: a network in one thread and virtual time, driven by one seed.
//
// One-sided reads are copied one cache line at a time, in an order that the seed picks, between the steps of whoever
// writes: every store of a node or an extent lets time pass (RegionMemory::set_after_step), and the lines that are due
// by then are copied before the writer goes on. So a run has every race that a NIC could show, and the same seed has
// the same races.
//
// Serving a call costs server time, so that calls queue; reads cost the server nothing. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "cell/base/random.h"
#include "cell/io/fabric.h"

namespace cell {

class SimFabric;

struct SimOptions {
  enum class LineOrder { kRandom, kAscending };
  uint64_t seed = 1;
  LineOrder line_order = LineOrder::kRandom;
  int64_t latency_ns = 1'000;     // One way.
  int64_t line_ns = 20;           // Mean, between two lines of a read.
  int64_t call_service_ns = 500;  // Server time of one call.
  int64_t writer_step_ns = 20;    // Mean, of one step of a writer.
};

class SimNetwork {
 public:
  explicit SimNetwork(SimOptions options) : options_(options), random_(options.seed) {}

  // The network must outlive its endpoints.
  std::unique_ptr<SimFabric> NewEndpoint();

  int64_t now_ns() const { return now_ns_; }
  // Does what comes next, moving the clock to it. False: nothing will ever happen by itself.
  bool Step();
  // Calls `run` when the clock has come to `at_ns`.
  void At(int64_t at_ns, std::function<void()> run);
  // When that is; INT64_MAX: never.
  int64_t NextNs() const;

 private:
  friend class SimFabric;

  struct Event {
    int64_t at_ns;
    uint64_t order;  // Of being scheduled: equal times keep it.
    std::function<void()> run;
    bool operator>(const Event& other) const { return std::tie(at_ns, order) > std::tie(other.at_ns, other.order); }
  };
  struct Line {
    const std::byte* from;
    std::byte* to;
    size_t bytes;
  };
  struct Transfer {
    SimFabric* reader;
    Completion* completion;
    std::vector<Line> lines;
    size_t next = 0;
    int64_t due_ns = 0;
  };

  int64_t Around(int64_t mean_ns) {
    return 1 + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(2 * mean_ns)));
  }
  void OnWriterStep();
  void CopyDueLines();
  void CopyLine(size_t transfer);

  const SimOptions options_;
  Random random_;
  int64_t now_ns_ = 0;
  uint64_t scheduled_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Transfer> transfers_;
  std::map<std::string, SimFabric*> listening_;
};

class SimFabric : public Fabric {
 public:
  ~SimFabric() override;

  absl::StatusOr<RegionMemory*> CreateRegion(uint32_t region, uint64_t bytes) override;
  void DropRegion(uint32_t region) override;
  absl::StatusOr<bool> PrepareRegion(uint64_t bytes, uint64_t slice) override;
  size_t free_regions() const override { return dropped_.size(); }
  absl::Status Listen(const std::string& address, Service* service) override;
  MutableBytes BeginReply(const IncomingCall& call) override;
  void EndReply(const IncomingCall& call, size_t bytes) override;
  size_t peers() const override;

  ConnectionId Connect(const std::string& address, int64_t deadline_ns, Completion* completion) override;
  void Disconnect(ConnectionId connection) override;
  void ForgetRegion(ConnectionId connection, uint32_t region) override {
    connections_[connection].mapped.erase(region);
  }
  void Read(ConnectionId connection, absl::Span<const ReadPart> parts, Completion* completion) override;
  void Call(ConnectionId connection, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
            Completion* completion) override;

  size_t Poll() override;
  void Wait(int64_t until_ns) override;
  int64_t NowNs() const override { return network_->now_ns(); }

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
  };
  struct Peer {
    SimFabric* client;  // Null: gone.
    ConnectionId connection;
  };
  struct Connection {
    SimFabric* server;  // Null: gone.
    ConnectionId peer;
    uint64_t calls = 0;
    std::map<uint64_t, Completion*> pending;
    // Where regions were when they were first read. They are read there even when they were dropped since, as memory
    // that was mapped or registered once can be.
    std::map<uint32_t, RegionMemory*> mapped;
  };
  struct Request {
    ConnectionId peer;
    uint64_t id;
    std::string bytes;
    size_t reply_bytes_max;
  };
  struct Ready {
    Completion* completion;
    absl::Status status;
    std::string reply;
  };

  explicit SimFabric(SimNetwork* network) : network_(network), alive_(std::make_shared<bool>(true)) {}

  struct Reply {
    ConnectionId peer;
    uint64_t id;
    std::string bytes;
  };

  std::unique_ptr<Region> NewRegion(uint64_t bytes) const;
  void ScheduleServe();
  void Send(Reply reply, int64_t at_ns);
  void ServeQueued();
  void FailTransfers(bool tell_own);
  void Tell(Completion* completion, absl::Status status, std::string reply = {}) {
    if (crashed_) return;
    ready_.push_back({completion, std::move(status), std::move(reply)});
  }
  void Finish(ConnectionId connection, uint64_t call, absl::Status status, std::string reply);
  void LoseServer(ConnectionId connection);

  SimNetwork* network_;
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
  std::vector<std::byte> reply_;
  std::vector<Reply> replies_;  // Of the calls being served.

  std::vector<Connection> connections_;
  std::vector<Ready> ready_;
};

}  // namespace cell

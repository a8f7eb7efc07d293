// SimNetwork: a network and its machines in one thread and virtual time, driven by one seed.
//
// One-sided reads are copied one cache line at a time, in an order that the seed picks, between the steps of whoever
// writes: every store of a node or an extent lets time pass (RegionMemory::set_after_step), and the lines that are due
// by then are copied before the writer goes on; with SimOptions::clients_run, clients take their turns then, too, as
// those of machines of their own do. So a run has every race that a NIC could show, and the same seed has the same
// races.
//
// A host has a clock, which may go wrong, and a MachineModel, which says what its NIC and its cores take; a host
// without one has an idle NIC, and the times of SimOptions. What can go wrong between hosts: SetCut, SetDelays, Break.
// Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "cell/io/fabric/fabric.h"
#include "cell/io/sim/machine_model.h"

namespace cell {

class SimFabric;

struct SimOptions {
  enum class LineOrder { kRandom, kAscending };
  uint64_t seed = 1;
  LineOrder line_order = LineOrder::kRandom;
  int64_t latency_ns = 1'000;     // One way.
  int64_t line_ns = 20;           // Mean, between two lines of a read. 0: all of it at once, which is fast to simulate.
  int64_t call_service_ns = 500;  // Server time of one call.
  int64_t writer_step_ns = 20;    // Mean, of one step of a writer.
  bool clients_run = false;       // Between a writer's steps.
  int64_t break_after_ns = 100'000;  // That a way is cut, its connections break.
  // A region is handed over by its server, once, before the first read of it: a server that is stopped cannot do that.
  bool handed_over = false;
};

class SimNetwork;

// A machine: what its endpoints share.
class SimHost {
 public:
  // Its clock: begins at `offset_ns`, and gains so many millionths. Before any endpoint is used.
  void SetClock(int64_t offset_ns, int64_t gain_ppm) {
    offset_ns_ = offset_ns;
    gain_ppm_ = gain_ppm;
  }
  // The clock has stood still for so long, and goes on from where it was.
  void StandStill(int64_t ns) { offset_ns_ -= ns + ns * gain_ppm_ / 1'000'000; }
  int64_t ToLocal(int64_t network_ns) const {
    if (network_ns > kForeverNs) return network_ns;
    // In wide numbers: it never goes back.
    return offset_ns_ + network_ns + static_cast<int64_t>(static_cast<__int128>(network_ns) * gain_ppm_ / 1'000'000);
  }
  // When the clock comes to `local_ns`, or a little later.
  int64_t ToNetwork(int64_t local_ns) const;

  // Its cores take so many times as long from now on.
  void set_slowdown(double slowdown) { slowdown_ = slowdown; }
  double slowdown() const { return slowdown_; }

 private:
  friend class SimNetwork;
  friend class SimFabric;

  static constexpr int64_t kForeverNs = int64_t{1} << 60;

  // When an operation that arrives at `at_ns` has passed the NIC.
  int64_t PassNic(bool is_read, uint64_t bytes, int64_t at_ns);
  // What of a latency is spent on the way, and not in PassNic.
  int64_t OnTheWay(bool is_read) const;

  std::optional<MachineModel> model_;
  int64_t offset_ns_ = 0;
  int64_t gain_ppm_ = 0;
  double slowdown_ = 1;
  int64_t connections_ = 0;
  int64_t port_free_ns_ = 0, reads_free_ns_ = 0, calls_free_ns_ = 0, wire_free_ns_ = 0;
  std::vector<SimFabric*> endpoints_;  // In the order of being made.
};

class SimNetwork {
 public:
  explicit SimNetwork(SimOptions options) : options_(options), random_(options.seed) {}

  SimHost* NewHost(std::optional<MachineModel> model = std::nullopt);
  // On a host of its own, or on that one. The network must outlive its endpoints.
  std::unique_ptr<SimFabric> NewEndpoint(SimHost* host = nullptr);

  int64_t now_ns() const { return now_ns_; }
  // Does what comes next, moving the clock to it. False: nothing will ever happen by itself.
  bool Step();
  // Calls `run` when the clock has come to `at_ns`.
  void At(int64_t at_ns, std::function<void()> run) { At(at_ns, nullptr, std::move(run)); }
  // When that is; INT64_MAX: never.
  int64_t NextNs() const;

  // Nothing that `from` sends arrives at `to` any more: it waits until the way is there again, or until it has been cut
  // for so long that connections between the two break.
  void SetCut(SimHost* from, SimHost* to, bool cut);
  // Of what is sent from now on, that share arrives up to so much later. Order within a connection is kept.
  void SetDelays(double share, int64_t delay_max_ns) {
    delayed_share_ = share;
    delay_max_ns_ = delay_max_ns;
  }
  // All connections between the two are lost, by both sides.
  void Break(SimHost* one, SimHost* other);

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
  // A read that has begun.
  struct Transfer {
    SimFabric* reader;
    SimHost* from;
    ConnectionId connection;
    uint64_t id;  // Of the connection's operations.
    std::vector<Line> lines;
    size_t next = 0;
    int64_t due_ns = 0;
  };
  struct Cut {
    uint64_t number;
    std::vector<std::function<void()>> waiting;
  };
  using Ways = std::map<std::pair<SimHost*, SimHost*>, Cut>;

  int64_t Around(int64_t mean_ns) {
    return 1 + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(2 * mean_ns)));
  }
  int64_t Delay() { return delayed_share_ > 0 && random_.Unit() < delayed_share_ ? Around(delay_max_ns_ / 2) : 0; }
  // `whose`: that is done at this endpoint and nowhere else; null: somewhere.
  void At(int64_t at_ns, const SimFabric* whose, std::function<void()> run);
  // Calls `run` when what `from` sends at `sent_ns` is with `to`, which takes `ns`. `in_order`: not before what was
  // sent with the same one. `whose`: as of At.
  void Carry(SimHost* from, SimHost* to, int64_t sent_ns, int64_t ns, int64_t* in_order, std::function<void()> run,
             const SimFabric* whose = nullptr);
  void Arrive(SimHost* from, SimHost* to, std::function<void()> run);
  bool IsCut(SimHost* from, SimHost* to) const { return !cuts_.empty() && cuts_.contains({from, to}); }
  void OnWriterStep();
  size_t FirstTransfer() const;
  void CopyDueLines();
  void CopyLine(size_t transfer);
  void EndTransfer(const Transfer& transfer, int64_t at_ns);

  const SimOptions options_;
  Random random_;
  int64_t now_ns_ = 0;
  uint64_t scheduled_ = 0;
  using Events = std::priority_queue<Event, std::vector<Event>, std::greater<>>;
  static void RunFirst(Events* events);
  Events events_, client_events_;
  bool writing_ = false;  // Clients take turns between a writer's steps.
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::vector<Transfer> transfers_;
  std::map<std::string, SimFabric*> listening_;
  Ways cuts_;
  uint64_t cuts_made_ = 0;
  double delayed_share_ = 0;
  int64_t delay_max_ns_ = 0;
};

}  // namespace cell

// SimNetwork simulates a network and its machines in one thread and virtual time, driven by one seed.
//
// One-sided reads are copied one cache line at a time, in an order that the seed chooses, between the writer's steps:
// every store of a node or an extent lets time pass (RegionMemory::set_after_step), and the lines that are due by then
// are copied before the writer continues. With SimOptions::clients_run, clients run then, too, as if they were on
// machines of their own. So a run has every race that a NIC could show, and the same seed has the same races.
//
// A host has a clock, which may go wrong, and a MachineModel, which says what its NIC and its cores take. A host
// without a model has an idle NIC and the times of SimOptions. Faults between hosts are simulated by SetCut, SetDelays
// and Break. Not thread-safe.
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
#include "cell/region/region_memory.h"

namespace cell {

class SimFabric;

struct SimOptions {
  enum class LineOrder { kRandom, kAscending };
  uint64_t seed = 1;
  LineOrder line_order = LineOrder::kRandom;
  int64_t latency_ns = 1'000;     // One way.
  int64_t line_ns = 20;           // Mean time between two lines of a read. 0: copies the whole read at once, which is
                                  // fast to simulate.
  int64_t call_service_ns = 500;  // Server time of one call.
  int64_t writer_step_ns = 20;    // Mean time of one step of a writer.
  bool clients_run = false;       // Between a writer's steps.
  int64_t break_after_ns = 100'000;  // How long a way is cut before its connections break.
  // If set, a server must hand over a region once before the first read of it. A stopped server cannot do that.
  bool handed_over = false;
};

class SimNetwork;

// A machine: what its endpoints share.
class SimHost {
 public:
  // Sets its clock, which begins at `offset_ns` and gains `gain_ppm` millionths. REQUIRES: no endpoint was used.
  void SetClock(int64_t offset_ns, int64_t gain_ppm) {
    offset_ns_ = offset_ns;
    gain_ppm_ = gain_ppm;
  }
  // Simulates that the clock stood still for this time and continues from there.
  void StandStill(int64_t ns) { offset_ns_ -= ns + ns * gain_ppm_ / 1'000'000; }
  int64_t ToLocal(int64_t network_ns) const {
    if (network_ns > kForeverNs) return network_ns;
    // Use wide numbers, so that the clock never goes back.
    return offset_ns_ + network_ns + static_cast<int64_t>(static_cast<__int128>(network_ns) * gain_ppm_ / 1'000'000);
  }
  // Returns when the clock reaches `local_ns`, or a little later.
  int64_t ToNetwork(int64_t local_ns) const;

  // Sets how many times slower its cores are from now on.
  void set_slowdown(double slowdown) { slowdown_ = slowdown; }
  double slowdown() const { return slowdown_; }

 private:
  friend class SimNetwork;
  friend class SimFabric;

  static constexpr int64_t kForeverNs = int64_t{1} << 60;

  // Returns when an operation that arrives at `at_ns` has passed the NIC.
  int64_t PassNic(bool is_read, uint64_t bytes, int64_t at_ns);
  // Returns the part of a latency that is spent on the way, and not in PassNic.
  int64_t OnTheWay(bool is_read) const;

  std::optional<MachineModel> model_;
  int64_t offset_ns_ = 0;
  int64_t gain_ppm_ = 0;
  double slowdown_ = 1;
  int64_t connections_ = 0;
  int64_t port_free_ns_ = 0, reads_free_ns_ = 0, calls_free_ns_ = 0, wire_free_ns_ = 0;
  std::vector<SimFabric*> endpoints_;  // In the order of their creation.
};

class SimNetwork {
 public:
  explicit SimNetwork(SimOptions options) : options_(options), random_(options.seed) {}

  SimHost* NewHost(const std::optional<MachineModel>& model = std::nullopt);
  // Makes an endpoint on `host`, or on a host of its own. The network must outlive its endpoints.
  std::unique_ptr<SimFabric> NewEndpoint(SimHost* host = nullptr);

  int64_t now_ns() const { return now_ns_; }
  // Executes the next event and moves the clock to it. Returns false if there is none.
  bool Step();
  // Calls `run` at `at_ns`.
  void At(int64_t at_ns, std::function<void()> run) { At(at_ns, nullptr, std::move(run)); }
  // Returns the time of the next event, or INT64_MAX if there is none.
  int64_t NextNs() const;

  // Cuts the way from `from` to `to`, or restores it. Messages wait until it is restored, or until it has been cut for
  // so long that the connections between the two hosts break.
  void SetCut(SimHost* from, SimHost* to, bool cut);
  // Delays this share of later messages by up to `delay_max_ns`. The order within a connection is kept.
  void SetDelays(double share, int64_t delay_max_ns) {
    delayed_share_ = share;
    delay_max_ns_ = delay_max_ns;
  }
  // Sets a function that is called with each read of a server's memory that is let through, before it is carried out.
  // Null: none is called.
  using OnRead = std::function<void(const SimFabric& reader, const SimFabric& server)>;
  void SetOnRead(OnRead on_read) { on_read_ = std::move(on_read); }
  // Breaks all connections between the two hosts, on both sides.
  void Break(SimHost* one, SimHost* other);

 private:
  friend class SimFabric;

  struct Event {
    int64_t at_ns;
    uint64_t order;  // Order of scheduling. Events of the same time keep it.
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
    uint64_t id;  // Index among the connection's operations.
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
  // Schedules `run`. If `whose` is not null, the event affects only this endpoint.
  void At(int64_t at_ns, const SimFabric* whose, std::function<void()> run);
  // Calls `run` when a message that `from` sends at `sent_ns` reaches `to`, which takes `ns`. With `in_order` it does
  // not overtake earlier messages with the same `in_order`. For `whose` see At.
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
  bool writing_ = false;  // Clients run between a writer's steps.
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::vector<Transfer> transfers_;
  std::map<std::string, SimFabric*> listening_;
  uint64_t unique_numbers_ = 0;  // How many were given.
  Ways cuts_;
  uint64_t cuts_made_ = 0;
  double delayed_share_ = 0;
  int64_t delay_max_ns_ = 0;
  OnRead on_read_;
};

}  // namespace cell

// Selector chooses whether the server or the client executes the next search of a meganode.
//
// There is one selector per connection and kind of operation (OperationKind), because gets, writes and scans cost
// different times. It has two rules:
//
//   thesis   Compares two queues by the latencies that this client sees (thesis, 4.4): `ls` of a server-side search
//            and `lr` of one read during a client-side search. RTT is the lowest read latency ever seen, m the number
//            of reads per search. It chooses the server if
//                ls - RTT < m * (lr - RTT)                                   (Eq. 4.1)
//   cell     Sends a share of the searches over each path. With each search the share moves a little towards the path
//            that takes less time: ls, or m * lr, as running means. If both paths are used, their times become equal. A
//            rule that sends every search to the queue that looks shorter makes all clients switch at the same time,
//            back and forth; a share does not.
//            A selector's observations and its share fade over time into those of all selectors of its client. A new or
//            seldom used selector therefore relies on those, which helps if there are many servers. The client's
//            observations fade too, so that a path that looked bad is tried again. It is tried for a run of searches,
//            which goes on while that makes the path faster (SelectorOptions::explore_searches). What a run shows to
//            be no better fades more slowly each time, up to age_max_ns, so that trying it costs less and less.
//            A server that owes this client an answer for longer than a multiple of its usual latency is not asked
//            until it answers, because something else occupies its core.
//            A request also costs the time that later requests wait for it. If a server reports how long a request
//            occupies its core and its NIC (ServiceTimes), a price is added to the time of each path. For a latency W
//            in a queue that serves one request in S the price is W (W / S - 1). With M/M/1 and x requests a second
//            that is d(xW)/dx minus W. With the price, the result is best for all clients together; without it, each
//            client optimizes for itself. A request that occupies the server for less than others in its queue has a
//            price that is lower in proportion: a put that brings its leaf along spares the server the search. What
//            waits for this client's own core (`turn_ns`) is in no queue of the server, and has no price: a NIC serves
//            a read in so little time that a wait of a microsecond there would mean a long queue.
//            While this client's own core is what its operations wait for, latencies say little: an operation that
//            waits for the core twice seems to take twice as long, however little it costs. As far as that is so
//            (`own_core`), the choice goes by the time that each path takes of this core.
//            A client-side search may be followed by a call that uses what was found: a put with its leaf. The call's
//            time belongs to the client path then.
//
// Not thread-safe. The caller passes the time in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cell/base/random.h"
#include "cell/layout/service_times.h"

namespace cell {

struct SelectorOptions {
  enum class Rule { kThesis, kCell };
  Rule rule = Rule::kCell;

  // Options of cell's rule.
  double weight = 0.25;         // Weight of a new sample in the running means.
  double sample_max = 8;        // Limit of a sample, in multiples of the mean. One pause then has little effect, and
                                // many pauses do.
  double gain = 0.03;           // How far the share moves with a search, in multiples of the relative difference
                                // between the two paths,
  double seldom_gain = 0.1;     // and with a search that comes long after the one before.
  double common_weight = 0.1;   // Like weight, for what all selectors of a client have observed.
  double price_max = 2;         // Limit of the price, in multiples of the request's own latency.
  double silence = 4;           // A server that owes answers is not asked after this many times its latency.
  int64_t age_ns = 10'000'000;  // After this time an observation of a queue has lost two thirds of its influence.
  int64_t age_max_ns = 160'000'000;          // The same, of a path that was no better whenever it was tried again.
  int64_t empty_forget_ns = 10'000'000'000;  // How long an observation of an empty queue counts.

  // The thesis's constants. Both rules use those of exploring.
  size_t samples = 100;           // n: the length of the moving mean.
  double outlier_deviations = 3;  // K: a sample that is further than K standard deviations from the mean is dropped.
  double explore = 0.01;          // How often the path that looks worse is taken, to keep its estimate current. With
                                  // cell's rule, less often if it takes more than three times as long: what exploring
                                  // costs is this share of the time.
  // With cell's rule, explores in runs, because a single probe does not measure a path as it performs in use. A
  // sleeping server has to be woken first (38 us were measured where 10 us was correct), what a seldom used path reads
  // is in no cache of the core (one read in 300 took 1,300 ns, all of them 700), and the requests in flight lose their
  // step whenever some of them go elsewhere. A run consists of periods, of which each is twice as long as the one
  // before. It ends when a period's latencies are not lower than those of the period before, or after
  // explore_periods_max.
  int explore_searches = 16;  // The first period lasts this many times as long as a search, within these limits.
  int64_t explore_min_ns = 200'000;
  int64_t explore_max_ns = 2'000'000;
  int explore_periods_max = 8;
  int64_t idle_forget_ns = 3'000'000'000;  // Thesis rule: forgets its history after a pause this long.
  double reads_per_search = 5;             // m before any search was seen: a 64 MB meganode of 1 KB nodes has 5 levels.
};

inline SelectorOptions ThesisSelector() {
  SelectorOptions options;
  options.rule = SelectorOptions::Rule::kThesis;
  return options;
}

// Returns the options for a rule's name: "cell", "unpriced" (cell's rule without prices) or "thesis". Returns nullopt
// for any other name.
std::optional<SelectorOptions> ParseSelector(std::string_view name);

// Computes the mean of the last n samples. Drops outliers, and starts over when it drops more samples than it keeps.
class MovingMean {
 public:
  explicit MovingMean(const SelectorOptions& options)
      : length_(options.samples), outlier_deviations_(options.outlier_deviations) {}

  void Observe(double sample);
  void Forget();
  bool known() const { return !samples_.empty(); }
  double mean() const { return known() ? sum_ / static_cast<double>(samples_.size()) : 0; }

 private:
  // Outliers are not dropped before there are this many samples, because fewer say nothing about their deviation.
  static constexpr size_t kSamplesBeforeDropping = 10;

  bool IsOutlier(double sample) const;

  size_t length_;
  double outlier_deviations_;
  std::vector<double> samples_;  // A ring once it is full.
  size_t next_ = 0;
  double sum_ = 0;
  double sum_of_squares_ = 0;
  size_t kept_in_period_ = 0;
  size_t dropped_in_period_ = 0;
};

// Tracks the running mean of a latency and its lowest recent value, which is the latency with an empty queue.
class RunningLatency {
 public:
  // Adds a sample. `service` is how long the request occupied the server; 0 if unknown.
  void Observe(double sample, double service, double weight, const SelectorOptions& options, int64_t now_ns);
  bool known() const { return mean_ > 0; }
  // Returns the latency as of now. Old observations fade into `rest`.
  double At(int64_t now_ns, double rest, int64_t age_ns) const;
  // Returns the latency with an empty queue.
  double empty() const { return lowest_ + service_; }
  double service() const { return service_; }

 private:
  double mean_ = 0;        // 0: unknown.
  double service_ = 0;     // A running mean, too.
  double lowest_ = 0;      // Lowest latency without the service time.
  double lowest_now_ = 0;  // The same, of the current period only; replaces lowest_ when the period ends.
  int64_t period_begin_ns_ = 0;
  int64_t observed_ns_ = 0;
};

// Collects the observations of all selectors of a client for one kind of operation, and the resulting share.
struct CommonEstimates {
  RunningLatency server, read;
  RunningLatency rest;  // The call that follows a client-side search, if one does.
  double read_service = 0;
  double reads = 0;                   // Reads per search; 0: unknown.
  double call_cpu = 0, read_cpu = 0;  // Nanoseconds of this client's core for a call, and for a read; 0: unknown.
  double server_share = 0.5;
  int64_t last_choice_ns = 0;
  int explored_runs = 0;
};

// The kinds of operations that have selectors of their own.
enum class OperationKind : uint8_t { kGet, kContains, kWrite, kScan, kLookup };  // Lookup: of a Pilaf table.
inline constexpr size_t kOperationKinds = 5;

// Describes the core that a client runs on.
struct OwnCore {
  int in_flight = 1;   // Operations that the client has in flight, with the one that is chosen for.
  double busy = 0;     // How busy it is, from 0 to 1.
  double turn_ns = 0;  // How long a turn of the client's loop works. What arrives meanwhile waits about that long.
};

class Selector {
 public:
  enum class Choice { kServer, kClient };
  enum class Reason { kRule, kUnknown, kExplore, kSilence };

  // `common` belongs to the client and this kind of operation. It must outlive the selector.
  Selector(const SelectorOptions& options, uint64_t seed, CommonEstimates* common)
      : options_(options), random_(seed), common_(common), server_(options), read_(options), reads_(options) {}

  // Chooses who executes the next search.
  Choice Choose(int64_t now_ns, const OwnCore& core = {});
  // Returns why the last choice was made.
  Reason last_reason() const { return last_reason_; }
  // Returns how many reads a client-side search is expected to take: m.
  double ReadsPerSearch() const;

  // Must be called before and after each call of a search to the server, however the call ends.
  void BeginCall(int64_t now_ns) {
    if (calls_++ == 0) heard_ns_ = now_ns;
  }
  void EndCall(int64_t now_ns) {
    --calls_;
    heard_ns_ = now_ns;
  }
  // Record the latency of a server-side search, and of one read of a client-side search. `times` comes from the reply.
  void ObserveServer(int64_t latency_ns, const ServiceTimes& times = {});
  void ObserveRead(int64_t latency_ns);
  // Records how many sequential reads a client-side search took. `extents` is the number of additional reads for the
  // pairs that were found, which Eq. 4.1 leaves out.
  void ObserveReads(int reads, int extents = 0);
  // Records the latency of the call that followed a client-side search. The thesis's rule leaves it out.
  void ObserveRest(int64_t latency_ns, const ServiceTimes& times = {});
  // Record how long a call, or a read, occupied this client's core.
  void ObserveCallCpu(int64_t ns) { ObserveCpu(Choice::kServer, ns); }
  void ObserveReadCpu(int64_t ns) { ObserveCpu(Choice::kClient, ns); }

 private:
  Choice ChooseByQueues(int64_t now_ns);
  Choice ChooseByShare(int64_t now_ns, const OwnCore& core);
  void ObserveCpu(Choice path, int64_t ns);
  void Observe(Choice path, double sample, double service, RunningLatency* own, RunningLatency* common);
  // Returns 0 if the server does not report it. Before its first answer, a server is assumed to be like the client's
  // other servers.
  double ReadService() const { return server_latency_.known() ? read_service_ : common_->read_service; }
  // `usual_service`: how long most requests in the same queue occupy the server. `own_wait_ns`: the part of the latency
  // that is no wait in the server's queue.
  double PriceOf(double latency_ns, const RunningLatency& own, const RunningLatency& common, double usual_service,
                 double own_wait_ns) const;
  void MoveShares(double difference, int64_t pause_ns, int64_t common_pause_ns);
  // Returns the lowest share of either path.
  double LeastShare(double difference) const;
  double GainAfter(int64_t pause_ns) const;
  // Notes whether a path has become so rare that it is given up, which adapts how fast observations fade: that makes a
  // path look better that was not used for long.
  void NoteRare(bool rare);
  // Begins a run that explores the less used path, or goes on with it, or ends it. `search_ns`: what a search takes
  // over the faster path.
  void Explore(int64_t now_ns, double search_ns, double least);
  // Begins the run's next period. Returns whether there is one.
  bool NextPeriod(int64_t now_ns);
  // Returns whether requests of both paths may be in flight, because a run has begun or ended. What is seen of `path`
  // then does not count.
  bool Mixed(Choice path) const;

  SelectorOptions options_;
  Random random_;
  CommonEstimates* const common_;
  MovingMean server_;
  MovingMean read_;
  MovingMean reads_;
  double rtt_ns_ = 0;  // 0: unknown.
  int64_t last_choice_ns_ = 0;
  Reason last_reason_ = Reason::kUnknown;

  // State of cell's rule.
  RunningLatency server_latency_, read_latency_, rest_latency_;
  double read_service_ = 0;
  double reads_mean_ = 0;
  double server_share_ = 0.5;
  int calls_ = 0;         // Calls in flight.
  int64_t heard_ns_ = 0;  // When a call last ended, or when the first of those in flight began.

  int64_t age_ns_ = options_.age_ns;
  bool rare_ = false;     // One path has the least share...
  int since_change_ = 0;  // for this many searches, or has not had it for as many.
  Choice given_up_ = Choice::kServer;

  bool exploring_ = false;  // A run that explores this path is under way.
  Choice explored_ = Choice::kServer;
  double run_searches_ = 0;    // Searches of the run.
  double until_explored_ = 0;  // Searches before the next run.
  int64_t run_begin_ns_ = 0;
  int periods_ = 0;  // Of the run, with the one under way.
  int64_t period_ns_ = 0, period_end_ns_ = 0;
  double period_sum_ = 0, period_samples_ = 0;  // Of the latencies seen in it.
  double last_period_mean_ = 0;                 // 0: unknown.
  int64_t settled_ns_ = 0;
};

}  // namespace cell

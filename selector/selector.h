// Selector chooses whether the server or the client executes the next search of a meganode.
//
// There is one selector per connection and kind of operation. It has two rules:
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
//            observations fade too, so that a path that looked bad is tried again.
//            A server that owes this client an answer for longer than a multiple of its usual latency is not asked
//            until it answers, because something else occupies its core.
//            A request also costs the time that later requests wait for it. If a server reports how long a request
//            occupies its core and its NIC (ServiceTimes), a price is added to the time of each path. For a latency W
//            in a queue that serves one request in S the price is W (W / S - 1). With M/M/1 and x requests a second
//            that is d(xW)/dx minus W. With the price, the result is best for all clients together; without it, each
//            client optimizes for itself.
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
  int64_t empty_forget_ns = 10'000'000'000;  // How long an observation of an empty queue counts.

  // The thesis's constants. Both rules use those of exploring.
  size_t samples = 100;           // n: the length of the moving mean.
  double outlier_deviations = 3;  // K: a sample that is further than K standard deviations from the mean is dropped.
  double explore = 0.01;          // How often the path that looks worse is taken, to keep its estimate current.
  // With cell's rule, explores in runs of at most this many searches, because a single probe does not measure a path as
  // it performs in use. A sleeping server has to be woken first: 38 us were measured where 10 us was correct.
  int explore_run = 16;
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
  explicit MovingMean(const SelectorOptions& options) : options_(options) {}

  void Observe(double sample);
  void Forget();
  bool known() const { return !samples_.empty(); }
  double mean() const { return known() ? sum_ / static_cast<double>(samples_.size()) : 0; }

 private:
  // Outliers are not dropped before there are this many samples, because fewer say nothing about their deviation.
  static constexpr size_t kSamplesBeforeDropping = 10;

  bool IsOutlier(double sample) const;

  SelectorOptions options_;
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
  double At(int64_t now_ns, double rest, const SelectorOptions& options) const;
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
  double read_service = 0;
  double reads = 0;  // Reads per search; 0: unknown.
  double server_share = 0.5;
  int64_t last_choice_ns = 0;
};

class Selector {
 public:
  enum class Choice { kServer, kClient };
  enum class Reason { kRule, kUnknown, kExplore, kSilence };

  // `common` belongs to the client and this kind of operation. It must outlive the selector.
  Selector(const SelectorOptions& options, uint64_t seed, CommonEstimates* common)
      : options_(options), random_(seed), common_(common), server_(options), read_(options), reads_(options) {}

  // Chooses who executes the next search.
  Choice Choose(int64_t now_ns);
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

 private:
  Choice ChooseByQueues(int64_t now_ns);
  Choice ChooseByShare(int64_t now_ns);
  void Observe(double sample, double service, RunningLatency* own, RunningLatency* common);
  // Returns 0 if the server does not report it. Before its first answer, a server is assumed to be like the client's
  // other servers.
  double ReadService() const { return server_latency_.known() ? read_service_ : common_->read_service; }
  double PriceOf(double latency_ns, const RunningLatency& own, const RunningLatency& common) const;
  void MoveShares(double server_cost, double client_cost, int64_t pause_ns, int64_t common_pause_ns);
  double GainAfter(int64_t pause_ns) const;
  SelectorOptions options_;
  Random random_;
  CommonEstimates* const common_;
  MovingMean server_;
  MovingMean read_;
  MovingMean reads_;
  double rtt_ns_ = 0;  // 0: unknown.
  int64_t last_choice_ns_ = 0;
  Reason last_reason_ = Reason::kUnknown;
  int explore_left_ = 0;  // Searches left in the run that explores the path...
  Choice explored_ = Choice::kServer;

  // State of cell's rule.
  RunningLatency server_latency_, read_latency_;
  double read_service_ = 0;
  double reads_mean_ = 0;
  double server_share_ = 0.5;
  int calls_ = 0;               // Calls in flight.
  int64_t heard_ns_ = 0;        // When a call last ended, or when the first of those in flight began.
  int64_t since_explored_ = 0;  // Number of searches.
};

}  // namespace cell

// Selector: server or client, for the next search of a meganode.
//
// One per connection and kind of operation. Two rules:
//
//   thesis   the thesis, 4.4: two queues are compared by the latencies that this client sees, `ls` of a server-side
//            search and `lr` of one read during a client-side search, RTT being the lowest read latency ever seen, and
//            m reads a search. It chooses the server if
//                ls - RTT < m * (lr - RTT)                                   (Eq. 4.1)
//   cell     a share of the searches goes each way, and moves, a little with each search, towards the way that takes
//            less time: ls, or m * lr, as running means. Where both are used they come to take the same. A rule that
//            sends every search to the queue that looks shorter makes all clients turn at once, and back; a share does
//            not. What a selector has seen and found fades, with time, into what all of its client's have: so one that
//            is new, or seldom used, as they are where servers are many, goes by that. And what those have seen of a
//            way long ago is taken for gone by and by, so that a way that looked bad is tried again. A server that owes
//            this client an answer, and has given none for some times as long as it takes, is not asked until it does:
//            something else has its core.
//            What a request takes is not all that it costs: those behind it wait longer. Where a server says how long
//            its core and its NIC are taken by one (ServiceTimes), that is the price of a way besides what it takes.
//            For W in a queue that serves one in S it is W (W / S - 1): what d(xW)/dx is more than W with M/M/1, x
//            requests a second in it. With it all clients together do best, without it each for itself.
//
// Not thread-safe; time is passed in.
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

  // Of cell's rule.
  double weight = 0.25;         // Of a new sample in the running means.
  double sample_max = 8;        // Times the mean; what is longer counts as that: one pause is not how it is, many are.
  double gain = 0.03;           // How far the share moves with a search, times how different the two ways are,
  double seldom_gain = 0.1;     // and with one long after the one before it.
  double common_weight = 0.1;   // As weight, of what all selectors of a client have seen.
  double price_max = 2;         // In times what a request takes itself.
  double silence = 4;           // Of a server that owes answers, in times its latency; then it is not asked.
  int64_t age_ns = 10'000'000;  // After which what was seen of a queue has lost two thirds of what it says.
  int64_t empty_forget_ns = 10'000'000'000;  // What was seen of an empty queue counts for so long.

  // The thesis's constants; those of exploring are of both rules.
  size_t samples = 100;           // n: the moving mean's length.
  double outlier_deviations = 3;  // K: a sample further off than K standard deviations is dropped.
  double explore = 0.01;          // How often the path that looks worse is taken, to keep its estimate fresh.
  // By cell's rule, in a row of at most so many searches: a lone probe does not see a path as it would be if it were
  // used. A server that sleeps has to be woken first: 38 us were seen where 10 us was the truth.
  int explore_run = 16;
  int64_t idle_forget_ns = 3'000'000'000;  // By the thesis's: without a search for so long, the history goes.
  double reads_per_search = 5;             // m before any was seen: a 64 MB meganode of 1 KB nodes has 5 levels.
};

inline SelectorOptions ThesisSelector() {
  SelectorOptions options;
  options.rule = SelectorOptions::Rule::kThesis;
  return options;
}

// By their names: "cell"; "unpriced", which is cell's without prices; "thesis". Nothing: there is no such rule.
std::optional<SelectorOptions> ParseSelector(std::string_view name);

// A mean over the last n samples that drops outliers, and starts anew when it drops more than it keeps.
class MovingMean {
 public:
  explicit MovingMean(const SelectorOptions& options) : options_(options) {}

  void Observe(double sample);
  void Forget();
  bool known() const { return !samples_.empty(); }
  double mean() const { return known() ? sum_ / static_cast<double>(samples_.size()) : 0; }

 private:
  // Fewer samples than this say nothing about their deviation.
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

// A running mean, and the lowest that it has been lately: a latency, and that of an empty queue.
class RunningLatency {
 public:
  // `service`: how long whoever served it was taken by it; 0: not known.
  void Observe(double sample, double service, double weight, const SelectorOptions& options, int64_t now_ns);
  bool known() const { return mean_ > 0; }
  // As of now, what was seen long ago having faded into `rest`.
  double At(int64_t now_ns, double rest, const SelectorOptions& options) const;
  // Of an empty queue.
  double empty() const { return lowest_ + service_; }
  double service() const { return service_; }

 private:
  double mean_ = 0;        // 0: unknown.
  double service_ = 0;     // Running mean, too.
  double lowest_ = 0;      // Beside its service.
  double lowest_now_ = 0;  // Of this period, and what comes after it.
  int64_t period_begin_ns_ = 0;
  int64_t observed_ns_ = 0;
};

// What all selectors of a client have seen of one kind of operation, and what they make of it.
struct CommonEstimates {
  RunningLatency server, read;
  double read_service = 0;
  double reads = 0;  // A search; 0: unknown.
  double server_share = 0.5;
  int64_t last_choice_ns = 0;
};

class Selector {
 public:
  enum class Choice { kServer, kClient };
  enum class Reason { kRule, kUnknown, kExplore, kSilence };

  // What a choice was made of: for `cellctl top` and traces.
  struct Decision {
    Choice choice;
    Reason reason;
    double server_ns;  // ls
    double read_ns;    // lr
    double rtt_ns;
    double reads;  // m
  };

  // `common`: its client's, of this kind of operation; must outlive this.
  Selector(const SelectorOptions& options, uint64_t seed, CommonEstimates* common)
      : options_(options), random_(seed), common_(common), server_(options), read_(options), reads_(options) {}

  Decision Choose(int64_t now_ns);

  // Around each call of a search to the server, however it ends.
  void BeginCall(int64_t now_ns) {
    if (calls_++ == 0) heard_ns_ = now_ns;
  }
  void EndCall(int64_t now_ns) {
    --calls_;
    heard_ns_ = now_ns;
  }
  // The latency of a server-side search, and of one read of a client-side one. `times`: what its reply says.
  void ObserveServer(int64_t latency_ns, const ServiceTimes& times = {});
  void ObserveRead(int64_t latency_ns);
  // How many reads, one after the other, a client-side search took.
  // `extents`: and so many of what the search found, which Eq. 4.1 leaves out.
  void ObserveReads(int reads, int extents = 0);

 private:
  Decision ChooseByQueues(int64_t now_ns);
  Decision ChooseByShare(int64_t now_ns);
  void Observe(double sample, double service, RunningLatency* own, RunningLatency* common);
  // 0: the server does not say. Until it has answered it is taken to be like the client's others.
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
  int explore_left_ = 0;  // Of the run, on the path of...
  Choice explored_ = Choice::kServer;

  // Of cell's rule.
  RunningLatency server_latency_, read_latency_;
  double read_service_ = 0;
  double reads_mean_ = 0;
  double server_share_ = 0.5;
  int calls_ = 0;               // In flight.
  int64_t heard_ns_ = 0;        // When one ended last, or the first of them began.
  int64_t since_explored_ = 0;  // Searches.
};

}  // namespace cell

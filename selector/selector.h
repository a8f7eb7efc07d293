// Selector: server or client, for the next search of a meganode (the thesis, 4.4).
//
// Two queues are compared by the latencies that this client sees on one connection: `ls` of a server-side search, `lr`
// of one read during a client-side search, RTT the lowest read latency ever seen, and m reads a search. It chooses the
// server if
//
//     ls - RTT < m * (lr - RTT)                                   (Eq. 4.1)
//
// One per connection and kind of operation. Not thread-safe; time is passed in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cell/base/random.h"

namespace cell {

// The thesis's constants.
struct SelectorOptions {
  size_t samples = 100;           // n: the moving mean's length.
  double outlier_deviations = 3;  // K: a sample further off than K standard deviations is dropped.
  double explore = 0.01;          // How often the path that looks worse is taken, to keep its estimate fresh.
  // That share comes in runs of so many searches. A lone probe does not see a path as it would be if it were used: a
  // server that sleeps has to be woken first (38 us seen where 10 us was the truth), a NIC with an empty queue looks
  // too fast. 1 is the thesis's way.
  int explore_run = 100;
  // And sooner after the rule has changed its mind: where that was wrong, only exploring finds out. 1: the thesis.
  double explore_doubt = 16;
  int64_t idle_forget_ns = 3'000'000'000;  // Without a search for so long, the history goes.
  double reads_per_search = 5;             // m before any was seen: a 64 MB meganode of 1 KB nodes has 5 levels.
};

// A mean over the last n samples that drops outliers, and starts anew when it drops more than it keeps.
class MovingMean {
 public:
  explicit MovingMean(const SelectorOptions& options) : options_(options) { samples_.reserve(options.samples); }

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

class Selector {
 public:
  enum class Choice { kServer, kClient };
  enum class Reason { kRule, kUnknown, kExplore };

  // What a choice was made of: for `cellctl top` and traces.
  struct Decision {
    Choice choice;
    Reason reason;
    double server_ns;  // ls
    double read_ns;    // lr
    double rtt_ns;
    double reads;  // m
  };

  Selector(const SelectorOptions& options, uint64_t seed)
      : options_(options), random_(seed), server_(options), read_(options), reads_(options) {}

  Decision Choose(int64_t now_ns);

  // The latency of a server-side search, and of one read of a client-side one.
  void ObserveServer(int64_t latency_ns) { server_.Observe(static_cast<double>(latency_ns)); }
  void ObserveRead(int64_t latency_ns);
  // How many reads, one after the other, a client-side search took.
  void ObserveReads(int reads) { reads_.Observe(reads); }

 private:
  SelectorOptions options_;
  Random random_;
  MovingMean server_;
  MovingMean read_;
  MovingMean reads_;
  double rtt_ns_ = 0;  // 0: unknown.
  int64_t last_choice_ns_ = 0;
  int explore_left_ = 0;  // Of the run, on the path of...
  Choice explored_ = Choice::kServer;
  Choice ruled_ = Choice::kServer;  // By the rule, last time.
  double doubt_ = 1;                // Times `explore`: high after the rule has changed its mind, halved by each run.
};

}  // namespace cell

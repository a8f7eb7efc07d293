#include "selector/selector.h"

#include <algorithm>
#include <cmath>

namespace cell {

bool MovingMean::IsOutlier(double sample) const {
  if (samples_.size() < kSamplesBeforeDropping) return false;
  const auto n = static_cast<double>(samples_.size());
  const double variance = std::max(0.0, sum_of_squares_ / n - mean() * mean());
  return std::abs(sample - mean()) > options_.outlier_deviations * std::sqrt(variance);
}

void MovingMean::Observe(double sample) {
  const bool dropped = IsOutlier(sample);
  ++(dropped ? dropped_in_period_ : kept_in_period_);
  if (kept_in_period_ + dropped_in_period_ >= options_.samples) {
    const bool stale = dropped_in_period_ > kept_in_period_;
    kept_in_period_ = dropped_in_period_ = 0;
    if (stale) {  // The world has changed: what looked like outliers is how it is now.
      Forget();
      return;
    }
  }
  if (dropped) return;
  if (samples_.size() < options_.samples) {
    samples_.push_back(sample);
  } else {
    sum_ -= samples_[next_];
    sum_of_squares_ -= samples_[next_] * samples_[next_];
    samples_[next_] = sample;
    next_ = (next_ + 1) % samples_.size();
  }
  sum_ += sample;
  sum_of_squares_ += sample * sample;
}

void MovingMean::Forget() {
  samples_.clear();
  next_ = 0;
  sum_ = sum_of_squares_ = 0;
}

namespace {

// exp(-age / age_ns), nearly: the function itself took two fifths of a client's time.
double Fading(int64_t age_ns, const SelectorOptions& options) {
  const double x = static_cast<double>(age_ns) / static_cast<double>(options.age_ns);
  return 1 / (1 + x * (1 + x / 2 * (1 + x / 3)));
}

}  // namespace

void RunningLatency::Observe(double sample, const SelectorOptions& options, int64_t now_ns) {
  sample = std::max(sample, 1.0);
  if (lowest_now_ == 0 || now_ns - period_begin_ns_ > options.empty_forget_ns) {
    if (lowest_now_ > 0) lowest_ = lowest_now_;
    lowest_now_ = sample;
    period_begin_ns_ = now_ns;
  }
  lowest_now_ = std::min(lowest_now_, sample);
  lowest_ = lowest_ == 0 ? sample : std::min(lowest_, sample);
  // What is old counts little beside what is new.
  const double old = Fading(now_ns - observed_ns_, options);
  const double weight = std::max(options.weight, (1 - old) / 2);
  mean_ = mean_ == 0 ? sample : mean_ + weight * (std::min(sample, options.sample_max * mean_) - mean_);
  observed_ns_ = now_ns;
}

double RunningLatency::At(int64_t now_ns, const SelectorOptions& options) const {
  const double old = Fading(now_ns - observed_ns_, options);
  return lowest_ + (mean_ - lowest_) * old;
}

void Selector::ObserveServer(int64_t latency_ns) {
  const auto sample = static_cast<double>(latency_ns);
  if (options_.rule == SelectorOptions::Rule::kThesis) return server_.Observe(sample);
  server_latency_.Observe(sample, options_, last_choice_ns_);
}

void Selector::ObserveRead(int64_t latency_ns) {
  const auto sample = static_cast<double>(latency_ns);
  if (options_.rule == SelectorOptions::Rule::kCell) return read_latency_.Observe(sample, options_, last_choice_ns_);
  rtt_ns_ = rtt_ns_ == 0 ? sample : std::min(rtt_ns_, sample);
  read_.Observe(sample);
}

void Selector::ObserveReads(int reads, int extents) {
  if (options_.rule == SelectorOptions::Rule::kThesis) return reads_.Observe(reads);
  const double all = reads + extents;
  reads_mean_ = reads_mean_ == 0 ? all : reads_mean_ + options_.weight * (all - reads_mean_);
}

Selector::Decision Selector::Choose(int64_t now_ns) {
  if (now_ns - last_choice_ns_ > options_.idle_forget_ns) {
    server_.Forget();
    read_.Forget();
    server_latency_.Forget();
    searches_ = 0;
    read_latency_.Forget();
  }
  last_choice_ns_ = now_ns;
  return options_.rule == SelectorOptions::Rule::kThesis ? ChooseByQueues() : ChooseByShare(now_ns);
}

Selector::Decision Selector::ChooseByQueues() {
  Decision decision{Choice::kServer, Reason::kUnknown, server_.mean(),
                    read_.mean(),    rtt_ns_,          reads_.known() ? reads_.mean() : options_.reads_per_search};
  if (!server_.known()) return decision;
  if (!read_.known()) {
    decision.choice = Choice::kClient;
    return decision;
  }
  const bool server_is_shorter =
      decision.server_ns - decision.rtt_ns < decision.reads * (decision.read_ns - decision.rtt_ns);
  const bool explores = random_.Unit() < options_.explore;
  decision.choice = server_is_shorter != explores ? Choice::kServer : Choice::kClient;
  decision.reason = explores ? Reason::kExplore : Reason::kRule;
  return decision;
}

Selector::Decision Selector::ChooseByShare(int64_t now_ns) {
  Decision decision{Choice::kServer,
                    Reason::kUnknown,
                    server_latency_.At(now_ns, options_),
                    read_latency_.At(now_ns, options_),
                    read_latency_.empty(),
                    reads_mean_ > 0 ? reads_mean_ : options_.reads_per_search};
  if (!server_latency_.known() || !read_latency_.known()) {
    decision.choice = server_latency_.known() ? Choice::kClient : Choice::kServer;
    return decision;
  }
  const double server = decision.server_ns;
  const double client = decision.reads * decision.read_ns;
  // At first further, so that a client that makes few searches on a connection need not make many before it knows.
  const double gain = std::max(options_.gain, 1.0 / static_cast<double>(8 + searches_++));
  server_share_ += gain * (client - server) / (client + server);
  server_share_ = std::clamp(server_share_, options_.explore / 2, 1 - options_.explore / 2);
  ++since_explored_;
  // The rarer way, and as often in a row as it may be: a lone probe does not see a way as it would be if it were used.
  const double rare = std::min(server_share_, 1 - server_share_);
  const auto row = static_cast<int>(static_cast<double>(since_explored_) * options_.explore);
  const int run = std::clamp(row, 1, options_.explore_run);
  if (explore_left_ == 0 && random_.Unit() * run < rare) {
    explored_ = server_share_ < 0.5 ? Choice::kServer : Choice::kClient;
    explore_left_ = run;
    since_explored_ = 0;
  }
  const Choice common = server_share_ < 0.5 ? Choice::kClient : Choice::kServer;
  decision.reason = explore_left_ > 0 ? Reason::kExplore : Reason::kRule;
  decision.choice = explore_left_ > 0 ? explored_ : common;
  explore_left_ -= explore_left_ > 0;
  if (calls_ > 0 && decision.choice == Choice::kServer &&
      static_cast<double>(now_ns - heard_ns_) > options_.silence * server) {
    decision.choice = Choice::kClient;
    decision.reason = Reason::kSilence;
  }
  return decision;
}

}  // namespace cell

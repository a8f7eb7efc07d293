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

void Selector::ObserveRead(int64_t latency_ns) {
  const auto sample = static_cast<double>(latency_ns);
  rtt_ns_ = rtt_ns_ == 0 ? sample : std::min(rtt_ns_, sample);
  read_.Observe(sample);
}

Selector::Decision Selector::Choose(int64_t now_ns) {
  if (now_ns - last_choice_ns_ > options_.idle_forget_ns) {
    server_.Forget();
    read_.Forget();
  }
  last_choice_ns_ = now_ns;
  Decision decision{Choice::kServer, Reason::kUnknown, server_.mean(),
                    read_.mean(),    rtt_ns_,          reads_.known() ? reads_.mean() : options_.reads_per_search};
  if (!server_.known()) return decision;
  if (!read_.known()) {
    decision.choice = Choice::kClient;
    return decision;
  }
  const bool server_is_shorter =
      decision.server_ns - decision.rtt_ns < decision.reads * (decision.read_ns - decision.rtt_ns);
  const Choice ruled = server_is_shorter ? Choice::kServer : Choice::kClient;
  if (ruled != ruled_) doubt_ = options_.explore_doubt;
  ruled_ = ruled;
  if (explore_left_ == 0 && random_.Unit() * options_.explore_run < options_.explore * doubt_) {
    explore_left_ = options_.explore_run;
    explored_ = ruled == Choice::kServer ? Choice::kClient : Choice::kServer;
    doubt_ = std::max(1.0, doubt_ / 2);
  }
  if (explore_left_ > 0) {
    --explore_left_;
    decision.choice = explored_;
    decision.reason = Reason::kExplore;
  } else {
    decision.choice = ruled;
    decision.reason = Reason::kRule;
  }
  return decision;
}

}  // namespace cell

#include "selector/selector.h"

#include <algorithm>
#include <cmath>

namespace cell {

std::optional<SelectorOptions> ParseSelector(std::string_view name) {
  SelectorOptions options;
  if (name == "cell") return options;
  if (name == "thesis") return ThesisSelector();
  if (name != "unpriced") return std::nullopt;
  options.price_max = 0;
  return options;
}

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
    if (stale) {  // Conditions have changed: the former outliers are normal now.
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

// Approximates exp(-age / age_ns), because exp itself took two fifths of a client's time. Even divisions matter when a
// search takes half a microsecond.
double Fading(int64_t age_ns, const SelectorOptions& options) {
  if (age_ns < options.age_ns / 256) return 1;
  const double x = static_cast<double>(age_ns) / static_cast<double>(options.age_ns);
  return 1 / (1 + x * (1 + x / 2 * (1 + x / 3)));
}

}  // namespace

void RunningLatency::Observe(double sample, double service, double weight, const SelectorOptions& options,
                             int64_t now_ns) {
  sample = std::max(sample, 1.0);
  const double beside = std::max(sample - service, 1.0);
  if (lowest_now_ == 0 || now_ns - period_begin_ns_ > options.empty_forget_ns) {
    if (lowest_now_ > 0) lowest_ = lowest_now_;
    lowest_now_ = beside;
    period_begin_ns_ = now_ns;
  }
  lowest_now_ = std::min(lowest_now_, beside);
  lowest_ = lowest_ == 0 ? beside : std::min(lowest_, beside);
  // Old observations count little compared with new ones.
  const double old = Fading(now_ns - observed_ns_, options);
  weight = std::max(weight, (1 - old) / 2);
  const auto follow = [&](double* mean, double sample) {
    *mean = *mean == 0 ? sample : *mean + weight * (std::min(sample, options.sample_max * *mean) - *mean);
  };
  follow(&mean_, sample);
  if (service > 0) follow(&service_, service);
  observed_ns_ = now_ns;
}

double RunningLatency::At(int64_t now_ns, double rest, const SelectorOptions& options) const {
  if (!known()) return rest;
  return rest + (mean_ - rest) * Fading(now_ns - observed_ns_, options);
}

void Selector::ObserveServer(int64_t latency_ns, const ServiceTimes& times) {
  const auto sample = static_cast<double>(latency_ns);
  if (options_.rule == SelectorOptions::Rule::kThesis) return server_.Observe(sample);
  if (times.read_ns > 0) read_service_ = common_->read_service = times.read_ns;
  Observe(sample, times.call_ns, &server_latency_, &common_->server);
}

void Selector::ObserveRead(int64_t latency_ns) {
  const auto sample = static_cast<double>(latency_ns);
  if (options_.rule == SelectorOptions::Rule::kCell) {
    return Observe(sample, ReadService(), &read_latency_, &common_->read);
  }
  rtt_ns_ = rtt_ns_ == 0 ? sample : std::min(rtt_ns_, sample);
  read_.Observe(sample);
}

// Uses the time of the last choice of any selector as the time of the sample; it is recent enough.
void Selector::Observe(double sample, double service, RunningLatency* own, RunningLatency* common) {
  own->Observe(sample, service, options_.weight, options_, common_->last_choice_ns);
  common->Observe(sample, service, options_.common_weight, options_, common_->last_choice_ns);
}

double Selector::PriceOf(double latency_ns, const RunningLatency& own, const RunningLatency& common) const {
  const RunningLatency& seen = own.service() > 0 ? own : common;
  const double service = seen.service();
  const double in_queue = latency_ns - seen.empty() + service;
  if (service == 0 || in_queue < service) return 0;
  return std::min(in_queue * (in_queue / service - 1), options_.price_max * latency_ns);
}

void Selector::ObserveReads(int reads, int extents) {
  if (options_.rule == SelectorOptions::Rule::kThesis) return reads_.Observe(reads);
  const double all = reads + extents;
  reads_mean_ = reads_mean_ == 0 ? all : reads_mean_ + options_.weight * (all - reads_mean_);
  common_->reads = common_->reads == 0 ? all : common_->reads + options_.common_weight * (all - common_->reads);
}

double Selector::ReadsPerSearch() const {
  if (options_.rule == SelectorOptions::Rule::kThesis) {
    return reads_.known() ? reads_.mean() : options_.reads_per_search;
  }
  const double reads = reads_mean_ > 0 ? reads_mean_ : common_->reads;
  return reads > 0 ? reads : options_.reads_per_search;
}

Selector::Choice Selector::Choose(int64_t now_ns) {
  last_reason_ = Reason::kUnknown;
  const Choice choice =
      options_.rule == SelectorOptions::Rule::kThesis ? ChooseByQueues(now_ns) : ChooseByShare(now_ns);
  last_choice_ns_ = now_ns;
  return choice;
}

Selector::Choice Selector::ChooseByQueues(int64_t now_ns) {
  if (now_ns - last_choice_ns_ > options_.idle_forget_ns) {
    server_.Forget();
    read_.Forget();
  }
  if (!server_.known()) return Choice::kServer;
  if (!read_.known()) return Choice::kClient;
  const bool server_is_shorter = server_.mean() - rtt_ns_ < ReadsPerSearch() * (read_.mean() - rtt_ns_);
  const bool explores = random_.Unit() < options_.explore;
  last_reason_ = explores ? Reason::kExplore : Reason::kRule;
  return server_is_shorter != explores ? Choice::kServer : Choice::kClient;
}

double Selector::GainAfter(int64_t pause_ns) const {
  return options_.seldom_gain + (options_.gain - options_.seldom_gain) * Fading(pause_ns, options_);
}

void Selector::MoveShares(double server_cost, double client_cost, int64_t pause_ns, int64_t common_pause_ns) {
  const double difference = (client_cost - server_cost) / (client_cost + server_cost);
  const auto move = [&](double* share, int64_t pause_ns) {
    *share += GainAfter(pause_ns) * difference;
    *share = std::clamp(*share, options_.explore / 2, 1 - options_.explore / 2);
  };
  server_share_ = common_->server_share + (server_share_ - common_->server_share) * Fading(pause_ns, options_);
  move(&server_share_, pause_ns);
  move(&common_->server_share, common_pause_ns);
}

Selector::Choice Selector::ChooseByShare(int64_t now_ns) {
  const auto latency = [&](const RunningLatency& own, const RunningLatency& common) {
    return own.At(now_ns, common.At(now_ns, common.empty(), options_), options_);
  };
  const int64_t pause_ns = now_ns - last_choice_ns_, common_pause_ns = now_ns - common_->last_choice_ns;
  common_->last_choice_ns = now_ns;
  const double server = latency(server_latency_, common_->server);
  const double read = latency(read_latency_, common_->read);
  const double reads = ReadsPerSearch();
  const double client = reads * read;
  if (server == 0) return Choice::kServer;
  if (client == 0) return Choice::kClient;
  // Price both paths or neither. Otherwise the path with an unknown price would be preferred.
  const bool priced = ReadService() > 0 && common_->server.service() > 0;
  const double server_price = priced ? PriceOf(server, server_latency_, common_->server) : 0;
  const double read_price = priced ? PriceOf(read, read_latency_, common_->read) : 0;
  MoveShares(server + server_price, client + reads * read_price, pause_ns, common_pause_ns);
  ++since_explored_;
  // Explore the less used path, in runs as long as allowed: a single probe does not measure a path as it performs in
  // use.
  const double rare = std::min(server_share_, 1 - server_share_);
  const auto row = static_cast<int>(static_cast<double>(since_explored_) * options_.explore);
  const int run = std::clamp(row, 1, options_.explore_run);
  if (explore_left_ == 0 && random_.Unit() * run < rare) {
    explored_ = server_share_ < 0.5 ? Choice::kServer : Choice::kClient;
    explore_left_ = run;
    since_explored_ = 0;
  }
  const Choice common = server_share_ < 0.5 ? Choice::kClient : Choice::kServer;
  last_reason_ = explore_left_ > 0 ? Reason::kExplore : Reason::kRule;
  const Choice choice = explore_left_ > 0 ? explored_ : common;
  explore_left_ -= explore_left_ > 0;
  if (calls_ > 0 && choice == Choice::kServer && static_cast<double>(now_ns - heard_ns_) > options_.silence * server) {
    last_reason_ = Reason::kSilence;
    return Choice::kClient;
  }
  return choice;
}

}  // namespace cell

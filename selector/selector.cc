#include "selector/selector.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
  return std::abs(sample - mean()) > outlier_deviations_ * std::sqrt(variance);
}

void MovingMean::Observe(double sample) {
  const bool dropped = IsOutlier(sample);
  ++(dropped ? dropped_in_period_ : kept_in_period_);
  if (kept_in_period_ + dropped_in_period_ >= length_) {
    const bool stale = dropped_in_period_ > kept_in_period_;
    kept_in_period_ = dropped_in_period_ = 0;
    if (stale) {  // Conditions have changed: the former outliers are normal now.
      Forget();
      return;
    }
  }
  if (dropped) return;
  if (samples_.size() < length_) {
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

// A run that explores goes on while the mean latency of a period is at most this much of the period before.
constexpr double kStillFaster = 0.95;

// Weight of what a completion takes of the client's core, which varies much and changes slowly.
constexpr double kCpuWeight = 1.0 / 32;

// A path that has the least share for this many searches is given up: it gets runs that explore, but no single
// searches.
constexpr int kBriefly = 1'000;

// Approximates exp(-passed_ns / age_ns), because exp itself took two fifths of a client's time. Even divisions matter
// when a search takes half a microsecond.
double Fading(int64_t passed_ns, int64_t age_ns) {
  if (passed_ns < age_ns / 256) return 1;
  const double x = static_cast<double>(passed_ns) / static_cast<double>(age_ns);
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
  const double old = Fading(now_ns - observed_ns_, options.age_ns);
  weight = std::max(weight, (1 - old) / 2);
  const auto follow = [&](double* mean, double sample) {
    *mean = *mean == 0 ? sample : *mean + weight * (std::min(sample, options.sample_max * *mean) - *mean);
  };
  follow(&mean_, sample);
  if (service > 0) follow(&service_, service);
  observed_ns_ = now_ns;
}

double RunningLatency::At(int64_t now_ns, double rest, int64_t age_ns) const {
  if (!known()) return rest;
  return rest + (mean_ - rest) * Fading(now_ns - observed_ns_, age_ns);
}

void Selector::ObserveServer(int64_t latency_ns, const ServiceTimes& times) {
  const auto sample = static_cast<double>(latency_ns);
  if (options_.rule == SelectorOptions::Rule::kThesis) return server_.Observe(sample);
  if (times.read_ns > 0) read_service_ = common_->read_service = times.read_ns;
  Observe(Choice::kServer, sample, times.call_ns, &server_latency_, &common_->server);
}

void Selector::ObserveRead(int64_t latency_ns) {
  const auto sample = static_cast<double>(latency_ns);
  if (options_.rule == SelectorOptions::Rule::kCell) {
    return Observe(Choice::kClient, sample, ReadService(), &read_latency_, &common_->read);
  }
  rtt_ns_ = rtt_ns_ == 0 ? sample : std::min(rtt_ns_, sample);
  read_.Observe(sample);
}

bool Selector::Mixed(Choice path) const {
  return common_->last_choice_ns < settled_ns_ || (exploring_ && path != explored_);
}

// Uses the time of the last choice of any selector as the time of the sample; it is recent enough.
void Selector::Observe(Choice path, double sample, double service, RunningLatency* own, RunningLatency* common) {
  if (own->known() && Mixed(path)) return;
  if (exploring_ && path == explored_) {
    period_sum_ += sample;
    ++period_samples_;
  }
  own->Observe(sample, service, options_.weight, options_, common_->last_choice_ns);
  common->Observe(sample, service, options_.common_weight, options_, common_->last_choice_ns);
}

void Selector::ObserveRest(int64_t latency_ns, const ServiceTimes& times) {
  if (options_.rule == SelectorOptions::Rule::kThesis) return;
  const auto sample = static_cast<double>(latency_ns);
  rest_latency_.Observe(sample, times.call_ns, options_.weight, options_, common_->last_choice_ns);
  common_->rest.Observe(sample, times.call_ns, options_.common_weight, options_, common_->last_choice_ns);
}

void Selector::ObserveCpu(Choice path, int64_t ns) {
  double* const mean = path == Choice::kServer ? &common_->call_cpu : &common_->read_cpu;
  const double sample = std::max(static_cast<double>(ns), 1.0);
  if (*mean == 0) {
    *mean = sample;
  } else if (!Mixed(path)) {
    *mean += kCpuWeight * (std::min(sample, options_.sample_max * *mean) - *mean);
  }
}

namespace {

// Returns the one that knows how long the server is occupied.
const RunningLatency& Seen(const RunningLatency& own, const RunningLatency& common) {
  return own.service() > 0 ? own : common;
}

}  // namespace

double Selector::PriceOf(double latency_ns, const RunningLatency& own, const RunningLatency& common,
                         double usual_service, double own_wait_ns) const {
  const RunningLatency& seen = Seen(own, common);
  const double service = seen.service();
  const double in_queue = std::max(latency_ns - seen.empty() - own_wait_ns, 0.0) + service;
  if (service == 0 || usual_service == 0 || in_queue < usual_service) return 0;
  return std::min(in_queue * (in_queue / usual_service - 1), options_.price_max * latency_ns) * service / usual_service;
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

Selector::Choice Selector::Choose(int64_t now_ns, const OwnCore& core) {
  last_reason_ = Reason::kUnknown;
  const Choice choice =
      options_.rule == SelectorOptions::Rule::kThesis ? ChooseByQueues(now_ns) : ChooseByShare(now_ns, core);
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
  return options_.seldom_gain + (options_.gain - options_.seldom_gain) * Fading(pause_ns, options_.age_ns);
}

// A path that takes r times as long as the other costs r - 1 times its share.
double Selector::LeastShare(double difference) const {
  const double size = std::min(std::abs(difference), 0.99);
  return options_.explore / std::max(2.0, (1 + size) / (1 - size) - 1);
}

void Selector::MoveShares(double difference, int64_t pause_ns, int64_t common_pause_ns) {
  const double least = LeastShare(difference);
  const auto move = [&](double* share, int64_t pause_ns) {
    *share += GainAfter(pause_ns) * difference;
    *share = std::clamp(*share, least, 1 - least);
  };
  server_share_ = common_->server_share + (server_share_ - common_->server_share) * Fading(pause_ns, options_.age_ns);
  move(&server_share_, pause_ns);
  move(&common_->server_share, common_pause_ns);
}

namespace {

// Returns by how much more the client path takes than the server path, from -1 to 1.
double Difference(double server, double client) { return (client - server) / (client + server); }

}  // namespace

void Selector::NoteRare(bool rare) {
  if (rare != std::exchange(rare_, rare)) since_change_ = 0;
  if (since_change_ == kBriefly || ++since_change_ < kBriefly) return;
  const Choice path = server_share_ < 0.5 ? Choice::kServer : Choice::kClient;
  const bool again = rare && path == given_up_;  // It is no better than it was before.
  age_ns_ = again ? std::min(2 * age_ns_, options_.age_max_ns) : options_.age_ns;
  if (rare) given_up_ = path;
}

bool Selector::NextPeriod(int64_t now_ns) {
  const double mean = period_samples_ > 0 ? period_sum_ / period_samples_ : 0;
  if (periods_ > 1 && mean > kStillFaster * last_period_mean_) return false;
  if (periods_ == options_.explore_periods_max) return false;
  if (periods_++ > 0) period_ns_ *= 2;
  last_period_mean_ = mean;
  period_end_ns_ = now_ns + period_ns_;
  period_sum_ = period_samples_ = 0;
  return true;
}

void Selector::Explore(int64_t now_ns, double search_ns, double least) {
  if (exploring_) {
    ++run_searches_;
    if (now_ns < period_end_ns_ || NextPeriod(now_ns)) return;
    exploring_ = false;
    // A client that knows little explores more: after 16 times as many searches, then after 32 times, and so on. The
    // last factor keeps clients from exploring all at once.
    const double often = 16 * std::pow(2.0, std::min(common_->explored_runs++, 30));
    until_explored_ = run_searches_ * std::min(often, 1 / least) * (0.5 + random_.Unit());
  } else {
    if (--until_explored_ > 0) return;
    exploring_ = true;
    explored_ = server_share_ < 0.5 ? Choice::kServer : Choice::kClient;
    periods_ = 0;
    period_ns_ = std::clamp(static_cast<int64_t>(options_.explore_searches * search_ns), options_.explore_min_ns,
                            options_.explore_max_ns);
    run_begin_ns_ = now_ns;
    run_searches_ = 0;
    NextPeriod(now_ns);
  }
}

Selector::Choice Selector::ChooseByShare(int64_t now_ns, const OwnCore& core) {
  // While a run explores one path, the estimates of the other path do not fade.
  const auto latency = [&](Choice path, const RunningLatency& own, const RunningLatency& common) {
    const int64_t at_ns = exploring_ && path != explored_ ? run_begin_ns_ : now_ns;
    return own.At(at_ns, common.At(at_ns, common.empty(), age_ns_), age_ns_);
  };
  const int64_t pause_ns = now_ns - last_choice_ns_, common_pause_ns = now_ns - common_->last_choice_ns;
  common_->last_choice_ns = now_ns;
  const double server = latency(Choice::kServer, server_latency_, common_->server);
  const double read = latency(Choice::kClient, read_latency_, common_->read);
  const double rest = latency(Choice::kClient, rest_latency_, common_->rest);
  const double reads = ReadsPerSearch();
  if (server == 0) return Choice::kServer;
  if (read == 0) return Choice::kClient;
  // Price both paths or neither. Otherwise the path with an unknown price would be preferred.
  const bool priced = ReadService() > 0 && common_->server.service() > 0;
  double call_service = Seen(server_latency_, common_->server).service();
  if (const double rest_service = Seen(rest_latency_, common_->rest).service(); rest_service > 0) {
    call_service = server_share_ * call_service + (1 - server_share_) * rest_service;
  }
  const auto price_of = [&](double latency_ns, const RunningLatency& own, const RunningLatency& common,
                            double usual_service) {
    return priced && latency_ns > 0 ? PriceOf(latency_ns, own, common, usual_service, core.turn_ns) : 0;
  };
  const double server_price = price_of(server, server_latency_, common_->server, call_service);
  const double read_service = Seen(read_latency_, common_->read).service();
  const double read_price = price_of(read, read_latency_, common_->read, read_service);
  const double rest_price = price_of(rest, rest_latency_, common_->rest, call_service);
  double difference = Difference(server + server_price, reads * (read + read_price) + rest + rest_price);
  if (const double call_cpu = common_->call_cpu, read_cpu = common_->read_cpu; call_cpu > 0 && read_cpu > 0) {
    // Only those of a core that is nearly always busy have to wait long for it, and one that is alone does not.
    const double square = core.busy * core.busy;
    const double own_core = square * square * (core.in_flight - 1) / core.in_flight;
    const double of_cpu = Difference(call_cpu, reads * read_cpu + (rest > 0 ? call_cpu : 0));
    difference += own_core * (of_cpu - difference);
  }
  MoveShares(difference, pause_ns, common_pause_ns);

  const double least = LeastShare(difference);
  const double rare = std::min(server_share_, 1 - server_share_);
  if (!exploring_) NoteRare(rare <= 2 * least);
  const bool given_up = rare_ && since_change_ == kBriefly;
  const bool was_exploring = exploring_;
  const double client = reads * read + rest;
  if (exploring_ || given_up) Explore(now_ns, std::min(server, client), least);
  if (exploring_ != was_exploring && core.in_flight > 1) {
    settled_ns_ = now_ns + static_cast<int64_t>(2 * std::max(server, client));
  }
  const bool server_is_rare = server_share_ < 0.5;
  Choice choice = server_is_rare ? Choice::kClient : Choice::kServer;
  last_reason_ = Reason::kRule;
  if (exploring_ || (!given_up && random_.Unit() < rare)) {
    last_reason_ = Reason::kExplore;
    choice = exploring_ ? explored_ : server_is_rare ? Choice::kServer : Choice::kClient;
  }
  if (calls_ > 0 && choice == Choice::kServer && static_cast<double>(now_ns - heard_ns_) > options_.silence * server) {
    last_reason_ = Reason::kSilence;
    return Choice::kClient;
  }
  return choice;
}

}  // namespace cell

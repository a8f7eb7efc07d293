#include "tools/bench_thread.h"

#include <algorithm>

#include "cell/client/client_testing.h"

namespace cell {
namespace {

constexpr double kWarmUpSeconds = 0.5;

}  // namespace

const std::vector<Mix>& Mixes() {
  static const auto* mixes = new std::vector<Mix>{
      {"search", {{Op::kSearch, 100}}},
      {"get", {{Op::kGet, 100}}},
      {"put", {{Op::kUpdate, 100}}},
      {"insert", {{Op::kInsert, 100}}},
      {"scan", {{Op::kScan, 100}}},
      {"get-90", {{Op::kGet, 90}, {Op::kUpdate, 10}}},
      {"get-50", {{Op::kGet, 50}, {Op::kUpdate, 50}}},
      {"mixed", {{Op::kGet, 80}, {Op::kUpdate, 10}, {Op::kScan, 10}}},
      {"ycsb-a", {{Op::kGet, 50}, {Op::kUpdate, 50}}},
      {"ycsb-b", {{Op::kGet, 95}, {Op::kUpdate, 5}}},
      {"ycsb-c", {{Op::kGet, 100}}},
      {"ycsb-d", {{Op::kGet, 95}, {Op::kInsert, 5}}, true},
      {"ycsb-d-deletes", {{Op::kGet, 95}, {Op::kQueue, 5}}, true},
      {"ycsb-e", {{Op::kScan, 95}, {Op::kInsert, 5}}},
      {"ycsb-e-deletes", {{Op::kScan, 95}, {Op::kQueue, 5}}},
      {"ycsb-f", {{Op::kGet, 50}, {Op::kReadModifyWrite, 50}}},
      {"apply", {{Op::kApply, 100}}},
      {"rewrite", {{Op::kReadModifyWrite, 100}}},
      {"queue", {{Op::kQueue, 100}}},
      {"multi-get", {{Op::kMultiGet, 100}}},
      {"tx-put", {{Op::kTransaction, 100}}},
      {"tx-two", {{Op::kTransaction, 100}}, false, BenchTransaction::kTwo},
      {"tx-read", {{Op::kTransaction, 100}}, false, BenchTransaction::kRead},
      {"tx-rewrite", {{Op::kTransaction, 100}}, false, BenchTransaction::kRewrite},
      {"tx-snapshot", {{Op::kTransaction, 100}}, false, BenchTransaction::kSnapshot},
      {"tx-small-bank", {{Op::kTransaction, 100}}, false, BenchTransaction::kSmallBank},
      {"tx-tatp", {{Op::kTransaction, 100}}, false, BenchTransaction::kTatp},
      {"tx-new-order", {{Op::kTransaction, 100}}, false, BenchTransaction::kNewOrder},
      {"raw-read", {{Op::kRawRead, 100}}},
      {"raw-call", {{Op::kRawCall, 100}}},
  };
  return *mixes;
}

Measured BenchThread::Run() {
  Measured measured;
  ClientOptions options = flags_.client;
  options.path = *ParsePath(flags_.path);
  options.seed = flags_.seed + static_cast<uint64_t>(index_);
  options.busy_poll = flags_.busy_poll;
  options.cache_bytes = flags_.cache_bytes;
  options.cache_level_min = flags_.cache_level_min;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Open(options);
  if (!client.ok()) {
    measured.status = client.status();
    return measured;
  }
  client_ = client->get();
  absl::StatusOr<PairMap> map = PairMap::Open(client_, flags_.table_asked());
  if (!map.ok()) {
    measured.status = map.status();
    return measured;
  }
  map->set_serializable(flags_.serializable);
  map_ = &*map;
  if (mix_.transacts()) transactions_.emplace(client_, flags_.shape, flags_.keys, &chooser_, &random_);
  // The client measures calls, of which such an operation makes several, and knows nothing of when one was due.
  own_latency_ = flags_.rate > 0 || mix_.transacts() || mix_.parts[0].first == Op::kMultiGet;
  start_ns_ = client_->NowNs() + static_cast<int64_t>(kWarmUpSeconds * 1e9);
  end_ns_ = start_ns_ + static_cast<int64_t>(flags_.seconds * 1e9);
  spike_from_ns_ = static_cast<double>(start_ns_) + flags_.spike_from * 1e9;
  if (flags_.timeline_ms > 0) {
    timeline_.emplace(start_ns_, static_cast<int64_t>(flags_.timeline_ms * 1e6),
                      static_cast<size_t>(flags_.seconds * 1e3 / flags_.timeline_ms));
  }
  next_due_ns_ = static_cast<double>(client_->NowNs());
  measured_from_ns_ = client_->NowNs();  // If the operations end before the warm-up does.
  interval_ns_ = flags_.rate > 0 ? 1e9 * flags_.threads / flags_.rate : 0;
  // Each thread and seed has keys of its own.
  first_insert_ = next_insert_ = flags_.keys + (static_cast<uint64_t>(index_) + 1000 * flags_.seed) * 1'000'000'000;

  std::vector<Task<bool>> lanes;
  lanes.reserve(static_cast<size_t>(flags_.depth));
  for (int i = 0; i < flags_.depth; ++i) lanes.push_back(Lane());
  for (Task<bool>& lane : lanes) lane.Start();
  for (const Task<bool>& lane : lanes) {
    while (!lane.done()) {
      client_->Poll(end_ns_);
      if (!measuring_ && client_->NowNs() >= start_ns_) {
        measuring_ = true;
        measured_from_ns_ = client_->NowNs();
        client_->ResetMetrics();
        operations_ = absent_ = server_path_ = client_path_ = 0;
        own_latency_ns_.Clear();
        if (transactions_.has_value()) transactions_->ResetCounters();
      }
    }
  }
  measured.seconds = static_cast<double>(client_->NowNs() - measured_from_ns_) / 1e9;
  measured.metrics = client_->metrics();
  measured.latency_ns = own_latency_ ? own_latency_ns_ : client_->metrics().latency_ns;
  measured.operations = operations_;
  measured.absent = absent_;
  measured.aborted = transactions_.has_value() ? transactions_->aborted() : 0;
  measured.not_begun = status_.ok() ? NotBegun() : 0;
  measured.status = status_;
  measured.began_ns = start_ns_;
  measured.timeline = std::move(timeline_);
  return measured;
}

void BenchThread::Record(int64_t begun_ns) {
  const int64_t now_ns = client_->NowNs();
  const auto latency_ns = static_cast<uint64_t>(std::max<int64_t>(0, now_ns - begun_ns));
  if (own_latency_) own_latency_ns_.Record(latency_ns);
  if (!timeline_.has_value()) return;
  const ClientMetrics& metrics = client_->metrics();
  timeline_->Record(begun_ns, latency_ns, metrics.server_path - server_path_, metrics.client_path - client_path_);
  server_path_ = metrics.server_path;
  client_path_ = metrics.client_path;
}

Task<bool> BenchThread::Lane() {
  std::string key, value;
  const uint64_t begun_max = flags_.operations / static_cast<uint64_t>(flags_.threads);
  for (int turn = 0; status_.ok() && begun_ < begun_max; ++turn) {
    ++begun_;
    int64_t begun_ns = timeline_.has_value() || own_latency_ ? client_->NowNs() : 0;
    if (interval_ns_ > 0) {
      begun_ns = static_cast<int64_t>(next_due_ns_);
      next_due_ns_ += IntervalNs(next_due_ns_);
      // Stop at the end. A client that cannot keep up with the rate would otherwise continue long after it.
      if (begun_ns >= end_ns_ || client_->NowNs() >= end_ns_) {
        if (begun_ns < end_ns_) ++not_begun_;
        break;
      }
      co_await client_->AsyncSleepUntil(begun_ns);
    } else if ((turn % 8 == 0 || flags_.pause_us > 0) && client_->NowNs() >= end_ns_) {
      break;
    }
    const bool counted = co_await One(&key, &value);
    operations_ += counted;
    if (own_latency_ || timeline_.has_value()) Record(begun_ns);
    if (flags_.pause_us > 0) {
      co_await client_->AsyncSleepUntil(client_->NowNs() + static_cast<int64_t>(flags_.pause_us * 1e3));
    }
  }
  co_return true;
}

uint64_t BenchThread::NotBegun() const {
  uint64_t count = not_begun_;
  if (interval_ns_ <= 0) return count;
  for (double due_ns = next_due_ns_; due_ns < static_cast<double>(end_ns_); due_ns += IntervalNs(due_ns)) ++count;
  return count;
}

Op BenchThread::Choose() {
  auto at = static_cast<int>(mix_.parts.size() == 1 ? 0 : random_.Below(100));
  for (const auto& [op, percent] : mix_.parts) {
    if ((at -= percent) < 0) return op;
  }
  return mix_.parts.back().first;
}

Task<bool> BenchThread::One(std::string* key, std::string* value) {
  const Op op = Choose();
  if (op == Op::kRawRead) co_return Note((co_await ClientTesting::RawRead(client_, random_.Next())).status());
  if (op == Op::kRawCall) co_return Note((co_await ClientTesting::RawCall(client_)).status());
  if (op == Op::kTransaction) co_return Note(co_await transactions_->Run(mix_.transaction));
  if (op == Op::kMultiGet) co_return co_await GetFour();
  if (op == Op::kInsert) {
    const uint64_t i = next_insert_++;
    MakeKey(i, key, flags_.shape);
    MakeValue(i, 0, value, flags_.shape);
    co_return Note((co_await map_->AsyncPut(*key, *value)).status());
  }
  if (op == Op::kQueue) co_return co_await PutNextDeleteOldest(key, value);
  const uint64_t i = mix_.latest ? ChooseLatest() : chooser_.Next();
  MakeKey(i, key, flags_.shape);
  switch (op) {
    case Op::kSearch: {
      const absl::StatusOr<bool> found = co_await map_->AsyncContains(*key);
      absent_ += found.ok() && !*found;
      co_return Note(found.status());
    }
    case Op::kScan: {
      ScanOptions options;
      if (flags_.reverse) {
        options.to = *key;
      } else {
        options.from = *key;
      }
      options.limit = flags_.scan_length;
      options.reverse = flags_.reverse;
      options.batch = flags_.scan_length;
      Scan scan = client_->NewScan(std::move(options));
      for (;;) {
        const auto batch = co_await scan.AsyncNextBatch();
        if (!batch.ok() || batch->empty()) co_return Note(batch.status());
      }
    }
    case Op::kUpdate:
      MakeValue(i, random_.Next(), value, flags_.shape);
      co_return Note((co_await map_->AsyncPut(*key, *value)).status());
    case Op::kApply:
      co_return Note((co_await map_->AsyncApply(*key, add_)).status());
    default: {
      const auto got = co_await map_->AsyncGet(*key);
      absent_ += got.ok() && !got->has_value();
      if (op == Op::kGet || !got.ok()) co_return Note(got.status());
      MakeValue(i, random_.Next(), value, flags_.shape);
      co_return Note((co_await map_->AsyncPut(*key, *value)).status());
    }
  }
}

Task<bool> BenchThread::GetFour() {
  std::vector<std::string> keys(4);
  for (std::string& key : keys) MakeKey(chooser_.Next(), &key, flags_.shape);
  std::vector<Task<absl::StatusOr<std::optional<std::string>>>> gets;
  gets.reserve(keys.size());
  for (const std::string& key : keys) gets.push_back(map_->AsyncGet(key));
  for (auto& get : gets) get.Start();
  absl::Status status;
  for (auto& get : gets) {
    const absl::StatusOr<std::optional<std::string>> got = co_await get.Join();
    absent_ += got.ok() && !got->has_value();
    status.Update(got.status());
  }
  co_return Note(status);
}

uint64_t BenchThread::ChooseLatest() {
  const uint64_t at = chooser_.NextLatest(flags_.keys + next_insert_ - first_insert_);
  return at < flags_.keys ? at : first_insert_ + at - flags_.keys;
}

Task<bool> BenchThread::PutNextDeleteOldest(std::string* key, std::string* value) {
  const uint64_t i = next_insert_++;
  MakeKey(i, key, flags_.shape);
  MakeValue(i, 0, value, flags_.shape);
  if (!Note((co_await map_->AsyncPut(*key, *value)).status())) co_return false;
  queue_.push_back(i);
  const auto threads = static_cast<uint64_t>(flags_.threads);
  const uint64_t alive = flags_.keys / threads;
  uint64_t oldest = 0;
  if (flags_.workload != "queue" && loaded_gone_ < alive) {
    oldest = loaded_gone_++ * threads + static_cast<uint64_t>(index_);
  } else if (flags_.workload == "queue" && queue_.size() <= alive) {
    co_return true;
  } else {
    oldest = queue_.front();
    queue_.pop_front();
  }
  MakeKey(oldest, key, flags_.shape);
  const absl::StatusOr<bool> existed = co_await map_->AsyncDelete(*key);
  absent_ += existed.ok() && !*existed;
  co_return Note(existed.status());
}

}  // namespace cell

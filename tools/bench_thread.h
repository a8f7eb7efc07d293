// BenchThread is one client thread of cell_bench, with its flags.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/client/client.h"
#include "cell/client/functions.h"
#include "cell/layout/limits.h"
#include "tools/bench_data.h"
#include "tools/bench_timeline.h"
#include "tools/bench_transactions.h"
#include "tools/hash_layout_flag.h"
#include "tools/pair_map.h"

namespace cell {

struct BenchFlags {
  ClientOptions client;
  std::string workload = "get";
  std::string operation = "get";
  std::string path = "hybrid";
  int threads = 1;
  int depth = 16;
  double seconds = 5;
  uint64_t operations = UINT64_MAX;  // Each thread begins at most its share of them.
  uint64_t keys = 100'000;
  std::string distribution = "uniform";
  uint32_t scan_length = 100;
  bool reverse = false;
  double rate = 0;
  double pause_us = 0;  // Of each operation in flight, before the next one.
  double spike_from = 0, spike_seconds = 0, spike_factor = 1;
  double timeline_ms = 0;
  uint64_t seed = 1;
  std::string json;
  bool load = true;
  bool cleanup = false;
  bool busy_poll = false;
  size_t cache_bytes = ClientOptions{}.cache_bytes;
  int cache_level_min = ClientOptions{}.cache_level_min;
  uint32_t node_bytes = 1024;
  std::optional<size_t> inline_max;  // nullopt: the default, or less if the nodes are too small for that.
  std::string tier = "tree";
  std::string table = "bench";
  HashLayoutFlags layout;
  bool serializable = true;
  DataShape shape = {.prefix = "bench-"};

  // Returns "" for the tree.
  std::string table_asked() const { return tier == "pilaf" ? table : ""; }
};

enum class Op {
  kSearch,
  kGet,
  kMultiGet,
  kUpdate,
  kInsert,
  kScan,
  kReadModifyWrite,
  kApply,
  kQueue,
  kRawRead,
  kRawCall,
  kTransaction
};

// Gives the frequency of each operation in percent. YCSB's core workloads are named by their letters.
struct Mix {
  const char* workload;
  std::vector<std::pair<Op, int>> parts;
  bool latest = false;
  BenchTransaction transaction = BenchTransaction::kPut;  // What kTransaction runs.

  bool transacts() const { return parts[0].first == Op::kTransaction; }
};

const std::vector<Mix>& Mixes();

// Holds the measurements of one client thread.
struct Measured {
  absl::Status status;
  ClientMetrics metrics;
  Histogram latency_ns;  // Of whole operations; from the intended start, with --rate.
  uint64_t operations = 0;
  uint64_t absent = 0;
  uint64_t aborted = 0;    // Tries to commit a transaction that were aborted.
  uint64_t not_begun = 0;  // Operations that were due before the end, with --rate.
  double seconds = 0;
  int64_t began_ns = 0;  // On CLOCK_BOOTTIME, after the warm-up.
  std::optional<Timeline> timeline;
};

class BenchThread {
 public:
  BenchThread(const BenchFlags& flags, const Mix& mix, int index)
      : flags_(flags),
        mix_(mix),
        index_(index),
        chooser_(flags.keys, flags.distribution == "zipfian", flags.seed + 1000 * static_cast<uint64_t>(index)),
        random_(flags.seed + 1000 * static_cast<uint64_t>(index) + 1) {}

  Measured Run();

 private:
  // Returns how many operations that are due before the end have not begun.
  uint64_t NotBegun() const;
  // Returns the interval between operations that are due at this time.
  double IntervalNs(double due_ns) const {
    const double into_ns = due_ns - spike_from_ns_;
    return into_ns >= 0 && into_ns < flags_.spike_seconds * 1e9 ? interval_ns_ / flags_.spike_factor : interval_ns_;
  }

  void Record(int64_t begun_ns);
  // Runs one of `depth` operations in flight. The next one begins when the last has ended, or when it is due.
  Task<bool> Lane();
  Op Choose();
  Task<bool> One(std::string* key, std::string* value);
  // Gets four keys at the same time, as Client::MultiGet does.
  Task<bool> GetFour();
  // Chooses among the keys that were loaded and those that this thread has put since: of these rather the last ones.
  uint64_t ChooseLatest();
  // Puts the next key, and then deletes the one that has been there for longest if there are --keys others. Keys that
  // were loaded go first, this thread's share of them.
  Task<bool> PutNextDeleteOldest(std::string* key, std::string* value);
  bool Note(const absl::Status& status) {
    if (!status.ok() && status_.ok()) status_ = status;
    return status.ok();
  }

  const BenchFlags& flags_;
  const Mix& mix_;
  const int index_;
  KeyChooser chooser_;
  Random random_;
  Client* client_ = nullptr;
  PairMap* map_ = nullptr;
  std::optional<BenchTransactions> transactions_;
  int64_t start_ns_ = 0, end_ns_ = 0, measured_from_ns_ = 0;
  double next_due_ns_ = 0, interval_ns_ = 0, spike_from_ns_ = 0;
  bool measuring_ = false;
  bool own_latency_ = false;
  uint64_t not_begun_ = 0;  // Operations that lanes had already taken.
  uint64_t first_insert_ = 0, next_insert_ = 0;
  const FunctionCall add_ = functions::Add<uint64_t>(1);
  std::deque<uint64_t> queue_;  // Keys that this thread has put and not deleted, for kQueue. A put that takes long is
                                // not overtaken by the key's delete.
  uint64_t loaded_gone_ = 0;    // Keys that were loaded and that it has deleted.
  uint64_t begun_ = 0;          // Operations, with those of the warm-up.
  uint64_t operations_ = 0, absent_ = 0;
  Histogram own_latency_ns_;  // Of operations that the client's metrics do not measure so: see Run.
  std::optional<Timeline> timeline_;
  uint64_t server_path_ = 0, client_path_ = 0;  // Choices that the timeline has counted.
  absl::Status status_;
};

}  // namespace cell

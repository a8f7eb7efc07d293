// Timeline records latencies and paths of a run over time, in buckets of equal length. Not thread-safe: use one per
// thread, then Merge.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cell/base/histogram.h"
#include "nlohmann/json.hpp"

namespace cell {

class Timeline {
 public:
  static constexpr size_t kBucketsMax = 2'000;  // 30 KB each.

  // Covers the time from `begin_ns` on. Operations before that, or after the last bucket, are ignored.
  Timeline(int64_t begin_ns, int64_t bucket_ns, size_t buckets)
      : begin_ns_(begin_ns), bucket_ns_(bucket_ns), buckets_(buckets) {}

  // Records an operation that began, or was due, at `at_ns`, and how often each path was chosen since the last one.
  void Record(int64_t at_ns, uint64_t latency_ns, uint64_t server_path, uint64_t client_path) {
    if (at_ns < begin_ns_) return;
    const auto i = static_cast<size_t>((at_ns - begin_ns_) / bucket_ns_);
    if (i >= buckets_.size()) return;
    buckets_[i].latency_ns.Record(latency_ns);
    buckets_[i].server_path += server_path;
    buckets_[i].client_path += client_path;
  }
  // Adds another timeline. REQUIRES: it has the same number of buckets of the same length.
  void Merge(const Timeline& other) {
    for (size_t i = 0; i < std::min(buckets_.size(), other.buckets_.size()); ++i) {
      buckets_[i].latency_ns.Merge(other.buckets_[i].latency_ns);
      buckets_[i].server_path += other.buckets_[i].server_path;
      buckets_[i].client_path += other.buckets_[i].client_path;
    }
  }

  nlohmann::json ToJson() const {
    nlohmann::json json = nlohmann::json::array();
    for (size_t i = 0; i < buckets_.size(); ++i) {
      const Bucket& one = buckets_[i];
      const auto us = [&one](double quantile) { return static_cast<double>(one.latency_ns.Quantile(quantile)) / 1e3; };
      const uint64_t paths = std::max<uint64_t>(1, one.server_path + one.client_path);
      json.push_back({{"ms", static_cast<double>(i) * static_cast<double>(bucket_ns_) / 1e6},
                      {"operations", one.latency_ns.count()},
                      {"p50_us", us(0.5)},
                      {"p90_us", us(0.9)},
                      {"server_share", static_cast<double>(one.server_path) / static_cast<double>(paths)}});
    }
    return json;
  }

 private:
  struct Bucket {
    Histogram latency_ns;
    uint64_t server_path = 0, client_path = 0;
  };

  int64_t begin_ns_, bucket_ns_;
  std::vector<Bucket> buckets_;
};

}  // namespace cell

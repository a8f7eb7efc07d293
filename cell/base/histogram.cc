#include "cell/base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cell {
namespace {

constexpr int kSubBits = 6;
constexpr uint64_t kSubBuckets = 1u << kSubBits;
constexpr size_t kBuckets = (64 - kSubBits + 1) * kSubBuckets;

// Returns the index of a value's bucket. Values below 64 have a bucket each. For larger values the top bit chooses a
// group, and the next six bits choose the bucket in it.
size_t BucketOf(uint64_t value) {
  if (value < kSubBuckets) return value;
  const int shift = std::bit_width(value) - 1 - kSubBits;
  return static_cast<size_t>(shift + 1) * kSubBuckets + ((value >> shift) - kSubBuckets);
}

uint64_t UpperEnd(size_t bucket) {
  if (bucket < kSubBuckets) return bucket;
  const int shift = static_cast<int>(bucket / kSubBuckets) - 1;
  return ((bucket % kSubBuckets + kSubBuckets + 1) << shift) - 1;
}

}  // namespace

Histogram::Histogram() : buckets_(kBuckets) {}

void Histogram::Record(uint64_t value) {
  ++buckets_[BucketOf(value)];
  ++count_;
  sum_ += value;
  max_ = std::max(max_, value);
}

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

void Histogram::Clear() { *this = Histogram(); }

uint64_t Histogram::Quantile(double quantile) const {
  if (count_ == 0) return 0;
  const auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(quantile * static_cast<double>(count_))));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::min(UpperEnd(i), max_);
  }
  return max_;
}

}  // namespace cell

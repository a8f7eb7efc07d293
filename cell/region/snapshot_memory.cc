#include "cell/region/snapshot_memory.h"

#include <algorithm>
#include <utility>

#include "cell/base/mutant.h"

namespace cell {
namespace {

constexpr size_t kFreedPerStep = 256;
constexpr size_t kFreedPerKept = 2;
constexpr size_t kFreedBytesMax = size_t{4} << 20;  // At a time.

}  // namespace

KeptPairs* SnapshotMemory::Take(const SnapshotOfUser& of) {
  KeptPairs& kept = all_[of];
  kept.of_ = of;
  ++kept.pieces_;
  return &kept;
}

void SnapshotMemory::Release(KeptPairs* kept) {
  if (--kept->pieces_ > 0) return;
  Empty(kept);
  all_.erase(kept->of_);
}

bool SnapshotMemory::Wants(const KeptPairs& kept, std::string_view key) const {
  return !kept.ended && (Mutated(Mutant::kSnapshotKeepsLast) || !kept.changed.contains(key));
}

void SnapshotMemory::Keep(KeptPairs* kept, std::string_view key, const PairKept& pair) {
  const size_t bytes = BytesOf(key, pair);
  kept->changed.insert_or_assign(std::string(key), pair);
  kept->bytes_ += bytes;
  bytes_ += bytes;
  Free(kFreedPerKept);
}

void SnapshotMemory::Trim() {
  while (bytes_ > bytes_max_) {
    std::map<uint32_t, size_t> by_user;
    for (const auto& [of, kept] : all_) by_user[of.user] += kept.bytes_;
    const auto user = std::max_element(by_user.begin(), by_user.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    KeptPairs* most = nullptr;
    for (auto& [of, kept] : all_) {
      if (of.user == user->first && (most == nullptr || kept.bytes_ > most->bytes_)) most = &kept;
    }
    ++ended_;
    End(most);
  }
}

void SnapshotMemory::End(KeptPairs* kept) {
  kept->ended = true;
  Empty(kept);
}

void SnapshotMemory::Step() { Free(kFreedPerStep); }

void SnapshotMemory::Empty(KeptPairs* kept) {
  bytes_ -= kept->bytes_;
  freed_bytes_ += kept->bytes_;
  kept->bytes_ = 0;
  if (!kept->changed.empty()) freed_.push_back(std::move(kept->changed));
  kept->changed.clear();
}

void SnapshotMemory::Free(size_t pairs) {
  for (size_t bytes = 0; pairs > 0 && bytes < kFreedBytesMax && !freed_.empty(); --pairs) {
    Changed& changed = freed_.back();
    const auto first = changed.begin();
    const size_t its = std::min(BytesOf(first->first, first->second), freed_bytes_);
    bytes += its;
    freed_bytes_ -= its;
    changed.erase(first);
    if (changed.empty()) freed_.pop_back();
  }
  if (freed_.empty()) freed_bytes_ = 0;
}

}  // namespace cell

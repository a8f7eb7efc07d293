#include "cell/region/snapshots.h"

#include <algorithm>
#include <utility>

#include "cell/base/check.h"
#include "cell/base/mutant.h"

namespace cell {

Snapshots::~Snapshots() {
  for (auto& [of, piece] : pieces_) memory_->Release(piece.kept);
}

absl::Status Snapshots::Still(const SnapshotOfUser& of, std::string_view from, std::string_view to, int64_t kept_ns,
                              int64_t now_ns) {
  Step(now_ns);  // A stillness that is overdue is not this one's.
  if (const auto it = pieces_.find(of); it != pieces_.end()) {
    if (!it->second.taken) return absl::OkStatus();
    return absl::FailedPreconditionError("the snapshot was taken already");
  }
  if (!still() && now_ns < not_still_before_ns_) {
    return absl::UnavailableError("another snapshot was just taken, and writes come first");
  }
  if (memory_->crowded()) {
    return absl::UnavailableError("what earlier snapshots have kept is still being freed");
  }
  const auto its =
      std::count_if(pieces_.begin(), pieces_.end(), [&](const auto& one) { return one.first.user == of.user; });
  if (pieces_.size() >= memory_->limits().max || static_cast<size_t>(its) >= memory_->limits().max / 2) {
    return absl::ResourceExhaustedError(
        "there are too many snapshots of this region: forget those that are not needed any more");
  }
  if (stilling_++ == 0) still_since_ns_ = now_ns;
  Piece& piece = pieces_[of];
  piece.kept = memory_->Take(of);
  piece.from = from;
  piece.to = to;
  piece.ends_ns = now_ns + std::clamp<int64_t>(kept_ns, memory_->limits().still_ns, memory_->limits().kept_ns_max);
  return absl::OkStatus();
}

void Snapshots::Reach(const SnapshotOfUser& of, uint64_t time) {
  Piece& piece = pieces_.at(of);
  piece.reached = true;
  if (piece.kept->time == 0) piece.kept->time = time;
}

bool Snapshots::GoOn(const SnapshotOfUser& of, std::string_view from, std::string_view to, bool owned, int64_t now_ns) {
  const auto it = pieces_.find(of);
  if (it == pieces_.end()) return false;
  Piece& piece = it->second;
  const bool whole = piece.from == from && piece.to == to && !piece.kept->ended;
  if (piece.taken && whole) return true;
  if (piece.taken || !piece.reached || !owned || !whole) {
    End(it, now_ns);
    return false;
  }
  piece.taken = true;
  ++taken_;
  EndStill(now_ns);
  return true;
}

void Snapshots::Forget(const SnapshotOfUser& of, int64_t now_ns) {
  const auto it = pieces_.find(of);
  if (it != pieces_.end()) End(it, now_ns);
}

const Snapshots::Piece* Snapshots::Find(const SnapshotOfUser& of, std::string_view key) const {
  const auto it = pieces_.find(of);
  if (it == pieces_.end()) return nullptr;
  const Piece& piece = it->second;
  return piece.taken && !piece.kept->ended && piece.Covers(key) ? &piece : nullptr;
}

void Snapshots::SplitTo(std::string_view low, Snapshots* upper, int64_t now_ns) {
  CELL_CHECK(upper->empty() && upper->memory_ == memory_);
  upper->not_still_before_ns_ = MovesUntilNs(now_ns);
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    Piece& piece = it->second;
    // Nobody has asked the upper part to be still, so nobody will ask it to go on.
    if (piece.taken && (piece.to.empty() || piece.to > low)) {
      Piece its = piece;
      its.kept = memory_->Take(it->first);
      its.from = std::max<std::string_view>(piece.from, low);
      if (Mutated(Mutant::kSnapshotUnsplit)) its.reached = false;
      upper->pieces_.emplace(it->first, std::move(its));
    }
    // The upper part keeps the changes of its keys from now on. Keys that come back without it have a gap here.
    if (piece.to.empty() || piece.to > low) piece.to = low;
    it = piece.taken && piece.from >= piece.to ? End(it, now_ns) : std::next(it);
  }
}

void Snapshots::TakeIn(const Snapshots& right, int64_t now_ns) {
  CELL_CHECK(right.memory_ == memory_);
  not_still_before_ns_ = std::max(not_still_before_ns_, right.MovesUntilNs(now_ns));
  for (const auto& [of, piece] : right.pieces_) {
    if (!piece.taken) continue;
    const auto [it, added] = pieces_.try_emplace(of, piece);
    if (added) {
      it->second.kept = memory_->Take(of);
    } else if (it->second.taken && it->second.to == piece.from) {
      it->second.to = piece.to;
    }
  }
}

void Snapshots::Step(int64_t now_ns) {
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    Piece& piece = it->second;
    const bool moves = !piece.taken && now_ns >= still_since_ns_ + memory_->limits().still_ns;
    gone_on_ += moves;
    if (moves && piece.reached && Mutated(Mutant::kSnapshotGoesOn)) {
      (void)GoOn(it->first, piece.from, piece.to, true, now_ns);
      continue;
    }
    it = moves || piece.kept->ended || now_ns >= piece.ends_ns ? End(it, now_ns) : std::next(it);
  }
}

Snapshots::Pieces::iterator Snapshots::End(Pieces::iterator it, int64_t now_ns) {
  memory_->Release(it->second.kept);
  const bool taken = it->second.taken;
  const auto next = pieces_.erase(it);
  if (!taken) EndStill(now_ns);
  return next;
}

void Snapshots::EndStill(int64_t now_ns) {
  if (stilling_ == 1) not_still_before_ns_ = MovesUntilNs(now_ns);
  --stilling_;
}

int64_t Snapshots::MovesUntilNs(int64_t now_ns) const {
  if (!still()) return not_still_before_ns_;
  const int64_t still_ns = std::clamp<int64_t>(now_ns - still_since_ns_, 0, memory_->limits().still_ns);
  return now_ns + still_ns * memory_->limits().moves_ns_per_still_ns;
}

}  // namespace cell

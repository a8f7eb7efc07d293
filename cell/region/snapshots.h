// Snapshots are those of a region: which keys of it they have, and whether it is still for one that is being taken
// (docs/transactions.md). What pairs were before they changed is in SnapshotMemory.
//
//   still   the region takes no writes, so that all regions of a snapshot have a moment in common. Once nothing is
//   under
//           way in it, each change is kept
//   taken   the region takes writes again, and keeps what they change
//
// What a snapshot has of a key is what was kept of it, or else what the region has now. A snapshot ends when its client
// forgets it, with its age, and when what is kept takes too much memory.
//
// A region is not still for longer than SnapshotLimits::still_ns, and not for more than a fifth of the time, whatever
// clients ask for.
//
// Pure. Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cell/region/snapshot_memory.h"

namespace cell {

class Snapshots {
 public:
  // The keys that a snapshot has in this region.
  struct Piece {
    KeptPairs* kept = nullptr;
    std::string from;
    std::string to;        // Exclusive. Empty: to the end of the tree.
    int64_t ends_ns = 0;   // It is kept until then.
    bool reached = false;  // Nothing was under way: changes are kept from then on.
    bool taken = false;

    bool Covers(std::string_view key) const { return key >= from && (to.empty() || key < to); }
  };

  // `memory` must outlive this. Its limits are those of this.
  explicit Snapshots(SnapshotMemory* memory) : memory_(memory) {}
  ~Snapshots();
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  // Returns whether the region must take no writes.
  bool still() const { return stilling_ > 0; }
  bool empty() const { return pieces_.empty(); }
  size_t size() const { return pieces_.size(); }
  // Returns how many snapshots were taken, and how many times the region went on by itself before one was.
  uint64_t taken() const { return taken_; }
  uint64_t gone_on() const { return gone_on_; }

  // Makes the region still for this snapshot, if it is not so already. Returns Unavailable if it has to take writes
  // first, ResourceExhausted if there are too many snapshots, and FailedPrecondition if it was taken before.
  absl::Status Still(const SnapshotOfUser& of, std::string_view from, std::string_view to, int64_t kept_ns,
                     int64_t now_ns);
  // Says that nothing is under way in the region, at this cluster time. REQUIRES: Still has returned OK.
  void Reach(const SnapshotOfUser& of, uint64_t time);
  // Lets the region take writes again, as far as this snapshot goes. Returns whether it is taken: it was still all the
  // time since it was reached, and nobody else has owned it meanwhile (`owned`). If it is not, it is forgotten. Can be
  // called again.
  //
  // `from` and `to` are what Still would be told now: the region may have been split or joined meanwhile, and then it
  // is not taken either.
  bool GoOn(const SnapshotOfUser& of, std::string_view from, std::string_view to, bool owned, int64_t now_ns);
  // Forgets a snapshot, in whatever state it is.
  void Forget(const SnapshotOfUser& of, int64_t now_ns);

  // Returns null if there is no such snapshot that was taken and has the key.
  const Piece* Find(const SnapshotOfUser& of, std::string_view key) const;

  // Notes that a pair is about to change. before() makes a copy of it, null if it is not there. It is called once at
  // most.
  template <typename Before>
  void Keep(std::string_view key, const Before& before) {
    PairKept pair;
    bool made = false;
    for (auto& [of, piece] : pieces_) {
      if (!piece.reached || !piece.Covers(key) || !memory_->Wants(*piece.kept, key)) continue;
      if (!made) pair = before();
      made = true;
      memory_->Keep(piece.kept, key, pair);
    }
    if (made) memory_->Trim();
  }

  // Ends the snapshots that have this key: a leaf that has it, or should have, was damaged in memory before it changes.
  void Damaged(std::string_view key) {
    for (auto& [of, piece] : pieces_) {
      if (piece.reached && piece.Covers(key)) memory_->End(piece.kept);
    }
  }

  // Gives the snapshots of a region that is split to its upper part, which has the keys from `low` on. REQUIRES: the
  // upper part has none, and the same memory.
  void SplitTo(std::string_view low, Snapshots* upper, int64_t now_ns);
  // Takes those of a region whose keys come behind the ones of this, and now belong to it. REQUIRES: the same memory.
  void TakeIn(const Snapshots& right, int64_t now_ns);

  // Ends what is over by now.
  void Step(int64_t now_ns);

 private:
  using Pieces = std::map<SnapshotOfUser, Piece>;

  Pieces::iterator End(Pieces::iterator it, int64_t now_ns);
  // Returns until when the region has to take writes first, if it goes on now.
  int64_t MovesUntilNs(int64_t now_ns) const;
  void EndStill(int64_t now_ns);

  SnapshotMemory* const memory_;
  Pieces pieces_;
  size_t stilling_ = 0;  // How many are not taken yet.
  int64_t still_since_ns_ = 0;
  int64_t not_still_before_ns_ = INT64_MIN;
  uint64_t taken_ = 0;
  uint64_t gone_on_ = 0;
};

}  // namespace cell

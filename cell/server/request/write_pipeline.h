// WritePipeline: takes puts and deletes from their arrival to their answer.
//
//   lease     without it nothing is written: another worker may hold the region by now
//   hold      a write waits while its region cannot take it: its writes are frozen, its disk is late, or it is full and
//             being split. Writes to one region keep their order
//   log       with `sync` a write is logged first, and goes on when its record is on disk
//   apply     to the region's store, which logs it by itself with `async`
//   answer
//
// One thread: the worker's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "cell/io/fabric/fabric.h"
#include "cell/server/request/held_writes.h"
#include "cell/server/request/keyed_request.h"
#include "cell/server/request/replies.h"
#include "cell/server/request/room_maker.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/uploads.h"

namespace cell {

class WritePipeline {
 public:
  struct Options {
    std::string server;       // Its name, for errors.
    int64_t held_max_ns = 0;  // How long a write waits for its region to take it.
  };

  // What it works with.
  struct Parts {
    ServedRegions* served;
    HeldWrites* held;
    RoomMaker* room;  // Null where no region is ever split.
    Uploads* uploads;
    Replies* replies;
  };

  // All must outlive this.
  WritePipeline(const Clock* clock, Regions* regions, const Parts& parts, Options options)
      : clock_(clock),
        regions_(regions),
        served_(parts.served),
        held_(parts.held),
        room_(parts.room),
        uploads_(parts.uploads),
        replies_(parts.replies),
        options_(std::move(options)) {}

  // Takes on a put or delete that goes to `target`.
  void Serve(const IncomingCall& call, const KeyedRequest& request, const Target& target);
  // Tries writes that wait again, in their order; those that have waited too long fail. Returns how many were answered.
  size_t RetryHeld();
  // Applies and answers writes whose records are on disk by now, or never will be. Returns how many.
  size_t ApplyDurable();
  // Answers the logged writes of a region that another worker has by now: their outcome is unknown.
  void Lose(HeldRegion* region);
  // Forgets a peer's writes, which are not to be answered any more. Those that are logged are applied all the same.
  void Disconnected(ConnectionId peer);
  // Gives up the waiting puts that were to take this upload, since their client has begun another under its number.
  // Tried again, such a put would take the other value, or take it away.
  void Withdraw(ConnectionId peer, uint16_t upload) { held_->Withdraw(peer, upload); }

  const HeldWrites& held() const { return *held_; }

 private:
  // Beyond, writes are not held, but refused.
  static constexpr size_t kHeldMax = 4096;

  enum class Stage { kLogged, kDone, kRouted };
  struct Outcome {
    Stage stage;
    bool existed = false;  // kDone: the key was there before.
  };

  // Returns whether the region takes writes, as far as its state and its disk go.
  static bool Open(const HeldRegion& region) { return region.state() != RegionState::kFrozen && !region.late; }
  // Returns whether a logged write of the key is not applied yet.
  static bool IsPending(const HeldRegion& region, std::string_view key);
  // Returns whether a region that is full will have room soon.
  bool WillHaveRoom(HeldRegion* region) const;
  // Tries a held write again. Returns whether it is answered.
  bool Retry(const HeldWrite& held);
  absl::StatusOr<Outcome> Try(const IncomingCall& call, const KeyedRequest& request, const Target& target);
  absl::StatusOr<Outcome> Log(const IncomingCall& call, const KeyedRequest& request, std::string_view value,
                              HeldRegion* region);
  absl::StatusOr<PairStore::Prepared> Prepare(const KeyedRequest& request, std::string_view value,
                                              const HeldRegion& region) const;
  // Returns the error that a write's client gets: Unavailable, and so worth another try, while its region may still
  // have room soon. ResourceExhausted only when no split is possible.
  absl::Status Refusal(const absl::Status& status, HeldRegion* region) const;
  void Answer(const IncomingCall& call, const KeyedRequest& request, const Target& target,
              const absl::StatusOr<Outcome>& outcome);
  void AnswerExisted(const IncomingCall& call, MessageKind kind, const absl::StatusOr<bool>& existed);
  void AnswerPending(const PendingWrite& write, const absl::StatusOr<bool>& existed);

  const Clock* const clock_;
  Regions* const regions_;
  ServedRegions* const served_;
  HeldWrites* const held_;
  RoomMaker* const room_;
  Uploads* const uploads_;
  Replies* const replies_;
  const Options options_;
  size_t pending_ = 0;  // Logged, and not applied, of all regions.
};

}  // namespace cell

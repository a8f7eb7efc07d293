// ClientConnection is one connection of a client, as far as the shm, tcp and verbs fabrics share it: who waits for the
// connection, why it broke, and its calls in flight. Each fabric adds its socket or queue pair, and its reads.
//
//   kConnecting --Establish--> kUp --Break--> kBroken        kConnecting --Break--> kBroken
//
// It calls no Completion itself, because a connection may break in the middle of a loop over connections or calls. It
// passes each to tell(completion, status), which queues it (PollingFabric::TellLater).
//
// Invariants
//   1. Connect's completion is passed on once, by Establish or by Break.
//   2. Reads and calls exist only while it is up. Break ends all of them, and the owner adds none from then on.
//   3. Break tells Connect, then the reads, then the calls. A call that was sent ends with Unknown, because the server
//      may have served it. Connect ends with Unavailable, or with the code that Break is given. Everything else ends
//      with Unavailable.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "cell/base/check.h"
#include "cell/io/fabric/call_table.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

class ClientConnection {
 public:
  // `connecting` is Connect's completion, which must not be null.
  ClientConnection(std::string address, int64_t connect_deadline_ns, Completion* connecting)
      : address_(std::move(address)), connect_deadline_ns_(connect_deadline_ns), connecting_(connecting) {
    CELL_CHECK_NE(connecting, nullptr);
  }

  const std::string& address() const { return address_; }
  int64_t connect_deadline_ns() const { return connect_deadline_ns_; }
  bool connecting() const { return state_ == State::kConnecting; }
  bool up() const { return state_ == State::kUp; }
  bool broken() const { return state_ == State::kBroken; }

  CallTable& calls() { return calls_; }
  const CallTable& calls() const { return calls_; }

  // Notes that the handshake is done, and tells Connect. REQUIRES: connecting().
  template <typename Tell>
  void Establish(const Tell& tell) {
    CELL_CHECK(connecting());
    state_ = State::kUp;
    tell(std::exchange(connecting_, nullptr), absl::OkStatus());
  }

  // Ends the connection and all that is under way on it. fail_reads(tell_lost) must call tell_lost(completion) for each
  // read that has not ended. Calls up to the position `calls_sent_to` were sent (CallTable). Connect ends with
  // `connect_code` if it has not ended. REQUIRES: not broken().
  template <typename Tell, typename FailReads>
  void Break(std::string_view why, uint64_t calls_sent_to, const Tell& tell, const FailReads& fail_reads,
             absl::StatusCode connect_code = absl::StatusCode::kUnavailable) {
    BeginBreak(why);
    if (connecting_ != nullptr) tell(std::exchange(connecting_, nullptr), absl::Status(connect_code, lost_.message()));
    fail_reads([&](Completion* completion) { tell(completion, lost_); });
    calls_.Fail(calls_sent_to,
                [&](Completion* completion, bool sent) { tell(completion, sent ? OutcomeUnknown() : lost_); });
  }
  // Returns why it broke, as Unavailable. REQUIRES: broken().
  const absl::Status& lost() const { return lost_; }

  // Tells the calls whose deadline has passed. Returns the next deadline, or INT64_MAX if there is none.
  template <typename Tell>
  int64_t ExpireCalls(int64_t now_ns, const Tell& tell) {
    return calls_.Expire(now_ns, [&](Completion* completion) { tell(completion, LateCall()); });
  }

  // Returns the error of a read or a call on a connection that is not up. `connection` is null if there is none.
  static absl::Status Refusal(const ClientConnection* connection);

  // Return the errors of reads: its deadline has passed; a part is not within its region; a region is not held.
  absl::Status LateRead() const;
  absl::Status Outside(const ReadPart& part) const;
  absl::Status NotHeld(uint32_t region) const;
  // The server lets this client read no regions.
  absl::Status MayNotRead() const;

 private:
  enum class State { kConnecting, kUp, kBroken };

  void BeginBreak(std::string_view why);
  absl::Status OutcomeUnknown() const;
  absl::Status LateCall() const;

  const std::string address_;
  const int64_t connect_deadline_ns_;
  Completion* connecting_;  // Null from the end of kConnecting.
  State state_ = State::kConnecting;
  absl::Status lost_;  // OK until it breaks.
  CallTable calls_;
};

}  // namespace cell

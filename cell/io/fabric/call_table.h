// CallTable holds a connection's calls in flight, from their start until their replies have come.
//
// A call whose deadline has passed, so that its caller was notified, stays in the table until its reply comes. The
// reply is then recognized and dropped. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cell/io/fabric/fabric.h"

namespace cell {

class CallTable {
 public:
  // Says what a server did wrong if Take returns false.
  static constexpr char kNotMade[] = "the server answered a call that was not made";

  struct Call {
    Completion* completion = nullptr;  // Null once its caller was notified.
    int64_t deadline_ns = 0;
    size_t reply_bytes_max = 0;
    uint64_t position = 0;
    uint32_t generation = 0;
    bool taken = false;
  };

  // Adds a call and returns its id. Fail uses `position` to tell whether the call was sent.
  uint64_t Add(Completion* completion, int64_t deadline_ns, size_t reply_bytes_max, uint64_t position) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(calls_.size()));
      calls_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Call& call = calls_[index];
    call.completion = completion;
    call.deadline_ns = deadline_ns;
    call.reply_bytes_max = reply_bytes_max;
    call.position = position;
    call.taken = true;
    ++in_flight_;
    return uint64_t{++call.generation} << 32 | index;
  }

  // Returns a call that has not ended, or null if there is none. Valid until the next Add.
  const Call* Find(uint64_t id) const {
    const auto index = static_cast<uint32_t>(id);
    if (index >= calls_.size()) return nullptr;
    const Call& call = calls_[index];
    return call.taken && call.generation == static_cast<uint32_t>(id >> 32) ? &call : nullptr;
  }

  // Ends the call that a reply of `bytes` bytes answers. Sets *completion to the completion to notify, or to null.
  // Returns false if there is no such call, or if its reply has no room, which means that the peer is faulty.
  bool Take(uint64_t id, size_t bytes, Completion** completion) {
    const Call* const found = Find(id);
    if (found == nullptr || bytes > found->reply_bytes_max) return false;
    const auto index = static_cast<uint32_t>(id);
    Call& call = calls_[index];
    *completion = std::exchange(call.completion, nullptr);
    call.taken = false;
    --in_flight_;
    free_.push_back(index);
    return true;
  }

  // Calls tell(completion) for each call whose deadline has passed. Returns the next deadline, or INT64_MAX if there is
  // none.
  template <typename Tell>
  int64_t Expire(int64_t now_ns, const Tell& tell) {
    int64_t next_ns = INT64_MAX;
    if (in_flight_ == 0) return next_ns;
    for (Call& call : calls_) {
      if (call.completion == nullptr) continue;
      if (call.deadline_ns <= now_ns) {
        tell(std::exchange(call.completion, nullptr));
      } else {
        next_ns = std::min(next_ns, call.deadline_ns);
      }
    }
    return next_ns;
  }

  // Ends all calls when the connection is lost: calls tell(completion, sent) for each. Calls with a position of at most
  // `sent_to` were sent.
  template <typename Tell>
  void Fail(uint64_t sent_to, const Tell& tell) {
    for (Call& call : calls_) {
      if (call.completion != nullptr) tell(std::exchange(call.completion, nullptr), call.position <= sent_to);
    }
    calls_.clear();
    free_.clear();
    in_flight_ = 0;
  }

  size_t in_flight() const { return in_flight_; }

 private:
  std::vector<Call> calls_;
  std::vector<uint32_t> free_;
  size_t in_flight_ = 0;
};

}  // namespace cell

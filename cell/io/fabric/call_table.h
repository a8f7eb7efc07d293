// CallTable: a connection's calls in flight, from when they are asked for until their replies have come.
//
// A call whose caller was told already (its deadline was over) keeps its place until its reply comes, so that the reply
// is known and dropped. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cell/io/fabric/fabric.h"

namespace cell {

class CallTable {
 public:
  // A new call; `position`: what Fail compares with what was sent. Returns its id.
  uint64_t Add(Completion* completion, int64_t deadline_ns, size_t reply_bytes_max, uint64_t position) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(calls_.size()));
      calls_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Entry& call = calls_[index];
    call.completion = completion;
    call.deadline_ns = deadline_ns;
    call.reply_bytes_max = reply_bytes_max;
    call.position = position;
    call.taken = true;
    ++in_flight_;
    return uint64_t{++call.generation} << 32 | index;
  }

  // Ends the call that a reply of `bytes` answers. *completion: who is to be told, or null. False: there is no such
  // call, or its reply has no room: the peer talks nonsense.
  bool Take(uint64_t id, size_t bytes, Completion** completion) {
    const auto index = static_cast<uint32_t>(id);
    if (index >= calls_.size()) return false;
    Entry& call = calls_[index];
    if (!call.taken || call.generation != static_cast<uint32_t>(id >> 32) || bytes > call.reply_bytes_max) return false;
    *completion = std::exchange(call.completion, nullptr);
    call.taken = false;
    --in_flight_;
    free_.push_back(index);
    return true;
  }

  // Tells the callers whose deadline is over, by tell(completion). Returns the next deadline; INT64_MAX: there is none.
  template <typename Tell>
  int64_t Expire(int64_t now_ns, const Tell& tell) {
    int64_t next_ns = INT64_MAX;
    if (in_flight_ == 0) return next_ns;
    for (Entry& call : calls_) {
      if (call.completion == nullptr) continue;
      if (call.deadline_ns <= now_ns) {
        tell(std::exchange(call.completion, nullptr));
      } else {
        next_ns = std::min(next_ns, call.deadline_ns);
      }
    }
    return next_ns;
  }

  // The connection is lost: ends all, by tell(completion, sent). Sent are those with a position of at most `sent_to`.
  template <typename Tell>
  void Fail(uint64_t sent_to, const Tell& tell) {
    for (Entry& call : calls_) {
      if (call.completion != nullptr) tell(std::exchange(call.completion, nullptr), call.position <= sent_to);
    }
    calls_.clear();
    free_.clear();
    in_flight_ = 0;
  }

  size_t in_flight() const { return in_flight_; }

 private:
  struct Entry {
    Completion* completion = nullptr;
    int64_t deadline_ns = 0;
    size_t reply_bytes_max = 0;
    uint64_t position = 0;
    uint32_t generation = 0;
    bool taken = false;
  };

  std::vector<Entry> calls_;
  std::vector<uint32_t> free_;
  size_t in_flight_ = 0;
};

}  // namespace cell

// HeldWrites holds a worker's writes that wait until their regions can take them, in the order of their arrival.
// (Writes that were logged and wait for the disk are HeldRegion::pending.) Not thread-safe: used only on the worker's
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/io/fabric/fabric.h"
#include "cell/server/request/keyed_request.h"

namespace cell {

struct HeldWrite {
  IncomingCall call;  // Without the bytes of its request.
  std::string bytes;  // These bytes. `request` points into them.
  KeyedRequest request;
  int64_t since_ns = 0;
  bool withdrawn = false;  // Its client has given it up.

  uint32_t region() const { return request.root.region(); }
};

class HeldWrites {
 public:
  // Holds a write whose request was parsed when it came. Parses it again, because the views must point into the copy of
  // its bytes, and because the hint of the parsed request may not be the client's: Lookups replaces a null one by the
  // leaf of that moment, which may be split before the write is retried.
  void Add(const IncomingCall& call, MessageKind kind, int64_t now_ns) {
    HeldWrite& held = writes_.emplace_back(HeldWrite{call, std::string(AsText(call.request)), {}, now_ns});
    held.call.request = {};
    CELL_CHECK(ParseKeyedRequest(kind, AsBytes(held.bytes), &held.request).ok());
    ++ever_;
  }
  // Calls `retry` for each write in order. Removes those for which it returns true, because they are answered. When it
  // returns false, skips the region's later writes, so that they keep their order. Returns how many were removed.
  template <typename Retry>
  size_t RetryEach(Retry retry) {
    std::vector<uint32_t> waiting;
    size_t answered = 0;
    for (auto it = writes_.begin(); it != writes_.end();) {
      const uint32_t region = it->region();
      if (std::find(waiting.begin(), waiting.end(), region) != waiting.end()) {
        ++it;
      } else if (retry(*it)) {
        it = writes_.erase(it);
        ++answered;
      } else {
        waiting.push_back(region);
        ++it;
      }
    }
    return answered;
  }
  // Removes a peer's writes, which must not be answered any more.
  void Remove(ConnectionId peer) {
    writes_.remove_if([peer](const HeldWrite& held) { return held.call.peer == peer; });
  }
  // Marks the writes that would use this upload as given up by their client, which has begun another upload with its
  // number. If such a put were retried, it would use the new value, or remove it.
  void Withdraw(ConnectionId peer, uint16_t upload) {
    for (HeldWrite& held : writes_) held.withdrawn |= held.call.peer == peer && held.request.upload == upload;
  }
  // Records how long a write waited that is answered now.
  void NoteWaited(int64_t ns) { longest_ns_ = std::max(longest_ns_, ns); }

  // Return how many writes wait: for one region, and for all.
  size_t size(uint32_t region) const {
    return static_cast<size_t>(std::count_if(writes_.begin(), writes_.end(),
                                             [region](const HeldWrite& held) { return held.region() == region; }));
  }
  size_t size() const { return writes_.size(); }
  // Returns when the oldest of them came. REQUIRES: there is one.
  int64_t oldest_ns() const { return writes_.front().since_ns; }
  uint64_t ever() const { return ever_; }
  int64_t longest_ns() const { return longest_ns_; }

 private:
  std::list<HeldWrite> writes_;
  uint64_t ever_ = 0;
  int64_t longest_ns_ = 0;
};

}  // namespace cell

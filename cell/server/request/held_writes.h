// HeldWrites holds a worker's writes that wait until their regions can take them. (Writes that were logged and wait for
// the disk are HeldRegion::pending.) Not thread-safe: used only on the worker's thread.
//
// Invariants
//   1. Writes of one region keep the order of their arrival.
//   2. Together they take at most kBytesMax, where each counts as its bytes and kBytesPerWrite.
//   3. If they take that much, a write of a user who holds less than another one takes the place of the other's, and of
//      two connections of one user a write of the one that holds less.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "cell/base/check.h"
#include "cell/io/fabric/fabric.h"
#include "cell/server/request/keyed_request.h"
#include "cell/server/request/shares.h"

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
  static constexpr size_t kBytesMax = size_t{64} << 20;
  static constexpr size_t kBytesPerWrite = size_t{16} << 10;  // So at most 4,096 are held.

  explicit HeldWrites(size_t bytes_max = kBytesMax) : bytes_max_(bytes_max) {}

  // Returns whether a write with a request of this size can be added.
  bool HasRoom(size_t request_bytes) const { return shares_.total() + WeightOf(request_bytes) <= bytes_max_; }
  // Makes room for a call (Shares::InTheWayOf): removes a write of whoever is in its way, the last of its region.
  // Returns that write's call, which must be answered, and what it was.
  struct Displaced {
    IncomingCall call;
    MessageKind kind;
    uint16_t upload;
  };
  std::optional<Displaced> Displace(const IncomingCall& call) {
    const std::optional<ConnectionId> most =
        shares_.InTheWayOf(ToString(*call.from), call.peer, WeightOf(call.request.size()));
    if (!most.has_value()) return std::nullopt;
    for (auto& [region, writes] : by_region_) {
      const auto last =
          std::find_if(writes.rbegin(), writes.rend(), [&](const HeldWrite& held) { return held.call.peer == *most; });
      if (last == writes.rend()) continue;
      const Displaced displaced{last->call, last->request.kind, last->request.upload};
      Erase(&writes, std::next(last).base());
      if (writes.empty()) by_region_.erase(region);
      ++displaced_;
      return displaced;
    }
    return std::nullopt;
  }
  // Holds a write whose request was parsed when it came. Parses it again, because the views must point into the copy of
  // its bytes, and because the hint of the parsed request may not be the client's: Lookups replaces a null one by the
  // leaf of that moment, which may be split before the write is retried. REQUIRES: HasRoom.
  void Add(const IncomingCall& call, MessageKind kind, int64_t now_ns) {
    CELL_CHECK(HasRoom(call.request.size()));
    KeyedRequest request;
    CELL_CHECK(ParseKeyedRequest(kind, call.request, &request).ok());
    HeldWrite& held =
        by_region_[request.root.region()].emplace_back(HeldWrite{call, std::string(AsText(call.request)), {}, now_ns});
    held.call.request = {};
    CELL_CHECK(ParseKeyedRequest(kind, AsBytes(held.bytes), &held.request).ok());
    shares_.Add(ToString(*call.from), call.peer, WeightOf(held.bytes.size()));
    ++size_;
    ++ever_;
  }
  // Calls `retry` for the writes of each region in order. Removes those for which it returns true, because they are
  // answered. When it returns false, skips the region's later writes, so that they keep their order. Returns how many
  // were removed.
  template <typename Retry>
  size_t RetryEach(Retry retry) {
    const size_t before = size_;
    for (auto it = by_region_.begin(); it != by_region_.end();) {
      std::list<HeldWrite>& writes = it->second;
      while (!writes.empty() && retry(writes.front())) Erase(&writes, writes.begin());
      it = writes.empty() ? by_region_.erase(it) : std::next(it);
    }
    return before - size_;
  }
  // Removes a peer's writes, which must not be answered any more.
  void Remove(ConnectionId peer) {
    if (shares_.of(peer) == 0) return;
    for (auto it = by_region_.begin(); it != by_region_.end();) {
      std::list<HeldWrite>& writes = it->second;
      for (auto write = writes.begin(); write != writes.end();) {
        write = write->call.peer == peer ? Erase(&writes, write) : std::next(write);
      }
      it = writes.empty() ? by_region_.erase(it) : std::next(it);
    }
  }
  // Marks the writes that would use this upload as given up by their client, which has begun another upload with its
  // number. If such a put were retried, it would use the new value, or remove it.
  void Withdraw(ConnectionId peer, uint16_t upload) {
    if (shares_.of(peer) == 0) return;
    for (auto& [region, writes] : by_region_) {
      for (HeldWrite& held : writes) held.withdrawn |= held.call.peer == peer && held.request.upload == upload;
    }
  }
  // Records how long a write waited that is answered now.
  void NoteWaited(int64_t ns) { longest_ns_ = std::max(longest_ns_, ns); }

  // Return how many writes wait: for one region, and for all.
  size_t size(uint32_t region) const {
    const auto it = by_region_.find(region);
    return it == by_region_.end() ? 0 : it->second.size();
  }
  size_t size() const { return size_; }
  // Returns when the oldest of them came. REQUIRES: there is one.
  int64_t oldest_ns() const {
    int64_t oldest_ns = INT64_MAX;
    for (const auto& [region, writes] : by_region_) oldest_ns = std::min(oldest_ns, writes.front().since_ns);
    return oldest_ns;
  }
  uint64_t ever() const { return ever_; }
  uint64_t displaced() const { return displaced_; }
  int64_t longest_ns() const { return longest_ns_; }

 private:
  static size_t WeightOf(size_t request_bytes) { return request_bytes + kBytesPerWrite; }
  std::list<HeldWrite>::iterator Erase(std::list<HeldWrite>* writes, std::list<HeldWrite>::iterator write) {
    shares_.Remove(write->call.peer, WeightOf(write->bytes.size()));
    --size_;
    return writes->erase(write);
  }

  const size_t bytes_max_;
  std::map<uint32_t, std::list<HeldWrite>> by_region_;  // No list is empty.
  Shares shares_;
  size_t size_ = 0;
  uint64_t ever_ = 0;
  uint64_t displaced_ = 0;
  int64_t longest_ns_ = 0;
};

}  // namespace cell

// RequestSlots gives ids to a client's requests that must take effect only once (layout/outcome.h). Pure. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cell/layout/outcome.h"

namespace cell {

class RequestSlots {
 public:
  // `client` is a number above 0 that no other client has, and had.
  explicit RequestSlots(uint64_t client) : client_(client) {}

  // Takes a free slot, and returns the id of its next request. Returns nullopt if all slots are taken. The caller sets
  // `until`, and calls Give when the request has ended, or Retire.
  std::optional<RequestId> Take() {
    if (free_.empty()) {
      if (numbers_.size() == kRequestSlots) return std::nullopt;
      free_.push_back(static_cast<uint16_t>(numbers_.size()));
      numbers_.push_back(0);
    }
    const uint16_t slot = free_.back();
    free_.pop_back();
    return RequestId{client_, ++numbers_[slot], 0, slot};
  }
  // Does nothing for an id from before the last Renew.
  void Give(const RequestId& id) {
    if (id.client == client_) free_.push_back(id.slot);
  }
  // Never gives the slot to another request: a server may have to remember this one for any time.
  void Retire(const RequestId& id) { retired_ += id.client == client_; }
  // Returns whether there are few slots left that can be used again. Call Renew then.
  bool worn_out() const { return retired_ > kRequestSlots / 2; }
  // Begins again with new slots, as another client. Requests in flight keep their ids.
  void Renew(uint64_t client) { *this = RequestSlots(client); }

 private:
  uint64_t client_;
  size_t retired_ = 0;
  std::vector<uint64_t> numbers_;  // By slot: that of its last request.
  std::vector<uint16_t> free_;
};

// Knows a stamp that a worker has given or could have given, and from that until when a request may be tried there.
// Another of its regions may be ahead or behind: then the worker says so, and the client begins again from what it
// says.
class KnownStamp {
 public:
  void Note(uint64_t stamp, int64_t now_ns) {
    stamp_ = stamp;
    at_ns_ = now_ns;
  }
  void Forget() { stamp_ = 0; }
  // Returns RequestId::until for a request that is sent now. 0: what is known is too old.
  uint64_t Until(int64_t now_ns) const {
    constexpr int64_t kKnownForNs = 4 * static_cast<int64_t>(kRequestTriedNs);
    const int64_t age_ns = now_ns - at_ns_;
    if (stamp_ == 0 || age_ns > kKnownForNs) return 0;
    // The worker's clock may be slower than this one (docs/protocols.md, "Clocks").
    return stamp_ + static_cast<uint64_t>(age_ns - age_ns / 8) + kRequestTriedNs;
  }

 private:
  uint64_t stamp_ = 0;
  int64_t at_ns_ = 0;
};

}  // namespace cell

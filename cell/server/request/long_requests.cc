#include "cell/server/request/long_requests.h"

#include <algorithm>

#include "fmt/format.h"

namespace cell {

absl::Status LongRequests::Keep(const IncomingCall& call) {
  const auto [it, began] = waiting_.try_emplace(call.peer);
  Peer& peer = it->second;
  if (began) {
    peer.used_ns = last_used_ns_;
    order_.emplace(peer.used_ns, call.peer);
  }
  const bool fits = peer.kept.size() < limits_.per_peer_max &&
                    (began || peer.bytes + call.request.size() <= limits_.bytes_per_peer_max);
  if (!fits) {
    ++refused_;
    return absl::ResourceExhaustedError(fmt::format(
        "{} long requests of this client wait already (scans, counts, deletes of ranges, fetches, reports): send the "
        "next ones when some of them have ended",
        peer.kept.size()));
  }
  Kept& kept = peer.kept.emplace_back(Kept{call, std::string(AsText(call.request))});
  kept.call.request = {};
  peer.bytes += kept.bytes.size();
  ++size_;
  ++ever_;
  return absl::OkStatus();
}

LongRequests::Kept LongRequests::Take() {
  const auto [used_ns, id] = *order_.begin();
  Peer& peer = waiting_.at(id);
  last_used_ns_ = std::max(last_used_ns_, used_ns);
  Kept next = std::move(peer.kept.front());
  peer.kept.pop_front();
  peer.bytes -= next.bytes.size();
  --size_;
  if (peer.kept.empty()) {
    order_.erase(order_.begin());
    waiting_.erase(id);
  }
  return next;
}

void LongRequests::Charge(ConnectionId id, int64_t ns) {
  const auto it = waiting_.find(id);
  if (it == waiting_.end()) return;
  order_.erase({it->second.used_ns, id});
  it->second.used_ns += std::max<int64_t>(ns, 1);
  order_.emplace(it->second.used_ns, id);
}

void LongRequests::Disconnected(ConnectionId id) {
  const auto it = waiting_.find(id);
  if (it == waiting_.end()) return;
  order_.erase({it->second.used_ns, id});
  size_ -= it->second.kept.size();
  waiting_.erase(it);
}

}  // namespace cell

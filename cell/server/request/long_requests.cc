#include "cell/server/request/long_requests.h"

#include <algorithm>

#include "fmt/format.h"

namespace cell {

absl::Status LongRequests::Keep(const IncomingCall& call) {
  const auto [it, began] = waiting_.try_emplace(call.peer);
  Peer& peer = it->second;
  if (began) {
    const auto [user, first] = users_.try_emplace(NameOf(call));
    if (first) {
      user->second.used_ns = last_used_ns_;
      order_.emplace(last_used_ns_, user->first);
    }
    peer.user = user;
    peer.used_ns = user->second.last_used_ns;
    user->second.peers.emplace(peer.used_ns, call.peer);
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
  const auto& [user_used_ns, name] = *order_.begin();
  last_used_ns_ = std::max(last_used_ns_, user_used_ns);
  User& user = users_.find(name)->second;
  const auto [peer_used_ns, id] = *user.peers.begin();
  user.last_used_ns = std::max(user.last_used_ns, peer_used_ns);
  const auto it = waiting_.find(id);
  Peer& peer = it->second;
  Kept next = std::move(peer.kept.front());
  peer.kept.pop_front();
  peer.bytes -= next.bytes.size();
  --size_;
  if (peer.kept.empty()) Leave(it);
  return next;
}

void LongRequests::Leave(std::map<ConnectionId, Peer>::iterator it) {
  const Users::iterator user = it->second.user;
  user->second.peers.erase({it->second.used_ns, it->first});
  size_ -= it->second.kept.size();
  waiting_.erase(it);
  if (!user->second.peers.empty()) return;
  order_.erase({user->second.used_ns, user->first});
  users_.erase(user);
}

void LongRequests::Charge(const IncomingCall& call, int64_t ns) {
  ns = std::max<int64_t>(ns, 1);
  if (const auto user = users_.find(NameOf(call)); user != users_.end()) {
    order_.erase({user->second.used_ns, user->first});
    user->second.used_ns += ns;
    order_.emplace(user->second.used_ns, user->first);
  }
  if (const auto it = waiting_.find(call.peer); it != waiting_.end()) {
    PeerOrder& peers = it->second.user->second.peers;
    peers.erase({it->second.used_ns, call.peer});
    it->second.used_ns += ns;
    peers.emplace(it->second.used_ns, call.peer);
  }
}

void LongRequests::Disconnected(ConnectionId id) {
  const auto it = waiting_.find(id);
  if (it != waiting_.end()) Leave(it);
}

}  // namespace cell

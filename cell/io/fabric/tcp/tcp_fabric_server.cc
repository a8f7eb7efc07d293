// Implements the server half of TcpFabric: peers taken from the listener, served calls.
#include <sys/epoll.h>

#include <algorithm>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/io/fabric/tcp/tcp_connection.h"

namespace cell {

absl::Status TcpFabric::Listen(const std::string& address, Service* service) {
  CELL_CHECK_EQ(service_, nullptr);
  const TcpListener::Options options{options_.credentials, options_.peers_max, options_.handshake_ns};
  ASSIGN_OR_RETURN(listener_, TcpListener::Start(address, options, pool(), /*clock=*/this));
  service_ = service;
  CELL_CHECK(Watch(EPOLL_CTL_ADD, listener_->callers_fd(), EPOLLIN, kCallersTag));
  return absl::OkStatus();
}

void TcpFabric::TakeCallers() {
  for (TcpListener::Caller& caller : listener_->TakeCallers()) {
    if (peers() >= options_.peers_max) {
      warnings_.Warn(NowNs(), "refused a connection: {} peers are already connected", peers());
      continue;
    }
    if (!users_.Add(caller.identity)) {
      warnings_.Warn(NowNs(), "refused a connection: {} has {} already, and others need some, too",
                     ToString(caller.identity), users_.max());
      continue;
    }
    if (free_peers_.empty()) {
      free_peers_.push_back(static_cast<ConnectionId>(peers_.size()));
      peers_.emplace_back();
    }
    const ConnectionId id = free_peers_.back();
    free_peers_.pop_back();
    peers_[id] = std::make_unique<Peer>(std::move(caller));
    peers_[id]->watched = EPOLLIN;
    if (!Watch(EPOLL_CTL_ADD, peers_[id]->stream.fd(), EPOLLIN, kPeerTag | id)) broken_.push_back(id);
    MakeReady(id);  // Its first request may have come with the end of the handshake.
  }
}

void TcpFabric::ReceiveRequests(ConnectionId id) {
  Peer* peer = peers_[id].get();
  if (peer == nullptr || peer->broken) return;
  if (!peer->stream.Receive(absl::MakeSpan(scratch_), &peer->in)) {
    peer->broken = true;
    broken_.push_back(id);
    return;
  }
  MakeReady(id);
  if (!peer->out.empty()) SendReplies(id);
  WatchPeer(id);
}

// Adds the peer to ready_ if it has a whole request and room for the reply.
void TcpFabric::MakeReady(ConnectionId id) {
  Peer* peer = peers_[id].get();
  if (peer->ready || peer->broken || peer->Full()) return;
  CallFrame frame;
  const FrameState state = NextFrame(peer->in, &frame);
  if (state == FrameState::kNone) return;
  if (state == FrameState::kNonsense || !IsReplyRoom(frame.reply_bytes_max)) {
    warnings_.Warn(NowNs(), "closed a connection: its requests are malformed");
    peer->broken = true;
    broken_.push_back(id);
    return;
  }
  peer->ready = true;
  ready_.push_back(id);
}

size_t TcpFabric::ServeCalls() {
  if (ready_.empty()) return 0;
  calls_.clear();
  // Take a request from each peer in turn. The requests stay in place, because nothing is received meanwhile.
  while (!ready_.empty() && calls_.size() < kCallsMax) {
    const ConnectionId id = ready_.front();
    ready_.pop_front();
    Peer* peer = peers_[id].get();
    if (peer == nullptr) continue;
    peer->ready = false;
    CallFrame frame;
    if (peer->broken || NextFrame(peer->in, &frame) != FrameState::kWhole) continue;
    calls_.push_back({id, &peer->identity, frame.id, ConstBytes(peer->in.data() + sizeof(frame), frame.bytes),
                      frame.reply_bytes_max});
    peer->in.Consume(sizeof(frame) + frame.bytes);
    peer->promised += sizeof(frame) + frame.reply_bytes_max;
    MakeReady(id);
  }
  serving_ = true;
  if (!calls_.empty()) service_->Serve(calls_);
  serving_ = false;
  for (const IncomingCall& call : calls_) {
    peers_[call.peer]->in.Shrink(kIdleQueueBytesMax);
    if (!peers_[call.peer]->out.empty()) SendReplies(call.peer);
    WatchPeer(call.peer);
  }
  return calls_.size();
}

MutableBytes TcpFabric::BeginReply(const IncomingCall& call) {
  std::byte* to = peers_[call.peer]->out.Grow(sizeof(CallFrame) + call.reply_bytes_max);
  return {to + sizeof(CallFrame), call.reply_bytes_max};
}

void TcpFabric::EndReply(const IncomingCall& call, size_t bytes) {
  CELL_CHECK_LE(bytes, call.reply_bytes_max);
  Peer* peer = peers_[call.peer].get();
  Store(peer->out.Grow(sizeof(CallFrame) + bytes), CallFrame{static_cast<uint32_t>(bytes), 0, call.id});
  peer->out.Commit(sizeof(CallFrame) + bytes);
  peer->promised -= sizeof(CallFrame) + call.reply_bytes_max;
  if (serving_) return;  // ServeCalls sends them, once for all.
  SendReplies(call.peer);
  WatchPeer(call.peer);
}

void TcpFabric::SendReplies(ConnectionId id) {
  Peer* peer = peers_[id].get();
  if (peer->broken) return;
  if (!peer->stream.Send(&peer->out)) {
    peer->broken = true;
    broken_.push_back(id);
    return;
  }
  peer->out.Shrink(kIdleQueueBytesMax);
  MakeReady(id);  // There may be room again.
}

void TcpFabric::WatchPeer(ConnectionId id) {
  Peer* peer = peers_[id].get();
  if (peer->broken) return;
  const bool listen = peer->in.size() < kFrameBytesMax && !peer->Full();
  const uint32_t events = (listen ? uint32_t{EPOLLIN} : 0u) | (peer->out.empty() ? 0u : uint32_t{EPOLLOUT});
  if (events == peer->watched) return;
  peer->watched = events;
  (void)Watch(EPOLL_CTL_MOD, peer->stream.fd(), events, kPeerTag | id);
}

void TcpFabric::DropBroken() {
  while (!broken_.empty()) {
    const ConnectionId id = broken_.back();
    broken_.pop_back();
    if (peers_[id] == nullptr) continue;
    peers_[id]->broken = true;
    service_->Disconnected(id);
    users_.Remove(peers_[id]->identity);
    if (peers_[id]->ready) std::erase(ready_, id);
    peers_[id].reset();  // Closing the socket removes it from epoll.
    free_peers_.push_back(id);
  }
}

}  // namespace cell

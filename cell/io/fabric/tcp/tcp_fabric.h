// TcpFabric connects machines without RDMA. A thread of the server answers one-sided reads.
//
// A server listens at one port, HOST:PORT, in a thread of its own (tcp_listener.h) that also answers one-sided reads.
// The worker's thread only serves calls. A client has two connections to a server, one for calls and one for reads, so
// that neither waits for the other. With a secret or a certificate both use TLS (tls_context.h), and begin with its
// handshake; then comes that of Cell (handshake.h).
//
// A connection for calls carries frames {bytes, reply_bytes_max, id}, each with a message, in both directions. A length
// is checked before anything is done with it. Requests are served in turn, one of each peer. A peer's replies may take
// at most kPeerBytesMax, including those that its open calls may still get. Beyond that its requests wait unread in its
// socket, and so eventually in the client.
//
// A peer that acknowledges no packets for 5 s counts as gone, and so does a server that answers no read for 5 s.
//
// Addresses are HOST:PORT. Not thread-safe; the listener has a thread of its own.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cell/io/fabric/connection_table.h"
#include "cell/io/fabric/polling_fabric.h"
#include "cell/io/fabric/tcp/tcp_listener.h"
#include "cell/io/fabric/user_connections.h"
#include "cell/io/net/credentials.h"
#include "cell/io/net/limited_warnings.h"

namespace cell {

struct TcpFabricOptions {
  Polling polling = Polling::kAdaptive;
  bool huge_pages = true;
  std::shared_ptr<CredentialSource> credentials = std::make_shared<FixedCredentials>();
  size_t peers_max = 4096;
  int64_t handshake_ns = 5'000'000'000;     // A peer that has not greeted by then is disconnected.
  int64_t read_timeout_ns = 5'000'000'000;  // A server that answers no read for this time counts as gone.
};

class TcpFabric : public PollingFabric {
 public:
  static constexpr size_t kPeerBytesMax = size_t{1} << 20;

  // Uses the regions of `pool`, or of a pool of its own if it is null.
  explicit TcpFabric(TcpFabricOptions options = {}, std::shared_ptr<RegionPool> pool = nullptr);
  ~TcpFabric() override;

  absl::Status Listen(const std::string& address, Service* service) override;
  MutableBytes BeginReply(const IncomingCall& call) override;
  void EndReply(const IncomingCall& call, size_t bytes) override;
  // Returns zeros: reads and calls are answered alike, by one thread each, and the time of reads is not measured.
  ServiceTimes TimesOf(const IncomingCall&, uint64_t) const override { return {}; }
  size_t peers() const override { return peers_.size() - free_peers_.size(); }
  // Returns the address where it listens, with the actual port if 0 was given.
  const std::string& address() const { return listener_->address(); }

  ConnectionId Connect(const std::string& address, int64_t deadline_ns, Completion* completion) override;
  void Disconnect(ConnectionId connection) override;
  void ForgetRegion(ConnectionId, uint32_t) override {}  // Every read is checked at the server.
  void Read(ConnectionId connection, absl::Span<const ReadPart> parts, int64_t deadline_ns,
            Completion* completion) override;
  void Call(ConnectionId connection, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
            Completion* completion) override;

  size_t Poll() override;
  void Flush() override;
  bool HasWork() const override;
  bool BeginSleep() override { return HasWork(); }
  int wait_fd() const override { return epoll_.get(); }
  void EndSleep() override {}
  void AfterWait() override;

 private:
  struct Peer;
  struct Channel;
  struct Connection;

  // Server.
  void TakeCallers();
  void ReceiveRequests(ConnectionId peer);
  void MakeReady(ConnectionId peer);
  size_t ServeCalls();
  void SendReplies(ConnectionId peer);
  void WatchPeer(ConnectionId peer);
  void DropBroken();

  // Client.
  Connection* Live(ConnectionId connection) const;
  absl::Status Refusal(ConnectionId connection) const;
  absl::Status BeginConnecting(Connection* connection, Channel* channel);
  void ChannelEvent(ConnectionId id, bool reads, uint32_t events);
  bool FinishConnecting(Connection* connection, Channel* channel);
  bool Secure(Connection* connection, Channel* channel);
  void Greet(Connection* connection, Channel* channel);
  size_t TakeReplies(Connection* connection);
  size_t TakeReads(Connection* connection);
  void SendChannel(Connection* connection, Channel* channel);
  void WatchChannel(Channel* channel, uint32_t events);
  void Expire();
  void ExpireReads(Connection* connection, int64_t now_ns);
  void Break(Connection* connection, const std::string& why);

  size_t PollSockets();
  bool Watch(int operation, int fd, uint32_t events, uint64_t tag);

  const TcpFabricOptions options_;
  Fd epoll_;
  std::vector<std::byte> scratch_;

  std::unique_ptr<TcpListener> listener_;
  UserConnections users_{options_.peers_max};
  Service* service_ = nullptr;
  bool serving_ = false;
  LimitedWarnings warnings_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<ConnectionId> free_peers_;
  std::vector<ConnectionId> broken_;  // Dropped at the end of Poll.
  std::deque<ConnectionId> ready_;    // Peers with a whole request, in order.
  std::vector<IncomingCall> calls_;

  ConnectionTable<Connection> connections_;
  std::vector<ConnectionId> failed_;  // Connections that failed; removed by the next Poll.
};

}  // namespace cell

// ShmFabric is the fabric between processes of one machine.
//
// Regions are memfds, in huge pages if there are any, sealed so that peers can only map them read-only. A Unix socket
// passes the connection's two rings (shm_ring.h), and each region when it is first read. A one-sided read copies from
// the mapping, without the server's CPU. The socket stays open: each side wakes the other one through it, and its end
// tells each side that the other is gone, however it ended.
//
// Neither side shares a descriptor on which it waits, or which it reads or writes. A peer with the same open file
// description has its flags and could make the process block. The sides share only memory, and each has its own end of
// the socket (unix_socket.h).
//
// The kernel says which user a client runs as, and unix_peer.h who it is therefore. Only this user and root may
// connect, or with a group also its members; the mode of the socket's file says the same. Secrets (handshake.h) are not
// used here.
//
// Addresses are paths of Unix sockets. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/io/fabric/connection_table.h"
#include "cell/io/fabric/polling_fabric.h"
#include "cell/io/fabric/user_connections.h"
#include "cell/io/net/limited_warnings.h"
#include "cell/io/net/unix_socket.h"

namespace cell {

struct AskRegion;

struct ShmFabricOptions {
  Polling polling = Polling::kAdaptive;
  bool huge_pages = true;
  std::optional<gid_t> group = {};  // Whose members may connect, too. The socket's mode is 0660 then, else 0600.
  size_t peers_max = 4096;
  int64_t handshake_ns = 5'000'000'000;  // A peer that has not greeted by then is disconnected.
  // How long the server accepts no more connections after it accepted some, at most kAcceptsAtOnce. That time is for
  // requests.
  int64_t accept_rest_ns = 1'000'000;
};

class ShmFabric : public PollingFabric {
 public:
  // A handshake with another version is refused.
  static constexpr uint32_t kVersion = 4;
  static constexpr int kAcceptsAtOnce = 4;
  static constexpr size_t kRequestRingBytes = size_t{256} << 10;
  static constexpr size_t kReplyRingBytes = size_t{1} << 20;

  // Uses the regions of `pool`, or of a pool of its own if it is null.
  explicit ShmFabric(ShmFabricOptions options = {}, std::shared_ptr<RegionPool> pool = nullptr);
  ~ShmFabric() override;

  void SetReaders(Readers readers) override;
  absl::Status Listen(const std::string& address, Service* service) override;
  MutableBytes BeginReply(const IncomingCall& call) override;
  void EndReply(const IncomingCall& call, size_t bytes) override;
  // Returns zeros, because clients copy: their reads do not occupy the server.
  ServiceTimes TimesOf(const IncomingCall&, uint64_t) const override { return {}; }
  size_t peers() const override;

  ConnectionId Connect(const std::string& address, int64_t deadline_ns, Completion* completion) override;
  void Disconnect(ConnectionId connection) override;
  void ForgetRegion(ConnectionId connection, uint32_t region) override;
  void Read(ConnectionId connection, absl::Span<const ReadPart> parts, int64_t deadline_ns,
            Completion* completion) override;
  void Call(ConnectionId connection, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
            Completion* completion) override;

  size_t Poll() override;
  void Flush() override { FlushCalls(); }
  bool HasWork() const override;
  bool BeginSleep() override;
  int wait_fd() const override { return epoll_.get(); }
  void EndSleep() override;
  void AfterWait() override;
  int64_t NextDeadlineNs() const override;

 private:
  struct Peer;
  struct Connection;
  struct PendingRead {
    ConnectionId connection;
    uint32_t parts;
    Completion* completion;
  };

  // Server.
  void AcceptPeers();
  bool AcceptPeer();
  void Welcome(ConnectionId peer);
  void TakePackets(ConnectionId peer);
  bool HandOverRegion(ConnectionId peer, const AskRegion& ask);
  void DropPeer(ConnectionId peer);
  void RestListener(int64_t for_ns);
  void DropSilentPeers();
  bool DropOldestSilent();
  size_t ServeCalls();

  // Client.
  Connection* Live(ConnectionId connection) const;
  absl::Status Refusal(ConnectionId connection) const;
  absl::Status FinishHandshake(Connection* connection);
  void ReceiveFromServer(Connection* connection);
  bool TakePacket(Connection* connection);
  void MapRegion(Connection* connection, Packet packet);
  void AskForRegion(Connection* connection, uint32_t region);
  void StartRead(ConnectionId id, absl::Span<const ReadPart> parts, int64_t deadline_ns, Completion* completion);
  bool Send(Connection* connection, ConstBytes head, ConstBytes body, uint64_t id);
  void FlushCalls();
  size_t TakeReplies();
  size_t FinishReads();
  void Expire();
  // Ends a connection. If it was not up yet, Connect ends with `connect_code`.
  void Break(Connection* connection, const std::string& why,
             absl::StatusCode connect_code = absl::StatusCode::kUnavailable);

  // Both.
  bool asking() const;
  void PollSockets();
  bool Watch(int fd, uint64_t tag);

  const ShmFabricOptions options_;
  UserConnections users_{options_.peers_max};
  const std::shared_ptr<Closer> closer_ = std::make_shared<Closer>();
  Fd epoll_;
  uint32_t polls_ = 0;

  bool serving_ = false;
  Service* service_ = nullptr;
  Fd listener_;
  int64_t listen_again_ns_ = 0;  // If not 0, the listener pauses until then.
  LimitedWarnings warnings_;
  size_t greeting_ = 0;  // Number of peers that have not greeted yet.
  std::string address_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::byte> request_bytes_;
  std::vector<IncomingCall> calls_;
  std::vector<std::byte> spare_reply_;  // For a peer that left no room.
  size_t first_peer_ = 0;

  ConnectionTable<Connection> connections_;
  std::vector<ConnectionId> failed_;  // Connections that failed; removed by the next Poll.
  size_t connecting_ = 0;
  std::vector<PendingRead> reads_, finishing_;
  std::vector<ReadPart> parts_, finishing_parts_;
  std::vector<std::byte> reply_bytes_;
};

}  // namespace cell

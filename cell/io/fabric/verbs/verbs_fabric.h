// VerbsFabric is the fabric of RDMA networks, InfiniBand and RoCE. A one-sided read is an RDMA READ, which does not use
// the server's CPU.
//
// Connections are reliable (RC), made by librdmacm, and addressed by HOST:PORT, where HOST is an address of an RDMA
// device. Each begins with the handshake (handshake.h). Before its end the server's side of the queue pair answers no
// RDMA request, and no memory key is sent. Regions are registered only for remote reads, in a protection domain that
// belongs to this endpoint alone.
//
// Messages (verbs_messages.h) are SENDs into buffers of a receive queue that all connections share. Small ones are sent
// inline, and one in kSignalEvery requests a completion. A client asks for a region's address and key when it first
// reads there, and checks bounds itself, so that a read outside causes an error and does not break the connection.
// Reads that were requested since the last Poll are posted as one chain. Their bytes arrive in registered memory and
// are copied out: the reader's own memory need not be registered.
//
// A connection that breaks (retries exceeded, peer gone, device removed) fails everything that it had in flight and
// releases its resources. The caller decides whether to connect again.
//
// Addresses are HOST:PORT. Not thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cell/io/fabric/polling_fabric.h"
#include "cell/io/fabric/user_connections.h"
#include "cell/io/net/credentials.h"
#include "cell/io/net/fd.h"
#include "cell/io/net/limited_warnings.h"

struct ibv_context;

namespace cell {

struct VerbsFabricOptions {
  Polling polling = Polling::kAdaptive;
  bool huge_pages = true;
  std::shared_ptr<CredentialSource> credentials = std::make_shared<FixedCredentials>();
  size_t peers_max = 1024;
  int64_t handshake_ns = 5'000'000'000;     // A peer that has not greeted by then is disconnected.
  int64_t read_timeout_ns = 5'000'000'000;  // A server that does not say for this time where a region is counts as
                                            // gone.
  // For connections made from here. By default librdmacm chooses all of these (by the route to the server).
  std::string device = {};
  int gid_index = -1;
  uint32_t mtu_bytes = 0;  // Largest packet: 256, 512, 1024, 2048, 4096. The smaller limit of both sides is used.
};

class VerbsFabric : public PollingFabric {
 public:
  static constexpr size_t kPeerBytesMax = size_t{1} << 20;  // Limit of a peer's replies, sent and promised.

  // Uses the regions of `pool`, or of a pool of its own if it is null.
  explicit VerbsFabric(VerbsFabricOptions options = {}, std::shared_ptr<RegionPool> pool = nullptr);
  ~VerbsFabric() override;

  void SetReaders(Readers readers) override;
  absl::Status Listen(const std::string& address, Service* service) override;
  MutableBytes BeginReply(const IncomingCall& call) override;
  void EndReply(const IncomingCall& call, size_t bytes) override;
  // Estimates a call's time as the time of the calls that are served together, divided by their number. Estimates a
  // read's time by the port's speed.
  ServiceTimes TimesOf(const IncomingCall& call, uint64_t read_bytes) const override;
  size_t peers() const override { return peers_; }

  ConnectionId Connect(const std::string& address, int64_t deadline_ns, Completion* completion) override;
  void Disconnect(ConnectionId connection) override;
  void ForgetRegion(ConnectionId connection, uint32_t region) override;
  void Read(ConnectionId connection, absl::Span<const ReadPart> parts, int64_t deadline_ns,
            Completion* completion) override;
  void Call(ConnectionId connection, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
            Completion* completion) override;

  size_t Poll() override;
  void Flush() override;
  bool HasWork() const override;
  bool BeginSleep() override;
  int wait_fd() const override { return epoll_.get(); }
  void EndSleep() override;
  void AfterWait() override;

  // For tests: number of existing queue pairs.
  size_t queue_pairs() const;

 private:
  struct Device;
  struct Link;
  struct CmEvent;

  // Connections: verbs_fabric_connect.cc.
  Link* Find(uint32_t id) const;
  absl::Status CreateQueuePair(Link* link);
  void TakeCmEvents();
  void HandleCmEvent(const CmEvent& event);
  void AcceptLink(const CmEvent& event);
  absl::Status Accept(Link* link, const CmEvent& event);
  absl::Status ConnectOnRoute(Link* link);
  absl::Status FinishConnecting(Link* link, const CmEvent& event);
  void Break(Link* link, const std::string& why);
  void TearDownBroken();
  void TearDown(Link* link);
  Device* DeviceOf(ibv_context* context);
  absl::Status RegisterRegions();
  void BreakOldestSilent();
  void ExpireLinks();

  // Messages in both directions, on connections made by either side: verbs_fabric.cc.
  size_t PollCompletions();
  void PullCompletions(Device* device) const;
  size_t FinishSends(Link* link, uint32_t to_sequence);
  size_t TakeChunk(Device* device, uint32_t queue_pair, uint32_t chunk, uint32_t bytes);
  void Send(Link* link, uint8_t type, uint64_t id, size_t reply_bytes_max, ConstBytes head, ConstBytes body);
  bool PostChunk(Link* link, uint8_t type, uint64_t id, size_t reply_bytes_max, size_t message_bytes, size_t offset,
                 ConstBytes head, ConstBytes body);
  void PumpOut(Link* link);
  void MarkActive(Link* link);

  // Server: verbs_fabric_server.cc.
  void TakeGreeting(Link* link, ConstBytes message);
  void TakeCall(Link* link, uint64_t id, size_t reply_bytes_max, ConstBytes request);
  void TellRegion(Link* link, uint32_t region);
  void MakeReady(Link* link);
  size_t ServeCalls();

  // Client: verbs_fabric_client.cc.
  void TakeChallenge(Link* link, ConstBytes message);
  size_t TakeReply(Link* link, uint64_t id, ConstBytes reply);
  void TakeRegion(Link* link, uint32_t region, ConstBytes key);
  Link* Live(ConnectionId connection) const;
  absl::Status Refusal(ConnectionId connection) const;
  void StartRead(Link* link, absl::Span<const ReadPart> parts, int64_t deadline_ns, Completion* completion);
  void ExpireReads(Link* link, int64_t now_ns);
  void AskForRegion(Link* link, uint32_t region);
  void PostReads(Link* link);

  const VerbsFabricOptions options_;
  UserConnections users_{options_.peers_max};
  Fd epoll_;
  struct CmChannel;
  std::unique_ptr<CmChannel> cm_;
  std::vector<std::unique_ptr<Device>> devices_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Link>> links_;
  absl::flat_hash_map<uint32_t, Link*> by_queue_pair_;
  uint32_t next_link_ = 1;
  std::vector<uint32_t> broken_;  // Torn down at the end of Poll.
  std::vector<uint32_t> active_;  // Links with reads to post, credits to return, or messages that found no buffer.
  size_t unfinished_ = 0;         // Links that are not greeted yet.
  uint32_t polls_ = 0;

  Service* service_ = nullptr;
  bool serving_ = false;
  int64_t serving_since_ns_ = 0;
  LimitedWarnings warnings_;
  size_t accepted_ = 0;
  size_t peers_ = 0;            // Number of these that have greeted.
  std::deque<uint32_t> ready_;  // Links with a call, in order.
  std::vector<IncomingCall> calls_;
  std::vector<std::byte> reply_bytes_;
};

}  // namespace cell

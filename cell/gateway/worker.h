// Worker is one thread of a gateway.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "cell/gateway/gateway.h"
#include "cell/gateway/users.h"

namespace cell::gateway {

class Gateway::Worker {
 public:
  // `gateway` must outlive it.
  Worker(Gateway* gateway, std::vector<std::unique_ptr<Client>> clients, Shared shared);
  ~Worker();
  // Returns ResourceExhausted if there are no descriptors.
  absl::Status Prepare();
  void Run();

 private:
  struct Peer;

  bool PollClients(int64_t* until_ns);
  void Accept(int listener, const TlsServer* tls);
  void Serve(Peer* peer, uint32_t events);
  void ReceiveFrom(Peer* peer);
  // Runs what can run and sends what can be sent. Ends the peer if that is over.
  void Advance(Peer* peer);
  bool Send(Peer* peer);
  void CountBuffers(Peer* peer);
  void WatchFor(Peer* peer);
  // Closes the socket. The peer is destroyed once its commands have ended.
  void End(Peer* peer);
  void CloseIdle();
  // Closes the connection that holds the most bytes, because all buffers together are full. Returns it, or null.
  const Peer* EndLargest();
  // Waits for at most so long for connections, and serves them.
  void HandleEvents(int wait_ms);
  // Lets commands in flight end, and sends their replies, for some seconds at most.
  void Drain();

  Gateway* const gateway_;
  std::vector<std::unique_ptr<Client>> clients_;
  Shared shared_;
  Fd epoll_;
  std::unordered_map<uint64_t, std::unique_ptr<Peer>> peers_;  // The key is the id of the connection.
  int64_t idle_checked_ns_ = 0;
  bool draining_ = false;
};

}  // namespace cell::gateway

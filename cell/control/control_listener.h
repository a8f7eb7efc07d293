// ControlListener accepts the connections to a control plane and hands them over to gRPC, which has no limit of its own
// for how many there are, and does not say which user is at the other end of a Unix socket.
//
//   1. A connection to a Unix socket stays only if its peer's user (SO_PEERCRED) may connect, whatever the modes of the
//      socket's file and directory are. Nothing that the peer sends is read before that.
//   2. There are at most `connections_max`. One more takes the place of the one without a call that was used longest
//   ago;
//      one that has never made a call goes before one that has. If all of them have calls, the new one is closed. So
//      idle connections keep no operator out.
//   3. A connection takes no descriptor that a region or a log needs (LeavesEnough).
//
// gRPC owns the descriptor that it is handed. The listener keeps a second one of the same socket, by which it sees the
// end of the connection, and ends it to make room. gRPC shuts a socket down before it closes it, which is what the
// listener waits for; then it closes its own.
//
// A thread of its own accepts. All methods are thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/io/net/fd.h"

namespace cell {

// Returns a listening Unix socket (SOCK_STREAM). Its file has this mode from its first moment on. Replaces a file of
// that name, so the caller must know that no other server listens there.
absl::StatusOr<Fd> ListenControlSocket(const std::string& path, mode_t mode = 0600);

// Returns the text for the audit log of a peer as gRPC names it: "ipv6:%5B::1%5D:7" is "[::1]:7".
std::string PeerText(const std::string& grpc_peer);

class ControlListener {
 public:
  struct Options {
    size_t connections_max = 64;
    // For Unix sockets: which users may connect.
    std::function<bool(uid_t)> admits;
    // Is told of each that may not. Called on the listener's thread.
    std::function<void(uid_t)> kept_out = [](uid_t) {};
  };

  ControlListener(Fd socket, Options options);
  // Calls Stop. REQUIRES: no Use of it is left.
  ~ControlListener();
  // Accepts connections from now on. `hand_over` is called on the listener's thread, and takes the descriptor, which
  // does not block. REQUIRES: called once.
  void Start(std::function<void(int fd)> hand_over);
  // Accepts no more, and hands nothing over any more. The connections that were handed over stay.
  void Stop();

  // Marks that a connection has a call, as long as this exists.
  class Use {
   public:
    Use(Use&& other) noexcept = default;
    Use& operator=(Use&&) = delete;
    ~Use();

    // The peer's user; nullopt if the connection is not one of a Unix socket.
    std::optional<uid_t> uid() const;

   private:
    friend class ControlListener;
    struct Connection;
    Use(ControlListener* listener, std::shared_ptr<Connection> connection);
    ControlListener* listener_;
    std::shared_ptr<Connection> connection_;
  };
  // Returns nothing if this connection is not, or no longer, one of this listener's.
  std::optional<Use> Begin(const std::string& grpc_peer);

  size_t connections() const;

 private:
  using Connection = Use::Connection;

  void Run();
  void Add(Fd accepted);
  // Returns false if there is none.
  bool EndOneWithoutCall();

  const Fd socket_;
  const bool is_unix_;
  const Options options_;
  std::function<void(int fd)> hand_over_;  // Set by Start.
  const Fd stop_;                          // An eventfd.

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Connection>> connections_;  // By PeerText. Guarded by mutex_.
  uint64_t clock_ = 0;                                              // Counts uses. Guarded by mutex_.
  std::thread thread_;
};

}  // namespace cell

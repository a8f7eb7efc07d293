// Provides TCP sockets for TcpFabric: addresses, non-blocking sockets, sending and receiving.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/io/net/byte_queue.h"
#include "cell/io/net/fd.h"

namespace cell {

struct SocketAddress {
  sockaddr_storage storage;
  socklen_t bytes;
};

// Splits "HOST:PORT" or "[IPV6]:PORT" into its two parts. Returns InvalidArgument if it is neither.
absl::StatusOr<std::pair<std::string, uint16_t>> ParseHostPort(const std::string& address);

// Returns all meanings of the address, the system's first choice first. Looking up a name may block; a numeric address
// does not. Returns NotFound if there is no such name.
absl::StatusOr<std::vector<SocketAddress>> ResolveAddress(const std::string& host_port);

// Returns a listening socket. Returns AlreadyExists if the port is in use. Port 0 means any free one.
absl::StatusOr<Fd> ListenTcp(const std::string& host_port);
// Returns the address of a listening socket: HOST:PORT, with the host as it was requested.
std::string BoundAddress(int listener, const std::string& host_port);
// Returns a socket that is connecting. It is writable once it is connected or has failed.
absl::StatusOr<Fd> ConnectTcp(const SocketAddress& address);
// Disables the delay of small messages, and drops a peer that does not acknowledge for 5 s.
void SetTcpOptions(int socket);

// Appends the bytes that are there now, as far as `scratch` has room, to *to. So the queue only grows by what came.
// Returns false if the peer has closed or the connection broke.
bool ReceiveSome(int socket, MutableBytes scratch, ByteQueue* to);
// Sends as much as possible now from the front of *from. Returns false if the connection broke.
bool SendSome(int socket, ByteQueue* from);

}  // namespace cell

// TCP sockets as TcpFabric needs them: addresses, non-blocking sockets, bytes in and out.
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

// "HOST:PORT" or "[IPV6]:PORT", in its two parts. InvalidArgument: it is neither.
absl::StatusOr<std::pair<std::string, uint16_t>> ParseHostPort(const std::string& address);

// All that the address may mean, the system's first choice first. A name is looked up, which may block; a numeric
// address does not. NotFound: no such name.
absl::StatusOr<std::vector<SocketAddress>> ResolveAddress(const std::string& host_port);

// A listening socket. AlreadyExists: the port is in use. Port 0: any free one.
absl::StatusOr<Fd> ListenTcp(const std::string& host_port);
// The address that a listening socket has got: HOST:PORT, with the host as it was asked for.
std::string BoundAddress(int listener, const std::string& host_port);
// A socket that is connecting: writable once it is connected or has failed.
absl::StatusOr<Fd> ConnectTcp(const SocketAddress& address);
// No delay of small messages; a peer that does not acknowledge for 5 s is gone.
void SetTcpOptions(int socket);

// As much as is there now and `scratch` has room for, to the end of *to: so a queue is as large as what came, not as
// what might. False: the peer has closed, or the connection broke.
bool ReceiveSome(int socket, MutableBytes scratch, ByteQueue* to);
// As much as goes now from the front of *from. False: the connection broke.
bool SendSome(int socket, ByteQueue* from);

}  // namespace cell

// Declares what the two halves of TcpFabric share: each side's state of the other. Internal to TcpFabric.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "cell/io/fabric/client_connection.h"
#include "cell/io/fabric/tcp/tcp_fabric.h"
#include "cell/io/net/byte_queue.h"
#include "cell/io/net/byte_stream.h"
#include "cell/io/net/tcp_socket.h"
#include "cell/layout/wire.h"

namespace cell {

// Precedes each message on a connection for calls.
struct CallFrame {
  uint32_t bytes;            // Size of the message that follows; at most kMessageBytesMax.
  uint32_t reply_bytes_max;  // Requests: kReplyBytesMin to kMessageBytesMax. Replies: 0.
  uint64_t id;
};
static_assert(sizeof(CallFrame) == 16);

inline constexpr size_t kReceiveBytes = size_t{64} << 10;
inline constexpr size_t kFrameBytesMax = sizeof(CallFrame) + kMessageBytesMax;
inline constexpr size_t kIdleQueueBytesMax = size_t{128} << 10;

inline constexpr uint64_t kCallersTag = 0;
inline constexpr uint64_t kPeerTag = uint64_t{1} << 32;
inline constexpr uint64_t kCallsTag = uint64_t{2} << 32;
inline constexpr uint64_t kReadsTag = uint64_t{3} << 32;

enum class FrameState { kNone, kWhole, kNonsense };

// Returns whether `in` begins with a whole frame. Sets *frame if so.
inline FrameState NextFrame(const ByteQueue& in, CallFrame* frame) {
  if (in.size() < sizeof(CallFrame)) return FrameState::kNone;
  *frame = Load<CallFrame>(in.data());
  if (frame->bytes > kMessageBytesMax) return FrameState::kNonsense;
  return in.size() < sizeof(CallFrame) + frame->bytes ? FrameState::kNone : FrameState::kWhole;
}

struct TcpFabric::Peer {
  ByteStream stream;
  const Identity identity;
  ByteQueue in, out;
  size_t promised = 0;  // Limit of the bytes of replies to its open calls.
  bool ready = false;   // The peer is in ready_.
  bool broken = false;
  uint32_t watched = 0;

  explicit Peer(TcpListener::Caller caller)
      : stream(std::move(caller.stream)), identity(std::move(caller.identity)), in(std::move(caller.in)) {}
  bool Full() const { return out.size() + promised >= kPeerBytesMax; }
};

// One of a connection's two sockets.
struct TcpFabric::Channel {
  ByteStream stream;
  uint64_t tag;
  ClientHandshake handshake;
  std::vector<SocketAddress> addresses;   // Addresses to be tried, the next one last.
  bool connected = false;                 // The socket is connected; no handshake may be done.
  std::shared_ptr<const TlsContext> tls;  // Null: without TLS.
  bool secure = false;                    // TLS has shown who the server is, or there is no TLS.
  ByteQueue in, out;
  uint64_t appended = 0;  // Bytes ever put into `out`. A call is sent once this many have gone.
  uint32_t watched = 0;
  std::string why;  // Why it could not connect to the last address that was tried.

  Channel(uint64_t tag, const Credentials& credentials, const Identity& self, Purpose purpose)
      : tag(tag),
        // Over TLS the secret has been used already.
        handshake(credentials.tls != nullptr ? nullptr : credentials.keys.get(), self, purpose, RandomNonce()),
        tls(credentials.tls),
        secure(credentials.tls == nullptr) {}
  void Append(ConstBytes bytes) {
    out.Append(bytes);
    appended += bytes.size();
  }
};

struct TcpFabric::Connection : ClientConnection {
  struct PartInFlight {
    std::byte* to;  // Null: its read has ended already, and its bytes are dropped.
    uint32_t bytes;
  };
  struct ReadInFlight {
    Completion* completion;  // Null: already called.
    int64_t deadline_ns;
    size_t parts_left;
    uint32_t refused;  // The code of an answer that had no bytes, or kReadOk.
  };

  const ConnectionId id;
  Channel calls_channel, reads_channel;  // Positions in calls() count the bytes that were put into calls_channel.

  std::deque<ReadInFlight> reads;
  std::deque<PartInFlight> parts;
  uint64_t next_read = 0;    // The id of the next part...
  uint64_t expected = 0;     // ...and of the next answer.
  uint32_t answer_left = 0;  // Bytes left of the current answer.
  int64_t progress_ns = 0;   // When a read was last answered, or the first one was requested.

  Connection(ConnectionId id, std::string address, int64_t connect_deadline_ns, Completion* connecting,
             const Credentials& credentials, const Identity& self)
      : ClientConnection(std::move(address), connect_deadline_ns, connecting),
        id(id),
        calls_channel(kCallsTag | id, credentials, self, Purpose::kCalls),
        reads_channel(kReadsTag | id, credentials, self, Purpose::kReads) {}
};

}  // namespace cell

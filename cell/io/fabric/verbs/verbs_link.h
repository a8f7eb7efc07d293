// Declares what VerbsFabric's files share: connections, and what is in flight on them. Internal to VerbsFabric.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cell/io/fabric/client_connection.h"
#include "cell/io/fabric/remote_regions.h"
#include "cell/io/fabric/verbs/verbs_domain.h"
#include "cell/io/fabric/verbs/verbs_fabric.h"
#include "cell/io/fabric/verbs/verbs_messages.h"
#include "cell/io/fabric/verbs/verbs_objects.h"
#include "cell/io/net/byte_queue.h"
#include "cell/io/net/handshake.h"

namespace cell {

inline constexpr uint32_t kSendsOfServer = 64;     // Limit of sends in flight on an accepted connection...
inline constexpr uint32_t kSendsOfClient = 128;    // ...and on one made from here: calls and reads.
inline constexpr uint32_t kSendsForMessages = 16;  // Reads leave at least this many of them.
inline constexpr uint32_t kSignalEvery = 16;
// With this many reads in flight, further ones are posted in chains of at least kChainWanted.
inline constexpr uint32_t kReadsInFlightEnough = 8;
inline constexpr size_t kChainWanted = 6;
inline constexpr uint32_t kInlineBytesWanted = 512;  // The thesis found 400 B to be the limit of its NIC (5.1).
inline constexpr size_t kStagingBytes = size_t{256} << 10;
inline constexpr uint32_t kPieceBytesMax = 32 << 10;  // A larger part is read in several pieces.

// Sent by both sides when they connect, in librdmacm's private data.
struct CmGreeting {
  uint32_t magic;
  uint8_t version;
  uint8_t mtu;  // Largest packet, as ibv_mtu.
  uint16_t reserved;
};
inline constexpr uint32_t kCmMagic = 0x4c4c4543;  // "CELL"
inline constexpr uint8_t kCmVersion = 1;

struct VerbsFabric::CmChannel {
  EventChannel channel;
  CmId listener;
};

// A copy of an event of librdmacm, whose own is returned at once.
struct VerbsFabric::CmEvent {
  rdma_cm_event_type type;
  int status;
  rdma_cm_id* id;
  uint8_t responder_resources, initiator_depth;
  std::optional<CmGreeting> greeting;
};

struct VerbsFabric::Device {
  std::unique_ptr<VerbsDomain> domain;
  // Completions that were taken from the queue and not handled yet. Checking for completions takes them.
  mutable ibv_wc completions[kCompletionsAtOnce];
  mutable int count = 0;
};

struct VerbsFabric::Link {
  enum class State { kResolving, kConnecting, kGreeting, kUp, kBroken };
  struct Out {
    uint8_t type;
    uint64_t id;
    size_t reply_bytes_max;
    std::string bytes;
  };
  // A request to the NIC that has not ended yet. Requests end in order.
  struct Posted {
    uint32_t sequence;
    std::optional<uint32_t> send_chunk;
    bool is_read = false;
    std::byte* to = nullptr;  // For a read: destination of its bytes (null: none, because it is past its deadline).
    uint32_t bytes = 0;       // Number of bytes.
    size_t staged_at = 0;     // Where the NIC puts them.
    size_t staging = 0;       // Bytes of the staging ring that are free after it.
    bool last = false;        // Last piece of its read.
  };
  struct Piece {
    uint64_t address;
    uint32_t key;
    std::byte* to;  // As above.
    uint32_t bytes;
    bool last;
  };
  struct QueuedCall {
    uint64_t id;
    size_t reply_bytes_max;
    size_t bytes;
  };

  const uint32_t id;
  const bool accepted;
  State state = State::kResolving;
  CmId cm;
  Device* device = nullptr;
  bool of_user = false;     // In users_.
  bool has_region = false;  // It was given the key of a region.
  bool counted = false;     // Counted by its domain's AddLink.
  bool served = false;      // If broken: it was up, so the service knows of it.
  bool forgotten = false;   // If broken: its owner has disconnected it.
  std::optional<PendingQueuePair> pending;
  std::optional<QueuePair> queue_pair;
  uint32_t inline_max = 0;
  double byte_ns = 0;  // At the port's speed; 0: unknown.
  int64_t since_ns = 0;

  CreditWindow window;
  MessageAssembler assembler;
  std::deque<Out> out;
  size_t out_bytes = 0;
  size_t out_offset = 0;  // Bytes of the first message in `out` that are on their way.
  uint64_t messages = 0;  // Number of messages ever requested...
  uint64_t sent = 0;      // ...and of those given to the NIC completely.
  std::deque<Posted> posted;
  uint32_t sequence = 0;
  uint32_t unsignalled = 0;
  bool active = false;  // The link is in active_.

  // Only for accepted connections.
  std::optional<ServerHandshake> server_handshake;
  ByteQueue in;
  std::deque<QueuedCall> calls_in;
  size_t promised = 0;  // Limit of the bytes of replies to its open calls.
  bool ready = false;   // The link is in ready_.

  // Only for connections made from here.
  std::optional<ClientHandshake> client_handshake;
  std::optional<ClientConnection> client;  // Up or broken when `state` is. Positions in its calls count `messages`.
  using Regions = RemoteRegions<RegionKey>;
  Regions regions;
  int64_t waiting_since_ns = 0;  // Since when a read has been waiting for a region, if one is.
  std::deque<Piece> pieces;      // To be posted.
  uint32_t reads_posted = 0;
  uint32_t reads_max = 1;
  struct ReadInFlight {
    int64_t deadline_ns;
    Completion* completion;  // Null: already called.
  };
  std::deque<ReadInFlight> reads;
  std::optional<RegisteredMemory> staging;
  size_t staging_end = 0;   // Position of the next piece...
  size_t staging_used = 0;  // ...and the number of bytes in use before it.

  Link(uint32_t id, bool accepted) : id(id), accepted(accepted) {}
  uint32_t sends_max() const { return accepted ? kSendsOfServer : kSendsOfClient; }
  bool CanPost() const { return queue_pair.has_value() && state != State::kBroken && posted.size() < sends_max(); }
  bool Full() const { return out_bytes + promised >= kPeerBytesMax; }
};

}  // namespace cell

// The parts of VerbsFabric that its files share: connections, and what is in flight on them. Internal to VerbsFabric.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cell/io/fabric/call_table.h"
#include "cell/io/fabric/verbs/verbs_domain.h"
#include "cell/io/fabric/verbs/verbs_fabric.h"
#include "cell/io/fabric/verbs/verbs_messages.h"
#include "cell/io/fabric/verbs/verbs_objects.h"
#include "cell/io/net/byte_queue.h"
#include "cell/io/net/handshake.h"

namespace cell {

inline constexpr uint32_t kSendsOfServer = 64;     // In flight at most, on a connection that was accepted...
inline constexpr uint32_t kSendsOfClient = 128;    // ...and on one that was made: calls and reads.
inline constexpr uint32_t kSendsForMessages = 16;  // Of them reads leave so many.
inline constexpr uint32_t kSignalEvery = 16;
// With so many reads in flight, others are posted by chains of so many.
inline constexpr uint32_t kReadsInFlightEnough = 8;
inline constexpr size_t kChainWanted = 6;
inline constexpr uint32_t kInlineBytesWanted = 512;  // The thesis found 400 B to be the limit of its NIC (5.1).
inline constexpr size_t kStagingBytes = size_t{256} << 10;
inline constexpr uint32_t kPieceBytesMax = 32 << 10;  // A larger part is read in several pieces.

// What both sides say when they connect, in librdmacm's private data.
struct CmGreeting {
  uint32_t magic;
  uint8_t version;
  uint8_t mtu;  // ibv_mtu: at most so large packets.
  uint16_t reserved;
};
inline constexpr uint32_t kCmMagic = 0x4c4c4543;  // "CELL"
inline constexpr uint8_t kCmVersion = 1;

struct VerbsFabric::CmChannel {
  EventChannel channel;
  CmId listener;
};

// A copy of what librdmacm told: its own is given back at once.
struct VerbsFabric::CmEvent {
  rdma_cm_event_type type;
  int status;
  rdma_cm_id* id;
  rdma_cm_id* listener;
  uint8_t responder_resources, initiator_depth;
  uint32_t peer_queue_pair;
  std::optional<CmGreeting> greeting;
};

struct VerbsFabric::Device {
  std::unique_ptr<VerbsDomain> domain;
  // Completions taken from the queue and not handled yet: looking whether there are some takes them.
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
  // A request to the NIC whose end is not known yet. They end in order.
  struct Posted {
    uint32_t sequence;
    std::optional<uint32_t> send_chunk;
    bool is_read = false;
    std::byte* to = nullptr;  // Of a read: where its bytes go in the end (null: nowhere, it is past its deadline)...
    uint32_t bytes = 0;       // ...so many...
    size_t staged_at = 0;     // ...and where the NIC puts them.
    size_t staging = 0;       // What of the staging ring is free after it.
    bool last = false;        // Piece of its read.
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
  struct RemoteRegion {
    RegionKey key{};
    bool asked = false;  // The server was asked for it, and has not answered.
    bool known = false;  // It may be read.
  };
  struct WaitingRead {
    std::vector<ReadPart> parts;
    int64_t deadline_ns;
    Completion* completion;
  };

  const uint32_t id;
  const bool accepted;
  std::string address;
  State state = State::kResolving;
  std::string why_broken;
  CmId cm;
  Device* device = nullptr;
  bool counted = false;    // By its domain's AddLink.
  bool served = false;     // Broken: it was up, so the service knows of it.
  bool forgotten = false;  // Broken: its owner has disconnected it.
  std::optional<PendingQueuePair> pending;
  std::optional<QueuePair> queue_pair;
  uint32_t inline_max = 0;
  double byte_ns = 0;  // At the port's speed; 0: not known.
  int64_t since_ns = 0;

  CreditWindow window;
  MessageAssembler assembler;
  std::deque<Out> out;
  size_t out_bytes = 0;
  size_t out_offset = 0;  // Of the first in `out`: so much of it is on its way.
  uint64_t messages = 0;  // Ever asked to be sent...
  uint64_t sent = 0;      // ...and given to the NIC whole.
  std::deque<Posted> posted;
  uint32_t sequence = 0;
  uint32_t unsignalled = 0;
  bool active = false;  // In active_.

  // Of an accepted one.
  std::optional<ServerHandshake> server_handshake;
  ByteQueue in;
  std::deque<QueuedCall> calls_in;
  size_t promised = 0;  // Bytes that replies to its unanswered calls may have.
  bool ready = false;   // In ready_.

  // Of one that was made.
  std::optional<ClientHandshake> client_handshake;
  Completion* connecting = nullptr;
  int64_t connect_deadline_ns = 0;
  CallTable calls;
  absl::flat_hash_map<uint32_t, RemoteRegion> regions;
  std::vector<WaitingRead> waiting;
  int64_t waiting_since_ns = 0;
  std::deque<Piece> pieces;  // To be posted...
  uint32_t reads_posted = 0;
  uint32_t reads_max = 1;
  struct ReadInFlight {
    int64_t deadline_ns;
    Completion* completion;  // Null: told already.
  };
  std::deque<ReadInFlight> reads;
  std::optional<RegisteredMemory> staging;
  size_t staging_end = 0;   // Where the next piece goes...
  size_t staging_used = 0;  // ...and how much is in use before it.

  Link(uint32_t id, bool accepted) : id(id), accepted(accepted) {}
  uint32_t sends_max() const { return accepted ? kSendsOfServer : kSendsOfClient; }
  bool CanPost() const { return queue_pair.has_value() && state != State::kBroken && posted.size() < sends_max(); }
  bool Full() const { return out_bytes + promised >= kPeerBytesMax; }
};

}  // namespace cell

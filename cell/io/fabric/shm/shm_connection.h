// Declares what the two halves of ShmFabric share: the handshake, the layout of a connection's shared memory, and each
// side's state of the other. Internal to ShmFabric.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/io/fabric/shm/shm_ring.h"
#include "cell/io/memory/shm_memory.h"
#include "cell/layout/wire.h"

namespace cell {

inline constexpr uint64_t kMagic = 0x31304d48534c4543;  // "CELSHM01"
struct Hello {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;
};

// Answers Hello. Carries the memory of the rings.
struct WelcomePacket {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;
};
// Asks for a region. The client sends it when it first reads the region. The answer carries the region's memory, or
// none and 0 bytes if the server does not hold it. A packet of one byte, in either direction, is a ring: it tells a
// side that sleeps, and has said so in shared memory, that there is something to read there.
struct AskRegion {
  uint64_t magic;
  uint64_t region;
};
struct RegionPacket {
  uint64_t magic;
  uint64_t region;
  uint64_t bytes;
};

inline constexpr uint64_t kListenerTag = 0;
inline constexpr uint64_t kPeerTag = uint64_t{1} << 32;
inline constexpr uint64_t kConnectionTag = uint64_t{2} << 32;

inline constexpr size_t kRequestControl = 0;
inline constexpr size_t kReplyControl = sizeof(RingControl);
inline constexpr size_t kRequestRing = 4096;
inline constexpr size_t kReplyRing = kRequestRing + ShmFabric::kRequestRingBytes;
inline constexpr size_t kRingsBytes = kReplyRing + ShmFabric::kReplyRingBytes;

inline RingControl* ControlAt(const ShmMemory& rings, size_t offset) {
  return reinterpret_cast<RingControl*>(rings.base() + offset);
}

inline constexpr size_t kRingBytes = 1;
// Limits the packets that are taken from a connection at a time, so that a peer that floods its socket stops nobody.
inline constexpr int kPacketsAtOnce = 16;

struct ShmFabric::Peer {
  PeerSocket socket;
  bool welcome = false;  // The handshake is done.
  int64_t accepted_ns = 0;
  bool broken = false;
  ShmMemory rings;
  RingReader requests;
  RingWriter replies;
};

struct ShmFabric::Connection {
  struct Pending {
    Completion* completion = nullptr;  // Null: already called (expired), or the slot is free.
    int64_t deadline_ns = 0;
    size_t reply_bytes_max = 0;
    size_t reserved = 0;  // Bytes of the reply ring that are reserved for the reply's frame.
    uint32_t generation = 0;
    bool sent = false;
  };
  struct Queued {
    std::string head;
    std::string body;
    uint64_t id;
  };

  // Holds a read that waits for its regions to be mapped.
  struct WaitingRead {
    std::vector<ReadPart> parts;
    int64_t deadline_ns;
    Completion* completion;
  };

  ConnectionId id = 0;
  std::string address;
  Completion* connecting = nullptr;  // Called once the handshake is done.
  int64_t connect_deadline_ns = 0;
  bool broken = false;
  std::string why_broken;
  PeerSocket socket;
  ShmMemory rings;
  RingWriter requests;
  RingReader replies;
  struct Mapped {
    uint64_t bytes = 0;
    ShmMemory shm;
    bool asked = false;  // The server was asked for it and has not answered.
    bool known = false;  // The region may be read.
  };
  absl::flat_hash_map<uint32_t, Mapped> regions;
  std::vector<WaitingRead> waiting;

  std::vector<Pending> pending;
  std::vector<uint32_t> free_pending;
  std::deque<Queued> backlog;
  size_t reply_reserved = 0;
  size_t in_flight = 0;

  bool Up() const { return !broken && connecting == nullptr; }
  // Returns null if the region is not known (yet).
  const Mapped* Find(uint32_t region) const {
    const auto it = regions.find(region);
    return it != regions.end() && it->second.known ? &it->second : nullptr;
  }
  static bool Holds(const Mapped& region, const ReadPart& part) {
    const uint64_t offset = part.from.offset();
    return offset <= region.bytes && part.bytes <= region.bytes - offset && (offset | part.bytes) % kWordBytes == 0;
  }
};

}  // namespace cell

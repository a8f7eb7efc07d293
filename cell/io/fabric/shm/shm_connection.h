// Declares what the two halves of ShmFabric share: the handshake, the layout of a connection's shared memory, and each
// side's state of the other. Internal to ShmFabric.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cell/io/fabric/client_connection.h"
#include "cell/io/fabric/remote_regions.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/io/fabric/shm/shm_ring.h"
#include "cell/io/memory/shm_memory.h"
#include "cell/layout/wire.h"

namespace cell {

inline constexpr uint64_t kMagic = 0x31304d48534c4543;  // "CELSHM01"
inline constexpr size_t kHelloBytesMin = 16;            // In all versions it begins with magic and version.
struct Hello {
  uint64_t magic;
  uint32_t version;
  Role role;
  uint8_t name_bytes;
  uint8_t reserved[2];
  std::array<char, kIdentityNameBytesMax> name;  // Zeros after its end.
};

inline Hello HelloOf(const Identity& self) {
  Hello hello{kMagic, ShmFabric::kVersion, self.role, static_cast<uint8_t>(self.name.size()), {}, {}};
  std::copy(self.name.begin(), self.name.end(), hello.name.begin());
  return hello;
}
// Returns who a client says that it is, or nullopt if it says nothing of that kind.
inline std::optional<Identity> ClaimOf(const Hello& hello) {
  const std::string_view name(hello.name.data(), std::min<size_t>(hello.name_bytes, hello.name.size()));
  if (hello.name_bytes > hello.name.size() || !IsIdentityName(name)) return std::nullopt;
  if (hello.role < Role::kClient || hello.role > Role::kServer) return std::nullopt;
  return Identity{hello.role, std::string(name)};
}

// Answers Hello. Carries the memory of the rings.
struct WelcomePacket {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;
};
// Asks for a region. The client sends it when it first reads the region. The answer carries the region's memory, or
// none and 0 bytes if the server does not hold it. A packet of one byte, in either direction, wakes a side that
// sleeps, and has said so in shared memory: there is something to read there.
struct AskRegion {
  uint64_t magic;
  uint64_t region;
};
struct RegionPacket {
  uint64_t magic;
  uint64_t region;
  uint64_t bytes;  // If no memory comes with it: 0 if the region is not held, or kMayNotRead.
};
inline constexpr uint64_t kMayNotRead = UINT64_MAX;

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
// Limits the packets that are taken from a connection at a time, so that a peer that floods its socket cannot delay
// others.
inline constexpr int kPacketsAtOnce = 16;

struct ShmFabric::Peer {
  PeerSocket socket;
  Identity identity;        // Valid once it is welcome.
  bool has_region = false;  // It was given access to a region.
  bool counted = false;     // In users_.
  bool welcome = false;     // The handshake is done.
  int64_t accepted_ns = 0;
  bool broken = false;
  ShmMemory rings;
  RingReader requests;
  RingWriter replies;
};

struct ShmFabric::Connection : ClientConnection {
  struct Queued {
    std::string head;
    std::string body;
    uint64_t id;
  };

  const ConnectionId id;
  PeerSocket socket;
  ShmMemory rings;
  RingWriter requests;
  RingReader replies;
  // A region of the server's, as it is mapped here.
  struct Mapped {
    uint64_t bytes = 0;
    ShmMemory shm;
  };
  using Regions = RemoteRegions<Mapped>;
  Regions regions;

  uint64_t calls_made = 0;     // Positions in calls() count the calls that were made.
  uint64_t calls_sent = 0;     // Position of the last call in the ring. Later ones are in `backlog`.
  std::deque<Queued> backlog;  // Calls for which the ring, or the ring of replies, has no room yet.
  size_t reply_reserved = 0;   // Bytes of the reply ring that are reserved for the replies to calls in the ring.

  Connection(ConnectionId id, std::string address, int64_t connect_deadline_ns, Completion* connecting)
      : ClientConnection(std::move(address), connect_deadline_ns, connecting), id(id) {}
};

}  // namespace cell

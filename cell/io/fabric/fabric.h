// Fabric is the network interface. `Read` is always one-sided; `Call` is always an RPC.
//
// A Fabric object is one endpoint and belongs to one thread. It may be a server (regions, Listen) and a client
// (Connect, Read, Call) at the same time. Only Wait blocks. Each request ends in a Completion, which Poll calls.
//
//   fabric    one-sided read
//   shm       the client maps the server's region read-only and copies it, 8 bytes at a time
//   sim       copied line by line in virtual time, in a seeded order, between the writer's steps
//
// All implementations keep these contracts (fabric_conformance.h tests them):
//   1. A Completion is called exactly once, and only from Poll, Disconnect or the destructor. Until then it and the
//      memory that was passed must live. Done may make new requests, but must not Disconnect.
//   2. A read returns the bytes of shared memory at some moments between Read and Done, with whole 8-byte words, in an
//      unspecified order. Readers verify them.
//   3. A read outside a region that the peer holds fails with OutOfRange and reads nothing. A read of a region that the
//      peer held before may also return the bytes that are there now.
//      A read fails with PermissionDenied, and reads nothing, if the peer lets this endpoint read no regions
//      (SetReaders).
//   4. When the peer is gone, reads and calls fail with Unavailable. But a call that was sent before ends with Unknown,
//      because the peer may have served it.
//   5. A read or a call that is past its deadline ends with DeadlineExceeded. Bytes that come later are dropped: the
//      memory that a read was given is not written any more. INT64_MAX means no deadline. Wait ends at the next
//      deadline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/base/check.h"
#include "cell/base/clock.h"
#include "cell/io/memory/readers.h"
#include "cell/layout/identity.h"
#include "cell/layout/limits.h"
#include "cell/layout/pointer.h"
#include "cell/layout/service_times.h"
#include "cell/region/region_memory.h"
#include "fmt/format.h"

namespace cell {

class Completion {
 public:
  // `reply` is the reply to a call, valid only during Done. It is empty for a read or an error.
  virtual void Done(const absl::Status& status, ConstBytes reply) = 0;

 protected:
  ~Completion() = default;
};

// Copies [from, from + bytes) of shared memory into private memory. Offset, bytes and `to` are multiples of 8.
struct ReadPart {
  Pointer from;
  std::byte* to;
  uint32_t bytes;
};

using ConnectionId = uint32_t;

struct IncomingCall {
  ConnectionId peer;
  const Identity* from;    // Who the peer is, valid until Service::Disconnected.
  uint64_t id;             // For the fabric's own use.
  ConstBytes request;      // In private memory, valid until Serve returns.
  size_t reply_bytes_max;  // The peer's room for the reply; at least kReplyBytesMin.
};

inline constexpr size_t kReplyBytesMin = 256;

// Returns whether a caller may leave this much room for a reply. Clients check it as an invariant, and servers check it
// because they do not trust clients.
constexpr bool IsReplyRoom(size_t bytes) { return bytes >= kReplyBytesMin && bytes <= kMessageBytesMax; }

// Checks the sizes that are passed to Fabric::Call.
inline void CheckCall(ConstBytes head, ConstBytes body, size_t reply_bytes_max) {
  CELL_CHECK_LE(head.size() + body.size(), kMessageBytesMax);
  CELL_CHECK(IsReplyRoom(reply_bytes_max));
}

// Handles a server's calls.
class Service {
 public:
  // Serves at most kCallsMax calls. Each must be answered with BeginReply and EndReply, before Serve returns or later.
  virtual void Serve(absl::Span<const IncomingCall> calls) = 0;
  // Reports that a peer is gone. Its open calls must not be answered any more.
  virtual void Disconnected(ConnectionId peer) = 0;

 protected:
  ~Service() = default;
};

class Fabric : public Clock {
 public:
  static constexpr size_t kCallsMax = 8;

  // Says who this endpoint is, for connections that it makes from now on. Servers check it as far as the fabric and its
  // credentials allow.
  virtual void SetSelf(Identity self) { self_ = std::move(self); }
  const Identity& self() const { return self_; }

  // ---- Server.

  // Creates a region whose memory peers can read one-sided from now on, and only this process can write. Its content is
  // zeros, or that of a dropped region of the same size. Returns AlreadyExists, and changes nothing, if this endpoint
  // has the region, published or staged. Returns InvalidArgument if CheckRegion refuses the region.
  virtual absl::StatusOr<RegionMemory*> CreateRegion(uint32_t region, uint64_t bytes) = 0;
  // Creates a staged region: no peer can find or read it before PublishRegion. Never reuses memory that previously
  // backed this region, because peers may still map it. Returns the same errors as CreateRegion.
  virtual absl::StatusOr<RegionMemory*> CreateStagedRegion(uint32_t region, uint64_t bytes) = 0;
  // Makes a staged region readable. Does nothing if the endpoint does not have the region.
  virtual void PublishRegion(uint32_t region) = 0;
  // Drops a region if the endpoint has it. A later CreateRegion of the same size may reuse its memory.
  virtual void DropRegion(uint32_t region) = 0;
  // Prepares memory for a later CreateRegion of this size, `slice` bytes per call, so that CreateRegion takes no time.
  // Returns true after the last slice. Returns ResourceExhausted if there is no such memory.
  virtual absl::StatusOr<bool> PrepareRegion(uint64_t bytes, uint64_t slice) = 0;
  // Returns how many regions' memory is ready, from dropped regions and prepared ones.
  virtual size_t free_regions() const = 0;
  // Sets which peers may read regions from now on; at first everybody may. Peers that have access and lose it are
  // disconnected, except where each read is checked (tcp, sim). A process that has mapped regions by shm and does not
  // unmap them sees their memory until this process ends. Not called while calls are served.
  virtual void SetReaders(Readers readers) = 0;
  // Serves calls at `address` until the fabric is destroyed. Returns AlreadyExists if the address is in use.
  virtual absl::Status Listen(const std::string& address, Service* service) = 0;
  // Returns memory of call.reply_bytes_max bytes for the reply to `call`. There is only one such memory, so EndReply
  // must follow before any call of the endpoint that may answer another call. Nothing is sent before EndReply, so a
  // handler may begin another reply instead. REQUIRES: the call is not answered, and its peer is connected.
  virtual MutableBytes BeginReply(const IncomingCall& call) = 0;
  virtual void EndReply(const IncomingCall& call, size_t bytes) = 0;
  // Returns how long the call has taken so far, while it is served, and how long a read of `read_bytes` bytes takes
  // here.
  virtual ServiceTimes TimesOf(const IncomingCall& call, uint64_t read_bytes) const = 0;
  virtual size_t peers() const = 0;

  // ---- Client.

  // Connects to a server. The connection may be used once the completion has reported success. It reports Unavailable
  // if nobody answers in time, and PermissionDenied if this user may not connect, which no other attempt would change.
  // The connection is gone then, and need not be disconnected.
  virtual ConnectionId Connect(const std::string& address, int64_t deadline_ns, Completion* completion) = 0;
  virtual void Disconnect(ConnectionId connection) = 0;
  // Forgets where the peer's region is, because it may have been dropped and created again. Later reads use its new
  // location.
  virtual void ForgetRegion(ConnectionId connection, uint32_t region) = 0;
  // Reads all parts or fails. Several parts take one request to the NIC. `deadline_ns` is on the fabric's clock.
  virtual void Read(ConnectionId connection, absl::Span<const ReadPart> parts, int64_t deadline_ns,
                    Completion* completion) = 0;
  // Sends a request and receives its reply. The request is `head` followed by `body`; both are copied before Call
  // returns. `reply_bytes_max` is from kReplyBytesMin to kMessageBytesMax. `deadline_ns` is as above.
  virtual void Call(ConnectionId connection, ConstBytes head, ConstBytes body, size_t reply_bytes_max,
                    int64_t deadline_ns, Completion* completion) = 0;

  // ---- Both.

  // Does what can be done now, without waiting. Returns the number of completions called and calls served.
  virtual size_t Poll() = 0;
  // Waits until Poll may have something to do, a deadline has passed, or `until_ns`.
  virtual void Wait(int64_t until_ns) = 0;
  // Ends a Wait that is in progress, or else the next one. Thread-safe.
  virtual void Wake() {}
  // ---- For a thread that waits by an event loop of its own, instead of Wait: BeginWait; then until the descriptor is
  // readable or that time; then EndWait and Poll.
  // Returns a descriptor that poll and epoll take. It is readable when Poll may have something to do, from BeginWait
  // on. -1: there is none (simulations).
  virtual int WaitFd() { return -1; }
  // Returns until when to wait, at most `until_ns`. 0: Poll may have something to do already. EndWait is due all the
  // same.
  virtual int64_t BeginWait(int64_t /*until_ns*/) { return 0; }
  virtual void EndWait() {}
  // Returns by how many nanoseconds the work of this endpoint's thread is ahead of the clock: what its completions have
  // taken of the thread since the clock last moved. 0 on real fabrics, whose clock moves by itself.
  virtual int64_t AheadNs() const { return 0; }
  // Returns a number above 0 that no endpoint of any process has returned before: 64 random bits, or a count in a
  // simulation.
  virtual uint64_t UniqueNumber() = 0;
  // NowNs (Clock): this fabric's clock, by which all its deadlines are measured.

 private:
  Identity self_{Role::kClient, "unnamed"};
};

}  // namespace cell

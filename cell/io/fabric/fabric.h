// Fabric: the network seam. `Read` is always one-sided; `Call` is always an RPC.
//
// A Fabric object is one endpoint and belongs to one thread. It may serve (regions, Listen) and be a client (Connect,
// Read, Call) at once. Nothing here blocks but Wait; what was asked for ends in a Completion, from Poll.
//
//   fabric    one-sided read
//   shm       the client maps the server's region read-only and copies it, 8 bytes at a time
//   sim       copied line by line in virtual time, in a seeded order, between the writer's steps
//
// Contracts that all implementations keep (fabric_conformance.h tests them)
//   1. A Completion is told exactly once, only from Poll, Disconnect or the destructor; until then it and the memory
//      that it was given must live. Done may ask for more, but must not Disconnect.
//   2. A read's bytes are those of shared memory at some moments between Read and Done, 8-byte words whole, in no
//      order that may be relied on. Whoever reads verifies.
//   3. A read outside a region that the peer holds fails with OutOfRange and reads nothing. Of a region that the peer
//   held
//      once it may also read what lies there now.
//   4. When the peer is gone, reads and calls fail with Unavailable; but a call that was sent before ends with Unknown,
//      since the peer may have served it.
//   5. A read or a call that is past its deadline ends with DeadlineExceeded. What comes for it later is dropped: the
//      memory that a read was given is not written any more. INT64_MAX: it has no deadline. Wait ends at the next
//      deadline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/base/clock.h"
#include "cell/layout/pointer.h"
#include "cell/layout/region.h"
#include "cell/layout/service_times.h"
#include "fmt/format.h"

namespace cell {

class Completion {
 public:
  // `reply` is that of a call, valid during Done only; empty for a read or an error.
  virtual void Done(const absl::Status& status, ConstBytes reply) = 0;

 protected:
  ~Completion() = default;
};

// [from, from + bytes) of shared memory into private memory. Offset, bytes and `to` are multiples of 8.
struct ReadPart {
  Pointer from;
  std::byte* to;
  uint32_t bytes;
};

using ConnectionId = uint32_t;

struct IncomingCall {
  ConnectionId peer;
  uint64_t id;             // The fabric's own.
  ConstBytes request;      // Private memory, valid until Serve returns.
  size_t reply_bytes_max;  // What the peer has room for; at least kReplyBytesMin.
};

inline constexpr size_t kReplyBytesMin = 256;

// What a server does with calls.
class Service {
 public:
  // Answers every call, by BeginReply and EndReply, before it returns or later. At most kCallsMax at once.
  virtual void Serve(absl::Span<const IncomingCall> calls) = 0;
  // Calls of this peer that are not answered yet must not be answered any more.
  virtual void Disconnected(ConnectionId peer) = 0;

 protected:
  ~Service() = default;
};

class Fabric : public Clock {
 public:
  static constexpr size_t kCallsMax = 8;

  // ---- Server.

  // Creates a region whose memory peers can read one-sided from now on, and only this process can write. Its content is
  // zeros, or what a dropped region of the same size left. Returns AlreadyExists if this endpoint has the region,
  // published or staged, and leaves that as it is. Returns InvalidArgument for what CheckRegion refuses.
  virtual absl::StatusOr<RegionMemory*> CreateRegion(uint32_t region, uint64_t bytes) = 0;
  // Creates a staged region: no peer can find or read it before PublishRegion. Never reuses memory that previously
  // backed this region, because peers may still map it. Errors as CreateRegion.
  virtual absl::StatusOr<RegionMemory*> CreateStagedRegion(uint32_t region, uint64_t bytes) = 0;
  // Makes a staged region readable. Does nothing if the region is not here.
  virtual void PublishRegion(uint32_t region) = 0;
  // Drops a region, if it is here. A later CreateRegion of the same size may reuse its memory.
  virtual void DropRegion(uint32_t region) = 0;
  // Gets memory for a later CreateRegion of this size ready, `slice` bytes of it at each call, so that it costs nothing
  // then. True: that was the last slice. ResourceExhausted: there is no such memory.
  virtual absl::StatusOr<bool> PrepareRegion(uint64_t bytes, uint64_t slice) = 0;
  // How many regions' memory is ready, of dropped ones and prepared ones.
  virtual size_t free_regions() const = 0;
  // Serves calls at `address` until the fabric is destroyed. AlreadyExists when the address is in use.
  virtual absl::Status Listen(const std::string& address, Service* service) = 0;
  // Returns memory to compose the reply of `call` in: call.reply_bytes_max bytes. EndReply follows before anything that
  // may answer another call, since there is one such memory. Nothing is sent before EndReply, so a handler that changes
  // its mind may begin another reply instead. REQUIRES: the call is not answered, and its peer is connected.
  virtual MutableBytes BeginReply(const IncomingCall& call) = 0;
  virtual void EndReply(const IncomingCall& call, size_t bytes) = 0;
  // What the call has taken so far, while it is served, and a read of so many bytes takes here.
  virtual ServiceTimes TimesOf(const IncomingCall& call, uint64_t read_bytes) const = 0;
  virtual size_t peers() const = 0;

  // ---- Client.

  // The connection may be used once the completion has told so. Unavailable when nobody answers there in time: then
  // nothing is left of it, and it need not be disconnected.
  virtual ConnectionId Connect(const std::string& address, int64_t deadline_ns, Completion* completion) = 0;
  virtual void Disconnect(ConnectionId connection) = 0;
  // The peer's region may have been dropped and made again: no read that is asked for from now on is of where it was.
  virtual void ForgetRegion(ConnectionId connection, uint32_t region) = 0;
  // All parts or an error; several parts cost one request to the NIC. deadline_ns on the fabric's clock.
  virtual void Read(ConnectionId connection, absl::Span<const ReadPart> parts, int64_t deadline_ns,
                    Completion* completion) = 0;
  // The request is head and body one after the other, copied before Call returns. reply_bytes_max: at least
  // kReplyBytesMin, at most kMessageBytesMax. deadline_ns as above.
  virtual void Call(ConnectionId connection, ConstBytes head, ConstBytes body, size_t reply_bytes_max,
                    int64_t deadline_ns, Completion* completion) = 0;

  // ---- Both.

  // Does what can be done now, without waiting. The number of completions told and calls served.
  virtual size_t Poll() = 0;
  // Waits until Poll may have something to do, a deadline is over, or until `until_ns`.
  virtual void Wait(int64_t until_ns) = 0;
  // From any thread: a Wait that is going on ends, or the next one does at once.
  virtual void Wake() {}
  // NowNs (Clock): this fabric's clock, by which all its deadlines are measured.
};

}  // namespace cell

// Uploads holds the large values that clients send ahead of their puts, in pieces. Not thread-safe: used only on the
// worker's thread.
//
// Invariants
//   1. All uploads together hold at most bytes_max.
//   2. If they hold that much, a user who holds less than its share does not wait for users who hold more. It replaces
//      an upload of the one that holds most: of that user's connections with most, the one that has been idle for
//      longest. So it is among the connections of one user, too. A user is an identity as text
//      (cell/layout/identity.h).
//   3. An upload that has not grown for idle_ns is dropped: its client has given up, or has continued elsewhere.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"

namespace cell {

class Uploads {
 public:
  struct Limits {
    size_t bytes_max = size_t{256} << 20;
    int64_t idle_ns = 5'000'000'000;  // Longer than a put may wait for room (RequestService::Options::held_max_ns).
  };
  explicit Uploads(Limits limits) : limits_(limits) {}
  Uploads() : Uploads(Limits{}) {}

  // Appends a piece to upload `number`, 1 to kUploadsMax, of a peer. Offset 0 starts it over. Returns InvalidArgument
  // if the offset is not the upload's end, Unavailable if the upload was dropped and must be started over, and
  // ResourceExhausted if there is no room.
  absl::Status Add(std::string_view user, ConnectionId peer, uint16_t number, uint32_t offset, std::string_view piece,
                   int64_t now_ns);
  // Returns a whole value, valid until the next change. Returns InvalidArgument if it has another size, and Unavailable
  // if it was dropped.
  absl::StatusOr<std::string_view> Find(ConnectionId peer, uint16_t number, size_t bytes) const;
  // Forgets an upload that was used or never will be, or all uploads of a peer.
  void Forget(ConnectionId peer, uint16_t number);
  void Forget(ConnectionId peer);
  // Drops idle uploads. Cheap while there can be none.
  void Expire(int64_t now_ns);

  size_t bytes() const { return bytes_; }
  // Returns the memory that values take, and have kept.
  size_t capacity() const;
  uint64_t dropped() const { return dropped_; }

 private:
  struct Upload {
    std::string bytes;
    int64_t grown_ns = 0;
    bool dropped = false;
  };
  struct Peer {
    std::string user;
    std::array<Upload, kUploadsMax> uploads;
    size_t bytes = 0;
  };

  // Drops uploads of others until the peer has room for `bytes` bytes, if its share allows that.
  absl::Status MakeRoom(ConnectionId peer, size_t bytes);
  // Returns the peer whose upload is dropped next, or null if each holds no more than its share.
  Peer* InTheWayOf(const Peer& peer, size_t bytes);
  void Clear(Peer* peer, Upload* upload);
  void Drop(Peer* peer, Upload* upload);

  const Limits limits_;
  std::map<ConnectionId, Peer> peers_;
  size_t bytes_ = 0;
  int64_t oldest_ns_ = INT64_MAX;  // No upload has last grown before this time.
  uint64_t dropped_ = 0;
};

}  // namespace cell

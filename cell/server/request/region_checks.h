// RegionChecks serves requests to check a region (kCheck). One check at a time runs, a slice in each turn of the
// worker, and the others wait. So checks take a part of the worker's time only, however many are requested.
//
// Invariants
//   1. At most kWaitingMax checks run or wait, and kPerPeerMax of them are of one peer.
//   2. In each turn about kBytesPerTurn bytes are verified, or one pair.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cell/io/fabric/fabric.h"
#include "cell/server/region/regions.h"
#include "cell/server/report/region_check.h"
#include "cell/server/request/replies.h"

namespace cell {

class RegionChecks {
 public:
  static constexpr size_t kWaitingMax = 256;
  static constexpr size_t kPerPeerMax = 4;
  static constexpr int64_t kBytesPerTurn = 32 << 10;

  // All arguments must outlive this. `server` is the name of the server, for errors.
  RegionChecks(const Regions* regions, Replies* replies, std::string server)
      : regions_(regions), replies_(replies), server_(std::move(server)) {}

  // Begins to serve a call whose text is "REGION", for the region's report, or "REGION FIRST", for its routes from
  // number FIRST on. Returns InvalidArgument if it is something else, and ResourceExhausted if too many wait. If it
  // returns OK, the call is answered in a later Step.
  absl::Status Add(const IncomingCall& call, std::string_view text);
  // Continues the first check, and answers it if it ends. Returns how many slices were done. Nobody may be composing a
  // reply.
  size_t Step();
  // Forgets a peer's checks, which must not be answered any more.
  void Disconnected(ConnectionId peer);

  // Returns how many run or wait.
  size_t size() const { return waiting_.size(); }
  uint64_t refused() const { return refused_; }

 private:
  struct Waiting {
    IncomingCall call;  // Without the bytes of its request.
    std::optional<size_t> first_route;
    RegionCheck check;
  };

  const Regions* const regions_;
  Replies* const replies_;
  const std::string server_;
  std::list<Waiting> waiting_;
  uint64_t refused_ = 0;
};

}  // namespace cell

// TableRequests answers the questions of clients about the region table and the servers, by what this worker knows of
// them: which versions these have (kTableVersion), and piece by piece what is in them (kTablePart). Clients then need
// the coordinator only to find a first worker (TableView).
//
// A piece is of one version. If the worker knows another one by now, the client begins again.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cell/cluster/membership.h"
#include "cell/layout/wire.h"
#include "cell/server/request/table_refresher.h"

namespace cell {

class TableRequests {
 public:
  // Both must outlive this. `refresher` is null if the worker cannot say how old its table is.
  TableRequests(const Membership* membership, TableRefresher* refresher)
      : membership_(membership), refresher_(refresher) {}

  // These write a reply to `to` and return its size. They return InvalidArgument for a malformed request, Aborted for a
  // version that the worker does not know any more, or not yet, and FailedPrecondition if its membership has no
  // versions.
  absl::StatusOr<size_t> Version(ConstBytes request, MutableBytes to);
  absl::StatusOr<size_t> Part(ConstBytes request, MutableBytes to);

 private:
  // A part as text, and its version. Clients that ask for one of several KB get it in several replies.
  struct Text {
    uint64_t version = 0;
    std::string text;
  };

  absl::StatusOr<const std::string*> TextOf(const TablePart& part);

  const Membership* const membership_;
  TableRefresher* const refresher_;
  Text servers_, root_, shard_;  // As last asked for.
  uint32_t shard_first_ = 0;
};

}  // namespace cell

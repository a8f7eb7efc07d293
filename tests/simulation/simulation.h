// Runs one simulated cluster with its clients and its faults from a plan, and reports what was wrong.
//
// It checks
//   per key     each history of puts, deletes, gets and contains is linearizable, on all paths mixed, including scans:
//               a scan says about each key that it was there with this value, or was absent, at some moment of the scan
//   scans       keys in order, each once, in the range
//   ranges      each key of a deleted range is deleted as by a delete; a count is between the number of keys that were
//               certainly there and of those that were possibly there
//   durability  what was acknowledged is there at the end (sync: by the above; async: what was acknowledged a bound
//               before any fault)
//   grants      what a user was allowed all the time is not refused, and what it was never allowed is, and is not done;
//               nothing else is in a scan or a count, and no memory is read, from the turn in which the server has seen
//               the change of the grants
//   snapshots   what is read of one is of one moment while it was taken: it counts as read then, by one transaction,
//   and
//               never changes
//   errors      a write that failed plainly did not happen; one that is MaybeApplied did or did not
//   the end     after the faults every operation ends, every region is served, the trees and tables are right, and all
//               half splits and routes are complete once every leaf was written to
//
// The same plan always gives the same trace.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/simulation/plan.h"
#include "tests/simulation/serializability.h"

namespace cell {

struct SimulationReport {
  std::vector<std::string> violations;  // Empty: everything was right.
  uint64_t trace_hash = 0;
  std::vector<std::string> trace_end;  // The last lines of the trace.

  int64_t simulated_ns = 0;
  int64_t settled_ns = 0;  // From the end of the faults until everything had finished.
  std::array<uint64_t, kFaults> faults{};
  uint64_t operations = 0;  // Operations that ended.
  uint64_t maybe = 0;       // With an unknown outcome.
  uint64_t failed = 0;
  uint64_t denied = 0;            // Of these: for want of a grant.
  uint64_t checked = 0;           // In histories of keys.
  uint64_t gave_up = 0;           // Histories too complex to be decided.
  uint64_t clients = 0;           // Clients that came.
  int64_t latest_ns = INT64_MIN;  // Maximum time by which a call ended after its deadline.
  uint64_t scans = 0, ranges = 0, torn = 0, splits = 0, joins = 0, roots_removed = 0, cleared = 0, expired = 0,
           evicted = 0, moved_extents = 0, moves = 0, recovered = 0, table_splits = 0, table_joins = 0, checkpoints = 0;
  // Transactions that have committed and written, those whose outcome had to be asked for, and those that were aborted.
  uint64_t transactions = 0, transactions_unknown = 0, aborted = 0;
  // Snapshots that were taken, reads of them that were answered, and those whose snapshot was not there any more.
  uint64_t snapshots = 0, snapshot_reads = 0, snapshots_too_old = 0;
  // The history of transactions that was checked, and an order in which they may have taken effect. The history is
  // empty if there was none or if it may not be checked; the order is empty if none was found.
  std::vector<TransactionRecord> transaction_history;
  std::vector<size_t> transaction_order;
  uint64_t ids_around = 0;  // 1 if ids of regions were used again.
};

// Runs a plan. `trace` is called with each line, unless it is null.
SimulationReport Simulate(const SimulationPlan& plan, Mutant mutant,
                          const std::function<void(const std::string&)>& trace = nullptr);

}  // namespace cell

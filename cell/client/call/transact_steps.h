// Sends the steps of a transaction to single regions. Internal to cell/client. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/base/task.h"
#include "cell/client/session/session.h"
#include "cell/layout/outcome.h"
#include "cell/layout/wire_transaction.h"

namespace cell {

inline constexpr int64_t kTransactTryNs = 1'000'000'000;  // How long an abort, or one try to finish, waits for answers.

// Returns how long to wait before a region is asked again that could not serve a step.
int64_t TransactPauseNs(const Session& session);

// The answer to a step in one region.
struct StepResult {
  enum class Kind {
    kAnswered,
    kElsewhere,  // Nothing was done: the region does not have all of the keys.
    kRefused,    // Nothing was done, for a temporary reason.
    kLost,       // It may have been done.
    kFailed,     // Nothing was done, for a lasting reason.
  };
  Kind kind = Kind::kFailed;
  TransactOutcome outcome{};
  uint64_t stamp = 0;
  std::string key = {};
  absl::Status status = {};
  Expiry expires = kNeverExpires;  // When the first of the pairs expires that were read there.
  bool again = false;              // An earlier try was lost, and may have been carried out before this one.
};

// Returns what an answer to a step says, or a call that has failed.
StepResult ResultOf(const absl::StatusOr<ConstBytes>& reply, MessageKind kind);

// Sends a decision to the region until it answers, or until the deadline. The result is kLost if an earlier try was
// lost, and there was no answer to a later one. A region that is gone has no part of any transaction: it counts as one
// that has aborted.
Task<StepResult> DecideAt(Session* session, uint32_t region, RequestId id, Decision decision, uint64_t stamp,
                          int64_t deadline_ns, Expiry expires = kNeverExpires);

// Tells the other regions, and then the primary, that a transaction has committed. It goes on until all have answered,
// or for some seconds. Then it gives the slot of the id back, or retires it if a region has not answered.
void FinishTransaction(Session* session, RequestId id, uint32_t primary, std::vector<uint32_t> others, uint64_t stamp);

}  // namespace cell

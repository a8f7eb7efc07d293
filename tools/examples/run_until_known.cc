#include "tools/examples/run_until_known.h"

#include <algorithm>
#include <optional>

#include "cell/base/random.h"

namespace cell {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLongestNs = 60 * kSecondNs;
constexpr int64_t kPauseNs = 50'000;
constexpr uint64_t kPauseDoublings = 8;  // Up to 13 ms.
constexpr CallOptions kPatient = {.timeout_us = 50'000'000};

// Tries once. Returns Aborted if the transaction did not commit, and never will.
absl::Status TryOnce(Client* client, const std::function<absl::Status(Transaction*)>& body) {
  Transaction tx = client->Begin();
  if (absl::Status status = body(&tx); !status.ok()) return status;
  absl::Status committed = tx.Commit().status();
  if (!IsMaybeApplied(committed)) return committed;
  const absl::StatusOr<std::optional<Committed>> outcome = client->Outcome(tx.id(), kPatient);
  if (!outcome.ok()) return committed;
  return outcome->has_value() ? absl::OkStatus() : absl::AbortedError("the answer to the commit was lost");
}

}  // namespace

absl::StatusOr<uint64_t> RunUntilKnown(Client* client, const std::function<absl::Status(Transaction*)>& body) {
  Random random(static_cast<uint64_t>(client->NowNs()));
  const int64_t deadline_ns = client->NowNs() + kLongestNs;
  for (uint64_t aborted = 0;; ++aborted) {
    const absl::Status status = TryOnce(client, body);
    if (status.ok()) return aborted;
    if (!absl::IsAborted(status) || client->NowNs() >= deadline_ns) return status;
    // The pause is random, so that two transactions that abort each other do not meet again.
    const int64_t longest_ns = kPauseNs << std::min(aborted, kPauseDoublings);
    const int64_t pause_ns = static_cast<int64_t>(random.Below(static_cast<uint64_t>(longest_ns)));
    client->Run(client->AsyncSleepUntil(client->NowNs() + pause_ns));
  }
}

}  // namespace cell

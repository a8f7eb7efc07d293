#include "cell/server/certain_change.h"

#include "cell/cluster/membership_await.h"

namespace cell {
namespace {

constexpr int64_t kRetryPauseNs = 2'000'000;

}  // namespace

Task<absl::Status> ChangeForCertain(Membership* membership, Turns* turns, Membership::TableChange change) {
  for (;;) {
    absl::Status status = co_await ChangeAwaiter(membership, change);
    if (!absl::IsUnavailable(status) || turns->stopping()) co_return status;
    co_await turns->Sleep(kRetryPauseNs);
  }
}

}  // namespace cell

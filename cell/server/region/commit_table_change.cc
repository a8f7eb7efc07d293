#include "cell/server/region/commit_table_change.h"

#include <memory>
#include <utility>

#include "cell/base/mutant.h"
#include "cell/cluster/membership_await.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int64_t kRetryPauseNs = 2'000'000;
constexpr int64_t kWarnEvery = 5'000;  // In attempts: ten seconds.

}  // namespace

Task<absl::Status> CommitTableChange(Membership* membership, Scheduler* scheduler, Membership::TableChange change) {
  for (int64_t tries = 0;; ++tries) {
    // The result of the change itself, for a table that was read. Any other error says nothing about the table.
    const auto refused = std::make_shared<absl::Status>();
    Membership::TableChange heard = [change, refused](RegionTable* table) { return *refused = change(table); };
    absl::Status status = co_await ChangeAwaiter(membership, std::move(heard));
    const bool certain = status.code() == refused->code() || Mutated(Mutant::kErrorIsRefusal);
    if (status.ok() || (!absl::IsUnavailable(status) && certain) || absl::IsOutOfRange(status)) co_return status;
    if (scheduler->stopping()) {
      if (absl::IsUnavailable(status)) co_return status;
      co_return absl::UnavailableError(std::string(status.message()));
    }
    if (!absl::IsUnavailable(status) && tries % kWarnEvery == 0) {
      spdlog::warn("could not change the region table; retrying until it succeeds: {}", std::string(status.message()));
    }
    co_await scheduler->Sleep(kRetryPauseNs);
  }
}

}  // namespace cell

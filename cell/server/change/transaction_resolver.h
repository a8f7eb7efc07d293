// TransactionResolver ends transactions whose client has gone (docs/transactions.md). A region that has prepared a
// part, and hears nothing more of it, asks the transaction's primary what was decided; the primary aborts what it has
// not decided. A primary that has committed a transaction tells the other regions until all of them have answered.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cell/base/task.h"
#include "cell/layout/outcome.h"
#include "cell/layout/wire_transaction.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/request/write_pipeline.h"

namespace cell {

struct TransactionResolverOptions {
  // How long a client has for what is left to do, before this does it.
  int64_t patience_ns = 1'000'000'000;
  int64_t look_every_ns = 100'000'000;
};

class TransactionResolver {
 public:
  // All arguments must outlive this.
  TransactionResolver(const WorkerContext& context, ServedRegions* served, WritePipeline* writes,
                      const TransactionResolverOptions& options);

  // Begins what is due.
  void Step();
  // Returns how many transactions were ended here because their client did not.
  uint64_t resolved() const { return resolved_; }

 private:
  // Releases what transactions hold that have only read here, and whose client has not confirmed them in time.
  void ReleaseUnconfirmed(int64_t now_ns);
  Task<bool> Run();
  // Ends one transaction of a region, if that is possible now.
  Task<bool> Resolve(uint32_t region, Outcome of, uint32_t primary);
  // Tells the others of a transaction that was committed here.
  Task<bool> Tell(uint32_t region, Outcome outcome);
  // Sends a decision to the region's owner, which may be this worker. Returns the answer; nullopt if there is none yet.
  // A region that is gone has no part of any transaction.
  Task<std::optional<TransactAnswer>> Ask(uint32_t region, Outcome of, Decision decision, uint64_t stamp);
  std::optional<TransactAnswer> AskHere(uint32_t region, const Outcome& of, Decision decision, uint64_t stamp);
  // Returns the region if its transactions can be decided here now.
  HeldRegion* Find(uint32_t region) const;

  const WorkerId self_;
  const Clock* const clock_;
  Membership* const membership_;
  Scheduler* const scheduler_;
  Regions* const regions_;
  Peers* const peers_;
  ServedRegions* const served_;
  WritePipeline* const writes_;
  const TransactionResolverOptions options_;
  // Since when it is known that a transaction was committed here, and others have perhaps to be told.
  std::map<std::pair<uint32_t, KeyLocks::Owner>, int64_t> open_since_ns_;
  std::set<WorkerId> away_;  // Workers that have not answered in this run.
  int64_t look_at_ns_ = 0;
  bool busy_ = false;
  uint64_t resolved_ = 0;
};

}  // namespace cell

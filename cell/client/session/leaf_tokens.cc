#include "cell/client/session/leaf_tokens.h"

#include <algorithm>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "cell/base/mutant.h"

namespace cell {
namespace {

constexpr size_t kReadsAtOnce = 64;
constexpr size_t kFew = 4;  // Leaves of most transactions.

// The reads of one worker's memory.
struct WorkerParts {
  WorkerConnection* worker;
  std::vector<ReadPart> parts = {};
};

// Returns whether the parts could be read.
Task<bool> ReadAll(Session* session, const WorkerParts* of, int64_t deadline_ns) {
  const absl::Span<const ReadPart> parts = of->parts;
  for (size_t at = 0; at < parts.size(); at += kReadsAtOnce) {
    const absl::Status status =
        co_await session->connections()->ReadExtent(of->worker, parts.subspan(at, kReadsAtOnce), deadline_ns, nullptr);
    if (!status.ok()) co_return false;
  }
  co_return true;
}

}  // namespace

Task<bool> LeavesUnchanged(Session* session, absl::Span<const LeafToken> tokens, int64_t deadline_ns) {
  // So that the view keeps its lease.
  session->metrics()->node_reads += tokens.size();
  absl::InlinedVector<NodeState, kFew> now(tokens.size());
  // The workers are in the order of the tokens. An order by addresses would differ from run to run.
  std::vector<WorkerParts> workers;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].holder.worker == nullptr || !tokens[i].holder.worker->up) co_return false;
    if (!session->view()->Leased(tokens[i].holder) && !Mutated(Mutant::kTokenUnleased)) co_return false;
    auto its = std::find_if(workers.begin(), workers.end(),
                            [&](const WorkerParts& one) { return one.worker == tokens[i].holder.worker; });
    if (its == workers.end()) {
      its = workers.insert(its, {tokens[i].holder.worker});
      its->parts.reserve(tokens.size());
    }
    its->parts.push_back({tokens[i].leaf.self, reinterpret_cast<std::byte*>(&now[i]), sizeof(NodeState)});
  }
  std::vector<Task<bool>> reads;
  reads.reserve(workers.size());
  for (const WorkerParts& one : workers) reads.push_back(ReadAll(session, &one, deadline_ns));
  for (Task<bool>& one : reads) one.Start();
  bool all = true;
  for (Task<bool>& one : reads) all &= co_await one.Join();
  if (!all) co_return false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (now[i] != tokens[i].leaf && !Mutated(Mutant::kTokenUnchecked)) co_return false;
    // Otherwise another server may have the region by now.
    if (!session->view()->Leased(tokens[i].holder) && !Mutated(Mutant::kTokenUnleased)) co_return false;
  }
  co_return true;
}

}  // namespace cell

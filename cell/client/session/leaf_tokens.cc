#include "cell/client/session/leaf_tokens.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "cell/base/mutant.h"

namespace cell {
namespace {

constexpr size_t kReadsAtOnce = 64;

// Reads where the leaves begin, which are all a worker's. `to` has LeafToken::kBytes for each.
Task<bool> ReadAll(Session* session, WorkerConnection* worker, std::vector<ReadPart> parts, int64_t deadline_ns) {
  for (size_t at = 0; at < parts.size(); at += kReadsAtOnce) {
    const absl::Span<const ReadPart> some(parts.data() + at, std::min(kReadsAtOnce, parts.size() - at));
    const absl::Status status = co_await session->connections()->ReadExtent(worker, some, deadline_ns, nullptr);
    if (!status.ok()) co_return false;
  }
  co_return true;
}

}  // namespace

static_assert(LeafToken::kBytes % 8 == 0);

LeafToken::LeafToken(const Holder& its_holder, const NodeView& its_leaf) : holder(its_holder), leaf(its_leaf.self()) {
  std::memcpy(begins.data(), its_leaf.bytes(), kBytes);
}

Task<bool> LeavesUnchanged(Session* session, absl::Span<const LeafToken> tokens, int64_t deadline_ns) {
  std::vector<uint64_t> read(tokens.size() * LeafToken::kBytes / sizeof(uint64_t));
  // The workers are in the order of the tokens. An order by addresses would differ from run to run.
  std::vector<std::pair<WorkerConnection*, std::vector<ReadPart>>> parts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].holder.worker == nullptr || !tokens[i].holder.worker->up) co_return false;
    auto* const to = reinterpret_cast<std::byte*>(read.data()) + i * LeafToken::kBytes;
    auto its = std::find_if(parts.begin(), parts.end(),
                            [&](const auto& part) { return part.first == tokens[i].holder.worker; });
    if (its == parts.end()) its = parts.emplace(parts.end(), tokens[i].holder.worker, std::vector<ReadPart>());
    its->second.push_back({tokens[i].leaf, to, LeafToken::kBytes});
  }
  std::vector<Task<bool>> reads;
  reads.reserve(parts.size());
  for (auto& [worker, its] : parts) reads.push_back(ReadAll(session, worker, std::move(its), deadline_ns));
  for (Task<bool>& one : reads) one.Start();
  bool all = true;
  for (Task<bool>& one : reads) all &= co_await one.Join();
  if (!all) co_return false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto* const now = reinterpret_cast<const std::byte*>(read.data()) + i * LeafToken::kBytes;
    const bool same = std::memcmp(now, tokens[i].begins.data(), LeafToken::kBytes) == 0;
    if (!same && !Mutated(Mutant::kTokenUnchecked)) co_return false;
    // Otherwise another server may have the region by now.
    if (!session->view()->Leased(tokens[i].holder) && !Mutated(Mutant::kTokenUnleased)) co_return false;
  }
  co_return true;
}

}  // namespace cell

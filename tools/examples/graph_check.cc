#include "tools/examples/graph_check.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/client/transaction.h"
#include "fmt/format.h"
#include "tools/examples/example.h"
#include "tools/examples/graph_store.h"
#include "tools/examples/run_until_known.h"

namespace cell {
namespace {

constexpr uint64_t kNodesAtOnce = 20;

constexpr std::array<std::string_view, 3> kPrefixes = {"n/", "l/", "c/"};

// Returns what no key of this prefix is below whose id is `id` or above.
std::string FirstKey(std::string_view prefix, uint64_t id) {
  return id < kIdsEnd ? fmt::format("{}{:010}", prefix, id) : fmt::format("{}0", prefix.substr(0, 1));
}

// Returns the id of a key of the graph. Returns DataLoss if it has none.
absl::StatusOr<uint64_t> IdOf(std::string_view key) {
  const std::string_view digits = IdDigits(key), rest = key.substr(std::min(key.size(), 2 + digits.size()));
  if (digits.size() < kIdDigits || (!rest.empty() && rest[0] != '/')) {
    return absl::DataLossError(fmt::format("{} is no key of a graph", ForMessage(key)));
  }
  return NumberIn(key, digits);
}

// Returns the least id from `from` on that any key has.
absl::StatusOr<std::optional<uint64_t>> NextId(Client* client, uint64_t from) {
  std::optional<uint64_t> next;
  for (const std::string_view prefix : kPrefixes) {
    ScanOptions options = PrefixScan(prefix);
    options.from = FirstKey(prefix, from);
    options.limit = 1;
    Scan scan = client->NewScan(options);
    ASSIGN_OR_RETURN(const bool found, scan.Next());
    if (!found) continue;
    ASSIGN_OR_RETURN(const uint64_t id, IdOf(scan.key()));
    next = std::min(next.value_or(id), id);
  }
  return next;
}

// Everything about some nodes, as it was at one moment.
struct Part {
  Transaction::Pairs nodes, links, counts;
};

absl::StatusOr<Part> Read(Client* client, uint64_t from, uint64_t to) {
  Part part;
  const auto body = [&](Transaction* tx) -> absl::Status {
    const auto range = [&](std::string_view prefix) {
      return ScanOptions{.from = FirstKey(prefix, from), .to = FirstKey(prefix, to)};
    };
    ASSIGN_OR_RETURN(part.nodes, tx->Scan(range("n/")));
    ASSIGN_OR_RETURN(part.links, tx->Scan(range("l/")));
    ASSIGN_OR_RETURN(part.counts, tx->Scan(range("c/")));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunUntilKnown(client, body).status());
  return part;
}

absl::Status CheckPart(const Part& part, GraphFindings* findings) {
  std::set<std::string, std::less<>> ids;
  for (const auto& [key, data] : part.nodes) ids.emplace(IdDigits(key));
  std::map<std::string, uint64_t> links_of;  // By the key of their count.
  for (const auto& [key, data] : part.links) {
    ++links_of["c" + key.substr(1, key.rfind('/') - 1)];
    if (ids.contains(IdDigits(key))) continue;
    findings->wrong.push_back(fmt::format("{} begins at a node that is not there", ForMessage(key)));
  }
  std::map<std::string, uint64_t> counted;
  for (const auto& [key, value] : part.counts) {
    ASSIGN_OR_RETURN(counted[key], NumberIn(key, value));
    links_of.try_emplace(key, 0);
  }
  for (const auto& [key, links] : links_of) {
    if (counted[key] == links) continue;
    findings->wrong.push_back(fmt::format("{} is {}, and there are {} links", ForMessage(key), counted[key], links));
  }
  findings->nodes += part.nodes.size();
  findings->links += part.links.size();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GraphFindings> CheckGraph(Client* client) {
  GraphFindings findings;
  ASSIGN_OR_RETURN(std::optional<uint64_t> from, NextId(client, 0));
  while (from.has_value()) {
    const uint64_t to = *from + kNodesAtOnce;
    ASSIGN_OR_RETURN(const Part part, Read(client, *from, to));
    RETURN_IF_ERROR(CheckPart(part, &findings));
    from.reset();
    if (to < kIdsEnd) {
      ASSIGN_OR_RETURN(from, NextId(client, to));
    }
  }
  return findings;
}

}  // namespace cell

#include "tools/examples/graph_store.h"

#include "cell/base/status_macros.h"
#include "fmt/format.h"
#include "tools/examples/example.h"
#include "tools/examples/run_until_known.h"

namespace cell {
namespace {

using Value = std::optional<std::string>;

absl::StatusOr<uint64_t> CountIn(const std::string& key, const Value& value) {
  if (!value.has_value()) return 0;
  return NumberIn(key, *value);
}

// Returns a scan for the node with the greatest id.
ScanOptions LastNode() {
  ScanOptions options = PrefixScan("n/");
  options.reverse = true;
  options.limit = 1;
  return options;
}

}  // namespace

std::string NodeKey(uint64_t id) { return fmt::format("n/{:010}", id); }
std::string LinkKey(const Link& link) { return fmt::format("l/{:010}/{}/{:010}", link.from, link.type, link.to); }
std::string CountKey(uint64_t id, uint64_t type) { return fmt::format("c/{:010}/{}", id, type); }

absl::StatusOr<Value> GraphStore::GetNode(uint64_t id) { return client_->Get(NodeKey(id)); }

// A conditional write is enough to change a key only if it is there.
absl::Status GraphStore::UpdateNode(uint64_t id, std::string_view data) {
  return client_->PutIf(NodeKey(id), data, Condition::Present()).status();
}

absl::Status GraphStore::UpdateLink(const Link& link, std::string_view data) {
  return client_->PutIf(LinkKey(link), data, Condition::Present()).status();
}

absl::StatusOr<uint64_t> GraphStore::CountLinks(uint64_t from, uint64_t type) {
  const std::string key = CountKey(from, type);
  ASSIGN_OR_RETURN(const Value count, client_->Get(key));
  return CountIn(key, count);
}

absl::StatusOr<uint64_t> GraphStore::ListLinks(uint64_t from, uint64_t type) {
  ScanOptions options = PrefixScan(fmt::format("l/{:010}/{}/", from, type));
  options.limit = kLinksListed;
  Scan scan = client_->NewScan(options);
  for (uint64_t listed = 0;; ++listed) {
    ASSIGN_OR_RETURN(const bool more, scan.Next());
    if (!more) return listed;
  }
}

// Of two that insert a node at the same time, the second to commit is aborted: what it has read as the end of all nodes
// is not the end any more.
absl::StatusOr<uint64_t> GraphStore::InsertNode(std::string_view data) {
  uint64_t id = 0;
  const auto body = [&](Transaction* tx) -> absl::Status {
    id = 0;
    ASSIGN_OR_RETURN(const Transaction::Pairs last, tx->Scan(LastNode()));
    if (!last.empty()) {
      const std::string& key = last[0].first;
      ASSIGN_OR_RETURN(const uint64_t greatest, NumberIn(key, IdDigits(key)));
      id = greatest + 1;
    }
    return tx->Put(NodeKey(id), data);
  };
  RETURN_IF_ERROR(Run(body));
  return id;
}

// The transaction has read all links of the node as a range, so no link can be inserted before it commits.
absl::Status GraphStore::DeleteNode(uint64_t id) {
  return Run([&](Transaction* tx) -> absl::Status {
    ASSIGN_OR_RETURN(const Value node, tx->Get(NodeKey(id)));
    if (!node.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(tx->Delete(NodeKey(id)));
    ASSIGN_OR_RETURN(const Transaction::Pairs links, tx->Scan(PrefixScan(fmt::format("l/{:010}/", id))));
    for (const auto& [key, data] : links) RETURN_IF_ERROR(tx->Delete(key));
    for (uint64_t type = 0; type < kLinkTypes; ++type) RETURN_IF_ERROR(tx->Delete(CountKey(id, type)));
    return absl::OkStatus();
  });
}

absl::Status GraphStore::InsertLink(const Link& link, std::string_view data) {
  return Run([&](Transaction* tx) -> absl::Status {
    const std::string link_key = LinkKey(link), count_key = CountKey(link.from, link.type);
    ASSIGN_OR_RETURN(const Value node, tx->Get(NodeKey(link.from)));
    if (!node.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Value before, tx->Get(link_key));
    RETURN_IF_ERROR(tx->Put(link_key, data));
    if (before.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Value count, tx->Get(count_key));
    ASSIGN_OR_RETURN(const uint64_t links, CountIn(count_key, count));
    return tx->Put(count_key, std::to_string(links + 1));
  });
}

absl::Status GraphStore::DeleteLink(const Link& link) {
  return Run([&](Transaction* tx) -> absl::Status {
    const std::string link_key = LinkKey(link), count_key = CountKey(link.from, link.type);
    ASSIGN_OR_RETURN(const Value before, tx->Get(link_key));
    if (!before.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(tx->Delete(link_key));
    ASSIGN_OR_RETURN(const Value count, tx->Get(count_key));
    ASSIGN_OR_RETURN(const uint64_t links, CountIn(count_key, count));
    // Before the commit, the link and the count may be of different moments.
    return tx->Put(count_key, std::to_string(links == 0 ? 0 : links - 1));
  });
}

absl::Status GraphStore::GetLinks(const std::vector<Link>& links) {
  std::vector<std::string> keys;
  for (const Link& link : links) keys.push_back(LinkKey(link));
  return Run([&keys](Transaction* tx) -> absl::Status {
    return tx->MultiGet(std::vector<std::string_view>(keys.begin(), keys.end())).status();
  });
}

absl::StatusOr<uint64_t> GraphStore::NodesEnd() {
  Scan scan = client_->NewScan(LastNode());
  ASSIGN_OR_RETURN(const bool found, scan.Next());
  if (!found) return 0;
  ASSIGN_OR_RETURN(const uint64_t greatest, NumberIn(scan.key(), IdDigits(scan.key())));
  return greatest + 1;
}

absl::Status GraphStore::Run(const std::function<absl::Status(Transaction*)>& body) {
  ASSIGN_OR_RETURN(const uint64_t aborted, RunUntilKnown(client_, body));
  aborted_ += aborted;
  return absl::OkStatus();
}

}  // namespace cell

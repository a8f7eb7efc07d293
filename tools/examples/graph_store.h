// GraphStore keeps a social graph as LinkBench defines it (Armstrong et al., SIGMOD 2013): nodes, and links from one
// node to another, each with a type and some bytes. FaRM was measured with the same store (Dragojević et al., NSDI
// 2014).
//
// Keys, with ids of ten decimal digits, so that the order of keys is that of ids:
//   n/ID            has a node's data
//   l/ID1/TYPE/ID2  has the data of a link from ID1 to ID2
//   c/ID1/TYPE      has the number of links of this type from ID1, in decimal; absent: 0
//
// Invariants, which transactions keep:
// 1. Each count is equal to the number of the links that it counts.
// 2. Each link begins at a node that is there. It may lead to one that was deleted, as in LinkBench.
//
// Not thread-safe, like Client.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/client/transaction.h"

namespace cell {

inline constexpr uint64_t kLinkTypes = 2;      // Types are 0 and 1.
inline constexpr uint64_t kLinksListed = 100;  // By one ListLinks.

struct Link {
  uint64_t from = 0;
  uint64_t type = 0;
  uint64_t to = 0;
};

std::string NodeKey(uint64_t id);
std::string LinkKey(const Link& link);
std::string CountKey(uint64_t id, uint64_t type);

inline constexpr size_t kIdDigits = 10;
inline constexpr uint64_t kIdsEnd = 10'000'000'000;

// Returns the digits of the id at the beginning of a key, or fewer characters if the key is shorter.
inline std::string_view IdDigits(std::string_view key) {
  return key.size() < 2 ? std::string_view() : key.substr(2, kIdDigits);
}

class GraphStore {
 public:
  // `client` must outlive the store.
  explicit GraphStore(Client* client) : client_(client) {}

  // Read or change one key, or list one range. They are no transactions, because a single read or write takes place at
  // one moment anyway. A list is no snapshot, and LinkBench does not need one. A transaction's scan would be one.
  absl::StatusOr<std::optional<std::string>> GetNode(uint64_t id);
  absl::Status UpdateNode(uint64_t id, std::string_view data);       // Does nothing if the node is not there.
  absl::Status UpdateLink(const Link& link, std::string_view data);  // Does nothing if the link is not there.
  absl::StatusOr<uint64_t> CountLinks(uint64_t from, uint64_t type);
  absl::StatusOr<uint64_t> ListLinks(uint64_t from, uint64_t type);  // Returns how many it has found.

  // Are transactions, because they read or write several keys.
  absl::StatusOr<uint64_t> InsertNode(std::string_view data);        // Returns its id, one above the greatest.
  absl::Status DeleteNode(uint64_t id);                              // Deletes the links that begin there, too.
  absl::Status InsertLink(const Link& link, std::string_view data);  // Does nothing if its first node is not there.
  absl::Status DeleteLink(const Link& link);                         // Does nothing if the link is not there.
  absl::Status GetLinks(const std::vector<Link>& links);             // Reads all of them at one moment.

  // Returns one above the greatest id of a node, or 0 if there is none.
  absl::StatusOr<uint64_t> NodesEnd();
  // Returns how many tries of transactions were aborted.
  uint64_t aborted() const { return aborted_; }

 private:
  absl::Status Run(const std::function<absl::Status(Transaction*)>& body);

  Client* const client_;
  uint64_t aborted_ = 0;
};

}  // namespace cell

// Commits transactions: sends what they have read and written to the regions that have it, and decides. Internal to
// cell/client. Not thread-safe.
//
// The protocol is in docs/transactions.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/base/task.h"
#include "cell/client/session/leaf_tokens.h"
#include "cell/client/session/session.h"
#include "cell/client/transaction.h"
#include "cell/layout/transaction.h"

namespace cell {

// What a transaction has read, and wants to write.
struct TransactionSet {
  struct Read {
    bool exists = false;
    uint64_t digest = 0;
    LeafToken token = {};  // Of the leaf, if the client has read it.
  };
  struct Write {
    std::optional<std::string> value;  // nullopt: a delete.
    uint64_t expires = 0;              // PutRequest::expires.
  };
  struct Range {
    std::string from;
    std::string to;                                       // Empty: to the end of the tree.
    std::vector<std::pair<std::string, uint64_t>> pairs;  // Keys and digests, in order.
  };

  std::map<std::string, Read, std::less<>> reads;
  std::map<std::string, Write, std::less<>> writes;
  std::vector<Range> ranges;
  size_t write_bytes = 0;  // What `writes` take in a part.
  bool ended = false;
  TransactionId id;

  void NoteWrite(std::string_view key, Write write);
};

// Returns InvalidArgument if one more write would be more than a transaction can have.
absl::Status CheckRoomFor(const TransactionSet& set, std::string_view key, std::string_view value);

// Returns InvalidArgument if there is more than one transaction can have.
absl::Status CheckSize(const TransactionSet& set);

// Returns the stamp, with the errors of Transaction::Commit. Sets set->id. `set` must outlive the task.
Task<absl::StatusOr<uint64_t>> CommitTransaction(Session* session, TransactionSet* set, CallOptions options);

// Returns the stamp with which a transaction has committed, or nullopt if it never will.
Task<absl::StatusOr<std::optional<uint64_t>>> OutcomeOf(Session* session, const TransactionId& id, CallOptions options);

}  // namespace cell

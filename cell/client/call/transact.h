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

#include "absl/status/status.h"
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
    LeafToken token = {};  // Of the key's leaf, if there is one (leaf_tokens.h).
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

  // A key, after the name of its table, which is empty for keys of the tree.
  using Place = std::pair<std::string, std::string>;
  using PlaceView = std::pair<std::string_view, std::string_view>;
  struct PlaceLess {
    using is_transparent = void;
    bool operator()(const PlaceView& a, const PlaceView& b) const { return a < b; }
  };
  template <typename T>
  using ByPlace = std::map<Place, T, PlaceLess>;

  ByPlace<Read> reads;
  ByPlace<Write> writes;
  std::vector<Range> ranges;
  size_t write_bytes = 0;     // What `writes` take in a part.
  absl::Status refused = {};  // Of the first write that cannot be.
  bool ended = false;
  TransactionId id;

  // Returns what it writes to a key itself, or null.
  const std::optional<std::string>* Own(const PlaceView& place) const {
    const auto it = writes.find(place);
    return it == writes.end() ? nullptr : &it->second.value;
  }
  // Returns the end of the writes to keys of the tree.
  ByPlace<Write>::const_iterator EndOfTree() const {
    using namespace std::string_view_literals;
    return writes.lower_bound(PlaceView("\0"sv, {}));  // Names of tables are not empty.
  }
  // Returns false if the key was read before, and has changed since.
  bool NoteRead(const PlaceView& place, const std::optional<std::string>& value, const LeafToken& token);
  void NoteWrite(const PlaceView& place, Write write);
};

// Returns InvalidArgument if one more write would be more than a transaction can have.
absl::Status CheckRoomFor(const TransactionSet& set, const TransactionSet::PlaceView& place, std::string_view value);

// Returns InvalidArgument if there is more than one transaction can have.
absl::Status CheckSize(const TransactionSet& set);

// Returns the stamp, with the errors of Transaction::Commit. Sets set->id. `set` must outlive the task.
Task<absl::StatusOr<uint64_t>> CommitTransaction(Session* session, TransactionSet* set, CallOptions options);

// Returns the stamp with which a transaction has committed, or nullopt if it never will.
Task<absl::StatusOr<std::optional<uint64_t>>> OutcomeOf(Session* session, const TransactionId& id, CallOptions options);

}  // namespace cell

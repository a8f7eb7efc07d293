// Defines the messages by which clients run transactions, and servers end those whose client has gone
// (docs/transactions.md). What wire.h says of messages holds for these, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/layout/expiry.h"
#include "cell/layout/outcome.h"
#include "cell/layout/pointer.h"
#include "cell/layout/transaction.h"
#include "cell/layout/wire.h"

namespace cell {

enum class TransactStep : uint8_t {
  kCommit = 1,   // The part is the whole transaction: check it, and write.
  kPrepare = 2,  // Check it, and lock what it reads and writes.
};

// Sent to the owner of each region of which a transaction has a part. The key follows, then the ids of the other
// regions to which it writes if this is the primary, then the part unless it was uploaded.
struct TransactRequest {
  MessageHeader header;
  Pointer root;
  // The RequestId.
  uint64_t client;
  uint64_t number;
  uint64_t until;
  uint32_t part_bytes;
  uint32_t primary;  // Id of the region whose log decides. 0: the transaction writes nothing.
  uint16_t slot;
  uint16_t key_bytes;  // Of the key of the part's first operation, which leads to the region.
  uint16_t upload;     // If not 0, the part is the upload with this number.
  TransactStep step;
  uint8_t others;  // How many ids follow.
};
static_assert(sizeof(TransactRequest) == 56 && std::has_unique_object_representations_v<TransactRequest>);

struct TransactionPart {
  RequestId id;
  TransactStep step{};
  std::string_view key;
  uint32_t part_bytes = 0;
  uint32_t primary = 0;
  std::string_view others = {};  // Ids of regions, 4 bytes each.
  uint16_t upload = 0;
};
std::string MakeTransactRequest(Pointer root, const TransactionPart& part);
struct ParsedTransact : Parsed<TransactRequest> {
  std::string_view others;
  RequestId id() const { return {fixed.client, fixed.number, fixed.until, fixed.slot}; }
};
absl::StatusOr<ParsedTransact> ParseTransactRequest(ConstBytes message);

enum class Decision : uint8_t {
  kCommit = 1,  // The primary's log decides when it has this. The others follow it.
  kAbort = 2,   // Only before the primary was told to commit.
  kAsk = 3,     // For the primary: what was decided? If nothing was, the transaction is aborted.
  kFinish = 4,  // For the primary: all others have followed.
  kRecall = 5,  // Like kAsk, by a client that others do not wait for: an error if it is not known any more.
};
// Sent to the owner of a region that has prepared a part, or is the primary.
struct DecideRequest {
  MessageHeader header;
  Pointer root;
  uint64_t client;
  uint64_t number;
  uint64_t until;
  uint64_t stamp;  // Commit: the transaction's.
  // Commit, for the primary: when the first of the pairs expires that the transaction has read. From then on it cannot
  // commit. kNeverExpires: there is none.
  Expiry expires;
  uint16_t slot;
  Decision decision;
  uint8_t reserved[5];
};
static_assert(sizeof(DecideRequest) == 64 && std::has_unique_object_representations_v<DecideRequest>);
std::string MakeDecideRequest(Pointer root, const RequestId& id, Decision decision, uint64_t stamp = 0,
                              Expiry expires = kNeverExpires);
absl::StatusOr<DecideRequest> ParseDecideRequest(ConstBytes message);

// The outcome of a step of a transaction in one region.
enum class TransactOutcome : uint8_t {
  kPrepared = 1,
  kCommitted = 2,  // Also of a part that only reads: all of it is as it was read.
  kAborted = 3,    // Nothing is locked here, and nothing was written.
  kUntimely = 4,   // Like kAborted: RequestId::until is past, or too far ahead.
  kBeyond = 5,     // Like kAborted: a range goes on in another region, from the key that follows on.
};
struct TransactReply {
  ReplyHeader header;
  uint64_t stamp;  // Prepared: not above the stamp that it may commit with. Committed: that of what it has written.
                   // Untimely: not above any stamp that the region will give.
  Expiry expires;  // Prepared: when the first of the pairs expires that were read here. kNeverExpires: there is none.
  TransactOutcome outcome;
  uint8_t reserved[5];
  uint16_t key_bytes;
};
static_assert(sizeof(TransactReply) == 40 && std::has_unique_object_representations_v<TransactReply>);
absl::StatusOr<Parsed<TransactReply>> ParseTransactReply(ConstBytes message, MessageKind kind);
// Writes a reply and returns its size. REQUIRES: there is room for it and the key.
size_t WriteTransactReply(MutableBytes to, MessageKind kind, TransactOutcome outcome, uint64_t stamp,
                          std::string_view key = {}, Expiry expires = kNeverExpires);

}  // namespace cell

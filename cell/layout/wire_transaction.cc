#include "cell/layout/wire_transaction.h"

#include <cstring>

#include "cell/base/status_macros.h"
#include "cell/layout/wire_parts.h"

namespace cell {

std::string MakeTransactRequest(Pointer root, const TransactionPart& part) {
  TransactRequest fixed{};
  fixed.header.kind = MessageKind::kTransact;
  fixed.root = root;
  fixed.client = part.id.client;
  fixed.number = part.id.number;
  fixed.until = part.id.until;
  fixed.slot = part.id.slot;
  fixed.part_bytes = part.part_bytes;
  fixed.primary = part.primary;
  fixed.key_bytes = static_cast<uint16_t>(part.key.size());
  fixed.upload = part.upload;
  fixed.step = part.step;
  fixed.others = static_cast<uint8_t>(part.others.size() / sizeof(uint32_t));
  return WithFixed(fixed, part.upload == 0 ? part.part_bytes : 0, {part.key, part.others});
}

absl::StatusOr<ParsedTransact> ParseTransactRequest(ConstBytes message) {
  Cursor cursor(message);
  ParsedTransact parsed;
  parsed.fixed = cursor.Take<TransactRequest>();
  const TransactRequest& fixed = parsed.fixed;
  parsed.key = cursor.TakeText(fixed.key_bytes);
  parsed.others = cursor.TakeText(fixed.others * sizeof(uint32_t));
  if (fixed.upload == 0) parsed.value = cursor.TakeText(fixed.part_bytes);
  if (!cursor.ended() || fixed.client == 0 || fixed.slot >= kRequestSlots || fixed.upload > kUploadsMax ||
      fixed.part_bytes > kTransactionBytesMax || fixed.others >= kTransactionRegionsMax ||
      (fixed.step != TransactStep::kCommit && fixed.step != TransactStep::kPrepare)) {
    return BadRequest(MessageKind::kTransact, message.size());
  }
  return parsed;
}

std::string MakeDecideRequest(Pointer root, const RequestId& id, Decision decision, uint64_t stamp, Expiry expires) {
  DecideRequest fixed{};
  fixed.header.kind = MessageKind::kDecide;
  fixed.root = root;
  fixed.client = id.client;
  fixed.number = id.number;
  fixed.until = id.until;
  fixed.stamp = stamp;
  fixed.expires = expires;
  fixed.slot = id.slot;
  fixed.decision = decision;
  return WithFixed(fixed, 0, {});
}

absl::StatusOr<DecideRequest> ParseDecideRequest(ConstBytes message) {
  Cursor cursor(message);
  const auto fixed = cursor.Take<DecideRequest>();
  if (!cursor.ended() || fixed.client == 0 || fixed.slot >= kRequestSlots || fixed.decision < Decision::kCommit ||
      fixed.decision > Decision::kRecall) {
    return BadRequest(MessageKind::kDecide, message.size());
  }
  return fixed;
}

absl::StatusOr<Parsed<TransactReply>> ParseTransactReply(ConstBytes message, MessageKind kind) {
  RETURN_IF_ERROR(CheckReply(message, kind));
  Cursor cursor(message);
  Parsed<TransactReply> parsed{cursor.Take<TransactReply>(), {}, {}};
  parsed.key = cursor.TakeText(parsed.fixed.key_bytes);
  if (!cursor.ended() || parsed.fixed.outcome < TransactOutcome::kPrepared ||
      parsed.fixed.outcome > TransactOutcome::kBeyond) {
    return BadReply(kind, message.size());
  }
  return parsed;
}

size_t WriteTransactReply(MutableBytes to, MessageKind kind, TransactOutcome outcome, uint64_t stamp,
                          std::string_view key, Expiry expires) {
  auto reply = ReplyOf<TransactReply>(kind, sizeof(TransactReply) + key.size());
  reply.stamp = stamp;
  reply.expires = expires;
  reply.outcome = outcome;
  reply.key_bytes = static_cast<uint16_t>(key.size());
  Store(to.data(), reply);
  if (!key.empty()) std::memcpy(to.data() + sizeof(reply), key.data(), key.size());
  return sizeof(reply) + key.size();
}

}  // namespace cell

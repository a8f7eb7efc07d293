// Has the answers of WritePipeline.
#include <string_view>
#include <utility>

#include "cell/layout/wire_function.h"
#include "cell/server/request/range_request.h"
#include "cell/server/request/write_pipeline.h"

namespace cell {

void WritePipeline::Answer(const IncomingCall& call, const KeyedRequest& request, const Target& target,
                           const absl::StatusOr<Served>& served) {
  if (served.ok() && served->stage == Stage::kLogged) return;
  // Its client sends the value again if it retries.
  if (request.upload != 0) uploads_->Forget(call.peer, request.upload);
  if (!served.ok()) {
    replies_->Error(call, request.kind, served.status());
  } else if (served->stage == Stage::kRouted && served->elsewhere.has_value()) {
    Target elsewhere{target.region};
    elsewhere.leads_on = target.region->tree;
    replies_->Route(call, elsewhere, *served->elsewhere);
  } else if (served->stage == Stage::kRouted) {
    replies_->Route(call, target, request.key);
  } else if (served->stage == Stage::kLocked) {
    Target locked{target.region};
    locked.locked = true;
    replies_->Route(call, locked, request.key);
  } else if (served->answer.has_value()) {
    AnswerTransact(call, request.kind, *served->answer);
  } else if (request.kind == MessageKind::kDeleteRange) {
    AnswerSlice(call, *served->slice);
  } else if (served->verdict.has_value()) {
    AnswerVerdict(call, *served->verdict, served->stamp);
  } else {
    AnswerExisted(call, request.kind, served->existed);
  }
}

void WritePipeline::AnswerPending(const PendingWrite& write, const absl::StatusOr<bool>& existed) {
  if (write.call.reply_bytes_max == 0) return;  // Its client is gone, or another leaf of the slice is answered.
  if (existed.ok() && write.kind == MessageKind::kDeleteRange) return AnswerSlice(write.call, *write.slice);
  if (existed.ok() && write.answer.has_value()) return AnswerTransact(write.call, write.asked(), *write.answer);
  if (!write.verdict.has_value()) return AnswerExisted(write.call, write.asked(), existed);
  if (!existed.ok()) return replies_->Error(write.call, write.verdict->kind, existed.status());
  AnswerVerdict(write.call, *write.verdict, write.refused() ? write.verdict->stamp : write.prepared.stamp);
}

void WritePipeline::AnswerTransact(const IncomingCall& call, MessageKind kind, const TransactAnswer& answer) {
  const MutableBytes to = replies_->Begin(call);
  const bool fits = sizeof(TransactReply) + answer.key.size() <= to.size();
  replies_->End(call, kind, to,
                WriteTransactReply(to, kind, answer.outcome, answer.stamp, fits ? answer.key : std::string_view(),
                                   answer.expires));
}

void WritePipeline::AnswerSlice(const IncomingCall& call, const DeletedSlice& slice) {
  const MutableBytes to = replies_->Begin(call);
  const std::string_view next = slice.next.has_value() ? std::string_view(*slice.next) : std::string_view();
  const size_t bytes = WriteRangeReply(to, MessageKind::kDeleteRange, {slice.pairs, !slice.next.has_value(), next});
  replies_->End(call, MessageKind::kDeleteRange, to, bytes);
}

void WritePipeline::AnswerVerdict(const IncomingCall& call, const Verdict& verdict, uint64_t stamp) {
  if (!verdict.error.ok()) return replies_->Error(call, verdict.kind, verdict.error);
  const MutableBytes to = replies_->Begin(call);
  size_t bytes = sizeof(WriteIfReply);
  if (verdict.kind == MessageKind::kApply) {
    FunctionReply reply{};
    reply.stamp = stamp;
    reply.inlined = 1;
    reply.flags = static_cast<uint8_t>((verdict.existed ? kKeyExisted : 0) | (verdict.changed ? kValueChanged : 0) |
                                       (verdict.untimely ? kUntimely : 0));
    bytes = WriteFunctionReply(to, verdict.kind, reply, verdict.result);
  } else {
    auto reply = ReplyOf<WriteIfReply>(verdict.kind);
    reply.stamp = stamp;
    reply.applied = verdict.changed;
    reply.existed = verdict.existed;
    Store(to.data(), reply);
  }
  replies_->End(call, verdict.kind, to, bytes);
}

void WritePipeline::AnswerExisted(const IncomingCall& call, MessageKind kind, const absl::StatusOr<bool>& existed) {
  if (!existed.ok()) return replies_->Error(call, kind, existed.status());
  auto reply = ReplyOf<WriteReply>(kind);
  reply.existed = *existed;
  const MutableBytes to = replies_->Begin(call);
  Store(to.data(), reply);
  replies_->End(call, kind, to, sizeof(reply));
}

}  // namespace cell

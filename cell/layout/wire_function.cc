#include "cell/layout/wire_function.h"

#include <cstring>

#include "cell/base/status_macros.h"
#include "cell/layout/wire_parts.h"

namespace cell {

std::string MakeFunctionRequest(MessageKind kind, Pointer root, const FunctionOnKey& function) {
  FunctionRequest fixed{};
  fixed.header.kind = kind;
  fixed.root = root;
  fixed.argument_bytes = function.argument_bytes;
  fixed.key_bytes = static_cast<uint16_t>(function.key.size());
  fixed.upload = function.upload;
  fixed.copy = function.copy;
  fixed.client = function.id.client;
  fixed.number = function.id.number;
  fixed.until = function.id.until;
  fixed.slot = function.id.slot;
  fixed.again = function.again;
  fixed.name_bytes = static_cast<uint8_t>(function.name.size());
  return WithFixed(fixed, function.upload == 0 ? function.argument_bytes : 0, {function.key, function.name});
}

absl::StatusOr<ParsedFunction> ParseFunctionRequest(ConstBytes message, MessageKind kind) {
  Cursor cursor(message);
  ParsedFunction parsed;
  parsed.fixed = cursor.Take<FunctionRequest>();
  const FunctionRequest& fixed = parsed.fixed;
  parsed.key = cursor.TakeText(fixed.key_bytes);
  parsed.name = cursor.TakeText(fixed.name_bytes);
  if (fixed.upload == 0) parsed.value = cursor.TakeText(fixed.argument_bytes);
  const bool applies = kind == MessageKind::kApply;
  const bool has_id = fixed.client != 0 || fixed.number != 0 || fixed.until != 0 || fixed.slot != 0;
  if (!cursor.ended() || fixed.upload > (applies ? kUploadsMax : 0) || fixed.copy > (applies ? 0 : kCopiesMax) ||
      fixed.again > has_id || (has_id && (!applies || fixed.client == 0 || fixed.slot >= kRequestSlots))) {
    return BadRequest(kind, message.size());
  }
  return parsed;
}

absl::StatusOr<Parsed<FunctionReply>> ParseFunctionReply(ConstBytes message, MessageKind kind) {
  RETURN_IF_ERROR(CheckReply(message, kind));
  Cursor cursor(message);
  Parsed<FunctionReply> parsed{cursor.Take<FunctionReply>(), {}, {}};
  const FunctionReply& fixed = parsed.fixed;
  if (fixed.inlined != 0) parsed.value = cursor.TakeText(fixed.result_bytes);
  if (!cursor.ended() || fixed.result_bytes > kValueBytesMax || (fixed.inlined != 0 && fixed.copied != 0)) {
    return BadReply(kind, message.size());
  }
  return parsed;
}

size_t WriteFunctionReply(MutableBytes to, MessageKind kind, FunctionReply reply, std::string_view result) {
  const size_t inlined_bytes = reply.inlined != 0 ? result.size() : 0;
  reply.header = ReplyOf<FunctionReply>(kind, sizeof(reply) + inlined_bytes).header;
  reply.result_bytes = static_cast<uint32_t>(result.size());
  Store(to.data(), reply);
  if (inlined_bytes > 0) std::memcpy(to.data() + sizeof(reply), result.data(), inlined_bytes);
  return sizeof(reply) + inlined_bytes;
}

}  // namespace cell

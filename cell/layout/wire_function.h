// Defines the messages by which clients apply functions, and evaluate them (cell/functions). What wire.h says of
// messages holds for these, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/layout/outcome.h"
#include "cell/layout/pointer.h"
#include "cell/layout/wire.h"

namespace cell {

// The key follows, then the function's name, then its argument unless it was uploaded.
struct FunctionRequest {
  MessageHeader header;
  Pointer root;
  // Apply: the RequestId, if the request must take effect only once. Else zeros.
  uint64_t client;
  uint64_t number;
  uint64_t until;
  uint32_t argument_bytes;
  uint16_t slot;
  uint16_t key_bytes;
  uint16_t upload;  // Apply: if not 0, the argument is the upload with this number.
  uint16_t copy;    // Evaluate: if not 0, a result that is too large for the reply is copied under this number, to be
                    // fetched.
  uint8_t name_bytes;
  uint8_t again;  // A request with the same id was sent before, and may come later.
  uint8_t reserved[2];
};
static_assert(sizeof(FunctionRequest) == 56 && std::has_unique_object_representations_v<FunctionRequest>);

struct FunctionOnKey {
  std::string_view key;
  std::string_view name;
  uint32_t argument_bytes = 0;
  uint16_t upload = 0;
  uint16_t copy = 0;
  RequestId id = {};
  bool again = false;
};
// Makes a request of kind kApply or kEvaluate.
std::string MakeFunctionRequest(MessageKind kind, Pointer root, const FunctionOnKey& function);
struct ParsedFunction : Parsed<FunctionRequest> {
  std::string_view name;
  RequestId id() const { return {fixed.client, fixed.number, fixed.until, fixed.slot}; }
};
absl::StatusOr<ParsedFunction> ParseFunctionRequest(ConstBytes message, MessageKind kind);

// The result follows if `inlined`.
struct FunctionReply {
  ReplyHeader header;
  uint64_t stamp;  // Apply: of the pair that the key has now. 0: it has none, or one without a stamp. If it is
                   // untimely: not above any stamp that the region will give.
  uint32_t result_bytes;
  uint16_t copied;  // If not 0, the result was copied under this number. 0 without `inlined`: it has to be.
  uint8_t inlined;
  uint8_t flags;  // kKeyExisted, kValueChanged, kUntimely; other bits are zero.
};
inline constexpr uint8_t kKeyExisted = 1;
inline constexpr uint8_t kValueChanged = 2;
inline constexpr uint8_t kUntimely = 4;  // RequestId::until is past, or too far ahead. Nothing was done.
static_assert(sizeof(FunctionReply) == 32 && std::has_unique_object_representations_v<FunctionReply>);
absl::StatusOr<Parsed<FunctionReply>> ParseFunctionReply(ConstBytes message, MessageKind kind);
// Writes a reply, with as much of `result` as `reply` says is inlined, and returns its size. REQUIRES: there is room.
size_t WriteFunctionReply(MutableBytes to, MessageKind kind, FunctionReply reply, std::string_view result);

}  // namespace cell

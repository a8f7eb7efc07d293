#include "cell/server/request/function_request.h"

#include "cell/base/status_macros.h"
#include "cell/functions/function_table.h"
#include "cell/layout/wire_function.h"
#include "cell/server/request/key_state.h"

namespace cell {

absl::StatusOr<size_t> Evaluate(const IncomingCall& call, const KeyedRequest& request, Target target,
                                ValueCopies* copies, MutableBytes to) {
  RespectLocks(request.key, /*writes=*/false, &target);
  if (target.store == nullptr) return WriteRoute(to, target, request.key);
  ASSIGN_OR_RETURN(const KeyState state, StoredState(request.key, *target.region));
  FunctionInput input;
  input.argument = request.value;
  if (state.exists) input.value = state.value;
  ASSIGN_OR_RETURN(const FunctionOutput output, Run(*request.function, input));
  FunctionReply reply{};
  reply.stamp = state.stamp;
  reply.flags = state.exists ? kKeyExisted : 0;
  if (sizeof(reply) + output.result.size() <= to.size()) {
    reply.inlined = 1;
  } else if (request.copy != 0) {
    reply.copied = request.copy;
    copies->Keep(call.peer, reply.copied, output.result);
  }
  return WriteFunctionReply(to, MessageKind::kEvaluate, reply, output.result);
}

}  // namespace cell

#include "cell/server/request/add_route.h"

#include "cell/base/status_macros.h"
#include "cell/layout/wire.h"

namespace cell {

absl::StatusOr<size_t> ServeAddRoute(const ServedRegions& served, ConstBytes message, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<AddRouteRequest> request, ParseAddRouteRequest(message));
  HeldRegion* const region = served.FindHeld(request.fixed.root.region());
  if (region == nullptr || !region->writable()) {
    return WriteRouteReply(to, {RouteKind::kNotHeld, {}, {}, {}, false, false});
  }
  if (region->tree == nullptr) return NoMeganode(*region);
  Meganode& tree = *region->tree;
  if (tree.tier() < request.fixed.tier) return WriteRouteReply(to, {RouteKind::kTooLow, {}, {}, {}, false, false});
  if (tree.tier() > request.fixed.tier || !tree.Covers(request.key)) {
    return WriteRoute(to, served.Find(request.fixed.root, request.key), request.key);
  }
  auto reply = ReplyOf<WriteReply>(MessageKind::kAddRoute);
  if (region->log != nullptr && !region->log->status().ok()) return region->log->status();
  ASSIGN_OR_RETURN(reply.existed, tree.InsertRoute(request.key, request.fixed.child));
  if (region->log != nullptr && region->log->dirty()) {
    region->RequestFlush();
    return absl::UnavailableError("the route is not on disk yet: retry later");
  }
  Store(to.data(), reply);
  return sizeof(reply);
}

std::string AnswerAddRoute(const ServedRegions& served, ConstBytes request) {
  std::string reply(kMessageBytesMax, 0);
  const MutableBytes to(reinterpret_cast<std::byte*>(reply.data()), reply.size());
  absl::StatusOr<size_t> bytes = ServeAddRoute(served, request, to);
  if (!bytes.ok()) bytes = WriteErrorReply(to, MessageKind::kAddRoute, bytes.status());
  reply.resize(*bytes);
  return reply;
}

}  // namespace cell

#include "cell/server/request/route_request.h"

#include "cell/base/status_macros.h"
#include "cell/layout/wire.h"
#include "fmt/format.h"

namespace cell {
namespace {

// Changes a meganode that covers the key. Returns whether the route was there.
absl::StatusOr<bool> Change(ServedRegions* served, const Parsed<RouteRequest>& request, Meganode* tree) {
  const Pointer child = request.fixed.child;
  if (!served->TakesRoute(child.region(), request.fixed.order)) {
    return absl::AbortedError(fmt::format("a later request about the route to region {} was served", child.region()));
  }
  if (request.fixed.header.kind == MessageKind::kRemoveRoute) {
    const Meganode::Route route = tree->RouteOf(request.key);
    if (route.kind != Meganode::Route::Kind::kChild || route.low != request.key || route.next != child) return false;
    return tree->RemoveRoute(request.key);
  }
  // The request may come late, from a former owner.
  if (served->IsGone(child.region())) {
    return absl::FailedPreconditionError(fmt::format("region {} is gone", child.region()));
  }
  return tree->InsertRoute(request.key, child);
}

}  // namespace

absl::StatusOr<size_t> ServeRouteRequest(ServedRegions* served, ConstBytes message, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<RouteRequest> request, ParseRouteRequest(message));
  HeldRegion* const region = served->FindHeld(request.fixed.root.region());
  if (region == nullptr || !region->writable() || region->state() == RegionState::kFilling) {
    return WriteRouteReply(to, {RouteKind::kNotHeld, {}, {}, {}, false, false});
  }
  if (region->tree == nullptr) return NoMeganode(*region);
  Meganode& tree = *region->tree;
  if (tree.tier() < request.fixed.tier) return WriteRouteReply(to, {RouteKind::kTooLow, {}, {}, {}, false, false});
  if (tree.tier() > request.fixed.tier || !tree.Covers(request.key)) {
    return WriteRoute(to, served->Find(request.fixed.root, request.key), request.key);
  }
  auto reply = ReplyOf<WriteReply>(request.fixed.header.kind);
  if (region->log != nullptr && !region->log->status().ok()) return region->log->status();
  ASSIGN_OR_RETURN(reply.existed, Change(served, request, &tree));
  if (region->log != nullptr && region->log->dirty()) {
    region->RequestFlush();
    return absl::UnavailableError("the route is not on disk yet: retry later");
  }
  Store(to.data(), reply);
  return sizeof(reply);
}

std::string AnswerRouteRequest(ServedRegions* served, ConstBytes request) {
  std::string reply(kMessageBytesMax, 0);
  const MutableBytes to(reinterpret_cast<std::byte*>(reply.data()), reply.size());
  absl::StatusOr<size_t> bytes = ServeRouteRequest(served, request, to);
  if (!bytes.ok()) bytes = WriteErrorReply(to, Load<MessageHeader>(request.data()).kind, bytes.status());
  reply.resize(*bytes);
  return reply;
}

}  // namespace cell

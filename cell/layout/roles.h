// Says which role a peer needs for each kind of message. This is the only such table: a worker refuses what it does not
// allow, and roles_test reads it on every fabric.
#pragma once

#include <optional>

#include "cell/layout/identity.h"
#include "cell/layout/wire.h"

namespace cell {

// Returns the least role that may send requests of this kind. Returns nullopt if no request has this kind.
constexpr std::optional<Role> LeastRole(MessageKind kind) {
  switch (kind) {
    case MessageKind::kSearch:
    case MessageKind::kGet:
    case MessageKind::kPut:
    case MessageKind::kDelete:
    case MessageKind::kScan:
    case MessageKind::kFetch:
    case MessageKind::kUpload:
    case MessageKind::kStatus:
    case MessageKind::kReport:
    case MessageKind::kCount:
    case MessageKind::kDeleteRange:
    case MessageKind::kTime:
    case MessageKind::kTableVersion:
    case MessageKind::kTablePart:
    case MessageKind::kWriteIf:
    case MessageKind::kApply:
    case MessageKind::kEvaluate:
    case MessageKind::kTransact:
    case MessageKind::kDecide:
    case MessageKind::kSnapshot:
    case MessageKind::kGetSnapshot:
    case MessageKind::kScanSnapshot:
      return Role::kClient;
    case MessageKind::kCheck:  // Reads a whole region.
      return Role::kOperator;
    case MessageKind::kAddRoute:
    case MessageKind::kRemoveRoute:
    case MessageKind::kMigration:
    case MessageKind::kWeigh:
      return Role::kServer;
    case MessageKind::kRoute:  // Only in replies.
      return std::nullopt;
  }
  return std::nullopt;
}

// Returns whether a peer of this role may send such a request. What is no request at all is refused as such elsewhere.
constexpr bool MayRequest(Role role, MessageKind kind) {
  const std::optional<Role> least = LeastRole(kind);
  return !least.has_value() || role >= *least;
}

}  // namespace cell

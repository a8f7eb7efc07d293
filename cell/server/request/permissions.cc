#include "cell/server/request/permissions.h"

#include <utility>

#include "cell/base/bytes.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/layout/transaction.h"
#include "fmt/format.h"
#include "pilaf/hash_layout.h"

namespace cell {
namespace {

Right RightFor(MessageKind kind) { return IsWrite(kind) ? Right::kWrite : Right::kRead; }

std::string RangeText(std::string_view from, std::string_view to) {
  return to.empty() ? fmt::format("the keys from {} on", ForMessage(from))
                    : fmt::format("the keys from {} to {}", ForMessage(from), ForMessage(to));
}

}  // namespace

void Permissions::Follow() {
  const bool first = !std::exchange(followed_, true);
  version_ = grants().version();
  enforced_ = grants().enforced();
  if (!Mutated(Mutant::kRightsKept)) by_peer_.clear();
  if (!first && Mutated(Mutant::kReadersKept)) return;
  Readers readers;
  if (enforced_) {
    readers.clients = ReadersOfMemory(grants());
    readers.everybody = readers.clients.contains(Grants::kEveryUser);
  }
  fabric_->SetReaders(std::move(readers));
}

const UserRights* Permissions::Look(const IncomingCall& call) {
  const auto it = by_peer_.find(call.peer);
  if (it != by_peer_.end()) return &it->second;
  return &by_peer_.emplace(call.peer, UserRights(grants(), call.from->name)).first->second;
}

std::optional<std::string_view> Permissions::TableOf(uint32_t region) {
  const RegionTable& table = membership_->state().table;
  const bool known = tables_version_ != UINT64_MAX && Mutated(Mutant::kTablesOfOld);
  if (table.version != tables_version_ && !known) {
    tables_.clear();
    for (const auto& [name, parts] : table.tables) {
      for (const auto& [first, part] : parts.parts) tables_.emplace(part, name);
    }
    tables_version_ = table.version;
  }
  const auto it = tables_.find(region);
  return it == tables_.end() ? std::nullopt : std::optional<std::string_view>(it->second);
}

absl::Status Permissions::Refuse(const IncomingCall& call, Right right, const std::string& what) {
  ++refused_;
  return absl::PermissionDeniedError(fmt::format("{} has no grant of {} for {} (cellctl users shows the grants)",
                                                 ToString(*call.from), ToString(right), what));
}

absl::Status Permissions::CheckRange(const IncomingCall& call, Pointer root, Right right, std::string_view from,
                                     std::string_view to) {
  const UserRights* const rights = Of(call);
  if (rights == nullptr) return absl::OkStatus();
  // Tables have no ranges, which is said elsewhere. Which table it is does not matter.
  if (root == HashRootOf(root.region())) return absl::OkStatus();
  if (rights->OfKey(right, from) && Mutated(Mutant::kRangeByBegin)) return absl::OkStatus();
  if (rights->OfRange(right, from, to.empty() ? std::nullopt : std::optional(to))) return absl::OkStatus();
  return Refuse(call, right, RangeText(from, to));
}

absl::Status Permissions::CheckKeyed(const IncomingCall& call, const KeyedRequest& request, bool* gone) {
  const UserRights* const rights = Of(call);
  if (rights == nullptr) return absl::OkStatus();
  if (request.kind == MessageKind::kDecide && request.decision == Decision::kRecall) {
    // It may have to be remembered.
    return rights->Somewhere(Right::kWrite) ? absl::OkStatus() : Refuse(call, Right::kWrite, "anything");
  }
  if (IsTransact(request.kind)) return absl::OkStatus();  // CheckPart knows what it does.
  if (request.kind == MessageKind::kDeleteRange) {
    return CheckRange(call, request.root, Right::kWrite, request.key, request.value);
  }
  // The outcome of a conditional write, or of a function, tells what the key has.
  if (IsWrite(request.kind) && request.Decides())
    RETURN_IF_ERROR(CheckRight(call, *rights, request, Right::kRead, gone));
  return *gone ? absl::OkStatus() : CheckRight(call, *rights, request, RightFor(request.kind), gone);
}

absl::Status Permissions::CheckRight(const IncomingCall& call, const UserRights& rights, const KeyedRequest& request,
                                     Right right, bool* gone) {
  const uint32_t region = request.root.region();
  if (request.root != HashRootOf(region)) {
    return rights.OfKey(right, request.key) ? absl::OkStatus()
                                            : Refuse(call, right, fmt::format("key {}", ForMessage(request.key)));
  }
  const std::optional<std::string_view> table = TableOf(region);
  *gone = !table.has_value();  // Dropped, or taken in by a neighbour: the client does not know that yet.
  if (*gone) return absl::OkStatus();
  return rights.OfTable(right, *table) ? absl::OkStatus() : Refuse(call, right, fmt::format("the table {}", *table));
}

absl::Status Permissions::CheckPart(const IncomingCall& call, Pointer root, std::string_view part) {
  const UserRights* const rights = Of(call);
  if (rights == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<PartOperation> operations, ParseOperations(part));
  const bool in_table = root == HashRootOf(root.region());
  const std::optional<std::string_view> table = in_table ? TableOf(root.region()) : std::nullopt;
  if (in_table && !table.has_value())
    return absl::UnavailableError("the table was dropped, or its part joined another");
  for (const PartOperation& operation : operations) {
    if (in_table) {
      const Right right = operation.writes() ? Right::kWrite : Right::kRead;
      if (!rights->OfTable(right, *table)) return Refuse(call, right, fmt::format("the table {}", *table));
      continue;
    }
    if (operation.kind == PartOperationKind::kReadRange) {
      const auto to = operation.value.empty() ? std::nullopt : std::optional(operation.value);
      if (rights->OfRange(Right::kScan, operation.key, to)) continue;
      return Refuse(call, Right::kScan, RangeText(operation.key, operation.value));
    }
    const Right right = operation.writes() ? Right::kWrite : Right::kRead;
    if (!rights->OfKey(right, operation.key)) {
      return Refuse(call, right, fmt::format("key {}", ForMessage(operation.key)));
    }
  }
  return absl::OkStatus();
}

absl::Status Permissions::CheckCount(const IncomingCall& call, Pointer root, std::string_view from,
                                     std::string_view to) {
  return CheckRange(call, root, Right::kScan, from, to);
}

absl::Status Permissions::CheckUpload(const IncomingCall& call) {
  const UserRights* const rights = Of(call);
  return rights == nullptr || rights->Somewhere(Right::kWrite) ? absl::OkStatus()
                                                               : Refuse(call, Right::kWrite, "anything");
}

absl::Status Permissions::CheckMemory(const IncomingCall& call) {
  return MayReadMemory(call) ? absl::OkStatus() : Refuse(call, Right::kScan, "everything");
}

absl::Status Permissions::CheckScan(const IncomingCall& call, Pointer root, std::string_view from,
                                    const KeySpan** span) {
  *span = nullptr;
  const UserRights* const rights = Of(call);
  if (rights == nullptr || root == HashRootOf(root.region())) return absl::OkStatus();
  *span = rights->SpanOf(Right::kScan, from);
  if (*span == nullptr) {
    return Refuse(call, Right::kScan, fmt::format("key {}, where the scan goes on", ForMessage(from)));
  }
  if (Mutated(Mutant::kScanPastGrant)) *span = nullptr;
  return absl::OkStatus();
}

}  // namespace cell

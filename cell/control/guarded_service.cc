#include "cell/control/guarded_service.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "cell/io/exec/system_clock.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

std::string CodeName(const grpc::Status& status) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code()));
}

// Returns what a request of which clients may administer is about.
std::optional<ControlledWorker::Scope> ScopeOf(const google::protobuf::Message&) { return std::nullopt; }
std::optional<ControlledWorker::Scope> ScopeOf(const control::DropTableRequest& request) {
  return ControlledWorker::Scope{.table = request.table()};
}
std::optional<ControlledWorker::Scope> ScopeOf(const control::SetEvictionRequest& request) {
  return ControlledWorker::Scope{.table = request.table(), .prefix = request.prefix()};
}
std::optional<ControlledWorker::Scope> ScopeOf(const control::ChangeGrantRequest& request) {
  return ControlledWorker::Scope{request.everything(), request.table(), request.prefix()};
}

}  // namespace

absl::Status Auditor::Write(AuditEntry entry, bool sync) {
  if (sink_ == nullptr) return absl::OkStatus();
  entry.time_ns = TimeOfDayNs();
  return sink_->Append(AuditLine(server_, entry), sync);
}

absl::Status Auditor::Begin(AuditEntry entry, uint64_t* id) {
  entry.event = "begin";
  entry.id = *id = next_id_++;
  return Write(std::move(entry), true);
}

void Auditor::End(AuditEntry entry) {
  entry.event = "end";
  if (const absl::Status status = Write(std::move(entry), true); !status.ok()) {
    spdlog::error("the result of a change is missing in the audit log: {}", std::string(status.message()));
  }
}

void Auditor::Refuse(AuditEntry entry) {
  {
    const std::lock_guard lock(mutex_);
    if (!refusals_.Take(NowNs(), &entry.left_out)) return;
  }
  (void)Write(std::move(entry), false);  // It was refused, whether or not anyone can read that.
}

bool Auditor::ClientMayChange(const std::string& client) {
  const std::lock_guard lock(mutex_);
  uint64_t left_out;
  return of_clients_[client].Take(NowNs(), &left_out);
}

template <typename Request, typename Reply>
grpc::Status GuardedService::Guard(const char* name,
                                   grpc::Status (control::Control::Service::*method)(grpc::ServerContext*,
                                                                                     const Request*, Reply*),
                                   grpc::ServerContext* context, const Request* request, Reply* reply) {
  std::shared_ptr<void> held;
  AuditEntry entry;
  entry.caller = identify_(*context, &held);
  entry.rpc = name;
  const int64_t begun_ns = auditor_->NowNs();
  const auto end = [&](const grpc::Status& status) {
    entry.code = CodeName(status);
    entry.message = status.error_message();
    entry.ms = static_cast<double>(auditor_->NowNs() - begun_ns) / 1e6;
    return status;
  };
  const auto refuse = [&](const grpc::Status& status) {
    end(status);
    entry.event = "refused";
    entry.arguments = request->ShortDebugString();
    auditor_->Refuse(std::move(entry));
    return status;
  };
  const Rpc* const rpc = FindRpc(name);
  const auto administers = [&] {
    if (rpc == nullptr || !rpc->of_admins || entry.caller.role != Role::kClient) return false;
    const std::optional<Identity> client = ParseIdentity(entry.caller.name);
    const std::optional<ControlledWorker::Scope> scope = ScopeOf(*request);
    return client.has_value() && scope.has_value() && administers_(client->name, *scope);
  };
  if (!May(entry.caller, rpc) && !administers()) {
    return refuse(
        {grpc::StatusCode::PERMISSION_DENIED,
         fmt::format("{} may not use the control plane for this: only operators may, whose certificate has the "
                     "URI cell://operator/NAME, or a client with a grant of admin for what it is about",
                     entry.caller.name.empty() ? "a client without a cell:// identity" : entry.caller.name)});
  }
  if (!rpc->changes) return (behind_->*method)(context, request, reply);
  if (entry.caller.role == Role::kClient && !auditor_->ClientMayChange(entry.caller.name)) {
    return refuse({grpc::StatusCode::RESOURCE_EXHAUSTED,
                   "this client has made a hundred changes at once, and can make one a second now: try again later"});
  }
  entry.arguments = request->ShortDebugString();
  uint64_t id = 0;
  if (const absl::Status begun = auditor_->Begin(entry, &id); !begun.ok()) {
    return refuse({grpc::StatusCode::UNAVAILABLE,
                   fmt::format("nothing was changed, because this server cannot write down who changes what: {}; make "
                               "room, or start the server with another --audit-log",
                               std::string(begun.message()))});
  }
  entry.id = id;
  grpc::Status status = end((behind_->*method)(context, request, reply));
  auditor_->End(std::move(entry));
  return status;
}

grpc::Status GuardedService::Status(grpc::ServerContext* context, const control::StatusRequest* request,
                                    control::StatusReply* reply) {
  return Guard("Status", &control::Control::Service::Status, context, request, reply);
}

grpc::Status GuardedService::Regions(grpc::ServerContext* context, const control::RegionsRequest* request,
                                     control::RegionsReply* reply) {
  return Guard("Regions", &control::Control::Service::Regions, context, request, reply);
}

grpc::Status GuardedService::Allocate(grpc::ServerContext* context, const control::AllocateRequest* request,
                                      control::AllocateReply* reply) {
  return Guard("Allocate", &control::Control::Service::Allocate, context, request, reply);
}

grpc::Status GuardedService::Split(grpc::ServerContext* context, const control::SplitRequest* request,
                                   control::SplitReply* reply) {
  return Guard("Split", &control::Control::Service::Split, context, request, reply);
}

grpc::Status GuardedService::Join(grpc::ServerContext* context, const control::JoinRequest* request,
                                  control::JoinReply* reply) {
  return Guard("Join", &control::Control::Service::Join, context, request, reply);
}

grpc::Status GuardedService::Move(grpc::ServerContext* context, const control::MoveRequest* request,
                                  control::MoveReply* reply) {
  return Guard("Move", &control::Control::Service::Move, context, request, reply);
}

grpc::Status GuardedService::Drain(grpc::ServerContext* context, const control::DrainRequest* request,
                                   control::DrainReply* reply) {
  return Guard("Drain", &control::Control::Service::Drain, context, request, reply);
}

grpc::Status GuardedService::Rebalance(grpc::ServerContext* context, const control::RebalanceRequest* request,
                                       control::RebalanceReply* reply) {
  return Guard("Rebalance", &control::Control::Service::Rebalance, context, request, reply);
}

grpc::Status GuardedService::Checkpoint(grpc::ServerContext* context, const control::CheckpointRequest* request,
                                        control::CheckpointReply* reply) {
  return Guard("Checkpoint", &control::Control::Service::Checkpoint, context, request, reply);
}

grpc::Status GuardedService::CreateTable(grpc::ServerContext* context, const control::CreateTableRequest* request,
                                         control::CreateTableReply* reply) {
  return Guard("CreateTable", &control::Control::Service::CreateTable, context, request, reply);
}

grpc::Status GuardedService::DropTable(grpc::ServerContext* context, const control::DropTableRequest* request,
                                       control::DropTableReply* reply) {
  return Guard("DropTable", &control::Control::Service::DropTable, context, request, reply);
}

grpc::Status GuardedService::SetEviction(grpc::ServerContext* context, const control::SetEvictionRequest* request,
                                         control::SetEvictionReply* reply) {
  return Guard("SetEviction", &control::Control::Service::SetEviction, context, request, reply);
}

grpc::Status GuardedService::ChangeGrant(grpc::ServerContext* context, const control::ChangeGrantRequest* request,
                                         control::ChangeGrantReply* reply) {
  return Guard("ChangeGrant", &control::Control::Service::ChangeGrant, context, request, reply);
}

grpc::Status GuardedService::EnforceGrants(grpc::ServerContext* context, const control::EnforceGrantsRequest* request,
                                           control::EnforceGrantsReply* reply) {
  return Guard("EnforceGrants", &control::Control::Service::EnforceGrants, context, request, reply);
}

grpc::Status GuardedService::SetLogLevel(grpc::ServerContext* context, const control::SetLogLevelRequest* request,
                                         control::SetLogLevelReply* reply) {
  return Guard("SetLogLevel", &control::Control::Service::SetLogLevel, context, request, reply);
}

}  // namespace cell

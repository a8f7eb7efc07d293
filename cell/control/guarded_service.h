// GuardedService stands between gRPC and what serves the requests: no request gets past it whose caller may not make it
// (authorization.h), and none that changes anything without a line in the audit log (audit_line.h).
//
//   1. A change is carried out only after a line that says so is on disk. If it cannot be written, the change is
//   refused
//      with Unavailable. Requests that read do not need the log.
//   2. Another line has the result. If that one cannot be written, the result counts all the same: the change was made.
//
// Every method of control.proto is overridden here and nowhere else reaches the service behind; a test makes each call
// that the protocol has. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cell/base/clock.h"
#include "cell/control/audit_line.h"
#include "cell/control/audit_log.h"
#include "cell/control/authorization.h"
#include "cell/control/control.grpc.pb.h"
#include "cell/control/controlled_worker.h"

namespace cell {

// Auditor writes what happened into the audit log. All guards of a server share one.
class Auditor {
 public:
  // `sink` may be null: nothing is written. It outlives this.
  Auditor(std::string server, AuditSink* sink, const Clock* clock)
      : server_(std::move(server)), sink_(sink), clock_(clock) {}

  // Returns whether a change may begin. Sets *id to what its end is to be told with.
  absl::Status Begin(AuditEntry entry, uint64_t* id);
  void End(AuditEntry entry);
  // Writes that something was refused, unless there were too many such lines.
  void Refuse(AuditEntry entry);

  // Returns whether a client of this name, which administers something, may make one more change: each is written down.
  bool ClientMayChange(const std::string& client);

  int64_t NowNs() const { return clock_->NowNs(); }

 private:
  absl::Status Write(AuditEntry entry, bool sync);

  const std::string server_;
  AuditSink* const sink_;
  const Clock* const clock_;
  std::atomic<uint64_t> next_id_ = 1;
  std::mutex mutex_;
  AuditLimit refusals_;                           // Guarded by mutex_, as is what follows.
  std::map<std::string, AuditLimit> of_clients_;  // Of those that have had a grant of admin.
};

class GuardedService : public control::Control::Service {
 public:
  // Says who makes a call. What `held` is set to stays until the call has ended.
  using Identify = std::function<Caller(const grpc::ServerContext& context, std::shared_ptr<void>* held)>;

  // Says whether a client of this name administers what a request is about.
  using Administers = std::function<bool(const std::string& client, const ControlledWorker::Scope& scope)>;

  // Both outlive this.
  GuardedService(control::Control::Service* behind, Auditor* auditor, Identify identify, Administers administers)
      : behind_(behind), auditor_(auditor), identify_(std::move(identify)), administers_(std::move(administers)) {}

  grpc::Status Status(grpc::ServerContext* context, const control::StatusRequest* request,
                      control::StatusReply* reply) override;
  grpc::Status Regions(grpc::ServerContext* context, const control::RegionsRequest* request,
                       control::RegionsReply* reply) override;
  grpc::Status Allocate(grpc::ServerContext* context, const control::AllocateRequest* request,
                        control::AllocateReply* reply) override;
  grpc::Status Split(grpc::ServerContext* context, const control::SplitRequest* request,
                     control::SplitReply* reply) override;
  grpc::Status Join(grpc::ServerContext* context, const control::JoinRequest* request,
                    control::JoinReply* reply) override;
  grpc::Status Move(grpc::ServerContext* context, const control::MoveRequest* request,
                    control::MoveReply* reply) override;
  grpc::Status Drain(grpc::ServerContext* context, const control::DrainRequest* request,
                     control::DrainReply* reply) override;
  grpc::Status Rebalance(grpc::ServerContext* context, const control::RebalanceRequest* request,
                         control::RebalanceReply* reply) override;
  grpc::Status Checkpoint(grpc::ServerContext* context, const control::CheckpointRequest* request,
                          control::CheckpointReply* reply) override;
  grpc::Status CreateTable(grpc::ServerContext* context, const control::CreateTableRequest* request,
                           control::CreateTableReply* reply) override;
  grpc::Status DropTable(grpc::ServerContext* context, const control::DropTableRequest* request,
                         control::DropTableReply* reply) override;
  grpc::Status SetEviction(grpc::ServerContext* context, const control::SetEvictionRequest* request,
                           control::SetEvictionReply* reply) override;
  grpc::Status ChangeGrant(grpc::ServerContext* context, const control::ChangeGrantRequest* request,
                           control::ChangeGrantReply* reply) override;
  grpc::Status EnforceGrants(grpc::ServerContext* context, const control::EnforceGrantsRequest* request,
                             control::EnforceGrantsReply* reply) override;
  grpc::Status SetLogLevel(grpc::ServerContext* context, const control::SetLogLevelRequest* request,
                           control::SetLogLevelReply* reply) override;

 private:
  template <typename Request, typename Reply>
  grpc::Status Guard(const char* name,
                     grpc::Status (control::Control::Service::*method)(grpc::ServerContext*, const Request*, Reply*),
                     grpc::ServerContext* context, const Request* request, Reply* reply);

  control::Control::Service* const behind_;
  Auditor* const auditor_;
  const Identify identify_;
  const Administers administers_;
};

}  // namespace cell

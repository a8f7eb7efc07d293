#include "cell/control/control_client.h"

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "cell/base/status_macros.h"
#include "cell/control/control.grpc.pb.h"
#include "cell/control/control_address.h"
#include "cell/control/tls.h"
#include "fmt/format.h"

namespace cell {
namespace {

// Texts of gRPC's own errors. No server sends them.
constexpr char kGrpcTooLate[] = "Deadline Exceeded";
constexpr char kGrpcNotConnected[] = "failed to connect";

// Says how long a call may take if the caller sets no timeout. A stopped server answers nothing, though it is
// connected. Other servers answer questions at once, and orders after a minute or two even if their work goes on.
struct Kind {
  std::chrono::nanoseconds timeout;
  bool order;
};
constexpr Kind kQuestion{std::chrono::seconds(10), false};
constexpr Kind kOrder{std::chrono::minutes(10), true};
constexpr Kind kLongOrder{std::chrono::hours(24 * 7), true};

std::string TooLate(const std::string& who, const Kind& kind, std::chrono::nanoseconds timeout) {
  return fmt::format("{} did not {} within {:g} s; is it stopped or overloaded?{}", who,
                     kind.order ? "finish" : "answer", std::chrono::duration<double>(timeout).count(),
                     kind.order ? " If not, the operation continues there" : "");
}

// Returns gRPC's name of the address.
std::string TargetOf(const ControlAddress& address) {
  return address.kind == ControlAddress::Kind::kUnix ? "unix:" + address.address : address.address;
}

}  // namespace

class ControlClient::Connection {
 public:
  Connection(const std::string& server, const ControlAddress& address,
             const std::shared_ptr<grpc::ChannelCredentials>& credentials,
             std::optional<std::chrono::nanoseconds> timeout)
      : who_(fmt::format("{} (control plane at {})", server, address.address)),
        timeout_(timeout),
        stub_(control::Control::NewStub(grpc::CreateChannel(TargetOf(address), credentials))) {}

  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (control::Control::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply* reply, const Kind& kind) {
    grpc::ClientContext context;
    const std::chrono::nanoseconds timeout = timeout_.value_or(kind.timeout);
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    Enter(&context);
    const grpc::Status status = (stub_.get()->*method)(&context, request, reply);
    Enter(nullptr);
    if (status.ok()) return absl::OkStatus();
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), Why(status, kind, timeout));
  }

  void Cancel() {
    const std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

 private:
  // Returns the message of an error. Two codes may come from the connection, or from the server's own requests to
  // others.
  std::string Why(const grpc::Status& status, const Kind& kind, std::chrono::nanoseconds timeout) const {
    const std::string& text = status.error_message();
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::EqualsIgnoreCase(text, kGrpcTooLate) ? TooLate(who_, kind, timeout) : who_ + ": " + text;
    }
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return text;
    const bool connected = !absl::StrContains(text, kGrpcNotConnected);
    return fmt::format("{}{}: {}", who_, connected ? "" : " cannot be reached; is it running?", text);
  }

  void Enter(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    context_ = context;
  }

  std::mutex mutex_;
  grpc::ClientContext* context_ = nullptr;  // Context of the current call. Guarded by mutex_.
  const std::string who_;
  const std::optional<std::chrono::nanoseconds> timeout_;
  std::unique_ptr<control::Control::Stub> stub_;
};

ControlClient::ControlClient(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
ControlClient::~ControlClient() = default;
void ControlClient::Cancel() { connection_->Cancel(); }

absl::StatusOr<std::unique_ptr<ControlClient>> ControlClient::Open(const std::string& server,
                                                                   const std::string& address, const TlsFiles& tls,
                                                                   std::optional<std::chrono::nanoseconds> timeout) {
  if (tls.any()) RETURN_IF_ERROR(CheckTlsFiles(tls));
  ASSIGN_OR_RETURN(const std::vector<ControlAddress> addresses, ParseControlAddresses(address));
  ASSIGN_OR_RETURN(const ControlAddress chosen, ChooseControlAddress(server, addresses, ControlMachine(), tls.any()));
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (chosen.kind == ControlAddress::Kind::kTls) {
    ASSIGN_OR_RETURN(credentials, ClientTls(tls, server));
  }
  return std::unique_ptr<ControlClient>(
      new ControlClient(std::make_unique<Connection>(server, chosen, credentials, timeout)));
}

absl::StatusOr<std::vector<std::string>> ControlClient::Status() {
  control::StatusReply reply;
  RETURN_IF_ERROR(connection_->Call(&control::Control::Stub::Status, control::StatusRequest(), &reply, kQuestion));
  return std::vector<std::string>(reply.worker_json().begin(), reply.worker_json().end());
}

absl::StatusOr<ControlClient::Regions> ControlClient::ListRegions() {
  control::RegionsReply reply;
  RETURN_IF_ERROR(connection_->Call(&control::Control::Stub::Regions, control::RegionsRequest(), &reply, kQuestion));
  ControlClient::Regions regions{{}, reply.free(), {}, reply.table_version()};
  for (const auto& one : reply.regions()) {
    regions.regions.push_back({one.region(), one.worker(), one.tier(), one.epoch(), one.keys(), one.fill(), one.busy(),
                               one.table(), one.state(), one.right()});
  }
  for (const auto& one : reply.owners()) {
    regions.owners.push_back(
        {one.region(), one.server(), one.worker(), one.epoch(), one.recovering(), one.in_making()});
  }
  return regions;
}

absl::StatusOr<uint32_t> ControlClient::Allocate(uint32_t count) {
  control::AllocateRequest request;
  request.set_count(count);
  control::AllocateReply reply;
  RETURN_IF_ERROR(connection_->Call(&control::Control::Stub::Allocate, request, &reply, kOrder));
  return reply.ready();
}

absl::Status ControlClient::Split(uint32_t region) {
  control::SplitRequest request;
  request.set_region(region);
  control::SplitReply reply;
  return connection_->Call(&control::Control::Stub::Split, request, &reply, kOrder);
}

absl::Status ControlClient::Join(uint32_t region) {
  control::JoinRequest request;
  request.set_region(region);
  control::JoinReply reply;
  return connection_->Call(&control::Control::Stub::Join, request, &reply, kOrder);
}

absl::Status ControlClient::Move(uint32_t region, const std::string& server, uint32_t worker) {
  control::MoveRequest request;
  request.set_region(region);
  request.set_server(server);
  request.set_worker(worker);
  control::MoveReply reply;
  return connection_->Call(&control::Control::Stub::Move, request, &reply, kOrder);
}

absl::Status ControlClient::Drain(bool cancel) {
  control::DrainRequest request;
  request.set_cancel(cancel);
  control::DrainReply reply;
  return connection_->Call(&control::Control::Stub::Drain, request, &reply, cancel ? kOrder : kLongOrder);
}

absl::StatusOr<uint64_t> ControlClient::Rebalance() {
  control::RebalanceReply reply;
  RETURN_IF_ERROR(
      connection_->Call(&control::Control::Stub::Rebalance, control::RebalanceRequest(), &reply, kLongOrder));
  return reply.moved();
}

absl::StatusOr<ControlClient::Checkpoints> ControlClient::Checkpoint() {
  control::CheckpointReply reply;
  RETURN_IF_ERROR(
      connection_->Call(&control::Control::Stub::Checkpoint, control::CheckpointRequest(), &reply, kLongOrder));
  return Checkpoints{reply.regions(), reply.bytes()};
}

absl::Status ControlClient::CreateTable(const std::string& table, uint32_t bucket_bytes, uint32_t parts) {
  control::CreateTableRequest request;
  request.set_table(table);
  request.set_bucket_bytes(bucket_bytes);
  request.set_parts(parts);
  control::CreateTableReply reply;
  return connection_->Call(&control::Control::Stub::CreateTable, request, &reply, kOrder);
}

absl::Status ControlClient::DropTable(const std::string& table) {
  control::DropTableRequest request;
  request.set_table(table);
  control::DropTableReply reply;
  return connection_->Call(&control::Control::Stub::DropTable, request, &reply, kOrder);
}

absl::Status ControlClient::SetEviction(const std::string& table, const std::string& prefix, const std::string& evict) {
  control::SetEvictionRequest request;
  request.set_table(table);
  request.set_prefix(prefix);
  request.set_evict(evict);
  control::SetEvictionReply reply;
  return connection_->Call(&control::Control::Stub::SetEviction, request, &reply, kOrder);
}

absl::Status ControlClient::ChangeGrant(const GrantChange& change) {
  control::ChangeGrantRequest request;
  request.set_user(change.user);
  request.set_rights(change.rights);
  request.set_everything(change.everything);
  request.set_table(change.table);
  request.set_prefix(change.prefix);
  request.set_revoke(change.revoke);
  control::ChangeGrantReply reply;
  return connection_->Call(&control::Control::Stub::ChangeGrant, request, &reply, kOrder);
}

absl::Status ControlClient::EnforceGrants(bool enforce) {
  control::EnforceGrantsRequest request;
  request.set_enforce(enforce);
  control::EnforceGrantsReply reply;
  return connection_->Call(&control::Control::Stub::EnforceGrants, request, &reply, kOrder);
}

absl::Status ControlClient::SetLogLevel(const std::string& level) {
  control::SetLogLevelRequest request;
  request.set_level(level);
  control::SetLogLevelReply reply;
  return connection_->Call(&control::Control::Stub::SetLogLevel, request, &reply, kQuestion);
}

}  // namespace cell

#include "cell/control/control_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/control/control.grpc.pb.h"
#include "cell/io/file/text_file.h"
#include "fmt/format.h"

namespace cell {
namespace {

// A stopped server answers nothing, though it is connected. Other servers answer plain queries at once.
constexpr std::chrono::seconds kAskTimeout{10};
constexpr std::chrono::seconds kWorkTimeout{600};
constexpr std::chrono::hours kLongTimeout{24 * 7};

absl::Status FromGrpc(const std::string& address, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  // These two codes may come from the connection, or from the server's own requests to others.
  if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded) {
    return absl::Status(code, fmt::format("the control plane at {}: {}", address, status.error_message()));
  }
  return absl::Status(code, status.error_message());
}

}  // namespace

class ControlClient::Connection {
 public:
  Connection(std::string address, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : address_(std::move(address)), stub_(control::Control::NewStub(grpc::CreateChannel(address_, credentials))) {}

  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (control::Control::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply* reply, std::chrono::seconds timeout = kWorkTimeout) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    Enter(&context);
    const grpc::Status status = (stub_.get()->*method)(&context, request, reply);
    Enter(nullptr);
    return FromGrpc(address_, status);
  }

  void Cancel() {
    const std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

 private:
  void Enter(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    context_ = context;
  }

  std::mutex mutex_;
  grpc::ClientContext* context_ = nullptr;  // Context of the current call. Guarded by mutex_.
  const std::string address_;
  std::unique_ptr<control::Control::Stub> stub_;
};

ControlClient::ControlClient(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
ControlClient::~ControlClient() = default;
void ControlClient::Cancel() { connection_->Cancel(); }

absl::StatusOr<std::unique_ptr<ControlClient>> ControlClient::Open(const std::string& address, const ControlTls& tls) {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!tls.authority.empty()) {
    grpc::SslCredentialsOptions options;
    ASSIGN_OR_RETURN(options.pem_root_certs, ReadNamedFile(tls.authority));
    if (!tls.certificate.empty()) {
      ASSIGN_OR_RETURN(options.pem_cert_chain, ReadNamedFile(tls.certificate));
    }
    if (!tls.key.empty()) {
      ASSIGN_OR_RETURN(options.pem_private_key, ReadNamedFile(tls.key));
    }
    credentials = grpc::SslCredentials(options);
  }
  return std::unique_ptr<ControlClient>(new ControlClient(std::make_unique<Connection>(address, credentials)));
}

absl::StatusOr<std::vector<std::string>> ControlClient::Status() {
  control::StatusReply reply;
  RETURN_IF_ERROR(connection_->Call(&control::Control::Stub::Status, control::StatusRequest(), &reply, kAskTimeout));
  return std::vector<std::string>(reply.worker_json().begin(), reply.worker_json().end());
}

absl::StatusOr<ControlClient::Regions> ControlClient::ListRegions() {
  control::RegionsReply reply;
  RETURN_IF_ERROR(connection_->Call(&control::Control::Stub::Regions, control::RegionsRequest(), &reply, kAskTimeout));
  ControlClient::Regions regions{{}, reply.free(), {}, reply.table_version()};
  for (const auto& one : reply.regions()) {
    regions.regions.push_back({one.region(), one.worker(), one.tier(), one.epoch(), one.keys(), one.fill(), one.busy(),
                               one.table(), one.state()});
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
  RETURN_IF_ERROR(connection_->Call(&control::Control::Stub::Allocate, request, &reply));
  return reply.ready();
}

absl::Status ControlClient::Split(uint32_t region) {
  control::SplitRequest request;
  request.set_region(region);
  control::SplitReply reply;
  return connection_->Call(&control::Control::Stub::Split, request, &reply);
}

absl::Status ControlClient::Move(uint32_t region, const std::string& server, uint32_t worker) {
  control::MoveRequest request;
  request.set_region(region);
  request.set_server(server);
  request.set_worker(worker);
  control::MoveReply reply;
  return connection_->Call(&control::Control::Stub::Move, request, &reply);
}

absl::Status ControlClient::Drain(bool cancel) {
  control::DrainRequest request;
  request.set_cancel(cancel);
  control::DrainReply reply;
  return connection_->Call(&control::Control::Stub::Drain, request, &reply, kLongTimeout);
}

absl::StatusOr<uint64_t> ControlClient::Rebalance() {
  control::RebalanceReply reply;
  RETURN_IF_ERROR(
      connection_->Call(&control::Control::Stub::Rebalance, control::RebalanceRequest(), &reply, kLongTimeout));
  return reply.moved();
}

absl::StatusOr<ControlClient::Checkpoints> ControlClient::Checkpoint() {
  control::CheckpointReply reply;
  RETURN_IF_ERROR(
      connection_->Call(&control::Control::Stub::Checkpoint, control::CheckpointRequest(), &reply, kLongTimeout));
  return Checkpoints{reply.regions(), reply.bytes()};
}

absl::Status ControlClient::CreateTable(const std::string& table, uint32_t bucket_bytes, uint32_t parts) {
  control::CreateTableRequest request;
  request.set_table(table);
  request.set_bucket_bytes(bucket_bytes);
  request.set_parts(parts);
  control::CreateTableReply reply;
  return connection_->Call(&control::Control::Stub::CreateTable, request, &reply);
}

absl::Status ControlClient::DropTable(const std::string& table) {
  control::DropTableRequest request;
  request.set_table(table);
  control::DropTableReply reply;
  return connection_->Call(&control::Control::Stub::DropTable, request, &reply);
}

absl::Status ControlClient::SetLogLevel(const std::string& level) {
  control::SetLogLevelRequest request;
  request.set_level(level);
  control::SetLogLevelReply reply;
  return connection_->Call(&control::Control::Stub::SetLogLevel, request, &reply, kAskTimeout);
}

}  // namespace cell

#include "cell/control/control_server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/control/control.grpc.pb.h"
#include "cell/control/control_address.h"
#include "cell/control/control_listener.h"
#include "cell/control/guarded_service.h"
#include "cell/control/tls.h"
#include "cell/io/net/limited_warnings.h"
#include "cell/io/net/tcp_socket.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr std::chrono::milliseconds kEndLook{20};  // How often a waiting request checks whether the server ends.

absl::Status Ends() { return absl::UnavailableError("this server is shutting down"); }

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// Limits of each endpoint. A request waits on a thread, and a drain may take hours, so there are more than a few; each
// of them takes 8 MB of address space and some KB of memory.
constexpr int kThreadsMax = 32;
constexpr size_t kMemoryBytes = size_t{64} << 20;  // For gRPC's buffers.
constexpr int kRequestBytesMax = 64 << 10;
constexpr int kCallsOfConnectionMax = 16;
constexpr int kHandshakeMs = 10'000;  // A peer that has not finished its TLS handshake then is dropped.

// Writes what gRPC has to say into the server's log. Strangers can cause messages, so they are limited.
void LogOfGrpc(gpr_log_func_args* args) {
  static std::mutex mutex;
  static LimitedWarnings warnings;
  const std::lock_guard lock(mutex);
  warnings.Warn(SystemClock::Get()->NowNs(), "control plane: {}", args->message);
}

// Takes reflection from one server. gRPC adds it to all of a process.
class WithoutReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    const std::string reflection = grpc::reflection::ProtoServerReflectionPlugin().name();
    std::erase_if(*plugins, [&reflection](const auto& plugin) { return plugin->name() == reflection; });
  }
};

void Limit(const ControlOptions& options, grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("control");
  quota.SetMaxThreads(kThreadsMax);
  quota.Resize(kMemoryBytes);
  builder->SetResourceQuota(quota);
  builder->SetMaxReceiveMessageSize(kRequestBytesMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsOfConnectionMax);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, static_cast<int>(options.idle.count()));
}

// Returns who a certificate's owner is.
Caller CallerByTls(const grpc::ServerContext& context) {
  const auto peer = context.auth_context();
  if (peer == nullptr || !peer->IsPeerAuthenticated()) return {};
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : peer->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  return CallerOfCertificate(uris);
}

}  // namespace

// Serves the requests that GuardedService lets through.
class ControlServer::RpcService : public control::Control::Service {
 public:
  RpcService(std::vector<ControlledWorker*> workers, const ControlOptions& options)
      : workers_(std::move(workers)), answer_timeout_(options.answer_timeout), clock_(options.clock) {}

  grpc::Status Status(grpc::ServerContext*, const control::StatusRequest*, control::StatusReply* reply) override {
    for (ControlledWorker* worker : workers_) {
      const absl::StatusOr<std::string> json =
          Ask<std::string>([worker](auto answer) { worker->Status(std::move(answer)); });
      if (!json.ok()) return ToGrpc(json.status());
      reply->add_worker_json(*json);
    }
    return grpc::Status::OK;
  }

  grpc::Status Regions(grpc::ServerContext*, const control::RegionsRequest*, control::RegionsReply* reply) override {
    for (uint32_t i = 0; i < workers_.size(); ++i) {
      const absl::StatusOr<Holding> holding = AskForRegions(workers_[i]);
      if (!holding.ok()) return ToGrpc(holding.status());
      for (const ControlledWorker::Region& held : holding->regions) {
        control::RegionsReply::Region* region = reply->add_regions();
        region->set_region(held.region);
        region->set_worker(i);
        region->set_epoch(held.epoch);
        region->set_tier(held.tier);
        region->set_table(held.table);
        region->set_keys(held.keys);
        region->set_fill(held.fill);
        region->set_busy(held.busy);
        region->set_state(held.state);
        region->set_right(held.right);
      }
      reply->set_free(reply->free() + static_cast<uint32_t>(holding->room));
    }
    if (workers_.empty()) return grpc::Status::OK;
    const absl::StatusOr<ControlledWorker::Owners> owners =
        Ask<ControlledWorker::Owners>([this](auto answer) { workers_[0]->RegionOwners(std::move(answer)); });
    if (!owners.ok()) return ToGrpc(owners.status());
    reply->set_table_version(owners->table_version);
    for (const ControlledWorker::Owner& of : owners->owners) {
      control::RegionsReply::Owner* owner = reply->add_owners();
      owner->set_region(of.region);
      owner->set_server(of.server);
      owner->set_worker(of.worker);
      owner->set_epoch(of.epoch);
      owner->set_recovering(of.recovering);
      owner->set_in_making(of.in_making);
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const control::AllocateRequest* request,
                        control::AllocateReply* reply) override {
    for (uint32_t i = 0; i < workers_.size(); ++i) {  // Each worker prepares its share.
      const auto workers = static_cast<uint32_t>(workers_.size());
      const uint32_t count = request->count() / workers + (i < request->count() % workers);
      const absl::StatusOr<size_t> ready = Order<absl::StatusOr<size_t>>(
          [this, i, count](auto answer) { workers_[i]->Allocate(count, std::move(answer)); });
      if (!ready.ok()) return ToGrpc(ready.status());
      reply->set_ready(reply->ready() + static_cast<uint32_t>(*ready));
    }
    return grpc::Status::OK;
  }

  grpc::Status Split(grpc::ServerContext*, const control::SplitRequest* request, control::SplitReply*) override {
    const uint32_t region = request->region();
    return OnOwner(region, [region](ControlledWorker* owner, auto answer) { owner->Split(region, std::move(answer)); });
  }

  grpc::Status Join(grpc::ServerContext*, const control::JoinRequest* request, control::JoinReply*) override {
    const uint32_t region = request->region();
    return OnOwner(region, [region](ControlledWorker* owner, auto answer) { owner->Join(region, std::move(answer)); });
  }

  grpc::Status Move(grpc::ServerContext*, const control::MoveRequest* request, control::MoveReply*) override {
    return OnOwner(request->region(), [request](ControlledWorker* owner, auto answer) {
      owner->Move(request->region(), request->server(), request->worker(), std::move(answer));
    });
  }

  grpc::Status Drain(grpc::ServerContext* context, const control::DrainRequest* request,
                     control::DrainReply*) override {
    const bool cancel = request->cancel();
    const absl::Status status =
        Order<absl::Status>([this, cancel](auto answer) { workers_[0]->SetDraining(!cancel, std::move(answer)); });
    if (!status.ok() || cancel) return ToGrpc(status);
    while (!context->IsCancelled()) {
      size_t left = 0;
      absl::Status stuck;
      bool draining = true;
      for (ControlledWorker* worker : workers_) {
        const absl::StatusOr<ControlledWorker::DrainState> its =
            Ask<ControlledWorker::DrainState>([worker](auto answer) { worker->DrainProgress(std::move(answer)); });
        if (!its.ok()) return ToGrpc(its.status());
        left += its->regions_left;
        if (!its->stuck.ok()) stuck = its->stuck;
        if (worker == workers_[0]) draining = its->draining;  // This worker has made the change.
      }
      if (left == 0) return grpc::Status::OK;
      if (!draining) {
        return {grpc::StatusCode::ABORTED,
                fmt::format("the drain was cancelled by another command; {} regions are left", left)};
      }
      if (!stuck.ok()) {
        return {grpc::StatusCode::FAILED_PRECONDITION,
                fmt::format("{} regions are left, and none can be migrated away: {}. The drain continues when that "
                            "changes; drain --cancel ends it",
                            left, std::string(stuck.message()))};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return grpc::Status::CANCELLED;
  }

  grpc::Status Rebalance(grpc::ServerContext* context, const control::RebalanceRequest*,
                         control::RebalanceReply* reply) override {
    for (ControlledWorker* worker : workers_) {
      const absl::StatusOr<uint64_t> moved =
          Order<absl::StatusOr<uint64_t>>([worker](auto answer) { worker->Rebalance(std::move(answer)); }, context);
      if (!moved.ok()) return ToGrpc(moved.status());
      reply->set_moved(reply->moved() + *moved);
    }
    return grpc::Status::OK;
  }

  grpc::Status Checkpoint(grpc::ServerContext* context, const control::CheckpointRequest*,
                          control::CheckpointReply* reply) override {
    for (ControlledWorker* worker : workers_) {
      const absl::StatusOr<ControlledWorker::Checkpoints> made = Order<absl::StatusOr<ControlledWorker::Checkpoints>>(
          [worker](auto answer) { worker->Checkpoint(std::move(answer)); }, context);
      if (!made.ok()) return ToGrpc(made.status());
      reply->set_regions(reply->regions() + made->regions);
      reply->set_bytes(reply->bytes() + made->bytes);
    }
    return grpc::Status::OK;
  }

  grpc::Status CreateTable(grpc::ServerContext*, const control::CreateTableRequest* request,
                           control::CreateTableReply*) override {
    ControlledWorker* roomy = workers_[0];
    for (size_t most = 0; ControlledWorker* const worker : workers_) {
      const absl::StatusOr<Holding> holding = AskForRegions(worker);
      if (!holding.ok()) return ToGrpc(holding.status());
      if (holding->room <= most) continue;
      most = holding->room;
      roomy = worker;
    }
    return ToGrpc(Order<absl::Status>([roomy, request](auto answer) {
      roomy->CreateTable(request->table(), request->bucket_bytes(), request->parts(), std::move(answer));
    }));
  }

  grpc::Status DropTable(grpc::ServerContext*, const control::DropTableRequest* request,
                         control::DropTableReply*) override {
    return ToGrpc(Order<absl::Status>(
        [this, request](auto answer) { workers_[0]->DropTable(request->table(), std::move(answer)); }));
  }

  grpc::Status SetEviction(grpc::ServerContext*, const control::SetEvictionRequest* request,
                           control::SetEvictionReply*) override {
    return ToGrpc(Order<absl::Status>([this, request](auto answer) {
      workers_[0]->SetEviction(request->table(), request->prefix(), request->evict(), std::move(answer));
    }));
  }

  grpc::Status ChangeGrant(grpc::ServerContext*, const control::ChangeGrantRequest* request,
                           control::ChangeGrantReply*) override {
    const ControlledWorker::GrantChange change{request->user(),
                                               request->rights(),
                                               {request->everything(), request->table(), request->prefix()},
                                               request->revoke()};
    return ToGrpc(
        Order<absl::Status>([this, &change](auto answer) { workers_[0]->ChangeGrant(change, std::move(answer)); }));
  }

  grpc::Status EnforceGrants(grpc::ServerContext*, const control::EnforceGrantsRequest* request,
                             control::EnforceGrantsReply*) override {
    return ToGrpc(Order<absl::Status>(
        [this, request](auto answer) { workers_[0]->EnforceGrants(request->enforce(), std::move(answer)); }));
  }

  // Returns whether a client administers these pairs. If the worker does not answer, it does not.
  bool Administers(const std::string& client, const ControlledWorker::Scope& scope) const {
    if (workers_.empty()) return false;
    const absl::StatusOr<bool> answered =
        Ask<bool>([&](auto answer) { workers_[0]->Administers(client, scope, std::move(answer)); });
    return answered.ok() && *answered;
  }

  grpc::Status SetLogLevel(grpc::ServerContext*, const control::SetLogLevelRequest* request,
                           control::SetLogLevelReply*) override {
    for (const char* level : {"trace", "debug", "info", "warning", "error"}) {
      if (request->level() != level) continue;
      spdlog::set_level(spdlog::level::from_str(level));
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::INVALID_ARGUMENT, "the log level must be trace, debug, info, warning or error"};
  }

  // Ends waiting requests, because the workers accept no more work.
  void End() { ending_ = true; }

 private:
  using Holding = ControlledWorker::Holding;

  // Waits for a worker. Returns false if it has not answered in time, or if the server ends.
  template <typename T>
  bool Wait(const std::future<T>& future) const {
    const int64_t until_ns = clock_->NowNs() + answer_timeout_.count();
    while (future.wait_for(kEndLook) != std::future_status::ready) {
      if (ending_ || clock_->NowNs() > until_ns) return false;
    }
    return true;
  }

  // Calls `begin` with a function that takes the answer. The answer may come after the request has ended.
  template <typename T, typename Begin>
  static std::future<T> Start(Begin begin) {
    auto result = std::make_shared<std::promise<T>>();
    std::future<T> future = result->get_future();
    begin([result](T answer) { result->set_value(std::move(answer)); });
    return future;
  }

  // Asks a worker a question, which it answers at once.
  template <typename T, typename Begin>
  absl::StatusOr<T> Ask(Begin begin) const {
    std::future<T> future = Start<T>(begin);
    if (!Wait(future)) return ending_ ? Ends() : absl::DeadlineExceededError("the worker does not answer");
    return future.get();
  }
  absl::StatusOr<Holding> AskForRegions(ControlledWorker* worker) const {
    return Ask<Holding>([worker](auto answer) { worker->Regions(std::move(answer)); });
  }

  // Gives a worker an order and returns the result, a Status or StatusOr. With `context`, the call takes as long as
  // necessary, or until its client stops waiting.
  template <typename Result, typename Begin>
  Result Order(Begin begin, grpc::ServerContext* context = nullptr) const {
    std::future<Result> future = Start<Result>(begin);
    while (context != nullptr && future.wait_for(kEndLook) != std::future_status::ready) {
      if (context->IsCancelled()) return absl::CancelledError("the caller stopped waiting; the operation continues");
      if (ending_) return Ends();
    }
    if (!Wait(future)) {
      return ending_ ? Ends() : absl::DeadlineExceededError("the operation takes longer than a minute; it continues");
    }
    return future.get();
  }

  // Gives the order to the worker that holds the region.
  template <typename Begin>
  grpc::Status OnOwner(uint32_t region, Begin begin) const {
    for (ControlledWorker* worker : workers_) {
      const absl::StatusOr<bool> here =
          Ask<bool>([worker, region](auto answer) { worker->Holds(region, std::move(answer)); });
      if (!here.ok()) return ToGrpc(here.status());
      if (!*here) continue;
      return ToGrpc(Order<absl::Status>([worker, begin](auto answer) { begin(worker, std::move(answer)); }));
    }
    return {grpc::StatusCode::NOT_FOUND, fmt::format("this server does not hold region {}", region)};
  }

  const std::vector<ControlledWorker*> workers_;
  const std::chrono::nanoseconds answer_timeout_;
  const Clock* const clock_;
  std::atomic<bool> ending_ = false;
};

// One socket where the control plane listens, with a gRPC server of its own.
struct ControlServer::Endpoint {
  ~Endpoint() {
    if (listener != nullptr) listener->Stop();
    if (server != nullptr) server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  }

  std::unique_ptr<ControlListener> listener;  // Outlives the server's calls, which are uses of it.
  std::unique_ptr<GuardedService> service;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
};

ControlServer::ControlServer() = default;
ControlServer::~ControlServer() {
  if (service_ != nullptr) service_->End();
  endpoints_.clear();
  if (!socket_.empty()) ::unlink(socket_.c_str());
}

size_t ControlServer::connections() const {
  size_t count = 0;
  for (const auto& endpoint : endpoints_) count += endpoint->listener->connections();
  return count;
}

std::string ControlAddressOf(const ControlOptions& options) {
  using Kind = ControlAddress::Kind;
  std::vector<ControlAddress> addresses;
  if (!options.address.empty()) {
    addresses.push_back({options.tls.any() ? Kind::kTls : Kind::kPlain, options.address, {}});
  }
  if (!options.socket.empty()) addresses.push_back({Kind::kUnix, options.socket, ControlMachine()});
  return ToString(std::move(addresses));
}

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const ControlOptions& options,
                                                                    std::vector<ControlledWorker*> workers) {
  const bool tls = options.tls.any();
  if (tls && options.address.empty()) {
    return absl::InvalidArgumentError(
        "certificates are for the control plane's TCP port: give --control HOST:PORT, too");
  }
  if (!options.address.empty() && !tls && !options.insecure) {
    return absl::InvalidArgumentError(fmt::format(
        "everyone who can reach the control plane at {} could drop tables: give --tls-certificate, --tls-key and "
        "--tls-authority",
        options.address));
  }
  static const bool told [[maybe_unused]] = [] {
    google::protobuf::SetLogHandler(nullptr);  // It logs each malformed message of a stranger, without a limit.
    gpr_set_log_function(LogOfGrpc);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  std::unique_ptr<ControlServer> control(new ControlServer());
  control->service_ = std::make_unique<RpcService>(std::move(workers), options);
  control->auditor_ = std::make_unique<Auditor>(options.server, options.audit, options.clock);
  ControlOptions bound = options;
  if (!options.address.empty()) {
    ASSIGN_OR_RETURN(bound.address, control->ListenTcp(options));
  }
  if (!options.socket.empty()) RETURN_IF_ERROR(control->ListenUnix(options));
  control->address_ = ControlAddressOf(bound);
  return control;
}

absl::StatusOr<std::string> ControlServer::ListenTcp(const ControlOptions& options) {
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (options.tls.any()) {
    ASSIGN_OR_RETURN(credentials, ServerTls(options.tls, options.tls_refresh_s));
  }
  absl::StatusOr<Fd> socket = cell::ListenTcp(options.address);
  if (!socket.ok()) {
    return absl::InvalidArgumentError(fmt::format("the control plane cannot listen at {}: {}", options.address,
                                                  std::string(socket.status().message())));
  }
  std::string address = BoundAddress(socket->get(), options.address);
  auto endpoint = std::make_unique<Endpoint>();
  ControlListener::Options limits;
  limits.connections_max = options.connections_max;
  endpoint->listener = std::make_unique<ControlListener>(*std::move(socket), std::move(limits));
  endpoint->service = std::make_unique<GuardedService>(
      service_.get(), auditor_.get(),
      [listener = endpoint->listener.get(), by_certificate = options.tls.any()](const grpc::ServerContext& context,
                                                                                std::shared_ptr<void>* held) {
        Caller caller = by_certificate ? CallerByTls(context) : Caller{Role::kOperator, "anyone", {}};
        caller.from = PeerText(context.peer());
        if (std::optional<ControlListener::Use> use = listener->Begin(context.peer())) {
          *held = std::make_shared<ControlListener::Use>(*std::move(use));
        }
        return caller;
      },
      [service = service_.get()](const std::string& client, const ControlledWorker::Scope& scope) {
        return service->Administers(client, scope);
      });
  grpc::ServerBuilder builder;
  Limit(options, &builder);
  // Reflection and health are for those who may ask, which they do not check themselves.
  builder.SetOption(std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
  builder.SetOption(std::make_unique<WithoutReflection>());
  builder.RegisterService(endpoint->service.get());
  endpoint->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, std::move(credentials));
  endpoint->server = builder.BuildAndStart();
  if (endpoint->server == nullptr) return absl::InternalError("gRPC does not start");
  endpoint->listener->Start([acceptor = endpoint->acceptor.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
  endpoints_.push_back(std::move(endpoint));
  return address;
}

absl::Status ControlServer::ListenUnix(const ControlOptions& options) {
  ASSIGN_OR_RETURN(Fd socket, ListenControlSocket(options.socket, options.socket_mode));
  socket_ = options.socket;
  auto endpoint = std::make_unique<Endpoint>();
  ControlListener::Options limits;
  limits.connections_max = options.connections_max;
  limits.admits = options.admits;
  if (!limits.admits) limits.admits = [](uid_t user) { return user == ::geteuid() || user == 0; };
  limits.kept_out = [auditor = auditor_.get()](uid_t user) {
    AuditEntry entry;
    entry.event = "kept_out";
    entry.caller = {std::nullopt, fmt::format("uid/{}", user), "unix"};
    auditor->Refuse(std::move(entry));
  };
  endpoint->listener = std::make_unique<ControlListener>(std::move(socket), std::move(limits));
  endpoint->service = std::make_unique<GuardedService>(
      service_.get(), auditor_.get(),
      [listener = endpoint->listener.get()](const grpc::ServerContext& context, std::shared_ptr<void>* held) {
        std::optional<ControlListener::Use> use = listener->Begin(context.peer());
        if (!use.has_value() || !use->uid().has_value()) return Caller{std::nullopt, {}, "unix"};
        Caller caller{Role::kOperator, fmt::format("uid/{}", *use->uid()), "unix"};
        *held = std::make_shared<ControlListener::Use>(*std::move(use));
        return caller;
      },
      // Nobody is a client here.
      [](const std::string&, const ControlledWorker::Scope&) { return false; });
  grpc::ServerBuilder builder;
  Limit(options, &builder);
  builder.RegisterService(endpoint->service.get());
  endpoint->server = builder.BuildAndStart();
  if (endpoint->server == nullptr) return absl::InternalError("gRPC does not start");
  endpoint->listener->Start([server = endpoint->server.get()](int fd) { grpc::AddInsecureChannelFromFd(server, fd); });
  endpoints_.push_back(std::move(endpoint));
  return absl::OkStatus();
}

}  // namespace cell

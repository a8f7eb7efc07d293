#include "cell/control/control_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <chrono>
#include <future>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/control/control.grpc.pb.h"
#include "cell/io/file/text_file.h"
#include "cell/server/region/region_state.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

// How long an operator waits for a split or a migration. A drain takes as long as necessary.
constexpr std::chrono::seconds kAnswerTimeout{60};
constexpr std::chrono::milliseconds kEndLook{20};  // How often a waiting request checks whether the server ends.

absl::Status Ends() { return absl::UnavailableError("this server is shutting down"); }

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Credentials(const ControlOptions& options) {
  if (options.tls_certificate.empty() && options.tls_key.empty() && options.tls_authority.empty()) {
    return grpc::InsecureServerCredentials();
  }
  if (options.tls_certificate.empty() || options.tls_key.empty()) {
    return absl::InvalidArgumentError("TLS needs both --tls-certificate and --tls-key");
  }
  grpc::SslServerCredentialsOptions tls;
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  ASSIGN_OR_RETURN(pair.cert_chain, ReadNamedFile(options.tls_certificate));
  ASSIGN_OR_RETURN(pair.private_key, ReadNamedFile(options.tls_key));
  tls.pem_key_cert_pairs.push_back(std::move(pair));
  if (!options.tls_authority.empty()) {
    ASSIGN_OR_RETURN(tls.pem_root_certs, ReadNamedFile(options.tls_authority));
    tls.client_certificate_request = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  return grpc::SslServerCredentials(tls);
}

}  // namespace

class ControlServer::RpcService : public control::Control::Service {
 public:
  explicit RpcService(std::vector<Worker*> workers) : workers_(std::move(workers)) {}

  grpc::Status Status(grpc::ServerContext*, const control::StatusRequest*, control::StatusReply* reply) override {
    for (Worker* worker : workers_) {
      const absl::StatusOr<std::string> json = On<std::string>(
          worker, [](Worker* its) { return absl::StatusOr<std::string>(its->service()->StatusJson(0, SIZE_MAX)); });
      if (!json.ok()) return ToGrpc(json.status());
      reply->add_worker_json(*json);
    }
    return grpc::Status::OK;
  }

  grpc::Status Regions(grpc::ServerContext*, const control::RegionsRequest*, control::RegionsReply* reply) override {
    uint32_t free = 0;
    for (uint32_t i = 0; i < workers_.size(); ++i) {
      const absl::StatusOr<control::RegionsReply> part = On<control::RegionsReply>(workers_[i], [i](Worker* its) {
        control::RegionsReply listed;
        for (const HeldRegion* held : its->regions()->all()) {
          control::RegionsReply::Region* region = listed.add_regions();
          region->set_region(held->region());
          region->set_worker(i);
          const RegionTable& table = its->membership()->state().table;
          const RegionTable::Entry* entry = table.Find(held->region());
          region->set_epoch(entry != nullptr ? entry->epoch : 0);
          region->set_tier(held->tree != nullptr ? held->tree->tier() : 0);
          const auto hash_parts = table.TableOf(held->region());
          if (hash_parts != table.tables.end()) region->set_table(hash_parts->first);
          region->set_keys(held->store->keys());
          region->set_fill(held->store->fill());
          region->set_busy(held->claimed());
          region->set_state(StateOf(*held));
        }
        listed.set_free(static_cast<uint32_t>(its->regions()->regions_max() - its->regions()->size()));
        return absl::StatusOr<control::RegionsReply>(std::move(listed));
      });
      if (!part.ok()) return ToGrpc(part.status());
      reply->MergeFrom(*part);
      free += part->free();
    }
    reply->set_free(free);
    if (workers_.empty()) return grpc::Status::OK;
    const absl::StatusOr<RegionTable> table = On<RegionTable>(
        workers_[0], [](Worker* its) { return absl::StatusOr<RegionTable>(its->membership()->state().table); });
    if (!table.ok()) return ToGrpc(table.status());
    reply->set_table_version(table->version);
    for (const auto& [id, entry] : table->regions) {
      control::RegionsReply::Owner* owner = reply->add_owners();
      owner->set_region(id);
      owner->set_server(entry.owner.server);
      owner->set_worker(entry.owner.worker);
      owner->set_epoch(entry.epoch);
      owner->set_recovering(entry.recovering);
      owner->set_in_making(entry.split_parent.has_value());
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const control::AllocateRequest* request,
                        control::AllocateReply* reply) override {
    for (uint32_t i = 0; i < workers_.size(); ++i) {  // Each worker prepares its share.
      const auto workers = static_cast<uint32_t>(workers_.size());
      const uint32_t count = request->count() / workers + (i < request->count() % workers);
      const absl::Status status =
          Task1(workers_[i], [count](Worker* its) { return its->allocator()->PrepareMemory(count); });
      if (!status.ok()) return ToGrpc(status);
      const absl::StatusOr<size_t> ready =
          On<size_t>(workers_[i], [](Worker* its) { return absl::StatusOr<size_t>(its->regions()->free()); });
      if (!ready.ok()) return ToGrpc(ready.status());
      reply->set_ready(reply->ready() + static_cast<uint32_t>(*ready));
    }
    return grpc::Status::OK;
  }

  grpc::Status Split(grpc::ServerContext*, const control::SplitRequest* request, control::SplitReply*) override {
    const uint32_t region = request->region();
    return OnOwner(region, [region](Worker* its) { return its->splitter()->Split(region); });
  }

  grpc::Status Move(grpc::ServerContext*, const control::MoveRequest* request, control::MoveReply*) override {
    const uint32_t region = request->region();
    WorkerId to{request->server(), request->worker()};
    return OnOwner(region, [region, to](Worker* its) { return its->migrator()->Migrate(region, to); });
  }

  grpc::Status Drain(grpc::ServerContext* context, const control::DrainRequest* request,
                     control::DrainReply*) override {
    const bool cancel = request->cancel();
    const absl::Status status =
        Task1(workers_[0], [cancel](Worker* its) { return its->rebalancer()->SetDraining(!cancel); });
    if (!status.ok() || cancel) return ToGrpc(status);
    while (!context->IsCancelled()) {
      size_t left = 0;
      absl::Status stuck;
      bool draining = true;
      for (Worker* worker : workers_) {
        struct Look {
          size_t left;
          bool draining;
          absl::Status stuck;
        };
        const absl::StatusOr<Look> its = On<Look>(worker, [](Worker* w) {
          return absl::StatusOr<Look>(
              Look{w->regions()->size(), w->rebalancer()->draining(), w->rebalancer()->DrainStuck()});
        });
        if (!its.ok()) return ToGrpc(its.status());
        left += its->left;
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
    for (Worker* worker : workers_) {
      auto moved = std::make_shared<uint64_t>(0);
      const absl::Status status = Task1(
          worker, [moved](Worker* its) { return its->rebalancer()->Rebalance(moved.get()); }, context);
      if (!status.ok()) return ToGrpc(status);
      reply->set_moved(reply->moved() + *moved);
    }
    return grpc::Status::OK;
  }

  grpc::Status Checkpoint(grpc::ServerContext* context, const control::CheckpointRequest*,
                          control::CheckpointReply* reply) override {
    for (Worker* worker : workers_) {
      auto made = std::make_shared<Checkpointer::Made>();
      const absl::Status status = Task1(
          worker, [made](Worker* its) { return its->checkpointer()->CheckpointAll(made.get()); }, context);
      if (!status.ok()) return ToGrpc(status);
      reply->set_regions(reply->regions() + made->regions);
      reply->set_bytes(reply->bytes() + made->bytes);
    }
    return grpc::Status::OK;
  }

  grpc::Status CreateTable(grpc::ServerContext*, const control::CreateTableRequest* request,
                           control::CreateTableReply*) override {
    Worker* roomy = workers_[0];
    for (size_t most = 0; Worker* const worker : workers_) {
      const absl::StatusOr<size_t> room = On<size_t>(worker, [](Worker* its) {
        const size_t max = its->regions()->regions_max();
        return absl::StatusOr<size_t>(max - std::min(its->regions()->size(), max));
      });
      if (!room.ok()) return ToGrpc(room.status());
      if (*room <= most) continue;
      most = *room;
      roomy = worker;
    }
    return ToGrpc(Task1(
        roomy, [name = request->table(), bucket_bytes = request->bucket_bytes(),
                parts = request->parts()](Worker* its) { return its->tables()->Create(name, bucket_bytes, parts); }));
  }

  grpc::Status DropTable(grpc::ServerContext*, const control::DropTableRequest* request,
                         control::DropTableReply*) override {
    return ToGrpc(Task1(workers_[0], [name = request->table()](Worker* its) { return its->tables()->Drop(name); }));
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

  std::unique_ptr<grpc::Server> server;

 private:
  // Waits for a worker. Returns false if it has not answered in time, or if the server ends.
  template <typename T>
  bool Wait(const std::future<T>& future) const {
    const auto until = std::chrono::steady_clock::now() + kAnswerTimeout;
    while (future.wait_for(kEndLook) != std::future_status::ready) {
      if (ending_ || std::chrono::steady_clock::now() > until) return false;
    }
    return true;
  }

  // Executes `work` on the worker's thread.
  template <typename T, typename Work>
  absl::StatusOr<T> On(Worker* worker, Work work) {
    auto result = std::make_shared<std::promise<absl::StatusOr<T>>>();
    std::future<absl::StatusOr<T>> future = result->get_future();
    worker->Post([result, work](Worker* its) { result->set_value(work(its)); });
    if (!Wait(future)) return ending_ ? Ends() : absl::DeadlineExceededError("the worker does not answer");
    return future.get();
  }

  // Runs a coroutine on the worker's thread. With `context`, the call takes as long as necessary, or until its client
  // stops waiting.
  template <typename Work>
  absl::Status Task1(Worker* worker, Work work, grpc::ServerContext* context = nullptr) {
    auto result = std::make_shared<std::promise<absl::Status>>();
    std::future<absl::Status> future = result->get_future();
    worker->Post([result, work](Worker* its) { its->scheduler()->Spawn(Finish(its, work, result)); });
    while (context != nullptr && future.wait_for(kEndLook) != std::future_status::ready) {
      if (context->IsCancelled()) return absl::CancelledError("the caller stopped waiting; the operation continues");
      if (ending_) return Ends();
    }
    if (!Wait(future)) {
      return ending_ ? Ends() : absl::DeadlineExceededError("the operation takes longer than a minute; it continues");
    }
    return future.get();
  }
  template <typename Work>
  static Task<bool> Finish(Worker* worker, Work work, std::shared_ptr<std::promise<absl::Status>> result) {
    absl::Status status = co_await work(worker);
    result->set_value(std::move(status));
    co_return true;
  }

  template <typename Work>
  grpc::Status OnOwner(uint32_t region, Work work) {
    for (Worker* worker : workers_) {
      const absl::StatusOr<bool> here = On<bool>(
          worker, [region](Worker* its) { return absl::StatusOr<bool>(its->regions()->Find(region) != nullptr); });
      if (!here.ok()) return ToGrpc(here.status());
      if (*here) return ToGrpc(Task1(worker, work));
    }
    return {grpc::StatusCode::NOT_FOUND, fmt::format("this server does not hold region {}", region)};
  }

  const std::vector<Worker*> workers_;
  std::atomic<bool> ending_ = false;
};

ControlServer::ControlServer(std::unique_ptr<RpcService> service, std::string address)
    : service_(std::move(service)), address_(std::move(address)) {}
ControlServer::~ControlServer() {
  service_->End();
  service_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
}

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const ControlOptions& options,
                                                                    std::vector<Worker*> workers) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials, Credentials(options));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto service = std::make_unique<RpcService>(std::move(workers));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.address, credentials, &port);
  builder.RegisterService(service.get());
  service->server = builder.BuildAndStart();
  if (service->server == nullptr || port == 0) {
    return absl::InvalidArgumentError(fmt::format("the control plane cannot listen at {}", options.address));
  }
  std::string address = fmt::format("{}:{}", options.address.substr(0, options.address.rfind(':')), port);
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(service), std::move(address)));
}

}  // namespace cell

#include "cell/client/client.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/client/call/apply.h"
#include "cell/client/check/cluster_check.h"
#include "cell/client/session/session.h"
#include "cell/client/table/table_operations.h"
#include "cell/client/tree/range_operations.h"
#include "cell/client/tree/tree_operations.h"
#include "cell/cluster/open/open_membership.h"
#include "cell/io/fabric/open/open_fabric.h"
#include "cell/io/net/credentials.h"
#include "cell/io/net/unix_peer.h"
#include "cell/layout/wire.h"
#include "fmt/format.h"

namespace cell {

std::string_view ToString(Path path) {
  switch (path) {
    case Path::kServer:
      return "server";
    case Path::kClient:
      return "client";
    case Path::kHybrid:
      return "hybrid";
  }
  return "?";
}

std::optional<Path> ParsePath(std::string_view text) {
  for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
    if (ToString(path) == text) return path;
  }
  return std::nullopt;
}

ScanOptions PrefixScan(std::string_view prefix) {
  ScanOptions options;
  options.from = prefix;
  // The first key after all with this prefix: increment the last byte that is not 255.
  std::string to(prefix);
  while (!to.empty() && static_cast<unsigned char>(to.back()) == 0xff) to.pop_back();
  if (!to.empty()) {
    to.back() = static_cast<char>(to.back() + 1);
    options.to = to;
  }
  return options;
}

Client::Client(std::unique_ptr<Session> session) : session_(std::move(session)) {}
Client::~Client() {
  Close();
  if (session_->inherited()) static_cast<void>(session_.release());  // It is the parent's.
}

void Client::Close() {
  if (!session_->inherited()) session_->Close();
}

namespace {

constexpr size_t kGetsAtOnce = 256;  // Per MultiGet.
constexpr int64_t kTakeoverPauseNs = 20'000'000;
constexpr int64_t kOpenMinUs = 1'000'000;

WriteCondition OnWire(const Condition& condition) {
  switch (condition.kind()) {
    case Condition::Kind::kAbsent:
      return {ConditionKind::kAbsent};
    case Condition::Kind::kPresent:
      return {ConditionKind::kPresent};
    case Condition::Kind::kStamp:
      return {ConditionKind::kStamp, condition.stamp()};
    case Condition::Kind::kValue:
      return {ConditionKind::kValue, 0, condition.value()};
  }
  return {ConditionKind::kAbsent};
}

// Connects to the root. Waits while its server is gone and others are about to take over.
Task<absl::Status> ConnectToRoot(Session* session) {
  const CallContext context = session->ContextOf({});
  for (;;) {
    const uint32_t root = session->view()->root().region();
    const absl::Status status = (co_await session->view()->Connect(root, context.deadline_ns)).status();
    const bool may_help =
        !absl::IsPermissionDenied(status) && (session->view()->WillBeServed(root) || session->view()->IsSilent(root));
    if (status.ok() || !may_help || session->NowNs() >= context.deadline_ns) co_return status;
    co_await session->loop()->SleepUntil(std::min(context.deadline_ns, session->now_ns() + kTakeoverPauseNs));
    co_await session->view()->Refresh(context.deadline_ns);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const ClientOptions& options) {
  // Even a client that waits for no answer gives its first connection time to be made.
  const int64_t timeout_ns = std::clamp(options.timeout_us, kOpenMinUs, INT64_MAX / 1000) * 1000;
  ASSIGN_OR_RETURN(std::unique_ptr<Membership> membership,
                   OpenMembership(options.cluster, options.zookeeper_digest, timeout_ns));
  const std::string secret = options.secret_file.empty() ? SecretFileIn(options.cluster) : options.secret_file;
  ASSIGN_OR_RETURN(std::shared_ptr<CredentialFiles> credentials,
                   CredentialFiles::Open({secret, options.tls_authority, options.tls_certificate, options.tls_key}));
  ASSIGN_OR_RETURN(std::unique_ptr<Fabric> fabric,
                   OpenFabric({.kind = options.fabric,
                               .polling = options.busy_poll ? Polling::kBusy : Polling::kAdaptive,
                               .credentials = std::move(credentials),
                               .rdma_device = options.rdma_device,
                               .rdma_gid_index = options.rdma_gid_index,
                               .rdma_mtu = options.rdma_mtu}));
  fabric->SetSelf(IdentityOf(Role::kOperator, UserName()));
  return Over(options, std::move(fabric), std::move(membership));
}

absl::StatusOr<std::unique_ptr<Client>> Client::Over(const ClientOptions& options, std::unique_ptr<Fabric> fabric,
                                                     std::unique_ptr<Membership> membership) {
  if (!ParseSelector(options.selector).has_value()) {
    return absl::InvalidArgumentError(fmt::format("unknown selector \"{}\"", options.selector));
  }
  std::unique_ptr<Client> client(
      new Client(std::make_unique<Session>(options, std::move(fabric), std::move(membership))));
  if (options.connect) RETURN_IF_ERROR(client->Connect());
  return client;
}

absl::Status Client::Connect() {
  if (!connected_) RETURN_IF_ERROR(Run(ConnectToRoot(session_.get())));
  connected_ = true;
  return absl::OkStatus();
}

// Moments that cannot be are sent as others that the server refuses for the same reason.
Expires Expires::AfterUs(int64_t us) {
  constexpr int64_t kNsPerUs = 1'000;
  if (us <= 0) return Expires(kExpiresAfter);
  const bool beyond = us > static_cast<int64_t>(kExpiryMax) / kNsPerUs;
  return Expires(kExpiresAfter | (beyond ? kExpiryMax : static_cast<uint64_t>(us * kNsPerUs)));
}
Expires Expires::AtNs(uint64_t unix_ns) {
  if (unix_ns == 0) return Expires(1);
  return Expires(unix_ns <= kExpiryMax ? unix_ns : UINT64_MAX);
}

absl::StatusOr<std::optional<std::string>> Client::Get(std::string_view key, const CallOptions& options) {
  return Run(AsyncGet(key, options));
}
absl::StatusOr<std::vector<std::optional<std::string>>> Client::MultiGet(absl::Span<const std::string_view> keys,
                                                                         const CallOptions& options) {
  return Run(AsyncMultiGet(keys, options));
}
absl::StatusOr<bool> Client::Contains(std::string_view key, const CallOptions& options) {
  return Run(AsyncContains(key, options));
}
absl::StatusOr<bool> Client::Put(std::string_view key, std::string_view value, const CallOptions& options) {
  return Run(AsyncPut(key, value, options));
}
absl::StatusOr<bool> Client::Put(std::string_view key, std::string_view value, Expires expires,
                                 const CallOptions& options) {
  return Run(AsyncPut(key, value, expires, options));
}
absl::StatusOr<std::optional<int64_t>> Client::TimeLeftNs(std::string_view key, const CallOptions& options) {
  return Run(AsyncTimeLeftNs(key, options));
}
absl::StatusOr<bool> Client::Delete(std::string_view key, const CallOptions& options) {
  return Run(AsyncDelete(key, options));
}
absl::StatusOr<std::optional<StampedValue>> Client::GetWithStamp(std::string_view key, const CallOptions& options) {
  return Run(AsyncGetWithStamp(key, options));
}
absl::StatusOr<WriteIfResult> Client::PutIf(std::string_view key, std::string_view value, Condition condition,
                                            const CallOptions& options) {
  return Run(AsyncPutIf(key, value, Expires::Never(), condition, options));
}
absl::StatusOr<WriteIfResult> Client::PutIf(std::string_view key, std::string_view value, Expires expires,
                                            Condition condition, const CallOptions& options) {
  return Run(AsyncPutIf(key, value, expires, condition, options));
}
absl::StatusOr<WriteIfResult> Client::DeleteIf(std::string_view key, Condition condition, const CallOptions& options) {
  return Run(AsyncDeleteIf(key, condition, options));
}

absl::StatusOr<ApplyResult> Client::Apply(std::string_view key, const FunctionCall& function,
                                          const CallOptions& options) {
  return Run(AsyncApply(key, function, options));
}
absl::StatusOr<std::string> Client::Evaluate(std::string_view key, const FunctionCall& function,
                                             const CallOptions& options) {
  return Run(AsyncEvaluate(key, function, options));
}
absl::StatusOr<uint64_t> Client::Count(std::string_view from, std::optional<std::string_view> to,
                                       const RangeOptions& options) {
  return Run(AsyncCount(from, to, options));
}
absl::StatusOr<uint64_t> Client::DeleteRange(std::string_view from, std::optional<std::string_view> to,
                                             const RangeOptions& options) {
  return Run(AsyncDeleteRange(from, to, options));
}

Task<bool> Client::AsyncSleepUntil(int64_t at_ns) {
  co_await session_->loop()->SleepUntil(at_ns);
  co_return true;
}

void Client::Poll(int64_t until_ns) { session_->Poll(until_ns); }
int Client::WaitFd() { return session_->WaitFd(); }
int64_t Client::BeginWait() { return session_->BeginWait(); }
void Client::EndWait() { session_->EndWait(); }
int64_t Client::NowNs() const { return session_->NowNs(); }
std::vector<Client::ServerInfo> Client::Servers() {
  Run(session_->view()->Refresh(session_->ContextOf({}).deadline_ns));  // A server that was restarted has another.
  std::vector<ServerInfo> servers;
  for (const ClusterState::Server& server : session_->view()->cluster().servers)
    servers.push_back({server.name, server.control});
  return servers;
}
Client::RegionList Client::Regions() {
  Run(session_->view()->Refresh(session_->ContextOf({}).deadline_ns));
  const RegionTable& table = session_->view()->cluster().table;
  RegionList list{{}, table.root, table.regions_max};
  for (const auto& [region, entry] : table.regions) {
    list.regions.push_back(
        {region, entry.epoch, entry.owner.server, entry.recovering, /*in_making=*/entry.split_parent.has_value()});
  }
  return list;
}
size_t Client::key_bytes_max() const { return KeyBytesMax(session_->node_bytes()); }
const ClientMetrics& Client::metrics() const { return *session_->metrics(); }
void Client::ResetMetrics() { *session_->metrics() = ClientMetrics(); }

std::vector<absl::StatusOr<std::string>> Client::ServerStatus() { return StatusOfAll(session_.get()); }
absl::StatusOr<Client::ClusterCheck> Client::Check() { return CheckCluster(session_.get()); }

Task<absl::StatusOr<Value>> Client::AsyncGet(std::string_view key, CallOptions options) {
  return GetFromTree(session_.get(), key, options);
}
Task<absl::StatusOr<bool>> Client::AsyncContains(std::string_view key, CallOptions options) {
  return ContainsInTree(session_.get(), key, options);
}
Task<absl::StatusOr<bool>> Client::AsyncPut(std::string_view key, std::string_view value, CallOptions options) {
  return WriteToTree<bool>(session_.get(), {key, value}, options);
}
Task<absl::StatusOr<bool>> Client::AsyncPut(std::string_view key, std::string_view value, Expires expires,
                                            CallOptions options) {
  return WriteToTree<bool>(session_.get(), {key, value, expires.on_wire()}, options);
}
Task<absl::StatusOr<std::optional<StampedValue>>> Client::AsyncGetWithStamp(std::string_view key, CallOptions options) {
  return GetStampedFromTree(session_.get(), key, options);
}
Task<absl::StatusOr<WriteIfResult>> Client::AsyncPutIf(std::string_view key, std::string_view value, Expires expires,
                                                       Condition condition, CallOptions options) {
  return WriteToTree<WriteIfResult>(session_.get(), {key, value, expires.on_wire(), OnWire(condition)}, options);
}
Task<absl::StatusOr<WriteIfResult>> Client::AsyncDeleteIf(std::string_view key, Condition condition,
                                                          CallOptions options) {
  return WriteToTree<WriteIfResult>(session_.get(), {key, std::nullopt, kNeverExpires, OnWire(condition)}, options);
}
Task<absl::StatusOr<ApplyResult>> Client::AsyncApply(std::string_view key, const FunctionCall& function,
                                                     CallOptions options) {
  return ApplyToKey(session_.get(), nullptr, key, function, options);
}
Task<absl::StatusOr<std::string>> Client::AsyncEvaluate(std::string_view key, const FunctionCall& function,
                                                        CallOptions options) {
  return EvaluateKey(session_.get(), nullptr, key, function, options);
}
Task<absl::StatusOr<std::optional<int64_t>>> Client::AsyncTimeLeftNs(std::string_view key, CallOptions options) {
  return TimeLeftInTree(session_.get(), key, options);
}
Task<absl::StatusOr<bool>> Client::AsyncDelete(std::string_view key, CallOptions options) {
  return WriteToTree<bool>(session_.get(), {key}, options);
}
Task<absl::StatusOr<uint64_t>> Client::AsyncCount(std::string_view from, std::optional<std::string_view> to,
                                                  RangeOptions options) {
  return CountInTree(session_.get(), from, to, std::move(options));
}
Task<absl::StatusOr<uint64_t>> Client::AsyncDeleteRange(std::string_view from, std::optional<std::string_view> to,
                                                        RangeOptions options) {
  return DeleteRangeInTree(session_.get(), from, to, std::move(options));
}
Scan Client::NewScan(ScanOptions options) { return Scan(session_.get(), std::move(options)); }

Task<absl::StatusOr<std::vector<Value>>> Client::AsyncMultiGet(absl::Span<const std::string_view> keys,
                                                               CallOptions options) {
  std::vector<Task<absl::StatusOr<Value>>> gets;
  std::vector<Value> values;
  absl::Status status;
  gets.reserve(keys.size());
  values.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    for (; gets.size() < std::min(keys.size(), i + kGetsAtOnce); gets.back().Start()) {
      gets.push_back(AsyncGet(keys[gets.size()], options));
    }
    absl::StatusOr<Value> value = co_await gets[i].Join();  // All gets that were started must end.
    if (value.ok()) {
      values.push_back(*std::move(value));
    } else if (status.ok()) {
      status = value.status();
    }
  }
  if (!status.ok()) co_return status;
  co_return values;
}

absl::StatusOr<Table> Client::OpenTable(const std::string& name) {
  const absl::Status named = RegionTable::CheckTableName(name);
  if (!named.ok()) return named;
  Run(session_->view()->Refresh(session_->ContextOf({}).deadline_ns));
  if (!session_->view()->cluster().table.tables.contains(name)) {
    return absl::NotFoundError(fmt::format("there is no table {}: create it with cellctl hash create", name));
  }
  return Table(this, name);
}

std::vector<Client::TableInfo> Client::Tables() {
  Run(session_->view()->Refresh(session_->ContextOf({}).deadline_ns));
  std::vector<TableInfo> tables;
  const RegionTable& table = session_->view()->cluster().table;
  for (const auto& [name, hash_parts] : table.tables) {
    TableInfo& info = tables.emplace_back(TableInfo{name, hash_parts.bucket_bytes, {}});
    for (const auto& [first, region] : hash_parts.parts) {
      info.parts.push_back({first, region, table.Find(region)->owner.server});
    }
  }
  return tables;
}

Client::EvictionInfo Client::Evictions() {
  Run(session_->view()->Refresh(session_->ContextOf({}).deadline_ns));
  const EvictionRules& rules = session_->view()->cluster().table.evictions;
  EvictionInfo info;
  for (const auto& [prefix, eviction] : rules.by_prefix()) info.by_prefix.emplace(prefix, ToString(eviction));
  for (const auto& [table, eviction] : rules.by_table()) info.by_table.emplace(table, ToString(eviction));
  return info;
}

Client::GrantsInfo Client::Grants() {
  Run(session_->view()->Refresh(session_->ContextOf({}).deadline_ns));
  const cell::Grants& grants = session_->view()->cluster().table.grants;
  GrantsInfo info{grants.enforced(), {}};
  for (const auto& [user, its] : grants.by_user()) {
    for (const auto& [scope, rights] : its) {
      const GrantInfo::Scope kind = scope.kind == GrantScope::Kind::kEverything ? GrantInfo::kEverything
                                    : scope.kind == GrantScope::Kind::kTable    ? GrantInfo::kTable
                                                                                : GrantInfo::kTree;
      info.grants.push_back({user, rights.ToText(), kind, scope.name});
    }
  }
  return info;
}

Task<absl::StatusOr<Value>> Table::AsyncGet(std::string_view key, CallOptions options) {
  return GetFromTable(client_->session_.get(), &name_, key, serializable_, options);
}
Task<absl::StatusOr<bool>> Table::AsyncContains(std::string_view key, CallOptions options) {
  return ContainsInTable(client_->session_.get(), &name_, key, serializable_, options);
}
Task<absl::StatusOr<bool>> Table::AsyncPut(std::string_view key, std::string_view value, CallOptions options) {
  return WriteToTable<bool>(client_->session_.get(), &name_, {key, value}, options);
}
Task<absl::StatusOr<bool>> Table::AsyncPut(std::string_view key, std::string_view value, Expires expires,
                                           CallOptions options) {
  return WriteToTable<bool>(client_->session_.get(), &name_, {key, value, expires.on_wire()}, options);
}
Task<absl::StatusOr<WriteIfResult>> Table::AsyncPutIf(std::string_view key, std::string_view value, Expires expires,
                                                      Condition condition, CallOptions options) {
  return WriteToTable<WriteIfResult>(client_->session_.get(), &name_,
                                     {key, value, expires.on_wire(), OnWire(condition)}, options);
}
Task<absl::StatusOr<WriteIfResult>> Table::AsyncDeleteIf(std::string_view key, Condition condition,
                                                         CallOptions options) {
  return WriteToTable<WriteIfResult>(client_->session_.get(), &name_,
                                     {key, std::nullopt, kNeverExpires, OnWire(condition)}, options);
}
Task<absl::StatusOr<ApplyResult>> Table::AsyncApply(std::string_view key, const FunctionCall& function,
                                                    CallOptions options) {
  return ApplyToKey(client_->session_.get(), &name_, key, function, options);
}
Task<absl::StatusOr<std::string>> Table::AsyncEvaluate(std::string_view key, const FunctionCall& function,
                                                       CallOptions options) {
  return EvaluateKey(client_->session_.get(), &name_, key, function, options);
}
Task<absl::StatusOr<std::optional<int64_t>>> Table::AsyncTimeLeftNs(std::string_view key, CallOptions options) {
  return TimeLeftInTable(client_->session_.get(), &name_, key, options);
}
Task<absl::StatusOr<bool>> Table::AsyncDelete(std::string_view key, CallOptions options) {
  return WriteToTable<bool>(client_->session_.get(), &name_, {key}, options);
}

absl::StatusOr<std::optional<std::string>> Table::Get(std::string_view key, const CallOptions& options) {
  return client_->Run(AsyncGet(key, options));
}
absl::StatusOr<bool> Table::Contains(std::string_view key, const CallOptions& options) {
  return client_->Run(AsyncContains(key, options));
}
absl::StatusOr<bool> Table::Put(std::string_view key, std::string_view value, const CallOptions& options) {
  return client_->Run(AsyncPut(key, value, options));
}
absl::StatusOr<bool> Table::Put(std::string_view key, std::string_view value, Expires expires,
                                const CallOptions& options) {
  return client_->Run(AsyncPut(key, value, expires, options));
}
absl::StatusOr<std::optional<int64_t>> Table::TimeLeftNs(std::string_view key, const CallOptions& options) {
  return client_->Run(AsyncTimeLeftNs(key, options));
}
absl::StatusOr<bool> Table::Delete(std::string_view key, const CallOptions& options) {
  return client_->Run(AsyncDelete(key, options));
}
absl::StatusOr<WriteIfResult> Table::PutIf(std::string_view key, std::string_view value, Condition condition,
                                           const CallOptions& options) {
  return client_->Run(AsyncPutIf(key, value, Expires::Never(), condition, options));
}
absl::StatusOr<WriteIfResult> Table::PutIf(std::string_view key, std::string_view value, Expires expires,
                                           Condition condition, const CallOptions& options) {
  return client_->Run(AsyncPutIf(key, value, expires, condition, options));
}
absl::StatusOr<WriteIfResult> Table::DeleteIf(std::string_view key, Condition condition, const CallOptions& options) {
  return client_->Run(AsyncDeleteIf(key, condition, options));
}

absl::StatusOr<ApplyResult> Table::Apply(std::string_view key, const FunctionCall& function,
                                         const CallOptions& options) {
  return client_->Run(AsyncApply(key, function, options));
}
absl::StatusOr<std::string> Table::Evaluate(std::string_view key, const FunctionCall& function,
                                            const CallOptions& options) {
  return client_->Run(AsyncEvaluate(key, function, options));
}

}  // namespace cell

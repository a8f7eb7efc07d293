#include "cell/client/client.h"

#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "cell/client/region_report.h"
#include "cell/client/session.h"
#include "cell/cluster/open_membership.h"
#include "cell/io/fabric/open/open_fabric.h"
#include "cell/tree/tree_check.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "pilaf/hash_layout.h"

namespace cell {
namespace {

constexpr int kCheckTries = 3;
constexpr int64_t kCheckPauseNs = 100'000'000;

}  // namespace

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
  // The first key after all with this prefix: its last byte that is not 255, plus one.
  std::string to(prefix);
  while (!to.empty() && static_cast<unsigned char>(to.back()) == 0xff) to.pop_back();
  if (!to.empty()) {
    to.back() = static_cast<char>(to.back() + 1);
    options.to = to;
  }
  return options;
}

Client::Client(std::unique_ptr<Session> session) : session_(std::move(session)) {}
Client::~Client() { session_->Close(); }

namespace {

constexpr int64_t kTakeoverPauseNs = 20'000'000;

// The root's server may be gone, and others about to take over.
Task<absl::Status> ConnectToRoot(Session* session) {
  const CallContext context = session->Begin({});
  for (;;) {
    const uint32_t root = session->root().region();
    const absl::Status status = (co_await session->Connect(root, context.deadline_ns)).status();
    const bool may_help = session->WillBeServed(root) || session->IsSilent(root);
    if (status.ok() || !may_help || session->NowNs() >= context.deadline_ns) co_return status;
    co_await session->SleepUntil(std::min(context.deadline_ns, session->now_ns() + kTakeoverPauseNs));
    co_await session->Refresh(context.deadline_ns);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const ClientOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Membership> membership, OpenMembership(options.cluster, options.zookeeper_digest));
  ASSIGN_OR_RETURN(std::unique_ptr<Fabric> fabric,
                   OpenFabric({.kind = options.fabric,
                               .polling = options.busy_poll ? Polling::kBusy : Polling::kAdaptive,
                               .secret_file = options.secret_file,
                               .rdma_device = options.rdma_device,
                               .rdma_gid_index = options.rdma_gid_index,
                               .rdma_mtu = options.rdma_mtu}));
  return Open(options, std::move(fabric), std::move(membership));
}

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const ClientOptions& options, std::unique_ptr<Fabric> fabric,
                                                     std::unique_ptr<Membership> membership) {
  if (!ParseSelector(options.selector).has_value()) {
    return absl::InvalidArgumentError(fmt::format("there is no selector \"{}\"", options.selector));
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
absl::StatusOr<bool> Client::Delete(std::string_view key, const CallOptions& options) {
  return Run(AsyncDelete(key, options));
}

Task<bool> Client::AsyncSleepUntil(int64_t at_ns) {
  co_await session_->SleepUntil(at_ns);
  co_return true;
}

void Client::Poll(int64_t until_ns) { session_->Poll(until_ns); }
int64_t Client::NowNs() const { return session_->NowNs(); }
std::vector<Client::ServerInfo> Client::Servers() const {
  std::vector<ServerInfo> servers;
  for (const ClusterState::Server& server : session_->cluster().servers)
    servers.push_back({server.name, server.control});
  return servers;
}
Client::RegionList Client::Regions() {
  Run(session_->Refresh(session_->Begin({}).deadline_ns));
  const RegionTable& table = session_->cluster().table;
  RegionList list{{}, table.root};
  for (const auto& [region, entry] : table.regions) {
    list.regions.push_back(
        {region, entry.epoch, entry.owner.server, entry.recovering, /*in_making=*/entry.made_for.has_value()});
  }
  return list;
}
size_t Client::key_bytes_max() const { return KeyBytesMax(session_->node_bytes()); }
const ClientMetrics& Client::metrics() const { return *session_->metrics(); }
void Client::RememberRoute(std::string_view low, std::optional<std::string_view> high, uint32_t region) {
  session_->routes()->Keep(low, high, RootOf(region));
}
void Client::ResetMetrics() { *session_->metrics() = ClientMetrics(); }

namespace {

Task<absl::StatusOr<std::string>> AskText(Session* session, ServerConnection* server, MessageKind kind,
                                          std::string text) {
  if (!server->up) {
    absl::Status status = co_await session->Connect(server);
    if (!status.ok())
      co_return absl::Status(status.code(),
                             fmt::format("{}: {}", server->worker.server, std::string(status.message())));
  }
  const CallContext context = session->Begin({});
  const std::string request = MakeTextRequest(kind, text);
  const absl::StatusOr<ConstBytes> reply =
      co_await session->Call(server, request, {}, kMessageBytesMax, context.deadline_ns);
  if (!reply.ok()) co_return reply.status();
  const absl::StatusOr<ConstBytes> answer = ParseBytesReply(*reply, kind);
  if (!answer.ok()) co_return answer.status();
  co_return std::string(AsText(*answer));
}

// All pages of a worker's status as one.
Task<absl::StatusOr<std::string>> AskStatus(Session* session, ServerConnection* server) {
  nlohmann::json whole;
  for (size_t first = 0;;) {
    std::string ask = fmt::format("{}", first);
    const absl::StatusOr<std::string> text = co_await AskText(session, server, MessageKind::kStatus, std::move(ask));
    if (!text.ok()) co_return text.status();
    absl::StatusOr<nlohmann::json> page = ParseJson(*text);
    if (!page.ok() || !JsonView(*page)["regions"].is_array() || first > Pointer::kRegionMax) {
      co_return absl::DataLossError(fmt::format("the status of {} makes no sense", server->worker.server));
    }
    nlohmann::json& regions = (*page)["regions"];
    const size_t listed = regions.size();
    first += listed;
    if (whole.is_null()) {
      whole = *std::move(page);
    } else {
      for (nlohmann::json& region : regions) whole["regions"].push_back(std::move(region));
    }
    if (listed == 0 || first >= JsonView(whole)["regions_held"].Or<uint64_t>(0)) co_return JsonText(whole);
  }
}

}  // namespace

std::vector<absl::StatusOr<std::string>> Client::ServerStatus() {
  std::vector<absl::StatusOr<std::string>> texts;
  for (ServerConnection* const server : session_->AllServers()) {
    texts.push_back(Run(AskStatus(session_.get(), server)));
  }
  return texts;
}

namespace {

// What the owner of a region reports of it. FailedPrecondition: it is not part of the tree yet. NotFound: who should
// hold it, by the newest table, does not.
Task<absl::StatusOr<std::string>> AskCheck(Session* session, uint32_t region, std::string ask) {
  for (int tries = 1;; ++tries) {
    const absl::StatusOr<ServerConnection*> server = co_await session->Connect(region);
    if (!server.ok()) co_return server.status();
    std::string text = ask;
    absl::StatusOr<std::string> report = co_await AskText(session, *server, MessageKind::kCheck, std::move(text));
    if (report.status().code() != absl::StatusCode::kNotFound || tries == kCheckTries) co_return report;
    co_await session->SleepUntil(session->NowNs() + kCheckPauseNs);  // It may have moved just now.
    co_await session->Refresh(session->NowNs() + kCheckPauseNs);
  }
}

// Whether the parts of each table are what the region table says. `ranges`: as the regions themselves say.
void CheckParts(const RegionTable& table, const std::map<uint32_t, HashRange>& ranges,
                std::vector<std::string>* errors) {
  for (const auto& [name, hash_parts] : table.tables) {
    for (auto part = hash_parts.parts.begin(); part != hash_parts.parts.end(); ++part) {
      const auto next = std::next(part);
      const HashRange expected{part->first, next == hash_parts.parts.end() ? UINT32_MAX : next->first - 1};
      const auto range = ranges.find(part->second);
      if (range != ranges.end() && range->second != expected) {
        errors->push_back(
            fmt::format("table {}: region {} has places {:#010x} to {:#010x}, and the region table says "
                        "{:#010x} to {:#010x}",
                        name, part->second, range->second.first, range->second.last, expected.first, expected.last));
      }
    }
  }
}

}  // namespace

absl::StatusOr<Client::ClusterCheck> Client::Check() {
  ClusterCheck check;
  std::vector<TreeReport> reports;
  std::map<uint32_t, HashRange> ranges;
  Run(session_->Refresh(session_->Begin({}).deadline_ns));
  const std::map<uint32_t, RegionTable::Entry> regions(session_->cluster().table.regions.begin(),
                                                       session_->cluster().table.regions.end());
  for (const auto& [region, entry] : regions) {
    const absl::StatusOr<std::string> text = Run(AskCheck(session_.get(), region, fmt::format("{}", region)));
    if (text.status().code() == absl::StatusCode::kFailedPrecondition) continue;
    if (text.status().code() == absl::StatusCode::kNotFound) {
      check.errors.push_back(std::string(text.status().message()));
      continue;
    }
    if (!text.ok()) return text.status();
    const auto nonsense = [region = region](const absl::Status& status) {
      return absl::DataLossError(
          fmt::format("the report of region {} makes no sense: {}", region, std::string(status.message())));
    };
    absl::StatusOr<RegionReport> report = ParseRegionReport(*text);
    if (!report.ok()) return nonsense(report.status());
    for (const std::string& error : report->errors) {
      check.errors.push_back(report->hash.has_value() ? error : fmt::format("region {}: {}", region, error));
    }
    check.regions_json.push_back(*text);
    if (report->hash.has_value()) {
      ranges[region] = *report->hash;
      check.table_keys += report->tree.keys;
      continue;
    }
    while (report->tree.routes.size() < report->routes) {
      const std::string ask = fmt::format("{} {}", region, report->tree.routes.size());
      ASSIGN_OR_RETURN(const std::string part, Run(AskCheck(session_.get(), region, ask)));
      const absl::StatusOr<size_t> listed = ParseRoutes(part, &report->tree);
      if (!listed.ok()) return nonsense(listed.status());
      if (*listed == 0) break;  // It has fewer by now.
    }
    reports.push_back(std::move(report->tree));
  }
  CheckParts(session_->cluster().table, ranges, &check.errors);
  const ClusterReport between = CheckNeighbours(reports);
  check.errors.insert(check.errors.end(), between.errors.begin(), between.errors.end());
  check.keys = between.keys;
  check.missing_routes = between.missing_routes;
  return check;
}

}  // namespace cell

#include "cell/client/client.h"

#include "cell/base/status_macros.h"
#include "cell/client/session.h"
#include "cell/cluster/open_membership.h"
#include "cell/io/shm_fabric.h"

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
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const ClientOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Membership> membership, OpenMembership(options.cluster, options.zookeeper_digest));
  auto fabric = std::make_unique<ShmFabric>(ShmFabricOptions{
      .polling = options.busy_poll ? ShmFabricOptions::Polling::kBusy : ShmFabricOptions::Polling::kAdaptive});
  return Open(options, std::move(fabric), std::move(membership));
}

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const ClientOptions& options, std::unique_ptr<Fabric> fabric,
                                                     std::unique_ptr<Membership> membership) {
  std::unique_ptr<Client> client(
      new Client(std::make_unique<Session>(options, std::move(fabric), std::move(membership))));
  Session* session = client->session_.get();
  RETURN_IF_ERROR(client->Run(session->Connect(session->root().region())).status());
  return client;
}

absl::StatusOr<std::optional<std::string>> Client::Get(std::string_view key, const CallOptions& options) {
  return Run(AsyncGet(key, options));
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
int64_t Client::NowNs() const { return session_->fabric()->NowNs(); }
std::vector<Client::ServerInfo> Client::Servers() const {
  std::vector<ServerInfo> servers;
  for (const ClusterState::Server& server : session_->cluster().servers)
    servers.push_back({server.name, server.control});
  return servers;
}
size_t Client::key_bytes_max() const { return KeyBytesMax(session_->node_bytes()); }
const ClientMetrics& Client::metrics() const { return *session_->metrics(); }
void Client::ResetMetrics() { *session_->metrics() = ClientMetrics(); }

namespace {

Task<absl::StatusOr<std::string>> AskText(Session* session, ServerConnection* server, MessageKind kind) {
  if (!server->up) {
    if (absl::Status status = co_await session->Connect(server); !status.ok()) co_return status;
  }
  const CallContext context = session->Begin({});
  const std::string request = MakeTextRequest(kind);
  const absl::StatusOr<ConstBytes> reply =
      co_await session->Call(server, request, {}, kMessageBytesMax, context.deadline_ns);
  if (!reply.ok()) co_return reply.status();
  const absl::StatusOr<ConstBytes> text = ParseBytesReply(*reply, kind);
  if (!text.ok()) co_return text.status();
  co_return std::string(AsText(*text));
}

absl::StatusOr<std::vector<std::string>> AskAll(Client* client, Session* session, MessageKind kind) {
  std::vector<std::string> texts;
  for (const auto& server : session->servers()) {
    ASSIGN_OR_RETURN(std::string text, client->Run(AskText(session, server.get(), kind)));
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Client::ServerStatus() {
  return AskAll(this, session_.get(), MessageKind::kStatus);
}
absl::StatusOr<std::vector<std::string>> Client::ServerCheck() {
  return AskAll(this, session_.get(), MessageKind::kCheck);
}

}  // namespace cell

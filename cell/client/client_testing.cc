#include "cell/client/client_testing.h"

#include <string>
#include <utility>

#include "cell/client/call/calls.h"
#include "cell/client/session/session.h"

namespace cell {

absl::StatusOr<std::unique_ptr<Client>> ClientTesting::Open(const ClientOptions& options,
                                                            std::unique_ptr<Fabric> fabric,
                                                            std::unique_ptr<Membership> membership) {
  if (fabric != nullptr) fabric->SetSelf({Role::kOperator, "test"});
  return Client::Over(options, std::move(fabric), std::move(membership));
}

void ClientTesting::RememberRoute(Client* client, std::string_view low, std::optional<std::string_view> high,
                                  uint32_t region) {
  client->session_->tree()->routes()->Keep(low, high, RootOf(region));
}

int ClientTesting::InFlight(const Client& client) { return client.session_->in_flight(); }

Task<absl::StatusOr<bool>> ClientTesting::RawRead(Client* client, uint64_t random) {
  Session* const session = client->session_.get();
  const CallContext context = session->ContextOf({});
  const absl::StatusOr<WorkerConnection*> worker =
      co_await session->view()->Connect(session->view()->root().region(), context.deadline_ns);
  if (!worker.ok()) co_return worker.status();
  session->Begin();
  NodeBuffer buffer(session->tree()->pool());
  const uint64_t nodes = session->view()->cluster().shape.meganode_bytes / session->node_bytes();
  const uint64_t node = random % nodes;
  const ReadPart part{Pointer(session->view()->root().region(), kRegionHeaderBytes + node * session->node_bytes()),
                      buffer.data(), session->node_bytes()};
  ++session->metrics()->node_reads;
  const absl::Status status = co_await session->connections()->Read(*worker, {&part, 1}, context.deadline_ns);
  session->End(context, status);
  if (!status.ok()) co_return ReadOutcome(status);
  co_return true;
}

Task<absl::StatusOr<bool>> ClientTesting::RawCall(Client* client) {
  Session* const session = client->session_.get();
  const CallContext context = session->ContextOf({});
  const absl::StatusOr<WorkerConnection*> worker =
      co_await session->view()->Connect(session->view()->root().region(), context.deadline_ns);
  if (!worker.ok()) co_return worker.status();
  session->Begin();
  // The cheapest request is an empty upload.
  const std::string request = MakeUploadRequest(1, 0, 0);
  const OutgoingCall call{.head = request, .reply_bytes_max = kReplyBytesMin, .deadline_ns = context.deadline_ns};
  const absl::StatusOr<ConstBytes> reply = co_await session->connections()->Call(*worker, call);
  session->End(context, reply.status());
  if (!reply.ok()) co_return ReadOutcome(reply.status());
  co_return true;
}

}  // namespace cell

// Implements VerbsFabric's connections: how they are made, accepted, broken and torn down.
#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/io/fabric/verbs/verbs_device.h"
#include "cell/io/fabric/verbs/verbs_link.h"
#include "cell/io/net/tcp_socket.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int kResolveMs = 2000;
constexpr uint8_t kRetries = 7;
constexpr uint8_t kAckTimeout = 14;      // 4.096 us * 2^14: a lost packet is sent again after 67 ms.
constexpr uint8_t kReceiverRetries = 7;  // Unlimited. Credits prevent this case.
constexpr size_t kGreetingMax = 256;

ibv_mtu MtuOf(uint32_t bytes) {
  ibv_mtu mtu = IBV_MTU_256;
  while (mtu < IBV_MTU_4096 && (128u << (mtu + 1)) <= bytes) mtu = static_cast<ibv_mtu>(mtu + 1);
  return bytes == 0 ? IBV_MTU_4096 : mtu;
}

bool Watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

absl::Status OpenChannel(int epoll, EventChannel* channel) {
  if (*channel != nullptr) return absl::OkStatus();
  channel->reset(::rdma_create_event_channel());
  if (*channel == nullptr) {
    return absl::FailedPreconditionError(
        "this machine cannot make RDMA connections: rdma_cm is missing (modprobe rdma_ucm)");
  }
  const int fd = (*channel)->fd;
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 || !Watch(epoll, fd)) return VerbsError("rdma_cm");
  return absl::OkStatus();
}

}  // namespace

VerbsFabric::Link* VerbsFabric::Find(uint32_t id) const {
  const auto it = links_.find(id);
  return it == links_.end() ? nullptr : it->second.get();
}

size_t VerbsFabric::queue_pairs() const { return by_queue_pair_.size(); }

VerbsFabric::Device* VerbsFabric::DeviceOf(ibv_context* context) {
  for (const auto& device : devices_) {
    if (device->domain->context() == context) return device.get();
  }
  absl::StatusOr<std::unique_ptr<VerbsDomain>> domain = VerbsDomain::Open(context, options_.peers_max);
  if (!domain.ok() || !Watch(epoll_.get(), (*domain)->events_fd())) {
    spdlog::error("RDMA device {}: {}", ::ibv_get_device_name(context->device), domain.status().ToString());
    return nullptr;
  }
  devices_.push_back(std::make_unique<Device>());
  devices_.back()->domain = *std::move(domain);
  if (service_ != nullptr) {
    if (const absl::Status status = RegisterRegions(); !status.ok()) {
      spdlog::error("{}", std::string(status.message()));
      return nullptr;
    }
  }
  return devices_.back().get();
}

absl::Status VerbsFabric::RegisterRegions() {
  return pool()->SetOnMemory([this](const ShmMemory& memory) {
    for (const auto& device : devices_) RETURN_IF_ERROR(device->domain->Register(memory));
    return absl::OkStatus();
  });
}

absl::Status VerbsFabric::Listen(const std::string& address, Service* service) {
  CELL_CHECK_EQ(service_, nullptr);
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveAddress(address));
  RETURN_IF_ERROR(OpenChannel(epoll_.get(), &cm_->channel));
  rdma_cm_id* made = nullptr;
  if (::rdma_create_id(cm_->channel.get(), &made, nullptr, RDMA_PS_TCP) != 0) return VerbsError("rdma_create_id");
  CmId listener(made);
  sockaddr_storage storage = addresses.front().storage;
  if (::rdma_bind_addr(listener.get(), reinterpret_cast<sockaddr*>(&storage)) != 0 ||
      ::rdma_listen(listener.get(), 128) != 0) {
    if (errno == EADDRINUSE) return absl::AlreadyExistsError(fmt::format("{} is already in use", address));
    return absl::InvalidArgumentError(
        fmt::format("cannot listen at {} by RDMA: {} (is it the address of an RDMA device? "
                    "see --list-devices)",
                    address, std::strerror(errno)));
  }
  if (listener->verbs == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("{} is not the address of an RDMA device; see --list-devices", address));
  }
  service_ = service;
  if (DeviceOf(listener->verbs) == nullptr) {
    service_ = nullptr;
    return absl::ResourceExhaustedError("the RDMA device cannot be used; see the log");
  }
  if (absl::Status registered = RegisterRegions(); !registered.ok()) {
    service_ = nullptr;
    return registered;
  }
  cm_->listener = std::move(listener);
  return absl::OkStatus();
}

ConnectionId VerbsFabric::Connect(const std::string& address, int64_t deadline_ns, Completion* completion) {
  const uint32_t id = next_link_++;
  Link* link = (links_[id] = std::make_unique<Link>(id, /*accepted=*/false)).get();
  link->client.emplace(address, deadline_ns, completion);
  NoteDeadline(deadline_ns);
  link->client_handshake.emplace(options_.credentials->Current(NowNs())->keys.get(), self(), Purpose::kVerbs,
                                 RandomNonce());
  ++unfinished_;
  const auto begin = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<SocketAddress> to, ResolveAddress(address));
    SocketAddress from{};
    if (!options_.device.empty() || options_.gid_index >= 0) {
      const std::string source = RdmaSourceAddress(options_.device, options_.gid_index);
      if (source.empty()) {
        return absl::FailedPreconditionError(
            fmt::format("there is no RDMA device \"{}\" with GID {}; see --list-devices", options_.device,
                        options_.gid_index < 0 ? "of an address" : std::to_string(options_.gid_index)));
      }
      ASSIGN_OR_RETURN(const std::vector<SocketAddress> sources,
                       ResolveAddress(source.find(':') == std::string::npos ? source + ":0" : "[" + source + "]:0"));
      from = sources.front();
    }
    RETURN_IF_ERROR(OpenChannel(epoll_.get(), &cm_->channel));
    rdma_cm_id* made = nullptr;
    if (::rdma_create_id(cm_->channel.get(), &made, nullptr, RDMA_PS_TCP) != 0) return VerbsError("rdma_create_id");
    link->cm.reset(made);
    made->context = reinterpret_cast<void*>(static_cast<uintptr_t>(id));
    sockaddr_storage destination = to.front().storage;
    if (::rdma_resolve_addr(made, from.bytes > 0 ? reinterpret_cast<sockaddr*>(&from.storage) : nullptr,
                            reinterpret_cast<sockaddr*>(&destination), kResolveMs) != 0) {
      return absl::UnavailableError(fmt::format("no RDMA device reaches {}: {}", address, std::strerror(errno)));
    }
    return absl::OkStatus();
  };
  if (const absl::Status status = begin(); !status.ok()) Break(link, std::string(status.message()));
  return id;
}

absl::Status VerbsFabric::CreateQueuePair(Link* link) {
  link->device = DeviceOf(link->cm->verbs);
  if (link->device == nullptr) return absl::ResourceExhaustedError("the RDMA device cannot be used");
  ibv_port_attr port{};
  if (::ibv_query_port(link->cm->verbs, link->cm->port_num, &port) == 0 && GbitPerSecond(port) > 0) {
    link->byte_ns = 8 / GbitPerSecond(port);
  }
  VerbsDomain* domain = link->device->domain.get();
  RETURN_IF_ERROR(domain->AddLink(link->sends_max()));
  link->counted = true;
  link->inline_max = kInlineBytesWanted;
  ASSIGN_OR_RETURN(PendingQueuePair pending, PendingQueuePair::Create(domain->pd(), domain->cq(), domain->srq(),
                                                                      link->sends_max(), &link->inline_max));
  link->inline_max = std::min(link->inline_max, 2 * kInlineBytesWanted);
  by_queue_pair_[pending.number()] = link;
  link->pending.emplace(std::move(pending));
  return link->pending->Move(link->cm.get(), IBV_QPS_INIT);
}

void VerbsFabric::TakeCmEvents() {
  if (cm_->channel == nullptr) return;
  rdma_cm_event* raw = nullptr;
  while (::rdma_get_cm_event(cm_->channel.get(), &raw) == 0) {
    CmEvent event{raw->event, raw->status, raw->id, 0, 0, std::nullopt};
    if (raw->event == RDMA_CM_EVENT_CONNECT_REQUEST || raw->event == RDMA_CM_EVENT_CONNECT_RESPONSE) {
      event.responder_resources = raw->param.conn.responder_resources;
      event.initiator_depth = raw->param.conn.initiator_depth;
      if (raw->param.conn.private_data != nullptr && raw->param.conn.private_data_len >= sizeof(CmGreeting)) {
        event.greeting = Load<CmGreeting>(static_cast<const std::byte*>(raw->param.conn.private_data));
      }
    }
    ::rdma_ack_cm_event(
        raw);  // Acknowledge it before it is handled: an id with an unacknowledged event cannot be destroyed.
    HandleCmEvent(event);
  }
}

void VerbsFabric::HandleCmEvent(const CmEvent& event) {
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) return AcceptLink(event);
  if (event.id == cm_->listener.get()) {
    spdlog::error("the RDMA device was removed, so there are no more verbs connections ({})",
                  ::rdma_event_str(event.type));
    return;
  }
  Link* link = Find(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(event.id->context)));
  if (link == nullptr || link->cm.get() != event.id || link->state == Link::State::kBroken) return;
  absl::Status status;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (::rdma_resolve_route(event.id, kResolveMs) != 0) status = VerbsError("cannot find a route");
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      status = ConnectOnRoute(link);
      break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      status = FinishConnecting(link, event);
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      status = absl::UnavailableError(link->accepted ? "the client is gone" : "the server is gone");
      break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      status = absl::UnavailableError("the RDMA device was removed");
      break;
    default:
      status = absl::UnavailableError(link->accepted
                                          ? "the client is gone"
                                          : fmt::format("no server answers at {}: {} ({})", link->client->address(),
                                                        ::rdma_event_str(event.type), event.status));
  }
  if (!status.ok()) Break(link, std::string(status.message()));
}

absl::Status VerbsFabric::ConnectOnRoute(Link* link) {
  uint8_t ack_timeout = kAckTimeout;
  (void)::rdma_set_option(link->cm.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
                          sizeof(ack_timeout));
  RETURN_IF_ERROR(CreateQueuePair(link));
  ASSIGN_OR_RETURN(link->staging, RegisteredMemory::Make(link->device->domain->pd(), kStagingBytes));
  const CmGreeting greeting{kCmMagic, kCmVersion, static_cast<uint8_t>(MtuOf(options_.mtu_bytes)), 0};
  rdma_conn_param param{};
  param.private_data = &greeting;
  param.private_data_len = sizeof(greeting);
  param.responder_resources = 0;  // Nobody reads from a client.
  param.initiator_depth = link->device->domain->reads_max();
  param.retry_count = kRetries;
  param.rnr_retry_count = kReceiverRetries;
  param.srq = 1;
  param.qp_num = link->pending->number();
  if (::rdma_connect(link->cm.get(), &param) != 0) return VerbsError("rdma_connect");
  link->state = Link::State::kConnecting;
  return absl::OkStatus();
}

absl::Status VerbsFabric::FinishConnecting(Link* link, const CmEvent& event) {
  if (!event.greeting.has_value() || event.greeting->magic != kCmMagic || event.greeting->version != kCmVersion) {
    return absl::FailedPreconditionError("the peer is not a Cell server, or has another version");
  }
  const uint32_t mtu = std::min<uint32_t>(MtuOf(options_.mtu_bytes), event.greeting->mtu);
  RETURN_IF_ERROR(link->pending->Move(link->cm.get(), IBV_QPS_RTR, mtu));
  RETURN_IF_ERROR(link->pending->Move(link->cm.get(), IBV_QPS_RTS));
  link->queue_pair.emplace(*std::move(link->pending));
  link->pending.reset();
  if (::rdma_establish(link->cm.get()) != 0) return VerbsError("rdma_establish");
  // The NIC queues reads beyond its limit, and everything that is sent after them waits, too. Twice the limit keeps it
  // busy.
  link->reads_max = 2 * std::max<uint32_t>(1, std::min(link->device->domain->reads_max(), event.initiator_depth));
  link->state = Link::State::kGreeting;
  Send(link, static_cast<uint8_t>(MessageType::kHandshake), 0, 0, AsBytes(link->client_handshake->Hello()), {});
  return absl::OkStatus();
}

void VerbsFabric::AcceptLink(const CmEvent& event) {
  if (accepted_ - peers_ >= kGreetingMax) BreakOldestSilent();
  if (accepted_ >= options_.peers_max || service_ == nullptr) {
    warnings_.Warn(NowNs(), "refused a connection: {} are already open", accepted_);
    (void)::rdma_reject(event.id, nullptr, 0);
    ::rdma_destroy_id(event.id);
    return;
  }
  const uint32_t id = next_link_++;
  Link* link = (links_[id] = std::make_unique<Link>(id, /*accepted=*/true)).get();
  ++unfinished_;
  ++accepted_;
  link->cm.reset(event.id);
  event.id->context = reinterpret_cast<void*>(static_cast<uintptr_t>(id));
  link->since_ns = NowNs();
  link->state = Link::State::kConnecting;
  link->server_handshake.emplace(options_.credentials->Current(NowNs())->keys, RandomNonce(),
                                 std::vector<Purpose>{Purpose::kVerbs});
  if (const absl::Status status = Accept(link, event); !status.ok()) {
    warnings_.Warn(NowNs(), "refused a connection: {}", std::string(status.message()));
    (void)::rdma_reject(event.id, nullptr, 0);
    Break(link, std::string(status.message()));
  }
}

// Breaks the oldest connection that has not greeted, so that silent peers keep nobody out. Ids grow with age.
void VerbsFabric::BreakOldestSilent() {
  Link* oldest = nullptr;
  for (const auto& [id, link] : links_) {
    const bool silent = link->accepted && link->state != Link::State::kUp && link->state != Link::State::kBroken;
    if (silent && (oldest == nullptr || id < oldest->id)) oldest = link.get();
  }
  if (oldest != nullptr) Break(oldest, "it had sent no handshake, and other connections needed its place");
}

absl::Status VerbsFabric::Accept(Link* link, const CmEvent& event) {
  if (!event.greeting.has_value() || event.greeting->magic != kCmMagic || event.greeting->version != kCmVersion) {
    return absl::FailedPreconditionError("the peer is not a Cell client, or has another version");
  }
  const uint32_t wanted = std::clamp<uint32_t>(event.greeting->mtu, IBV_MTU_256, MtuOf(options_.mtu_bytes));
  RETURN_IF_ERROR(CreateQueuePair(link));
  uint32_t mtu = wanted;
  RETURN_IF_ERROR(link->pending->Move(link->cm.get(), IBV_QPS_RTR, wanted, &mtu));
  RETURN_IF_ERROR(link->pending->Move(link->cm.get(), IBV_QPS_RTS));
  link->queue_pair.emplace(*std::move(link->pending));
  link->pending.reset();
  const CmGreeting greeting{kCmMagic, kCmVersion, static_cast<uint8_t>(mtu), 0};
  rdma_conn_param param{};
  param.private_data = &greeting;
  param.private_data_len = sizeof(greeting);
  param.responder_resources = std::min(link->device->domain->reads_max(), event.responder_resources);
  param.initiator_depth = 0;
  param.rnr_retry_count = kReceiverRetries;
  param.srq = 1;
  param.qp_num = link->queue_pair->number();
  link->state = Link::State::kGreeting;
  if (::rdma_accept(link->cm.get(), &param) != 0) return VerbsError("rdma_accept");
  return absl::OkStatus();
}

void VerbsFabric::Disconnect(ConnectionId id) {
  Link* link = Find(id);
  if (link == nullptr || link->accepted) return;
  const bool torn_down = link->state == Link::State::kBroken && std::count(broken_.begin(), broken_.end(), id) == 0;
  Break(link, "disconnected");
  TellNow();
  if (torn_down) {
    links_.erase(id);
  } else {
    link->forgotten = true;  // It is erased with the others.
  }
}

void VerbsFabric::Break(Link* link, const std::string& why) {
  if (link->state == Link::State::kBroken) return;
  if (link->state == Link::State::kUp) {
    if (link->accepted) --peers_;
  } else {
    --unfinished_;
  }
  link->served = link->accepted && link->state == Link::State::kUp;
  if (link->of_user) users_.Remove(link->server_handshake->peer());
  link->of_user = false;
  link->state = Link::State::kBroken;
  broken_.push_back(link->id);
  if (link->accepted) return;
  if (link->client->connecting()) link->forgotten = true;  // It could not be made, so nobody has to disconnect it.
  link->client->Break(why, link->sent, tell_later(), [&](const auto& tell_lost) {
    link->regions.Fail(tell_lost);
    for (const Link::ReadInFlight& read : link->reads) {
      if (read.completion != nullptr) tell_lost(read.completion);
    }
  });
  link->reads.clear();
  link->pieces.clear();
}

// Must not run while completions or events are handled, because they may belong to links that are removed.
void VerbsFabric::TearDownBroken() {
  while (!broken_.empty()) {
    Link* link = Find(broken_.back());
    broken_.pop_back();
    if (link == nullptr) continue;
    if (link->served && service_ != nullptr) service_->Disconnected(link->id);
    TearDown(link);
    if (link->accepted) --accepted_;
    if (link->accepted || link->forgotten) links_.erase(link->id);
  }
}

void VerbsFabric::TearDown(Link* link) {
  const auto number = [&]() -> std::optional<uint32_t> {
    if (link->queue_pair.has_value()) return link->queue_pair->number();
    if (link->pending.has_value()) return link->pending->number();
    return std::nullopt;
  }();
  if (link->cm != nullptr && link->queue_pair.has_value()) (void)::rdma_disconnect(link->cm.get());
  if (link->queue_pair.has_value()) {
    link->queue_pair->Fail();
    // Take its completions out of the queue while its number still means this connection.
    Device* device = link->device;
    for (int seen = 0; seen <= device->domain->cq()->cqe;) {  // Other connections may continue to fill it.
      PullCompletions(device);
      if (device->count == 0) break;
      seen += device->count;
      (void)PollCompletions();
    }
  }
  link->queue_pair.reset();
  link->pending.reset();
  if (number.has_value()) by_queue_pair_.erase(*number);
  for (const Link::Posted& posted : link->posted) {
    if (posted.send_chunk.has_value()) link->device->domain->GiveSendChunk(*posted.send_chunk);
  }
  link->posted.clear();
  link->staging.reset();
  if (link->counted) link->device->domain->RemoveLink(link->sends_max());
  link->counted = false;
  link->cm.reset();
}

void VerbsFabric::ExpireLinks() {
  const int64_t now = NowNs();
  const bool due = TakeDeadline(now);
  for (const auto& [id, link] : links_) {
    if (link->state == Link::State::kBroken) continue;
    if (link->accepted) {
      if (link->state != Link::State::kUp && now - link->since_ns > options_.handshake_ns) {
        warnings_.Warn(NowNs(), "closed a connection: the peer sent no valid handshake in time");
        Break(link.get(), "the peer sent no handshake in time");
      }
      continue;
    }
    if (link->client->connecting()) {
      if (link->client->connect_deadline_ns() <= now) {
        Break(link.get(), "the server does not answer in time");
      } else {
        NoteDeadline(link->client->connect_deadline_ns());
      }
      continue;
    }
    if (link->regions.waiting() && now - link->waiting_since_ns > options_.read_timeout_ns) {
      Break(link.get(), "the server does not answer");
      continue;
    }
    if (!due) continue;
    ExpireReads(link.get(), now);
    NoteDeadline(link->client->ExpireCalls(now, tell_later()));
  }
}

}  // namespace cell

// Has the server side of a SimFabric: its regions, and the calls that it serves.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cell/base/check.h"
#include "cell/io/sim/sim_fabric.h"
#include "fmt/format.h"

namespace cell {

void SimFabric::LosePeers() {
  for (Peer& peer : peers_) {
    if (SimFabric* const client = std::exchange(peer.client, nullptr)) client->LoseServer(peer.connection);
  }
}

// Handles the end of the peer's client. The service is notified later.
void SimFabric::PeerGoes(ConnectionId peer) {
  peers_[peer].client = nullptr;
  network_->At(network_->now_ns(), [this, alive = alive_, peer] {
    if (*alive && service_ != nullptr) service_->Disconnected(peer);
  });
}

std::unique_ptr<SimFabric::Region> SimFabric::NewRegion(uint64_t bytes) const {
  const uint64_t rounded = RoundUp(bytes, 4096);
  auto made =
      std::make_unique<Region>(Region{{static_cast<std::byte*>(std::aligned_alloc(4096, rounded)), std::free}, {}});
  std::memset(made->bytes.get(), 0, rounded);
  made->memory = RegionMemory(made->bytes.get(), bytes);
  made->memory.set_after_step([network = network_] { network->OnWriterStep(); });
  return made;
}

absl::StatusOr<bool> SimFabric::PrepareRegion(uint64_t bytes, uint64_t) {
  dropped_.push_back(NewRegion(bytes));
  return true;
}

absl::StatusOr<RegionMemory*> SimFabric::MakeRegion(uint32_t region, uint64_t bytes, bool staged) {
  if (absl::Status status = CheckRegion(region, bytes); !status.ok()) return status;
  if (regions_.contains(region)) return absl::AlreadyExistsError(fmt::format("region {} is already held", region));
  std::unique_ptr<Region> made;
  const auto reusable = std::find_if(dropped_.begin(), dropped_.end(), [&](const auto& dropped) {
    return dropped->memory.bytes() == bytes && !(staged && dropped->former.contains(region));
  });
  if (reusable != dropped_.end()) {
    made = std::move(*reusable);
    dropped_.erase(reusable);
  } else {
    made = NewRegion(bytes);
  }
  made->staged = staged;
  return &regions_.emplace(region, std::move(made)).first->second->memory;
}

void SimFabric::PublishRegion(uint32_t region) {
  const auto it = regions_.find(region);
  if (it != regions_.end()) it->second->staged = false;
}

void SimFabric::DropRegion(uint32_t region) {
  const auto it = regions_.find(region);
  if (it == regions_.end()) return;
  it->second->former.insert(region);
  dropped_.push_back(std::move(it->second));
  regions_.erase(it);
}

absl::Status SimFabric::Listen(const std::string& address, Service* service) {
  if (!network_->listening_.emplace(address, this).second) {
    return absl::AlreadyExistsError(fmt::format("a server already listens at {}", address));
  }
  address_ = address;
  service_ = service;
  return absl::OkStatus();
}

size_t SimFabric::peers() const {
  return static_cast<size_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const Peer& p) { return p.client != nullptr; }));
}

void SimFabric::SetPaused(bool paused) {
  paused_ = paused;
  if (!paused_ && !queued_.empty()) ScheduleServe();
}

void SimFabric::ScheduleServe() {
  if (serve_scheduled_) return;
  serve_scheduled_ = true;
  network_->At(busy_until_ns_, [this, alive = alive_] {
    if (!*alive) return;
    serve_scheduled_ = false;
    if (!paused_) ServeQueued();
  });
}

void SimFabric::ServeQueued() {
  const size_t count = std::min(queued_.size(), kCallsMax);
  if (count == 0) return;
  served_.assign(std::make_move_iterator(queued_.begin()),
                 std::make_move_iterator(queued_.begin() + static_cast<ptrdiff_t>(count)));
  queued_.erase(queued_.begin(), queued_.begin() + static_cast<ptrdiff_t>(count));
  std::vector<IncomingCall> calls;
  for (Request& request : served_) {
    const int64_t ns = call_cost_ ? call_cost_(AsBytes(request.bytes)) : network_->options_.call_service_ns;
    request.cost_ns = static_cast<int64_t>(static_cast<double>(ns) * host_->slowdown());
    calls.push_back(
        {request.peer, &peers_[request.peer].identity, request.id, AsBytes(request.bytes), request.reply_bytes_max});
  }
  serving_ = true;
  service_->Serve(calls);
  serving_ = false;
  // Answers leave one after the other, in the order of their calls. Later ones wait for the time of earlier ones.
  int64_t at_ns = network_->now_ns();
  size_t next = 0;
  std::vector<Reply> replies = std::exchange(replies_, {});
  for (const Request& request : served_) {
    at_ns += request.cost_ns;
    busy_ns_ += request.cost_ns;
    if (next < replies.size() && replies[next].peer == request.peer && replies[next].id == request.id) {
      Send(std::move(replies[next++]), at_ns);
    }
  }
  for (; next < replies.size(); ++next) Send(std::move(replies[next]), at_ns);
  busy_until_ns_ = at_ns;
  if (!queued_.empty()) ScheduleServe();
}

ServiceTimes SimFabric::TimesOf(const IncomingCall& call, uint64_t read_bytes) const {
  if (!host_->model_.has_value()) return {};
  ServiceTimes times;
  times.read_ns = host_->model_->ReadNs(read_bytes);
  for (const Request& request : served_) {
    if (serving_ && request.peer == call.peer && request.id == call.id) {
      times.call_ns = static_cast<uint32_t>(request.cost_ns);
    }
  }
  return times;
}

MutableBytes SimFabric::BeginReply(const IncomingCall& call) {
  reply_.resize(call.reply_bytes_max);
  return absl::MakeSpan(reply_);
}

void SimFabric::EndReply(const IncomingCall& call, size_t bytes) {
  CELL_CHECK_LE(bytes, call.reply_bytes_max);
  Reply reply{call.peer, call.id, std::string(AsText(ConstBytes(reply_.data(), bytes)))};
  if (serving_) {
    replies_.push_back(std::move(reply));
  } else {
    Send(std::move(reply), network_->now_ns());
  }
}

void SimFabric::Send(Reply reply, int64_t at_ns) {
  if (!host_->model_.has_value()) return Deliver(std::move(reply), at_ns, network_->options_.latency_ns);
  // The reply uses the NIC only once it reaches it. Until then others may pass it.
  network_->At(at_ns, [this, alive = alive_, reply = std::move(reply)]() mutable {
    if (!*alive) return;
    const int64_t passed_ns = host_->PassNic(/*is_read=*/false, reply.bytes.size(), network_->now_ns());
    Deliver(std::move(reply), passed_ns, host_->OnTheWay(/*is_read=*/false) / 2);
  });
}

void SimFabric::Deliver(Reply reply, int64_t sent_ns, int64_t ns) {
  Peer& peer = peers_[reply.peer];
  if (peer.client == nullptr || crashed_) return;
  SimFabric* const client = peer.client;
  network_->Carry(
      host_, client->host_, sent_ns, ns, &peer.in_order_ns,
      [client, connection = peer.connection, alive = client->alive_, reply = std::move(reply)] {
        if (*alive) client->Finish(connection, reply.id, absl::OkStatus(), reply.bytes);
      },
      client);
}

}  // namespace cell

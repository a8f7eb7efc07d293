// Implements what both halves of ShmFabric share: the clock, polling, waiting.
#include "cell/io/fabric/shm/shm_fabric.h"

#include <sys/epoll.h>

#include <algorithm>

#include "cell/base/check.h"
#include "cell/io/fabric/shm/shm_connection.h"

namespace cell {
namespace {

constexpr uint32_t kPollsBetweenSockets = 1024;

}  // namespace

ShmFabric::ShmFabric(ShmFabricOptions options, std::shared_ptr<RegionPool> pool)
    : PollingFabric(options.polling, std::move(pool), options.huge_pages), options_(options) {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
}

ShmFabric::~ShmFabric() {
  for (Connection* connection : connections_) Break(connection, "this client is closing");
  FinishReads();
  TellNow();
  if (!listener_.valid()) return;
  ::unlink(address_.c_str());
  closer_->Close(std::move(listener_));  // Connections that wait to be accepted may hold descriptors, too.
}

// Adds a descriptor to epoll. Returns false if there is no room for more.
bool ShmFabric::Watch(int fd, uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

size_t ShmFabric::Poll() {
  for (const ConnectionId id : std::exchange(failed_, {})) connections_.Remove(id);
  if (++polls_ % kPollsBetweenSockets == 0 || connecting_ > 0 || asking()) {
    PollSockets();
    Expire();
    DropSilentPeers();
  }
  size_t done = ServeCalls();
  if (connections_.size() > 0 || HasToTell()) {
    done += FinishReads();
    done += TakeReplies();
    done += TellNow();
    FlushCalls();
  }
  return done;
}

// Returns whether a read waits for a region.
bool ShmFabric::asking() const {
  for (const Connection* connection : connections_) {
    if (connection->regions.waiting()) return true;
  }
  return false;
}

bool ShmFabric::HasWork() const {
  if (!reads_.empty() || HasToTell()) return true;
  for (const auto& peer : peers_) {
    if (peer != nullptr && peer->welcome && peer->requests.HasMore()) return true;
  }
  for (Connection* connection : connections_) {
    if (connection->up() && connection->replies.HasMore()) return true;
  }
  return false;
}

bool ShmFabric::BeginSleep() {
  bool work = !reads_.empty() || HasToTell();
  for (const auto& peer : peers_) {
    if (peer != nullptr && peer->welcome) work |= peer->requests.Sleep();
  }
  for (Connection* connection : connections_) {
    if (connection->up()) work |= connection->replies.Sleep();
  }
  return work;
}

void ShmFabric::EndSleep() {
  for (const auto& peer : peers_) {
    if (peer != nullptr && peer->welcome) peer->requests.Wake();
  }
  for (Connection* connection : connections_) {
    if (connection->up()) connection->replies.Wake();
  }
}

int64_t ShmFabric::NextDeadlineNs() const {
  return std::min(PollingFabric::NextDeadlineNs(), listen_again_ns_ != 0 ? listen_again_ns_ : INT64_MAX);
}

void ShmFabric::AfterWait() {
  PollSockets();
  Expire();
  DropSilentPeers();
}

void ShmFabric::PollSockets() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[i].data.u64;
    const auto index = static_cast<ConnectionId>(tag);
    if (tag == kListenerTag) {
      AcceptPeers();
    } else if ((tag & ~uint64_t{0xffffffff}) == kPeerTag) {
      TakePackets(index);
    } else if (Connection* connection = connections_.Find(index); connection != nullptr && !connection->broken()) {
      ReceiveFromServer(connection);
    }
  }
}

}  // namespace cell

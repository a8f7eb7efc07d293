// What both halves of ShmFabric share: the clock, polling, waiting.
#include "cell/io/shm_fabric.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <ctime>

#include "cell/io/shm_connection.h"

namespace cell {
namespace {

// Spinning for as long as sleeping and being woken costs is never worse than twice the best (Karlin et al., SODA 1990);
// that was 50 us on a virtual machine.
constexpr int64_t kSpinNs = 50'000;
constexpr int64_t kSpinAloneNs = 3'000;
constexpr uint32_t kPollsBetweenSockets = 1024;

void Silence(int doorbell) {
  uint64_t count;
  (void)!::read(doorbell, &count, sizeof(count));
}

}  // namespace

ShmFabric::ShmFabric(ShmFabricOptions options) : options_(options) {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  CELL_CHECK(epoll_.valid());
}

ShmFabric::~ShmFabric() {
  for (auto& connection : connections_) {
    if (connection != nullptr) Break(connection.get(), "this client is closing");
  }
  FinishReads();
  TellFailed();
  if (listener_.valid()) ::unlink(address_.c_str());
}

int64_t ShmFabric::NowNs() const {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void ShmFabric::Watch(int fd, uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = tag;
  CELL_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
}

size_t ShmFabric::Poll() {
  if (++polls_ % kPollsBetweenSockets == 0 || connecting_ > 0 || asking()) {
    PollSockets(0);
    ExpireCalls();
    DropSilentPeers();
  }
  size_t done = ServeCalls();
  if (!connections_.empty() || !failed_.empty()) {
    done += FinishReads();
    done += TakeReplies();
    done += TellFailed();
    FlushCalls();
  }
  return done;
}

// Whether some read waits for a region to be handed over.
bool ShmFabric::asking() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& connection) { return connection != nullptr && !connection->waiting.empty(); });
}

bool ShmFabric::HasWork() const {
  if (!reads_.empty() || !failed_.empty()) return true;
  for (const auto& peer : peers_) {
    if (peer != nullptr && peer->welcome && peer->requests.HasMore()) return true;
  }
  for (const auto& connection : connections_) {
    if (connection != nullptr && connection->Up() && connection->replies.HasMore()) return true;
  }
  return false;
}

void ShmFabric::Wait(int64_t until_ns) {
  FlushCalls();
  if (options_.polling == ShmFabricOptions::Polling::kBusy) {
    if (!HasWork() && NowNs() >= until_ns) ExpireCalls();
    return;
  }
  const int64_t start = NowNs();
  for (int64_t now = start; now - start < kSpinNs && now < until_ns; now = NowNs()) {
    for (int i = 0; i < 16; ++i) {
      if (HasWork()) return;
      __builtin_ia32_pause();
    }
    if (now - start > kSpinAloneNs) ::sched_yield();  // Whoever we wait for may need this core.
  }

  bool work = !reads_.empty() || !failed_.empty();
  for (const auto& peer : peers_) {
    if (peer != nullptr && peer->welcome) work |= peer->requests.Sleep();
  }
  for (const auto& connection : connections_) {
    if (connection != nullptr && connection->Up()) work |= connection->replies.Sleep();
  }
  const int64_t left_ns = until_ns - NowNs();
  if (!work && left_ns > 0) {
    PollSockets(static_cast<int>(std::min<int64_t>((left_ns + 999'999) / 1'000'000, 60'000)));
  }
  for (const auto& peer : peers_) {
    if (peer != nullptr && peer->welcome) peer->requests.Wake();
  }
  for (const auto& connection : connections_) {
    if (connection != nullptr && connection->Up()) connection->replies.Wake();
  }
  ExpireCalls();
  DropSilentPeers();
}

void ShmFabric::PollSockets(int timeout_ms) {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[i].data.u64;
    const auto index = static_cast<ConnectionId>(tag);
    if (tag == kListenerTag) {
      AcceptPeers();
    } else if (tag == kDoorbellTag) {
      Silence(doorbell_.get());
    } else if ((tag & ~uint64_t{0xffffffff}) == kPeerTag) {
      if (peers_[index] == nullptr) continue;
      if (!peers_[index]->welcome) {
        Welcome(index);
      } else {
        HandOverRegion(index);
      }
    } else if (index < connections_.size() && connections_[index] != nullptr && !connections_[index]->broken) {
      Connection* connection = connections_[index].get();
      if ((tag & ~uint64_t{0xffffffff}) == kConnectionDoorbellTag) {
        Silence(connection->doorbell.get());
      } else {
        ReceiveFromServer(connection);
      }
    }
  }
}

}  // namespace cell

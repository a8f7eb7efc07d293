// Implements what both halves of TcpFabric share: watched sockets, polling, waiting.
#include "cell/io/fabric/tcp/tcp_fabric.h"

#include <poll.h>
#include <sys/epoll.h>

#include "cell/base/check.h"
#include "cell/io/fabric/tcp/tcp_connection.h"

namespace cell {

TcpFabric::TcpFabric(TcpFabricOptions options, std::shared_ptr<RegionPool> pool)
    : PollingFabric(options.polling, std::move(pool), options.huge_pages),
      options_(std::move(options)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      scratch_(kReceiveBytes) {}

TcpFabric::~TcpFabric() {
  for (Connection* connection : connections_) Break(connection, "this client is closing");
  TellNow();
}

bool TcpFabric::Watch(int operation, int fd, uint32_t events, uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

size_t TcpFabric::Poll() {
  for (const ConnectionId id : std::exchange(failed_, {})) connections_.Remove(id);
  size_t done = PollSockets();
  done += ServeCalls();
  DropBroken();
  done += TellNow();
  Flush();
  if (MillisecondPassed()) Expire();
  return done;
}

void TcpFabric::Flush() {
  for (Connection* connection : connections_) {
    for (Channel* channel : {&connection->calls_channel, &connection->reads_channel}) {
      if (!connection->broken() && channel->connected && channel->secure && !channel->out.empty())
        SendChannel(connection, channel);
    }
  }
}

bool TcpFabric::HasWork() const {
  if (HasToTell() || !ready_.empty() || !broken_.empty()) return true;
  pollfd ready{epoll_.get(), POLLIN, 0};
  return ::poll(&ready, 1, 0) > 0;
}

void TcpFabric::AfterWait() { Expire(); }

// Returns the number of completions that were called: replies and reads that came.
size_t TcpFabric::PollSockets() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
  size_t told = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[i].data.u64;
    const auto index = static_cast<ConnectionId>(tag);
    const uint64_t kind = tag & ~uint64_t{0xffffffff};
    if (tag == kCallersTag) {
      TakeCallers();
    } else if (kind == kPeerTag) {
      ReceiveRequests(index);
    } else if (Connection* connection = connections_.Find(index); connection != nullptr && !connection->broken()) {
      ChannelEvent(index, kind == kReadsTag, events[i].events);
      if (!connection->broken()) told += kind == kReadsTag ? TakeReads(connection) : TakeReplies(connection);
    }
  }
  return told;
}

}  // namespace cell

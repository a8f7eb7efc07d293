#include "cell/gateway/worker.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cell/io/net/descriptors.h"
#include "fmt/format.h"

namespace cell::gateway {
namespace {

// Tags of what epoll watches; those of peers are their ids, and those of clients follow kFirstClient.
constexpr uint64_t kListener = uint64_t{1} << 63, kTlsListener = kListener + 1, kStop = kListener + 2,
                   kFirstClient = kListener + 3;
constexpr size_t kReadBytes = 64 << 10;
constexpr int kReadsATurn = 4;  // Reads from one peer before others have their turn.
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kStuckNs = 60 * kSecondNs;    // A client that takes none of its replies for so long is closed.
constexpr int64_t kUnknownNs = 10 * kSecondNs;  // A client that has not said who it is for so long is closed.
constexpr int64_t kDrainNs = 5 * kSecondNs;

// Has replies sent at once, and those noticed who have gone without a word. A client that does not read for a while
// stays: TCP_USER_TIMEOUT would end it.
void SetOptions(int socket) {
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 20);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

std::string NameOfPeer(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &four.sin_addr, text, sizeof(text));
    return fmt::format("{}:{}", text, ::ntohs(four.sin_port));
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  ::inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
  return fmt::format("[{}]:{}", text, ::ntohs(six.sin6_port));
}

}  // namespace

struct Gateway::Worker::Peer {
  Peer(Shared* shared, uint64_t id, std::string name, std::unique_ptr<ClientSocket> its_socket, int64_t now_ns)
      : socket(std::move(its_socket)), connection(shared, id, std::move(name)), active_ns(now_ns), sent_ns(now_ns) {
    connection.set_unknown_since_ns(now_ns);
  }
  std::unique_ptr<ClientSocket> socket;  // Null: closed, and commands are in flight.
  Connection connection;
  uint32_t watched = EPOLLIN;
  size_t sent = 0;      // How many bytes of connection.out().
  size_t counted = 0;   // Its part of Totals::buffered_bytes.
  bool broken = false;  // To be closed at its next Advance.
  bool ended = false;   // The client sends no more.
  int64_t active_ns;    // When bytes came last.
  int64_t sent_ns;      // When bytes were sent last, or there were none to send.
};

Gateway::Worker::Worker(Gateway* gateway, std::vector<std::unique_ptr<Client>> clients, Shared shared)
    : gateway_(gateway), clients_(std::move(clients)), shared_(std::move(shared)) {}

Gateway::Worker::~Worker() {
  for (const std::unique_ptr<Client>& client : clients_) client->Close();  // Ends what is in flight.
  while (ReadyList::Take(&shared_, [](Connection*) {})) {
  }
}

absl::Status Gateway::Worker::Prepare() {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  const auto watch = [&](int fd, uint64_t tag, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = tag;
    return fd >= 0 && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  bool done = watch(gateway_->stop_.get(), kStop, EPOLLIN);
  if (gateway_->listener_.valid()) done &= watch(gateway_->listener_.get(), kListener, EPOLLIN | EPOLLEXCLUSIVE);
  if (gateway_->tls_listener_.valid()) {
    done &= watch(gateway_->tls_listener_.get(), kTlsListener, EPOLLIN | EPOLLEXCLUSIVE);
  }
  for (size_t i = 0; i < clients_.size(); ++i) done &= watch(clients_[i]->WaitFd(), kFirstClient + i, EPOLLIN);
  return done ? absl::OkStatus() : absl::ResourceExhaustedError("this process has no descriptors left");
}

void Gateway::Worker::Accept(int listener, const TlsServer* tls) {
  while (true) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    Fd fd(::accept4(listener, reinterpret_cast<sockaddr*>(&address), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) return;  // Nobody waits.
    Totals& totals = *shared_.totals;
    if (totals.connections.load() >= totals.connections_max || !LeavesEnough(fd)) {
      constexpr std::string_view kRefused = "-ERR max number of clients reached\r\n";
      if (tls == nullptr) (void)!::send(fd.get(), kRefused.data(), kRefused.size(), MSG_NOSIGNAL);
      continue;
    }
    SetOptions(fd.get());
    const uint64_t id = totals.next_id.fetch_add(1);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) continue;
    totals.connections.fetch_add(1);
    totals.connected.fetch_add(1);
    auto socket = std::make_unique<ClientSocket>(std::move(fd), tls);
    peers_.emplace(
        id, std::make_unique<Peer>(&shared_, id, NameOfPeer(address), std::move(socket), clients_.front()->NowNs()));
  }
}

void Gateway::Worker::CountBuffers(Peer* peer) {
  const size_t bytes = peer->connection.bytes();
  shared_.totals->buffered_bytes.fetch_add(bytes - peer->counted);  // Wraps around where it becomes less.
  peer->counted = bytes;
}

bool Gateway::Worker::Send(Peer* peer) {
  std::string* const out = peer->connection.out();
  while (peer->sent < out->size()) {
    const auto moved = peer->socket->Send(absl::MakeConstSpan(*out).subspan(peer->sent));
    if (moved.outcome == ClientSocket::Outcome::kLater) break;
    if (moved.outcome != ClientSocket::Outcome::kSome) return false;
    peer->sent += moved.bytes;
    peer->sent_ns = clients_.front()->NowNs();
  }
  if (peer->sent == out->size()) {
    out->clear();
    if (out->capacity() > kReadBytes) out->shrink_to_fit();
    peer->sent = 0;
  } else if (peer->sent > kReadBytes && peer->sent > out->size() / 2) {
    out->erase(0, peer->sent);
    peer->sent = 0;
  }
  return true;
}

void Gateway::Worker::WatchFor(Peer* peer) {
  const bool reads = peer->connection.takes_input() && !peer->ended && !draining_;
  const bool sends = !peer->connection.out()->empty() || peer->socket->wants_to_send();
  const uint32_t wanted = (reads ? EPOLLIN : 0u) | (sends ? static_cast<uint32_t>(EPOLLOUT) : 0u);
  if (wanted == peer->watched) return;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = peer->connection.id();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer->socket->fd(), &event);
  peer->watched = wanted;
}

void Gateway::Worker::Advance(Peer* peer) {
  Connection& connection = peer->connection;
  do {
    connection.Advance();
    if (peer->socket == nullptr) {  // Nobody reads the replies.
      connection.out()->clear();
      if (!connection.busy()) End(peer);
      return;
    }
    if (peer->broken || !Send(peer)) return End(peer);
  } while (connection.has_more() && connection.out()->empty());
  CountBuffers(peer);
  const bool all_sent = connection.out()->empty();
  if (all_sent && (connection.should_close() || (peer->ended && !connection.busy()))) return End(peer);
  WatchFor(peer);
}

void Gateway::Worker::ReceiveFrom(Peer* peer) {
  std::array<char, kReadBytes> bytes;
  for (int reads = 0; reads < kReadsATurn || peer->socket->pending(); ++reads) {
    if (peer->ended || draining_ || !peer->connection.takes_input()) return;
    const auto moved = peer->socket->Receive(absl::MakeSpan(bytes));
    if (moved.outcome == ClientSocket::Outcome::kLater) return;
    if (moved.outcome != ClientSocket::Outcome::kSome) {
      peer->ended = true;
      return;
    }
    peer->active_ns = clients_.front()->NowNs();
    peer->connection.Receive({bytes.data(), moved.bytes});
    CountBuffers(peer);
    const Totals& totals = *shared_.totals;
    if (totals.buffered_bytes.load() > totals.buffer_bytes_max && EndLargest() == peer) return;
    if (moved.bytes < bytes.size() && !peer->socket->pending()) return;
    peer->connection.Advance();
  }
}

const Gateway::Worker::Peer* Gateway::Worker::EndLargest() {
  Peer* largest = nullptr;
  for (const auto& [id, peer] : peers_) {
    if (peer->socket != nullptr && (largest == nullptr || peer->counted > largest->counted)) largest = peer.get();
  }
  if (largest == nullptr) return nullptr;
  Connection& connection = largest->connection;
  if (connection.out()->empty()) {
    connection.Refuse(kBuffersFull);
  } else {  // It takes none of its replies.
    largest->broken = true;
    connection.out()->clear();
    largest->sent = 0;
    connection.Abandon();
  }
  connection.DropInput();
  CountBuffers(largest);
  ReadyList::Add(&connection);
  return largest;
}

void Gateway::Worker::Serve(Peer* peer, uint32_t events) {
  if (peer->socket == nullptr) return;
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) return End(peer);
  if ((events & EPOLLIN) != 0 || peer->socket->wants_to_send()) ReceiveFrom(peer);
  Advance(peer);
}

void Gateway::Worker::End(Peer* peer) {
  if (peer->socket != nullptr) {
    peer->socket.reset();  // Closing it removes it from epoll.
    peer->connection.out()->clear();
    shared_.totals->connections.fetch_sub(1);
    shared_.totals->buffered_bytes.fetch_sub(std::exchange(peer->counted, 0));
    peer->connection.Abandon();
  }
  // One that is ready is destroyed when its turn comes.
  if (!peer->connection.busy() && !peer->connection.ready()) peers_.erase(peer->connection.id());
}

void Gateway::Worker::CloseIdle() {
  const int64_t now_ns = clients_.front()->NowNs();
  if (now_ns - idle_checked_ns_ < kSecondNs) return;
  idle_checked_ns_ = now_ns;
  const Totals& totals = *shared_.totals;
  const int64_t idle_ns = totals.idle_s * kSecondNs;
  std::vector<Peer*> ending;
  for (const auto& [id, peer] : peers_) {
    const Connection& connection = peer->connection;
    if (peer->socket == nullptr) continue;
    const bool sends = !peer->connection.out()->empty();
    if (!sends) peer->sent_ns = now_ns;
    const bool known = connection.client() != nullptr && peer->socket->established();
    const bool unknown = !known && now_ns - connection.unknown_since_ns() > kUnknownNs;
    const bool idle = idle_ns > 0 && !connection.busy() && !sends && now_ns - peer->active_ns > idle_ns;
    if (unknown || idle || now_ns - peer->sent_ns > kStuckNs) ending.push_back(peer.get());
  }
  for (Peer* peer : ending) End(peer);
  if (totals.buffered_bytes.load() > totals.buffer_bytes_max) EndLargest();
}

bool Gateway::Worker::PollClients(int64_t* until_ns) {
  bool busy = false;
  for (const std::unique_ptr<Client>& client : clients_) {
    client->Poll(0);
    const int64_t its_ns = client->BeginWait();
    *until_ns = std::min(*until_ns, its_ns);
    busy |= its_ns == 0;
  }
  const bool advanced = ReadyList::Take(&shared_, [&](Connection* connection) {
    const auto found = peers_.find(connection->id());
    if (found != peers_.end()) Advance(found->second.get());
  });
  return busy || advanced;
}

void Gateway::Worker::HandleEvents(int wait_ms) {
  std::array<epoll_event, 256> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u64 == kListener) {
      Accept(gateway_->listener_.get(), nullptr);
    } else if (event.data.u64 == kTlsListener) {
      Accept(gateway_->tls_listener_.get(), gateway_->tls_.get());
    } else if (event.data.u64 == kStop) {
      draining_ = true;
    } else if (const auto found = peers_.find(event.data.u64); found != peers_.end()) {
      Serve(found->second.get(), event.events);
    }
  }
}

void Gateway::Worker::Run() {
  while (!draining_) {
    int64_t until_ns = clients_.front()->NowNs() + kSecondNs;
    int wait_ms = 0;
    if (!PollClients(&until_ns)) {
      const int64_t left_ns = std::clamp<int64_t>(until_ns - clients_.front()->NowNs(), 0, kSecondNs);
      wait_ms = static_cast<int>((left_ns + 999'999) / 1'000'000);
    }
    HandleEvents(wait_ms);
    CloseIdle();
  }
  Drain();
}

void Gateway::Worker::Drain() {
  for (const int fd : {gateway_->stop_.get(), gateway_->listener_.get(), gateway_->tls_listener_.get()}) {
    if (fd >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
  for (const auto& [id, peer] : peers_) {
    peer->connection.Abandon();
    if (peer->socket != nullptr) WatchFor(peer.get());
  }
  const int64_t until_ns = clients_.front()->NowNs() + kDrainNs;
  const auto unfinished = [](const auto& entry) {
    return entry.second->connection.busy() || !entry.second->connection.out()->empty();
  };
  while (clients_.front()->NowNs() < until_ns && std::any_of(peers_.begin(), peers_.end(), unfinished)) {
    int64_t unused_ns = INT64_MAX;
    HandleEvents(PollClients(&unused_ns) ? 0 : 1);
  }
  // A socket that is closed with bytes to read is reset, and its client may lose replies that were sent.
  std::array<char, kReadBytes> ignored;
  for (const auto& [id, peer] : peers_) {
    if (peer->socket == nullptr) continue;
    peer->socket->EndSending();
    while (::recv(peer->socket->fd(), ignored.data(), ignored.size(), MSG_DONTWAIT) > 0) {
    }
  }
}

}  // namespace cell::gateway

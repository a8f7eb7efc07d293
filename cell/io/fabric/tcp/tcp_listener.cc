#include "cell/io/fabric/tcp/tcp_listener.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cell/base/shared_words.h"
#include "cell/base/status_macros.h"
#include "cell/io/net/descriptors.h"
#include "cell/io/net/tcp_socket.h"

namespace cell {
namespace {

constexpr uint64_t kListenerTag = 0;
constexpr uint64_t kStopTag = 1;
constexpr uint64_t kFirstGuestTag = 2;
constexpr size_t kRequestsBytesMax = size_t{16} << 10;
constexpr int kRoundsMax = 4;
constexpr size_t kIdleBytesMax = size_t{16} << 10;  // Limit of the memory that an idle reader's queues keep.
constexpr int64_t kSpinNs = 50'000;                 // As long as sleeping and waking takes; see polling_fabric.cc.
constexpr int64_t kListenerRestNs = 100'000'000;
// Between so many events, or accepted connections, the thread gives the core to those who want it (Run).
constexpr int kEventsAtOnce = 16;
constexpr int kAcceptsAtOnce = 4;

bool Watch(int epoll, int operation, int fd, uint32_t events, uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

}  // namespace

struct TcpListener::Guest {
  // kSilent --first bytes--> kSecuring --TLS--> kGreeting --handshake--> done
  //    \------------------- without TLS -----------/
  enum class Phase { kSilent, kSecuring, kGreeting };

  ByteStream stream;
  const uint64_t number;
  const int64_t accepted_ns;
  const sockaddr_storage address;
  const std::shared_ptr<const Credentials> credentials;
  Phase phase = Phase::kSilent;
  ServerHandshake handshake;
  ByteQueue in, out;
  bool counted = false;  // In reading_.
  bool refused = false;  // Closes once `out` was sent.
  uint32_t watched = EPOLLIN;
  const std::byte* from = nullptr;  // Position of the read that is being answered...
  uint64_t left = 0;                // ...and its bytes that are left.

  // Returns whether there is something to answer.
  bool HasMore() const { return handshake.done() && !Calls() && (left > 0 || in.size() >= sizeof(ReadRequest)); }
  // Returns whether it has greeted, and the worker is to have it.
  bool Calls() const { return handshake.done() && handshake.purpose() == Purpose::kCalls; }

  Guest(Fd socket, uint64_t number, int64_t accepted_ns, const sockaddr_storage& address,
        std::shared_ptr<const Credentials> its_credentials)
      : stream(std::move(socket)),
        number(number),
        accepted_ns(accepted_ns),
        address(address),
        credentials(std::move(its_credentials)),
        handshake(credentials->keys, RandomNonce()) {}
};

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Start(const std::string& host_port, Options options,
                                                                std::shared_ptr<const RegionPool> pool,
                                                                const Clock* clock) {
  ASSIGN_OR_RETURN(Fd listener, ListenTcp(host_port));
  std::string address = BoundAddress(listener.get(), host_port);
  std::unique_ptr<TcpListener> made(
      new TcpListener(std::move(listener), std::move(address), std::move(options), std::move(pool), clock));
  if (!made->epoll_.valid() || !made->stop_.valid() || !made->callers_ready_.valid() ||
      !Watch(made->epoll_.get(), EPOLL_CTL_ADD, made->listener_.get(), EPOLLIN, kListenerTag) ||
      !Watch(made->epoll_.get(), EPOLL_CTL_ADD, made->stop_.get(), EPOLLIN, kStopTag)) {
    return ErrnoError(absl::StatusCode::kInternal, "cannot watch the listening socket");
  }
  made->thread_ = std::thread(&TcpListener::Run, made.get());
  return made;
}

TcpListener::TcpListener(Fd listener, std::string address, Options options, std::shared_ptr<const RegionPool> pool,
                         const Clock* clock)
    : address_(std::move(address)),
      options_(std::move(options)),
      pool_(std::move(pool)),
      clock_(clock),
      listener_(std::move(listener)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      callers_ready_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      scratch_(kRequestsBytesMax) {}

TcpListener::~TcpListener() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

std::vector<TcpListener::Caller> TcpListener::TakeCallers() {
  uint64_t count;
  (void)!::read(callers_ready_.get(), &count, sizeof(count));
  const std::lock_guard lock(mutex_);
  return std::exchange(callers_, {});
}

void TcpListener::Run() {
  epoll_event events[kEventsAtOnce];
  int64_t busy_ns = 0;  // When there was last something to do.
  for (;;) {
    int count = ::epoll_wait(epoll_.get(), events, kEventsAtOnce, 0);
    if (count == 0 && readers_ > 0 && clock_->NowNs() - busy_ns < kSpinNs) {
      ::sched_yield();  // The process that we wait for may need this core.
      continue;
    }
    if (count == 0) {
      const int wait_ms = greeting_.size() > 0 || listen_again_ns_ != 0 ? 50 : -1;
      count = ::epoll_wait(epoll_.get(), events, kEventsAtOnce, wait_ms);
    }
    busy_ns = clock_->NowNs();
    handshakes_left_ = kHandshakesAtOnce;
    for (int i = 0; i < count; ++i) {
      const uint64_t tag = events[i].data.u64;
      if (tag == kStopTag) return;
      if (tag == kListenerTag) {
        Accept();
      } else {
        Serve(tag - kFirstGuestTag, events[i].events);
      }
    }
    CloseSilentGuests();
    free_.insert(free_.end(), closed_.begin(), closed_.end());
    // Where there are fewer cores than threads, a flood of strangers would otherwise keep the worker from its core for
    // as long as the scheduler lets a thread run, which is milliseconds.
    if (std::exchange(met_strangers_, false)) ::sched_yield();
    closed_.clear();
  }
}

void TcpListener::Accept() {
  met_strangers_ = true;
  for (int left = kAcceptsAtOnce; left > 0; --left) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    Fd socket(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      const int error = errno;
      if (IsOutOfDescriptors(error) && CloseOneSilent()) continue;
      // New connections stay in the queue, which would wake us again at once.
      Warn(fmt::format("cannot accept connections at the moment: {}", std::strerror(error)));
      (void)Watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), 0, kListenerTag);
      listen_again_ns_ = clock_->NowNs() + kListenerRestNs;
      return;
    }
    if (greeting_.size() >= GreetingMax()) CloseOneSilent();
    while (!LeavesEnough(socket) && CloseOneSilent()) LowestNumber(&socket);
    if (!LeavesEnough(socket)) {
      Warn(fmt::format(
          "refusing connections: the remaining file descriptors of {} are reserved for regions and logs (ulimit -n)",
          DescriptorLimit()));
      continue;
    }
    SetTcpOptions(socket.get());
    const int fd = socket.get();
    const int64_t now = clock_->NowNs();
    auto guest =
        std::make_unique<Guest>(std::move(socket), ++accepted_, now, address, options_.credentials->Current(now));
    size_t index = guests_.size();
    if (free_.empty()) {
      guests_.push_back(std::move(guest));
    } else {
      index = free_.back();
      free_.pop_back();
      guests_[index] = std::move(guest);
    }
    greeting_.Add(accepted_, HostOf(address));
    slots_.emplace(accepted_, index);
    if (!Watch(epoll_.get(), EPOLL_CTL_ADD, fd, EPOLLIN, kFirstGuestTag + index)) Close(index);
  }
}

void TcpListener::Serve(size_t index, uint32_t events) {
  Guest* guest = guests_[index].get();
  if (guest == nullptr) return;
  met_strangers_ |= !guest->handshake.done();
  if (guest->phase != Guest::Phase::kGreeting && !guest->refused) {
    Step step = guest->phase == Guest::Phase::kSilent ? Begin(guest) : Step::kGoOn;
    if (step == Step::kGoOn && guest->phase == Guest::Phase::kSecuring) step = Secure(index);
    if (step == Step::kClose) return Close(index);
    if (step == Step::kWait) return;  // The event comes again.
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    const size_t wanted = guest->handshake.done() ? kRequestsBytesMax : guest->handshake.wants();
    if (guest->in.size() < wanted &&
        !guest->stream.Receive(absl::MakeSpan(scratch_).first(wanted - guest->in.size()), &guest->in)) {
      return Close(index);
    }
  }
  bool open = true;
  if (!guest->handshake.done()) {
    open = Greet(guest);
  } else if (guest->Calls()) {
    open = guest->stream.Send(&guest->out);  // The end of the handshake. What has come since is for the worker.
  } else {
    open = AnswerReads(guest);
  }
  if (open && guest->Calls() && guest->out.empty()) {
    const std::lock_guard lock(mutex_);
    (void)Watch(epoll_.get(), EPOLL_CTL_DEL, guest->stream.fd(), 0, 0);
    callers_.push_back({std::move(guest->stream), guest->handshake.peer(), std::move(guest->in)});
    const uint64_t one = 1;
    (void)!::write(callers_ready_.get(), &one, sizeof(one));
    open = false;
  }
  if (!open || !WatchAgain(index)) Close(index);
}

// Looks at a guest's first bytes, which say whether it talks TLS, and takes none of them.
TcpListener::Step TcpListener::Begin(Guest* guest) {
  constexpr std::byte kTlsHandshake{22};
  std::array<std::byte, kMagicBytes> first;
  const ssize_t got = ::recv(guest->stream.fd(), first.data(), first.size(), MSG_PEEK);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Step::kWait;
  if (got <= 0) return Step::kClose;
  const std::shared_ptr<const TlsContext>& tls = guest->credentials->tls;
  if (tls == nullptr) {
    if (first[0] == kTlsHandshake) {
      Warn(*guest,
           "refused a connection: the client talks TLS, but this server has neither a secret nor a certificate");
      return Step::kClose;
    }
    guest->phase = Guest::Phase::kGreeting;
    return Step::kGoOn;
  }
  if (first[0] == kTlsHandshake) {
    guest->stream.StartTls(tls->Accept(tls, guest->stream.fd()));
    guest->phase = Guest::Phase::kSecuring;
    return Step::kGoOn;
  }
  // The magic may come in pieces, byte by byte. It is a hint for users, so only a whole one counts.
  if (BeginsHello(ConstBytes(first).first(static_cast<size_t>(got)))) {
    const std::string answer = NeedsTlsAnswer();
    (void)::send(guest->stream.fd(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    Warn(*guest, "refused a connection: the client has no secret and no certificate");
  } else {
    Warn(*guest, "refused a connection: the peer is not a Cell client");
  }
  return Step::kClose;
}

// Goes a step further in the TLS handshake.
TcpListener::Step TcpListener::Secure(size_t index) {
  Guest* guest = guests_[index].get();
  if (handshakes_left_-- <= 0) return Step::kWait;
  const absl::StatusOr<bool> done = guest->stream.tls()->Handshake();
  if (!done.ok()) {
    Warn(*guest, fmt::format("refused a connection: {}", std::string(done.status().message())));
    return Step::kClose;
  }
  if (!*done) {
    return WatchFor(index, guest->stream.tls()->wants_write() ? EPOLLOUT : EPOLLIN) ? Step::kWait : Step::kClose;
  }
  guest->handshake = ServerHandshake::Proven(guest->stream.tls()->peer(), RandomNonce());
  guest->phase = Guest::Phase::kGreeting;
  return Step::kGoOn;
}

// Takes the handshake's messages as they come. Returns false to close.
bool TcpListener::Greet(Guest* guest) {
  std::string answer;
  while (!guest->refused && guest->handshake.wants() > 0 && guest->in.size() >= guest->handshake.wants()) {
    const size_t bytes = guest->handshake.wants();
    const absl::Status taken = guest->handshake.Take({guest->in.data(), bytes}, &answer);
    guest->in.Consume(bytes);
    if (!taken.ok()) {
      Warn(*guest, fmt::format("refused a connection: {}", std::string(taken.message())));
      guest->refused = true;
    }
  }
  guest->out.Append(AsBytes(answer));
  if (guest->handshake.done()) {
    HasGreeted(*guest);
    if (guest->handshake.purpose() == Purpose::kReads) {
      ++readers_;
      guest->counted = reading_.Add(guest->handshake.peer());
      if (!guest->counted) {
        Warn(*guest, fmt::format("refused a connection: {} has {} for reads already, and others need some, too",
                                 ToString(guest->handshake.peer()), reading_.max()));
        return false;
      }
    }
    if (readers_ > options_.readers_max) {
      Warn(*guest, fmt::format("refused a connection: {} peers already read", readers_ - 1));
      return false;
    }
  }
  if (!guest->stream.Send(&guest->out)) return false;
  return !(guest->refused && guest->out.empty());
}

bool TcpListener::AnswerReads(Guest* guest) {
  for (int rounds = 0; rounds < kRoundsMax; ++rounds) {  // Serve others after that.
    FillAnswers(guest);
    if (!guest->stream.Send(&guest->out)) return false;
    if (!guest->out.empty() || !guest->HasMore()) break;
  }
  guest->out.Shrink(kIdleBytesMax);
  return true;
}

// Answers as many requests as there is room for. A large answer continues when there is room again.
void TcpListener::FillAnswers(Guest* guest) {
  while (guest->out.size() + kWordBytes <= kOutBytesMax) {
    if (guest->left > 0) {
      const size_t room = (kOutBytesMax - guest->out.size()) / kWordBytes * kWordBytes;
      const size_t bytes = std::min<uint64_t>(guest->left, room);
      CopyFromShared(guest->from, guest->out.Grow(bytes), bytes);
      guest->out.Commit(bytes);
      guest->from += bytes;
      guest->left -= bytes;
      continue;
    }
    if (guest->in.size() < sizeof(ReadRequest)) return;
    const auto request = Load<ReadRequest>(guest->in.data());
    guest->in.Consume(sizeof(ReadRequest));
    const Pointer pointer = Pointer::FromRaw(request.pointer);
    const auto region = pool_->Find(pointer.region());
    const bool aligned = (pointer.offset() | request.bytes) % kWordBytes == 0;
    ReadAnswer answer{request.id, 0, kReadOutside};
    if (!pool_->MayRead(guest->handshake.peer())) {  // Asked each time: a grant may be revoked.
      answer.code = kReadDenied;
    } else if (region.has_value() && aligned && region->Holds(pointer.offset(), request.bytes)) {
      answer.bytes = request.bytes;
      answer.code = kReadOk;
      guest->from = region->shm->base() + pointer.offset();
      guest->left = request.bytes;
    }
    guest->out.Append({reinterpret_cast<const std::byte*>(&answer), sizeof(answer)});
  }
}

// Reads from guests that have taken their answers. For others it waits until the answers can be sent.
bool TcpListener::WatchAgain(size_t index) {
  Guest* guest = guests_[index].get();
  const bool writes = !guest->out.empty() || guest->HasMore();
  const uint32_t events = (writes || guest->refused ? 0u : uint32_t{EPOLLIN}) | (writes ? uint32_t{EPOLLOUT} : 0u);
  return WatchFor(index, events);
}

bool TcpListener::WatchFor(size_t index, uint32_t events) {
  Guest* guest = guests_[index].get();
  if (events == guest->watched) return true;
  guest->watched = events;
  return Watch(epoll_.get(), EPOLL_CTL_MOD, guest->stream.fd(), events, kFirstGuestTag + index);
}

void TcpListener::CloseSilentGuests() {
  if (greeting_.size() == 0 && listen_again_ns_ == 0) return;
  const int64_t now = clock_->NowNs();
  for (std::optional<uint64_t> oldest = greeting_.Oldest(); oldest.has_value(); oldest = greeting_.Oldest()) {
    const size_t index = slots_.at(*oldest);
    if (now - guests_[index]->accepted_ns < options_.handshake_ns) break;
    Warn(*guests_[index], "closed a connection: the peer sent no handshake in time");
    Close(index);
  }
  if (listen_again_ns_ != 0 && now >= listen_again_ns_) {
    listen_again_ns_ = 0;
    (void)Watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), EPOLLIN, kListenerTag);
  }
}

// Closes one of the guests that have not greeted. Returns false if all have.
bool TcpListener::CloseOneSilent() {
  const std::optional<uint64_t> number = greeting_.InTheWay();
  if (!number.has_value()) return false;
  const size_t index = slots_.at(*number);
  Warn(*guests_[index], "closed a connection that had sent no handshake, to make room for others");
  Close(index);
  return true;
}

void TcpListener::HasGreeted(const Guest& guest) {
  greeting_.Remove(guest.number);
  slots_.erase(guest.number);
}

void TcpListener::Close(size_t index) {
  const Guest* guest = guests_[index].get();
  if (!guest->handshake.done()) {
    HasGreeted(*guest);
  } else if (guest->handshake.purpose() == Purpose::kReads) {
    --readers_;
    if (guest->counted) reading_.Remove(guest->handshake.peer());
  }
  guests_[index].reset();  // Closing the socket removes it from epoll.
  closed_.push_back(index);
}

void TcpListener::Warn(const std::string& what) { warnings_.Warn(clock_->NowNs(), "{}: {}", address_, what); }

void TcpListener::Warn(const Guest& guest, const std::string& what) {
  Warn(fmt::format("{} (from {})", what, TextOf(guest.address)));
}

}  // namespace cell

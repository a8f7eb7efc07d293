#include "cell/io/fabric/polling_fabric.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "cell/io/exec/system_clock.h"

namespace cell {
namespace {

// If spinning lasts as long as sleeping and waking takes, it is at most twice as slow as the optimum (Karlin et al.,
// SODA 1990). That time was 50 us on a virtual machine.
constexpr int64_t kSpinNs = 50'000;
constexpr int64_t kSpinAloneNs = 3'000;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kSleepMaxNs = 60 * kSecondNs;
constexpr size_t kTellAtOnceMax = 10'000;

}  // namespace

PollingFabric::PollingFabric(Polling polling, std::shared_ptr<RegionPool> pool)
    : polling_(polling), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), pool_(std::move(pool)) {}

PollingFabric::PollingFabric(Polling polling, std::shared_ptr<RegionPool> pool, bool huge_pages)
    : PollingFabric(polling, pool != nullptr ? std::move(pool) : std::make_shared<RegionPool>(huge_pages)) {}

void PollingFabric::Wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
  // Set it last: the Wait that finds it set empties wake_. In the other order that could happen before the write, and
  // no Wait would sleep until the next Wake.
  woken_.store(true, std::memory_order_release);
}

int64_t PollingFabric::NowNs() const { return SystemClock::Get()->NowNs(); }

uint64_t PollingFabric::UniqueNumber() {
  std::random_device random;  // 32 bits of the kernel's.
  return std::max<uint64_t>(uint64_t{random()} << 32 | random(), 1);
}

size_t PollingFabric::TellNow() {
  size_t told = 0;
  while (!to_tell_.empty()) {
    std::vector<ToTell> now;
    now.swap(to_tell_);
    for (const ToTell& one : now) one.completion->Done(one.status, {});
    told += now.size();
    if (told > kTellAtOnceMax) break;  // Do not stay here for callers that try again at once.
  }
  return told;
}

bool PollingFabric::TakeWake() {
  if (!woken_.load(std::memory_order_relaxed) || !woken_.exchange(false)) return false;
  uint64_t times;
  (void)!::read(wake_.get(), &times, sizeof(times));
  return true;
}

int PollingFabric::WaitFd() {
  if (either_.valid()) return either_.get();
  Fd made(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {wait_fd(), wake_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (!made.valid() || ::epoll_ctl(made.get(), EPOLL_CTL_ADD, fd, &event) != 0) return -1;
  }
  either_ = std::move(made);
  return either_.get();
}

int64_t PollingFabric::BeginWait(int64_t until_ns) {
  Flush();
  if (TakeWake() || BeginSleep() || polling_ == Polling::kBusy) return 0;
  return std::min(until_ns, NextDeadlineNs());
}

void PollingFabric::EndWait() {
  EndSleep();
  AfterWait();
}

void PollingFabric::Wait(int64_t until_ns) {
  Flush();
  until_ns = std::min(until_ns, NextDeadlineNs());
  if (NowNs() >= until_ns) {  // Nobody waits, so a Wake is for the next wait.
    AfterWait();
    return;
  }
  if (TakeWake()) return;
  if (polling_ == Polling::kBusy) return;
  const int64_t start = NowNs();
  for (int64_t now = start; now - start < kSpinNs && now < until_ns; now = NowNs()) {
    for (int i = 0; i < 16; ++i) {
      if (HasWork() || woken_.load(std::memory_order_relaxed)) return;
      __builtin_ia32_pause();
    }
    if (now - start > kSpinAloneNs) ::sched_yield();  // The process that we wait for may need this core.
  }
  const bool work = BeginSleep();
  const int64_t left_ns = until_ns - NowNs();
  if (!work && left_ns > 0) {
    pollfd ready[] = {{wait_fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    const int64_t sleep_ns = std::min(left_ns, kSleepMaxNs);
    const timespec limit{sleep_ns / kSecondNs, sleep_ns % kSecondNs};
    (void)::ppoll(ready, 2, &limit, nullptr);  // poll() would sleep for whole milliseconds.
  }
  EndWait();
}

}  // namespace cell

#include "cell/io/net/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

namespace cell {
namespace {

constexpr uint64_t kKeptMax = 1024;
constexpr uint64_t kGreetingMax = 256;
constexpr char kPayload[] = "cell/out-of-descriptors";

}  // namespace

uint64_t DescriptorLimit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

uint64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (limit.rlim_cur < limit.rlim_max) (void)::setrlimit(RLIMIT_NOFILE, &raised);
  return DescriptorLimit();
}

bool LeavesEnough(const Fd& accepted) {
  const uint64_t limit = DescriptorLimit();
  return static_cast<uint64_t>(accepted.get()) < limit - std::min(limit / 4, kKeptMax);
}

size_t GreetingMax() { return std::clamp<uint64_t>(DescriptorLimit() / 8, 1, kGreetingMax); }

void LowestNumber(Fd* fd) {
  Fd copy(::fcntl(fd->get(), F_DUPFD_CLOEXEC, 0));
  if (copy.valid() && copy.get() < fd->get()) *fd = std::move(copy);
}

bool IsOutOfDescriptors(int error) { return error == EMFILE || error == ENFILE; }

bool IsOutOfDescriptors(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

void MarkOutOfDescriptors(absl::Status* status) { status->SetPayload(kPayload, absl::Cord()); }

int DescriptorReserve::Open(const std::function<int()>& open) {
  for (;;) {
    const int opened = open();
    if (opened >= 0) {
      Refill();
      return opened;
    }
    const int error = errno;
    if (!IsOutOfDescriptors(error)) return opened;
    const std::lock_guard lock(mutex_);
    errno = error;
    if (spare_.empty()) return opened;
    spare_.pop_back();
  }
}

void DescriptorReserve::Refill() {
  const std::lock_guard lock(mutex_);
  while (spare_.size() < wanted_) {
    Fd spare(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!spare.valid()) return;
    spare_.push_back(std::move(spare));
  }
}

}  // namespace cell

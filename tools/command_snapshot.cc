#include "tools/command_snapshot.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "cell/base/status_macros.h"

namespace cell {
namespace {

constexpr int64_t kKeepUs = 3'600'000'000;  // The most that servers allow.

}  // namespace

HeldSignals::HeldSignals() {
  came_ = 0;
  null_ = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  struct sigaction action {};
  action.sa_handler = &HeldSignals::Come;  // Without SA_RESTART: a write that waits for its reader ends.
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

HeldSignals::~HeldSignals() {
  Restore();
  ::close(null_);
  if (came_ != 0) ::raise(came_);
}

void HeldSignals::Come(int signal) {
  const bool second = came_ != 0;
  came_ = signal;
  if (second) {
    Restore();
    ::raise(signal);
    return;
  }
  const int error = errno;
  ::dup2(null_, STDOUT_FILENO);  // The library would go on with a write that was done in part, and wait again.
  errno = error;
}

void HeldSignals::Restore() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

absl::StatusOr<std::unique_ptr<CommandSnapshot>> CommandSnapshot::Take(Client* client, const std::string& from,
                                                                       const std::optional<std::string>& to) {
  auto signals = std::make_unique<HeldSignals>();
  ASSIGN_OR_RETURN(Snapshot snapshot, client->TakeSnapshot({.from = from, .to = to, .keep_us = kKeepUs}));
  return std::unique_ptr<CommandSnapshot>(new CommandSnapshot(std::move(signals), std::move(snapshot)));
}

}  // namespace cell

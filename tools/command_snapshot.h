// CommandSnapshot is the snapshot that a command of cellctl reads.
//
// It is kept as long as servers keep one at most, and they forget it when this object ends. A signal that would end the
// program waits for that: SIGINT, SIGTERM, SIGHUP, or SIGPIPE from a reader that has gone. A second one does not wait.
// There is one object at a time. Not thread-safe.
#pragma once

#include <signal.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cell/client/client.h"
#include "cell/client/snapshot.h"

namespace cell {

// Holds signals back until it ends, except those that are ignored, as with nohup. Once one has come, nothing more is
// written to standard output, whose reader may be slow.
class HeldSignals {
 public:
  HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals();  // Raises the signal that has come.

  bool any() const { return came_ != 0; }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

  static void Come(int signal);
  static void Restore();

  inline static volatile sig_atomic_t came_ = 0;
  inline static int null_ = -1;  // Open as long as there is an object.
  inline static std::array<struct sigaction, kSignals.size()> before_;
};

class CommandSnapshot {
 public:
  // Takes a snapshot of the keys from `from` (inclusive) to `to` (exclusive; nullopt: to the end). Has the errors of
  // Client::TakeSnapshot.
  static absl::StatusOr<std::unique_ptr<CommandSnapshot>> Take(Client* client, const std::string& from,
                                                               const std::optional<std::string>& to);
  ~CommandSnapshot() { (void)snapshot_.Forget(); }

  Scan NewScan(ScanOptions options) { return snapshot_.NewScan(std::move(options)); }
  // Returns whether the command has to end because of a signal.
  bool interrupted() const { return signals_->any(); }

 private:
  CommandSnapshot(std::unique_ptr<HeldSignals> signals, Snapshot snapshot)
      : signals_(std::move(signals)), snapshot_(std::move(snapshot)) {}

  const std::unique_ptr<HeldSignals> signals_;  // Ends after the snapshot was forgotten.
  Snapshot snapshot_;
};

}  // namespace cell

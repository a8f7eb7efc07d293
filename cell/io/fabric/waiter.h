// Waits for completions in tests, one at a time.
#pragma once

#include <string>

#include "cell/base/check.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

// Waits for a completion as a blocking client does.
class Waiter final : public Completion {
 public:
  void Done(const absl::Status& status, ConstBytes reply) override {
    CELL_CHECK(!done_);
    done_ = true;
    status_ = status;
    reply_ = std::string(AsText(reply));
  }
  const absl::Status& Await(Fabric* fabric) {
    const int64_t limit_ns = fabric->NowNs() + 20'000'000'000;
    while (!done_ && fabric->NowNs() < limit_ns) {
      if (fabric->Poll() == 0 && !done_) fabric->Wait(fabric->NowNs() + 1'000'000'000);
    }
    CELL_CHECK(done_);
    return status_;
  }
  // Waits for a request that nothing but its deadline ends. Each Wait must end at the deadline by itself.
  const absl::Status& AwaitDeadline(Fabric* fabric, int64_t deadline_ns) {
    const int64_t too_late_ns = deadline_ns + 20'000'000'000;
    while (!done_) {
      fabric->Wait(too_late_ns);
      CELL_CHECK_LT(fabric->NowNs(), too_late_ns);
      fabric->Poll();
    }
    return status_;
  }
  bool done() const { return done_; }
  const absl::Status& status() const { return status_; }
  const std::string& reply() const { return reply_; }

 private:
  bool done_ = false;
  absl::Status status_;
  std::string reply_;
};

// Connects and waits for the connection.
inline absl::StatusOr<ConnectionId> ConnectTo(Fabric* fabric, const std::string& address) {
  Waiter waiter;
  const ConnectionId id = fabric->Connect(address, fabric->NowNs() + 5'000'000'000, &waiter);
  if (const absl::Status status = waiter.Await(fabric); !status.ok()) return status;
  return id;
}

}  // namespace cell

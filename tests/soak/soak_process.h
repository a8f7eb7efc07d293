// SoakProcess is what all client processes of the soak have in common: it opens the client, runs tasks on it until
// their time is over, destroys the client in the middle of their operations if it was asked to, and checks how
// operations end. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "cell/base/random.h"
#include "cell/client/client.h"
#include "tests/soak/ticker.h"

namespace cell {

struct SoakFlags {
  std::string cluster, log, fabric = "auto", secret_file;
  uint64_t process = 0;  // Number in the run: makes its values unique.
  int tasks = 8;
  double seconds = 10;
  double operations_per_second = 500;
  double life_seconds = 0;  // How long a client lives, on average. 0: as long as the process.
  int64_t timeout_ms = 5000;
  bool leave = false;    // Ends in the middle of its operations, without notice.
  bool settled = false;  // The faults are over: everything must succeed, and may take long.
  uint64_t seed = 1;

  void AddTo(CLI::App* app);
};

class SoakProcess {
 public:
  // `flags` must outlive it.
  explicit SoakProcess(const SoakFlags& flags) : soak_flags_(flags), lives_(Mix64(flags.seed)) {}
  virtual ~SoakProcess() = default;

  // Does all of it. Returns an error if the cluster was never reached.
  absl::Status Run();
  uint64_t operations() const { return operations_; }
  uint64_t failed() const { return failed_; }

 protected:
  static constexpr int64_t kPatientUs = 60'000'000;

  // Prepares what belongs to a new client. An error ends this client.
  virtual absl::Status Opened() { return absl::OkStatus(); }
  // Drops what Opened has prepared. The client is gone.
  virtual void Closed() {}
  // Returns the tasks that use a new client. They end by themselves once closing() is true or end_ns() has passed.
  virtual std::vector<Task<bool>> Tasks() = 0;
  // Logs a violation.
  virtual void Violate(const std::string& text) = 0;

  // Opens a client. While no server answers, tries again for ten seconds, or for a minute with --settled.
  absl::Status Open();
  Client* client() const { return client_.get(); }
  bool closing() const { return closing_; }  // The client is being destroyed.
  int64_t end_ns() const { return end_ns_; }
  uint64_t NextSeed() { return lives_.Next(); }
  const std::string& last_error() const { return last_error_; }

  // Draws the path and the timeout of an operation: some have hardly any time, others more than a takeover takes.
  CallOptions DrawCall(Random* random) const;
  // Waits until the task's next operation, so that all tasks together have --rate, with one that began at `begin_ns`.
  Task<bool> Pace(int64_t begin_ns, Random* random);

  struct Begun {
    int64_t at_ns, kept_ns;
  };
  Begun Begin() const { return {NowNs(), ticker_.kept_ns()}; }
  // Handles the end of an operation: checks its error and its duration.
  void Ended(const char* what, const std::string& key, const Begun& begun, const CallOptions& call,
             const absl::Status& status);

 private:
  void Live(int64_t until_ns);
  int64_t Took(const Begun& begun) const { return NowNs() - begun.at_ns - (ticker_.kept_ns() - begun.kept_ns); }

  const SoakFlags& soak_flags_;
  const Ticker ticker_;
  Random lives_;
  std::unique_ptr<Client> client_;
  bool closing_ = false;
  int64_t end_ns_ = 0;
  std::string last_error_;
  uint64_t operations_ = 0, failed_ = 0;
};

}  // namespace cell

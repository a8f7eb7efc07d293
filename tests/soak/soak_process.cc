#include "tests/soak/soak_process.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <thread>

#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

// How much longer than its timeout an operation may take, not counting time when this process got no processor.
constexpr int64_t kLateNs = 2'000'000'000;
// A client ends its operations at once, and then its session with ZooKeeper. If that does not answer, it tries to reach
// it for at most twice a session's time.
constexpr int64_t kDestroyNs = 8'000'000'000;

size_t Descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

void SoakFlags::AddTo(CLI::App* app) {
  app->add_option("--cluster", cluster)->required();
  app->add_option("--log", log)->required();
  app->add_option("--process", process)->required();
  app->add_option("--fabric", fabric);
  app->add_option("--secret-file", secret_file);
  app->add_option("--tasks", tasks);
  app->add_option("--seconds", seconds);
  app->add_option("--life", life_seconds);
  app->add_option("--rate", operations_per_second);
  app->add_option("--timeout-ms", timeout_ms);
  app->add_flag("--leave", leave);
  app->add_flag("--settled", settled);
  app->add_option("--seed", seed);
}

absl::Status SoakProcess::Run() {
  RETURN_IF_ERROR(Open());
  end_ns_ = NowNs() + static_cast<int64_t>(soak_flags_.seconds * 1e9);
  if (soak_flags_.life_seconds == 0) {
    Live(INT64_MAX);
    return absl::OkStatus();
  }
  for (size_t descriptors = 0; NowNs() < end_ns_;) {
    Live(NowNs() + static_cast<int64_t>(2e9 * lives_.Unit() * soak_flags_.life_seconds));
    const size_t left = Descriptors();  // Without a client. What the first one opened permanently does not count.
    if (descriptors != 0 && left > descriptors) {
      Violate(fmt::format("{} descriptors are open without a client, but {} were open before", left, descriptors));
    }
    descriptors = left;
    while (client_ == nullptr && NowNs() < end_ns_) (void)Open();  // Perhaps its servers do not answer now.
    if (client_ == nullptr) break;
  }
  return absl::OkStatus();
}

absl::Status SoakProcess::Open() {
  ClientOptions options;
  options.cluster = soak_flags_.cluster;
  options.fabric = soak_flags_.fabric;
  options.secret_file = soak_flags_.secret_file;
  options.seed = soak_flags_.seed;
  options.timeout_us = soak_flags_.settled ? kPatientUs : soak_flags_.timeout_ms * 1000;
  absl::Status status = absl::UnavailableError("");
  const int64_t until_ns = NowNs() + (soak_flags_.settled ? 60 : 10) * int64_t{1'000'000'000};
  while (absl::IsUnavailable(status) && NowNs() < until_ns) {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Open(options);
    status = client.status();
    if (status.ok()) {
      client_ = *std::move(client);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  RETURN_IF_ERROR(status);
  status = Opened();
  if (!status.ok()) {
    client_.reset();
    Closed();
  }
  return status;
}

// Uses the client until everything is done, or destroys it at `until_ns`: its operations must end then, with no error
// but Cancelled.
void SoakProcess::Live(int64_t until_ns) {
  std::vector<Task<bool>> tasks = Tasks();
  for (Task<bool>& task : tasks) task.Start();
  const auto is_done = [](const Task<bool>& task) { return task.done(); };
  while (!std::all_of(tasks.begin(), tasks.end(), is_done) && NowNs() < until_ns) {
    client()->Poll(client()->NowNs() + 1'000'000);
    if (soak_flags_.leave && NowNs() >= end_ns_) ::_exit(0);
  }
  const Begun begun = Begin();
  closing_ = true;
  client_.reset();
  Closed();
  const int64_t took_ns = Took(begun);
  if (took_ns > kDestroyNs + kLateNs) Violate(fmt::format("a client was destroyed in {} ms", took_ns / 1'000'000));
  if (!std::all_of(tasks.begin(), tasks.end(), is_done)) {
    Violate("an operation did not end when its client was destroyed");
    std::fflush(nullptr);
    ::_exit(0);  // The client that it waits for is gone.
  }
  closing_ = false;
}

CallOptions SoakProcess::DrawCall(Random* random) const {
  CallOptions call;
  call.path = std::array{Path::kServer, Path::kClient, Path::kHybrid}[random->Below(3)];
  const int64_t timeout_us = soak_flags_.timeout_ms * 1000;
  call.timeout_us =
      random->Below(4) == 0 ? 1 + static_cast<int64_t>(random->Below(static_cast<uint64_t>(timeout_us))) : timeout_us;
  return call;
}

Task<bool> SoakProcess::Pace(int64_t begin_ns, Random* random) {
  const auto pause_ns = static_cast<uint64_t>(2e9 * soak_flags_.tasks / soak_flags_.operations_per_second);
  const int64_t rest_ns = begin_ns + static_cast<int64_t>(random->Below(pause_ns + 1)) - NowNs();
  co_return co_await client()->AsyncSleepUntil(client()->NowNs() + rest_ns);
}

void SoakProcess::Ended(const char* what, const std::string& key, const Begun& begun, const CallOptions& call,
                        const absl::Status& status) {
  ++operations_;
  const int64_t took_ns = Took(begun);
  if (took_ns > *call.timeout_us * 1000 + kLateNs) {
    Violate(fmt::format("{} {} by {} took {} ms with a timeout of {} ms: {}", what, key, ToString(*call.path),
                        took_ns / 1'000'000, *call.timeout_us / 1000, status.ToString()));
  }
  if (status.ok()) return;
  ++failed_;
  last_error_ = status.ToString();
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return;
    case absl::StatusCode::kCancelled:
      if (!closing_) Violate(fmt::format("{} {} while its client lives: {}", what, key, status.ToString()));
      return;
    default:
      if (!IsMaybeApplied(status)) Violate(fmt::format("{} {}: {}", what, key, status.ToString()));
  }
}

}  // namespace cell

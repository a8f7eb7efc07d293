// Keeps queues of jobs, each of which is done even if the worker that has taken it dies.
//
// A worker takes a job for some time, its lease. If the worker has not finished the job by then, another one can take
// it. So each job is done at least once. The effect of a job that is written in the transaction that finishes it
// happens exactly once.
//
// Keys:
//   jobs/QUEUE/TIME/ID  has "ATTEMPTS TEXT". TIME is when the job may be taken, in microseconds since the Unix epoch,
//                       with zeros in front so that keys are in the order of their times. ATTEMPTS is how often the
//                       job was taken.
//   tally/QUEUE/TEXT    has how many jobs with this text (its first 100 bytes) were done. It stands for the effect of a
//                       job.
//
// A job that is pushed has the time of now, or a later one. To take a job is to move it to the end of the lease: it is
// hidden until then, and comes back by itself if nobody finishes it. To finish it is to delete it. There is no second
// list of the jobs that are being done, and nothing that has to clean up after a crash.
//
// The key of a taken job is also the proof of the lease ("TIME/ID", the lease's name). Each take and each extension
// gives the job a later time, so a worker whose job was taken by another one does not find its own key any more.
//
// Why transactions: a take deletes one key and puts another, and without a transaction a crash in between would lose
// the job. Two workers could take the same job. And a worker that ends between the effect and the finish would leave a
// job that is done a second time.
//
// What to look at:
// - Take looks for jobs by a plain scan, and picks one of the first by chance. The transaction reads the key of that
//   job alone. If it scanned, each push and each take of another worker would abort it.
// - Finish checks the lease and writes the effect in one transaction. A slow worker whose job was given to another one
//   changes nothing. The clocks of workers only decide when a job is tried again: that it is finished once
//   does not depend on them.
// - Effects outside of the store (a mail, say) can happen twice. `take` and `finish` are for workers that have such.
//
// Jobs are taken about in the order of their times, not exactly.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cell/base/bytes.h"
#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/client/transaction.h"
#include "cell/cmd/number_flags.h"
#include "fmt/format.h"
#include "tools/examples/example.h"
#include "tools/examples/run_until_known.h"

namespace cell {
namespace {

constexpr uint64_t kCandidates = 16;  // Workers pick one of the first jobs, so that few meet.
constexpr int kTakesMax = 1000;
constexpr size_t kTallyBytesMax = 100;
constexpr std::chrono::milliseconds kPause{20};  // A worker that has found no job waits so long.

struct Flags {
  ClientOptions client;
  std::string queue = "default";
  std::vector<std::string> texts;
  std::string lease_name;
  double lease = 30;
  double delay = 0;
  uint64_t work_ms = 0;

  std::string prefix() const { return fmt::format("jobs/{}/", queue); }
  std::string tally_prefix() const { return fmt::format("tally/{}/", queue); }
  uint64_t lease_us() const { return static_cast<uint64_t>(lease * 1e6); }
};

struct Job {
  std::string lease_name;  // TIME/ID: the key behind the prefix.
  uint64_t attempts = 0;
  std::string text;
};

absl::StatusOr<Job> JobIn(const Flags& flags, std::string_view key, std::string_view value) {
  Job job;
  job.lease_name = key.substr(flags.prefix().size());
  const size_t space = value.find(' ');
  ASSIGN_OR_RETURN(job.attempts, NumberIn(key, value.substr(0, space)));
  if (space != std::string_view::npos) job.text = value.substr(space + 1);
  return job;
}

// Returns the time and the id in the name of a lease, or InvalidArgument.
absl::StatusOr<std::pair<uint64_t, std::string>> SplitLease(std::string_view name) {
  const size_t slash = name.find('/');
  const std::optional<uint64_t> time_us = ParseTime(name.substr(0, slash));
  if (!time_us.has_value() || slash == std::string_view::npos || slash + 1 == name.size()) {
    return absl::InvalidArgumentError(fmt::format("{} is not the name of a lease: TIME/ID", ForMessage(name)));
  }
  return std::pair(*time_us, std::string(name.substr(slash + 1)));
}

std::string LeaseName(uint64_t time_us, std::string_view id) { return fmt::format("{}/{}", TimeDigits(time_us), id); }

absl::StatusOr<int> Push(Client* client, const Flags& flags) {
  std::random_device seeds;
  Random random((uint64_t{seeds()} << 32) ^ seeds());
  const uint64_t time_us = NowUs() + static_cast<uint64_t>(flags.delay * 1e6);
  std::vector<std::string> keys;  // In the order of the texts.
  for (size_t i = 0; i < flags.texts.size(); ++i) {
    keys.push_back(fmt::format("{}{}", flags.prefix(), LeaseName(time_us + i, fmt::format("{:016x}", random.Next()))));
  }
  const auto body = [&](Transaction* tx) -> absl::Status {
    for (size_t i = 0; i < keys.size(); ++i) RETURN_IF_ERROR(tx->Put(keys[i], "0 " + flags.texts[i]));
    return absl::OkStatus();
  };
  // If the outcome was unknown, pushing them once more could add jobs that were done already.
  RETURN_IF_ERROR(RunUntilKnown(client, body).status());
  return kDone;
}

// Takes a job that is due. Returns nullopt if no job is due.
absl::StatusOr<std::optional<Job>> TakeJob(Client* client, const Flags& flags, Random* random) {
  for (int i = 0; i < kTakesMax; ++i) {
    const uint64_t now_us = NowUs();
    std::vector<std::string> due;
    Scan scan = client->NewScan({.from = flags.prefix(),
                                 .to = flags.prefix() + TimeDigits(now_us + 1),
                                 .limit = kCandidates,
                                 .keys_only = true,
                                 .batch = kCandidates});
    absl::StatusOr<bool> more = scan.Next();
    for (; more.ok() && *more; more = scan.Next()) due.emplace_back(scan.key());
    RETURN_IF_ERROR(more.status());
    if (due.empty()) return std::nullopt;
    const std::string& key = due[random->Below(due.size())];
    ASSIGN_OR_RETURN(const auto was, SplitLease(std::string_view(key).substr(flags.prefix().size())));
    const std::string lease_name = LeaseName(now_us + flags.lease_us(), was.second);

    std::optional<Job> job;
    const auto body = [&](Transaction* tx) -> absl::Status {
      job.reset();
      ASSIGN_OR_RETURN(const std::optional<std::string> value, tx->Get(key));
      if (!value.has_value()) return absl::OkStatus();  // Another worker has it.
      ASSIGN_OR_RETURN(job, JobIn(flags, key, *value));
      ++job->attempts;
      job->lease_name = lease_name;
      RETURN_IF_ERROR(tx->Delete(key));
      return tx->Put(flags.prefix() + lease_name, fmt::format("{} {}", job->attempts, job->text));
    };
    RETURN_IF_ERROR(RunUntilKnown(client, body).status());
    if (job.has_value()) return job;
  }
  return absl::UnavailableError("other workers have taken every job that was due: try again");
}

// Finishes a job: deletes it, and has `effect` write what the job has done, at the same moment. Returns false, and
// changes nothing, if the lease is over and the job was taken by another worker, or is finished.
using Effect = std::function<absl::Status(Transaction* tx, const Job& job)>;
absl::StatusOr<bool> FinishJob(Client* client, const Flags& flags, const std::string& lease_name,
                               const Effect& effect) {
  const std::string key = flags.prefix() + lease_name;
  bool held = false;
  const auto body = [&](Transaction* tx) -> absl::Status {
    ASSIGN_OR_RETURN(const std::optional<std::string> value, tx->Get(key));
    held = false;
    if (!value.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Job job, JobIn(flags, key, *value));
    held = job.attempts > 0;  // Nobody has the lease of a job that was not taken.
    if (!held) return absl::OkStatus();
    RETURN_IF_ERROR(tx->Delete(key));
    return effect(tx, job);
  };
  RETURN_IF_ERROR(RunUntilKnown(client, body).status());
  return held;
}

int ReportLost(const std::string& lease_name) {
  fmt::print("the lease {} is over: another worker has the job, or it is finished\n", ForMessage(lease_name));
  return kWrong;
}

absl::StatusOr<int> Take(Client* client, const Flags& flags) {
  Random random(NowUs());
  ASSIGN_OR_RETURN(const std::optional<Job> job, TakeJob(client, flags, &random));
  if (!job.has_value()) return kWrong;
  fmt::print("{}\t{}\t{}\n", job->lease_name, job->attempts, job->text);
  return kDone;
}

absl::StatusOr<int> Finish(Client* client, const Flags& flags) {
  RETURN_IF_ERROR(SplitLease(flags.lease_name).status());
  const auto no_effect = [](Transaction*, const Job&) { return absl::OkStatus(); };
  ASSIGN_OR_RETURN(const bool finished, FinishJob(client, flags, flags.lease_name, no_effect));
  return finished ? kDone : ReportLost(flags.lease_name);
}

// Makes a lease longer. The new one is later than the old one in any case, as each lease of a job has to be.
absl::StatusOr<int> Extend(Client* client, const Flags& flags) {
  ASSIGN_OR_RETURN(const auto was, SplitLease(flags.lease_name));
  const std::string lease_name = LeaseName(std::max(NowUs() + flags.lease_us(), was.first + 1), was.second);
  const auto move = [&](Transaction* tx, const Job& job) {
    return tx->Put(flags.prefix() + lease_name, fmt::format("{} {}", job.attempts, job.text));
  };
  ASSIGN_OR_RETURN(const bool extended, FinishJob(client, flags, flags.lease_name, move));
  if (!extended) return ReportLost(flags.lease_name);
  fmt::print("{}\n", lease_name);
  return kDone;
}

// Does jobs until the queue has none, not even jobs that others have taken: those may come back.
absl::StatusOr<int> Work(Client* client, const Flags& flags) {
  const auto count = [&flags](Transaction* tx, const Job& job) -> absl::Status {
    const std::string key = flags.tally_prefix() + job.text.substr(0, kTallyBytesMax);
    ASSIGN_OR_RETURN(const std::optional<std::string> before, tx->Get(key));
    ASSIGN_OR_RETURN(const uint64_t number, NumberIn(key, before.value_or("0")));
    return tx->Put(key, fmt::format("{}", number + 1));
  };
  std::random_device seeds;
  Random random(seeds());
  const ScanOptions all = PrefixScan(flags.prefix());
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<Job> job, TakeJob(client, flags, &random));
    if (!job.has_value()) {
      ASSIGN_OR_RETURN(const uint64_t left, client->Count(all.from, all.to));
      if (left == 0) return kDone;
      std::this_thread::sleep_for(kPause);
      continue;
    }
    fmt::print("took\t{}\t{}\t{}\n", job->lease_name, job->attempts, job->text);
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(flags.work_ms));
    ASSIGN_OR_RETURN(const bool finished, FinishJob(client, flags, job->lease_name, count));
    fmt::print("{}\t{}\n", finished ? "finished" : "lost", job->lease_name);
    std::fflush(stdout);
  }
}

absl::StatusOr<int> List(Client* client, const Flags& flags) {
  Scan scan = client->NewScan(PrefixScan(flags.prefix()));
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) {
    ASSIGN_OR_RETURN(const Job job, JobIn(flags, scan.key(), scan.value()));
    fmt::print("{}\t{}\t{}\n", job.lease_name, job.attempts, job.text);
  }
  RETURN_IF_ERROR(more.status());
  return kDone;
}

absl::StatusOr<int> Tally(Client* client, const Flags& flags) {
  Scan scan = client->NewScan(PrefixScan(flags.tally_prefix()));
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) {
    fmt::print("{}\t{}\n", scan.key().substr(flags.tally_prefix().size()), scan.value());
  }
  RETURN_IF_ERROR(more.status());
  return kDone;
}

int Main(int argc, char** argv) {
  Flags flags;
  std::function<absl::StatusOr<int>(Client*, const Flags&)> command;
  CLI::App app("Keep queues of jobs that are done even if a worker dies");
  DeclareCluster(&app, &flags.client);
  app.add_option("--queue", flags.queue, "Name of the queue")->check(PartOfKey())->capture_default_str();
  app.require_subcommand(1);
  CLI::App* const push = app.add_subcommand("push", "Push each TEXT as a job, all of them or none");
  CLI::App* const take =
      app.add_subcommand("take", "Take a job: writes LEASE TAB ATTEMPT TAB TEXT. Exit status 1 if none is due");
  CLI::App* const finish =
      app.add_subcommand("finish", "Finish a job that was taken. Exit status 1 if the lease is over and the job lost");
  CLI::App* const extend =
      app.add_subcommand("extend", "Extend a lease, and write its new name. Exit status 1 if the job is lost");
  CLI::App* const work = app.add_subcommand(
      "work",
      "Take and finish jobs until the queue has none. Each counts in the tally, in the transaction that "
      "finishes it");
  CLI::App* const list = app.add_subcommand("list", "List all jobs, also those that are taken, as `take` writes them");
  CLI::App* const tally = app.add_subcommand("tally", "List how often `work` has done a job of each text");
  push->add_option("text", flags.texts)->required();
  push->add_option("--delay", flags.delay, "Seconds until the jobs may be taken")
      ->check(Between(0, 1e9))
      ->capture_default_str();
  for (CLI::App* const sub : {finish, extend}) sub->add_option("lease", flags.lease_name)->required();
  for (CLI::App* const sub : {take, extend, work}) {
    sub->add_option("--for", flags.lease, "Seconds that a lease lasts")
        ->check(Between(0.001, 1e6))
        ->capture_default_str();
  }
  work->add_option("--work-ms", flags.work_ms, "How long each job takes, in milliseconds")
      ->check(WholeNumber(0, 1'000'000))
      ->capture_default_str();
  push->callback([&command] { command = Push; });
  take->callback([&command] { command = Take; });
  finish->callback([&command] { command = Finish; });
  extend->callback([&command] { command = Extend; });
  work->callback([&command] { command = Work; });
  list->callback([&command] { command = List; });
  tally->callback([&command] { command = Tally; });
  return RunTransactions("job_queue", &app, argc, argv, flags.client,
                         [&](Client* client) { return command(client, flags); });
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

// cellctl: commands about ranges of keys in the tree: scan, count, delete-range.
#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "cell/base/bytes.h"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"
#include "tools/command_snapshot.h"
#include "tools/pair_text.h"
#include "tools/progress.h"

namespace cell {
namespace {

// The range that the flags name.
struct KeyRange {
  std::string from;
  std::optional<std::string> to;
};

KeyRange RangeOf(const CtlFlags& flags) {
  if (!flags.has_prefix) return {flags.from, flags.has_to ? std::optional<std::string>(flags.to) : std::nullopt};
  ScanOptions options = PrefixScan(flags.prefix);
  return {std::move(options.from), std::move(options.to)};
}

volatile std::sig_atomic_t interrupted = 0;

// Makes the first SIGINT set `interrupted`, instead of ending the program, during this object's lifetime. The second
// one ends it.
class InterruptStops {
 public:
  InterruptStops() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, nullptr, &before_);
    // A signal that is ignored stays ignored, for example with nohup.
    if (before_.sa_handler != SIG_IGN) ::sigaction(SIGINT, &action, nullptr);
  }
  InterruptStops(const InterruptStops&) = delete;
  InterruptStops& operator=(const InterruptStops&) = delete;
  ~InterruptStops() { ::sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

// How far a count or a deletion has come.
struct Reached {
  uint64_t pairs = 0;
  std::string key;  // Where the rest of the range begins.
  bool all = true;  // `pairs` are all that were deleted: no answer was lost.
  absl::Status status = {};
};

using RangeCall =
    std::function<absl::StatusOr<uint64_t>(const std::string& from, const std::optional<std::string>&, RangeOptions)>;

// Runs a count or a deletion to the end of the range. When an answer was lost, goes on from where that was, because for
// this command it does not matter that keys may be deleted twice.
Reached RunToEnd(const RangeCall& call, const KeyRange& range, Progress* progress) {
  constexpr int kLostInSuccession = 20;
  const InterruptStops stops;
  Reached reached{0, range.from};
  for (int lost = 0;;) {
    const uint64_t before = reached.pairs;
    RangeOptions options;
    options.progress = [&](const RangeProgress& at) {
      lost = 0;
      reached.pairs = before + at.pairs;
      reached.key = at.reached;
      progress->Show(reached.pairs,
                     [&] { return fmt::format("{} pairs, at {}", reached.pairs, EscapeText(reached.key)); });
      return interrupted == 0;
    };
    const std::string from = reached.key;
    const absl::StatusOr<uint64_t> pairs = call(from, range.to, std::move(options));
    if (pairs.ok()) reached.pairs = before + *pairs;
    if (pairs.ok()) return reached;
    reached.status = pairs.status();
    reached.all = reached.all && !IsMaybeApplied(pairs.status());
    if (!IsMaybeApplied(pairs.status()) || interrupted != 0 || ++lost > kLostInSuccession) return reached;
    reached.status = absl::OkStatus();
  }
}

// Reports that the command has stopped before the end of the range.
int FailAt(const Reached& reached, std::string_view done) {
  const std::string how_far =
      fmt::format("{} pairs{} were {}{}", reached.pairs, reached.key.empty() ? "" : " below " + EscapeText(reached.key),
                  done, reached.all ? "" : ", or more: an answer was lost");
  if (interrupted != 0) {
    return Fail(absl::CancelledError(fmt::format("interrupted: {}; run the command again for the rest", how_far)));
  }
  return Fail(absl::Status(reached.status.code(),
                           fmt::format("{}; in all, {}", std::string(reached.status.message()), how_far)));
}

// Asks whether everything from a key on may be deleted. Only the word yes is a yes.
bool Confirmed(const CtlFlags& flags, const std::string& from) {
  if (flags.yes) return true;
  if (::isatty(STDIN_FILENO) == 0) return false;
  const std::string what = from.empty() ? "all keys of the tree" : fmt::format("all keys from {} on", EscapeText(from));
  fmt::print("Type yes to delete {}: ", what);
  std::fflush(stdout);
  std::string typed;
  std::getline(std::cin, typed);
  return typed == "yes";
}

// Writes the pairs of a scan to standard output, as long as `goes_on` returns true.
absl::Status PrintPairs(Scan* scan, const CtlFlags& flags, const std::function<bool()>& goes_on) {
  absl::StatusOr<bool> more = scan->Next();
  for (; more.ok() && *more && goes_on(); more = scan->Next()) {
    if (flags.json()) {
      nlohmann::json json = {{"key", BytesAsJson(scan->key())}};
      if (!flags.keys_only) json["value"] = BytesAsJson(scan->value());
      fmt::print("{}\n", json.dump());
      continue;
    }
    std::string line = EscapeText(scan->key());
    if (!flags.keys_only) line += "\t" + EscapeText(scan->value());
    line += "\n";
    fmt::print("{}", line);
  }
  return more.status();
}

int ScanSnapshot(Client* client, const CtlFlags& flags, const ScanOptions& options) {
  const auto snapshot = CommandSnapshot::Take(client, options.from, options.to);
  if (!snapshot.ok()) return Fail(snapshot.status());
  Scan scan = (*snapshot)->NewScan(options);
  const absl::Status status = PrintPairs(&scan, flags, [&] { return !(*snapshot)->interrupted(); });
  if (status.ok()) return kDone;
  if (!IsSnapshotTooOld(status)) return Fail(status);
  return Fail(absl::FailedPreconditionError(
      fmt::format("{}. The rest of the range was not listed: try again, with larger --snapshot-bytes of the servers if "
                  "much is written, or scan without --snapshot",
                  std::string(status.message()))));
}

}  // namespace

absl::Status CheckRange(std::string_view from, const std::optional<std::string>& to) {
  if (!to.has_value() || from <= *to) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("a range cannot begin at {} and end at {}, which is below", ForMessage(from), ForMessage(*to)));
}

int RunScan(Client* client, const CtlFlags& flags) {
  KeyRange range = RangeOf(flags);
  if (const absl::Status checked = CheckRange(range.from, range.to); !checked.ok()) return Fail(checked);
  if (const absl::Status connected = client->Connect(); !connected.ok()) return Fail(connected);
  ScanOptions options;
  options.from = std::move(range.from);
  options.to = std::move(range.to);
  options.limit = flags.limit;
  options.reverse = flags.reverse;
  options.keys_only = flags.keys_only;
  const bool empty = options.to.has_value() && options.from == *options.to;  // There is no snapshot of no keys.
  if (flags.snapshot && !empty) return ScanSnapshot(client, flags, options);
  Scan scan = client->NewScan(std::move(options));
  const absl::Status status = PrintPairs(&scan, flags, [] { return true; });
  return status.ok() ? kDone : Fail(status);
}

int RunCount(Client* client, const CtlFlags& flags) {
  if (const absl::Status connected = client->Connect(); !connected.ok()) return Fail(connected);
  Reached reached;
  {
    Progress progress("counting");
    reached = RunToEnd([client](const std::string& from, const std::optional<std::string>& to,
                                const RangeOptions& options) { return client->Count(from, to, options); },
                       RangeOf(flags), &progress);
  }
  if (!reached.status.ok()) return FailAt(reached, "counted");
  fmt::print("{}\n", flags.json() ? nlohmann::json{{"pairs", reached.pairs}}.dump() : std::to_string(reached.pairs));
  return kDone;
}

int RunDeleteRange(Client* client, const CtlFlags& flags) {
  const KeyRange range = RangeOf(flags);
  if (!range.to.has_value() && !Confirmed(flags, range.from)) {
    return Fail(absl::FailedPreconditionError(
        "nothing was deleted: the range has no end, so the answer must be yes, or the command needs --yes"));
  }
  if (const absl::Status connected = client->Connect(); !connected.ok()) return Fail(connected);
  Reached reached;
  {
    Progress progress("deleting");
    reached = RunToEnd([client](const std::string& from, const std::optional<std::string>& to,
                                const RangeOptions& options) { return client->DeleteRange(from, to, options); },
                       range, &progress);
  }
  if (!reached.status.ok()) return FailAt(reached, "deleted");
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"deleted", reached.pairs}, {"exact", reached.all}}.dump());
  } else if (reached.all) {
    fmt::print("{} pairs deleted\n", reached.pairs);
  } else {
    fmt::print("{} pairs deleted, or more: the answer to some of the deletion was lost\n", reached.pairs);
  }
  return kDone;
}

}  // namespace cell

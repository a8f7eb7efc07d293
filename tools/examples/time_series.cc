// Keeps series of points in the order of their times: range queries, the newest points, figures of each minute or day,
// and retention.
//
// Shows what a sorted store is good for: the points of a series are neighbours, so a range of time is a range of keys.
//
// Keys: series/NAME/0001718000000000 has the value of a point, in decimal. The number is the point's time in
// microseconds since the Unix epoch, with zeros in front, because keys are compared byte by byte: without the zeros, 10
// would come before 9. (8 bytes of a big-endian number would have the same order and be shorter, but nobody could read
// them in `cellctl scan`. Little-endian numbers have another order.)
//
// Why there are no transactions: each point is one pair, and nothing depends on two of them. A point with the time of
// an earlier one replaces it. So an append does the same when it is done twice, and one whose answer was lost
// (MaybeApplied) is simply done again.
//
// What to look at:
// - Last scans backwards with a limit. It reads the newest points alone, however long the series is.
// - NamesOf skips from one series to the next. It reads one key of each.
// - Retain deletes what is older than a moment by Client::DeleteRange. The servers do the work, in slices of some
//   leaves, and writers go on in between. It cannot meet a point that writers append, since those are newer than the
//   moment. A late one that is older may stay, and the next Retain deletes it. After an error, run it again.
// - `append --keep` is the other way: each point has an expiry, and the servers remove it by themselves. Nobody has to
//   call Retain then, but how long a point is kept is decided when it is written.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/client/client.h"
#include "cell/cmd/number_flags.h"
#include "fmt/format.h"
#include "tools/examples/example.h"

namespace cell {
namespace {

constexpr std::string_view kSeries = "series/";
constexpr size_t kInFlight = 128;

struct Flags {
  ClientOptions client;
  std::string name;
  std::string value;
  std::optional<uint64_t> time_us;
  uint64_t from_us = 0;
  std::optional<uint64_t> to_us;
  std::optional<uint64_t> before_us;
  std::optional<double> older_than;
  std::optional<double> keep;
  uint64_t count = 10;
  uint64_t width_us = 0;
};

struct Point {
  uint64_t time_us = 0;
  double value = 0;
};

std::string PrefixOf(std::string_view name) { return fmt::format("{}{}/", kSeries, name); }
std::string KeyOf(std::string_view name, uint64_t time_us) {
  return fmt::format("{}{}", PrefixOf(name), TimeDigits(time_us));
}

std::optional<double> ParseValue(std::string_view text) {
  double value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || at != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

absl::StatusOr<Point> PointIn(const Flags& flags, std::string_view key, std::string_view text) {
  Point point;
  ASSIGN_OR_RETURN(point.time_us, NumberIn(key, key.substr(PrefixOf(flags.name).size())));
  const std::optional<double> value = ParseValue(text);
  if (!value.has_value()) {
    return absl::DataLossError(fmt::format("{}: {} is not a number", ForMessage(key), ForMessage(text)));
  }
  point.value = *value;
  return point;
}

// Returns the moment until which a point is kept.
Expires ExpiryOf(const Flags& flags, uint64_t time_us) {
  if (!flags.keep.has_value()) return Expires::Never();
  return Expires::AtNs((time_us + static_cast<uint64_t>(*flags.keep * 1e6)) * 1000);
}

absl::StatusOr<int> Append(Client* client, const Flags& flags) {
  const std::optional<double> value = ParseValue(flags.value);
  if (!value.has_value()) return absl::InvalidArgumentError(fmt::format("{} is not a number", ForMessage(flags.value)));
  const uint64_t time_us = flags.time_us.value_or(NowUs());
  const std::string key = KeyOf(flags.name, time_us);
  RETURN_IF_ERROR(client->Put(key, fmt::format("{}", *value), ExpiryOf(flags, time_us)).status());
  return kDone;
}

// Appends the points on standard input, with many puts in flight. If two lines have the same time, either may stay.
// After an error, load the same lines again.
absl::StatusOr<int> Load(Client* client, const Flags& flags) {
  uint64_t count = 0;
  std::string line;
  bool more = true;
  while (more) {
    std::vector<std::string> keys, values;  // A task's key and value must live until it has ended.
    std::vector<Expires> expiries;
    while (keys.size() < kInFlight && (more = static_cast<bool>(std::getline(std::cin, line)))) {
      ++count;
      const size_t tab = line.find('\t');
      const std::optional<uint64_t> time_us = ParseTime(std::string_view(line).substr(0, tab));
      const std::optional<double> value =
          tab == std::string::npos ? std::nullopt : ParseValue(std::string_view(line).substr(tab + 1));
      if (!time_us.has_value() || !value.has_value()) {
        return absl::InvalidArgumentError(fmt::format("line {}: {} is not TIME TAB VALUE", count, ForMessage(line)));
      }
      keys.push_back(KeyOf(flags.name, *time_us));
      values.push_back(fmt::format("{}", *value));
      expiries.push_back(ExpiryOf(flags, *time_us));
    }
    std::vector<Task<absl::StatusOr<bool>>> puts;
    for (size_t i = 0; i < keys.size(); ++i) puts.push_back(client->AsyncPut(keys[i], values[i], expiries[i]));
    RETURN_IF_ERROR(client->RunAll(&puts).status());
  }
  if (std::cin.bad() || std::ferror(stdin) != 0) return absl::DataLossError("the points cannot be read to their end");
  fmt::print("{} points were loaded\n", count);
  return kDone;
}

// Calls `use` for each point from flags.from_us until before flags.to_us, in the order of their times.
absl::Status ForEachPoint(Client* client, const Flags& flags, const std::function<void(const Point&)>& use) {
  ScanOptions range = PrefixScan(PrefixOf(flags.name));
  range.from = KeyOf(flags.name, flags.from_us);
  if (flags.to_us.has_value()) range.to = KeyOf(flags.name, *flags.to_us);
  if (range.to <= range.from) return absl::InvalidArgumentError("--to is not above --from");
  Scan scan = client->NewScan(range);
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) {
    ASSIGN_OR_RETURN(const Point point, PointIn(flags, scan.key(), scan.value()));
    use(point);
  }
  return more.status();
}

absl::StatusOr<int> Range(Client* client, const Flags& flags) {
  RETURN_IF_ERROR(
      ForEachPoint(client, flags, [](const Point& point) { fmt::print("{}\t{}\n", point.time_us, point.value); }));
  return kDone;
}

absl::StatusOr<int> Last(Client* client, const Flags& flags) {
  ScanOptions newest = PrefixScan(PrefixOf(flags.name));
  newest.reverse = true;
  newest.limit = flags.count;
  Scan scan = client->NewScan(newest);
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) {
    ASSIGN_OR_RETURN(const Point point, PointIn(flags, scan.key(), scan.value()));
    fmt::print("{}\t{}\n", point.time_us, point.value);
  }
  RETURN_IF_ERROR(more.status());
  return kDone;
}

// Writes the figures of each bucket that has points. The points come in order, so one bucket is in memory at a time.
absl::StatusOr<int> Buckets(Client* client, const Flags& flags) {
  struct Bucket {
    uint64_t start_us = 0, points = 0;
    double least = 0, greatest = 0, sum = 0;
  } bucket;
  const auto finish = [&bucket] {
    if (bucket.points == 0) return;
    const double mean = bucket.sum / static_cast<double>(bucket.points);
    fmt::print("{}\t{}\t{}\t{}\t{}\n", bucket.start_us, bucket.points, bucket.least, mean, bucket.greatest);
  };
  RETURN_IF_ERROR(ForEachPoint(client, flags, [&](const Point& point) {
    const uint64_t start_us = point.time_us - point.time_us % flags.width_us;
    if (bucket.points == 0 || bucket.start_us != start_us) {
      finish();
      bucket = {.start_us = start_us, .least = point.value, .greatest = point.value};
    }
    ++bucket.points;
    bucket.least = std::min(bucket.least, point.value);
    bucket.greatest = std::max(bucket.greatest, point.value);
    bucket.sum += point.value;
  }));
  finish();
  return kDone;
}

// Returns the names of all series. After a name has been found, its points are skipped by a scan that begins behind
// them.
absl::StatusOr<std::vector<std::string>> NamesOf(Client* client) {
  std::vector<std::string> names;
  ScanOptions rest = PrefixScan(kSeries);
  rest.limit = 1;
  rest.keys_only = true;
  for (;;) {
    Scan scan = client->NewScan(rest);
    ASSIGN_OR_RETURN(const bool found, scan.Next());
    if (!found) return names;
    const std::string_view name = scan.key().substr(kSeries.size());
    if (name.find('/') == std::string_view::npos) {
      return absl::DataLossError(fmt::format("{} is no key of a point", ForMessage(scan.key())));
    }
    names.emplace_back(name.substr(0, name.find('/')));
    rest.from = *PrefixScan(PrefixOf(names.back())).to;
  }
}

absl::StatusOr<int> List(Client* client, const Flags&) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesOf(client));
  for (const std::string& name : names) fmt::print("{}\n", name);
  return kDone;
}

// Deletes the points of a series, or of all, that are older than a moment.
absl::StatusOr<int> Retain(Client* client, const Flags& flags) {
  if (flags.before_us.has_value() == flags.older_than.has_value()) {
    return absl::InvalidArgumentError("give either --before or --older-than");
  }
  const uint64_t now_us = NowUs();
  const uint64_t age_us = static_cast<uint64_t>(flags.older_than.value_or(0) * 1e6);
  const uint64_t before_us = flags.before_us.value_or(now_us > age_us ? now_us - age_us : 0);
  std::vector<std::string> names = {flags.name};
  if (flags.name.empty()) {
    ASSIGN_OR_RETURN(names, NamesOf(client));
  }
  uint64_t deleted = 0;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const uint64_t older, client->DeleteRange(PrefixOf(name), KeyOf(name, before_us)));
    deleted += older;
  }
  fmt::print("{} points were deleted\n", deleted);
  return kDone;
}

int Main(int argc, char** argv) {
  Flags flags;
  std::function<absl::StatusOr<int>(Client*, const Flags&)> command;
  CLI::App app("Keep series of points by time. Times are in microseconds since the Unix epoch");
  DeclareCluster(&app, &flags.client);
  app.require_subcommand(1);
  CLI::App* const append = app.add_subcommand("append", "Store a point, in the place of one of the same time");
  CLI::App* const load = app.add_subcommand("load", "Store the points on standard input, each a line TIME TAB VALUE");
  CLI::App* const range = app.add_subcommand("range", "List the points of a range of time as TIME TAB VALUE");
  CLI::App* const last = app.add_subcommand("last", "List the newest points, the newest first");
  CLI::App* const buckets = app.add_subcommand(
      "buckets", "List for each bucket of time that has points: its start, their number, least, mean and greatest");
  CLI::App* const list = app.add_subcommand("list", "List the names of all series");
  CLI::App* const retain =
      app.add_subcommand("retain", "Delete the points of a series, or of all, that are older than a moment");
  for (CLI::App* const sub : {append, load, range, last, buckets}) {
    sub->add_option("name", flags.name)->required()->check(PartOfKey());
  }
  retain->add_option("name", flags.name)->check(PartOfKey());
  append->add_option("value", flags.value, "A decimal number")->required();
  append->add_option("--time", flags.time_us, "Time of the point; by default it is now")->transform(TimeInUs());
  for (CLI::App* const sub : {append, load}) {
    sub->add_option("--keep", flags.keep, "Seconds after its time when a point expires; by default it never does")
        ->check(Between(0.001, 1e9));
  }
  for (CLI::App* const sub : {range, buckets}) {
    sub->add_option("--from", flags.from_us, "First time")->transform(TimeInUs())->capture_default_str();
    sub->add_option("--to", flags.to_us, "Time before which the range ends; by default it has no end")
        ->transform(TimeInUs());
  }
  last->add_option("--count", flags.count, "How many points")->check(WholeNumber(1, 1'000'000))->capture_default_str();
  buckets->add_option("--width", flags.width_us, "Width of a bucket in microseconds")
      ->required()
      ->check(WholeNumber(1, kTimeMaxUs));
  retain->add_option("--before", flags.before_us, "Delete points that are older than this time")->transform(TimeInUs());
  retain->add_option("--older-than", flags.older_than, "Delete points that are older than this, in seconds")
      ->check(Between(0, 1e9));
  append->callback([&command] { command = Append; });
  load->callback([&command] { command = Load; });
  range->callback([&command] { command = Range; });
  last->callback([&command] { command = Last; });
  buckets->callback([&command] { command = Buckets; });
  list->callback([&command] { command = List; });
  retain->callback([&command] { command = Retain; });
  return RunExample("time_series", &app, argc, argv, [&]() -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, OpenClient(flags.client));
    return command(client.get(), flags);
  });
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

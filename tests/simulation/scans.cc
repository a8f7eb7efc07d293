// Checks scans: each key of the range was there with the returned value, or was absent, at some moment of the scan.
// This also holds with a limit, up to where that was reached; for keys only, without the values; and after errors.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "cell/base/random.h"
#include "tests/simulation/users.h"

namespace cell {
namespace {

constexpr size_t kScannedMax = 200;
// Deadlines that a batch may take: what is read ahead has a deadline of its own.
constexpr int kDeadlinesOfABatch = 2;

}  // namespace

struct Users::ScanRange {
  size_t first, count;  // A range of key numbers.
  ScanOptions options = {};
  int tries = 1;

  // An entry that the scan returned.
  struct Seen {
    int64_t value;
    int64_t end_ns;
  };
  std::map<size_t, Seen> seen = {};
  std::string last = {};
  std::map<size_t, int64_t> passed_ns = {};  // By the last key of each batch: when it was returned.

  // Returns until when the scan can have found that a key is absent: the return of the batch that passed it. A scan
  // that ended passed all keys at `end_ns`.
  int64_t AbsentUntilNs(size_t key, int64_t end_ns) const {
    const auto after = passed_ns.lower_bound(key);
    if (!options.reverse) return after == passed_ns.end() ? end_ns : after->second;
    const auto past = passed_ns.upper_bound(key);
    return past == passed_ns.begin() ? end_ns : std::prev(past)->second;
  }
};

// Returns false if the batch was wrong.
bool Users::Take(absl::Span<const Scan::Entry> batch, int64_t begin_ns, ScanRange* range) {
  const ScanOptions& options = range->options;
  for (const Scan::Entry& entry : batch) {
    const bool in_order = range->last.empty() || (options.reverse ? entry.key < range->last : entry.key > range->last);
    if (!in_order || entry.key < options.from || entry.key >= *options.to || range->seen.size() >= options.limit) {
      world_->journal.Violate("a scan of [{}, {}) with limit {} since {} had {} after {}", options.from, *options.to,
                              options.limit, begin_ns, entry.key, range->last);
      return false;
    }
    range->last = entry.key;
    const size_t key = std::stoul(range->last.substr(1));
    const int64_t value = options.keys_only ? 1 : NumberOf(key, std::string(entry.value));
    range->seen[key] = {value, world_->now_ns()};
  }
  if (!batch.empty()) range->passed_ns[std::stoul(range->last.substr(1))] = world_->now_ns();
  return true;
}

// Checks that what a batch says of keys was granted, and that a refusal was right. Call it before the batch is taken.
void Users::CheckScanned(const User& user, uint64_t since, const ScanRange& range,
                         const absl::StatusOr<absl::Span<const Scan::Entry>>& batch) {
  if (!user.plain()) return;
  const ScanOptions& options = range.options;
  const bool down = options.reverse;
  if (!batch.ok()) {
    const std::string from = down || range.last.empty() ? options.from : range.last;
    const std::string to = down && !range.last.empty() ? range.last : *options.to;
    const Verdict rest =
        Granted(user, since, [&](const UserRights& rights) { return rights.OfRange(Right::kScan, from, to); });
    CheckGranted(user, fmt::format("a scan from {} to {} ({})", from, to, down ? "reverse" : "forward"), rest, since,
                 *options.call.path, batch.status());
    return;
  }
  if (batch->empty() && range.seen.size() >= options.limit) return;
  // It says of each key that it has passed whether it is there.
  size_t first = range.first, end = range.first + range.count;
  if (!range.last.empty()) (down ? end : first) = std::stoul(range.last.substr(1)) + (down ? 0 : 1);
  if (!batch->empty()) {
    const size_t last = std::stoul(std::string(batch->back().key.substr(1)));
    (down ? first : end) = last + (down ? 0 : 1);
  }
  for (size_t key = first; key < end; ++key) {
    const Verdict of_key = Granted(
        user, since, [name = KeyName(key)](const UserRights& rights) { return rights.OfKey(Right::kScan, name); });
    if (of_key != Verdict::kNever) continue;
    CheckGranted(user, fmt::format("a scan by {} over {}", cell::ToString(*options.call.path), KeyName(key)), of_key,
                 since, *options.call.path, absl::OkStatus());
    return;
  }
}

Task<bool> Users::ScanOnce(User* user, ScanRange* range) {
  const ScanOptions& options = range->options;
  const int64_t begin_ns = world_->now_ns();
  uint64_t since = world_->grants.oldest(), since_this = since;
  Scan scan = user->of.client->NewScan(options);
  bool ended = false;
  for (int tries = range->tries; tries > 0 && !ended;) {
    const int64_t batch_ns = world_->now_ns();
    // A batch may have been read ahead during the call before. What was read of memory is kept longer.
    if (options.call.path == Path::kServer) since = std::exchange(since_this, world_->grants.oldest());
    const auto batch = co_await scan.AsyncNextBatch();
    CheckTime(*user, "a scan's batch", batch_ns, *options.call.timeout_us, kDeadlinesOfABatch);
    CheckScanned(*user, since, *range, batch);
    if (!batch.ok()) {
      world_->journal.Trace("client {} scan of {} from {}: {}", user->index, range->count, options.from,
                            std::string(batch.status().message()));
      ++world_->report.failed;
      CheckError(*user, "scan", batch.status());
      --tries;
      continue;
    }
    ended = batch->empty();
    if (!Take(*batch, begin_ns, range)) co_return false;
  }
  world_->journal.Trace("client {} scan of {} from {} by {} since {}: {} keys, last {}", user->index, range->count,
                        options.from, cell::ToString(*options.call.path), begin_ns, range->seen.size(), range->last);
  ++world_->report.scans;
  // The scan says nothing about keys that it has not reached.
  size_t first = range->first, end = range->first + range->count;
  const bool all = ended && range->seen.size() < options.limit;
  if (!all && range->last.empty()) co_return true;
  if (!all && options.reverse) first = std::stoul(range->last.substr(1));
  if (!all && !options.reverse) end = std::stoul(range->last.substr(1)) + 1;
  const auto kind = options.keys_only ? KeyOperation::Kind::kContains : KeyOperation::Kind::kGet;
  for (size_t key = first; key < end; ++key) {
    const auto it = range->seen.find(key);
    const bool there = it != range->seen.end();
    const int64_t end_ns = there ? it->second.end_ns : range->AbsentUntilNs(key, world_->now_ns());
    world_->history.Add(key, {kind, begin_ns, end_ns, there ? it->second.value : 0});
  }
  co_return true;
}

Task<bool> Users::ScanSome(User* user, CallOptions call, Random* random) {
  const size_t keys = world_->history.keys() - world_->table_keys;
  ScanRange range{0, 1 + random->Below(std::min(keys, kScannedMax))};
  range.first = world_->table_keys + random->Below(keys - range.count + 1);
  ScanOptions& options = range.options;
  options.from = KeyName(range.first);
  options.to = KeyName(range.first + range.count);
  if (const std::optional<GrantedKeys> own = ChooseGranted(*user, random); own.has_value()) {
    range.first = own->first;
    range.count = own->end - own->first;
    options.from = own->from;
    options.to = own->to;
  }
  options.batch = static_cast<uint32_t>(1 + random->Below(40));
  options.reverse = random->Below(2) == 0;
  options.read_ahead = random->Below(4) != 0;
  options.call = call;
  range.tries = world_->plan.scan_tries;
  if (world_->plan.scan_limits) {
    options.keys_only = random->Below(3) == 0;
    if (random->Below(2) == 0) options.limit = random->Below(2 * range.count);
  }
  co_return co_await ScanOnce(user, &range);
}

Task<bool> Users::UseQueue(User* user, CallOptions call, Random* random) {
  const size_t keys = world_->history.keys() - world_->table_keys;
  if (!user->plan->reads_only && random->Below(2) == 0) {
    const size_t next = world_->table_keys + queued_ever_++ % keys;
    co_return co_await UseKey(user, next, KeyOperation::Kind::kPut, call);
  }
  ScanRange range{world_->table_keys, keys};
  range.options.from = KeyName(range.first);
  range.options.to = KeyName(range.first + range.count);
  range.options.limit = 1 + random->Below(3);
  range.options.keys_only = random->Below(2) == 0;
  range.options.call = call;
  range.tries = world_->plan.scan_tries;
  co_await ScanOnce(user, &range);
  if (range.seen.empty() || user->goes) co_return true;
  co_return co_await UseKey(user, range.seen.begin()->first, KeyOperation::Kind::kDelete, call);
}

}  // namespace cell

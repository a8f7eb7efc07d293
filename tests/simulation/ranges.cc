// Checks Count and DeleteRange, slice by slice. A slice counted each of its keys as it was at some moment of the slice:
// at least the keys that were certainly there all the time, and at most those that were possibly there. A slice deleted
// each of its keys at some moment of the slice.
#include <algorithm>
#include <optional>
#include <string>

#include "cell/base/random.h"
#include "tests/simulation/users.h"

namespace cell {
namespace {

constexpr size_t kRangeMax = 60;

}  // namespace

struct Users::KeyRange {
  size_t first, end;  // A range of key numbers, of which those from `first` on are not done.
  bool deletes;
  uint64_t order = 0;    // Of the deletion of key `first`, in User::writes; the others follow.
  uint64_t pairs = 0;    // Counted or deleted in the slices that are done.
  int64_t slice_ns = 0;  // When the current slice began.
  int slices_left = 0;   // After so many it is stopped.
};

void Users::EndSlice(User* user, size_t end, uint64_t pairs, KeyRange* range) {
  const int64_t now_ns = world_->now_ns();
  world_->history.AddCount({range->first, end, range->slice_ns, now_ns, pairs - range->pairs, range->deletes});
  for (; range->first < end; ++range->first) {
    if (!range->deletes) continue;
    user->writes.erase(range->order++);
    world_->history.Add(range->first, {KeyOperation::Kind::kDelete, range->slice_ns, now_ns});
  }
  for (size_t i = 0; range->deletes && i < range->end - end; ++i)
    user->writes[range->order + i].second.begin_ns = now_ns;
  range->pairs = pairs;
  range->slice_ns = now_ns;
}

Task<bool> Users::UseRange(User* user, CallOptions call, Random* random) {
  const size_t keys = world_->history.keys() - world_->table_keys;
  // A range may have all that a region has.
  const size_t most = random->Below(6) == 0 ? keys : std::min(keys, kRangeMax);
  const size_t count = 1 + random->Below(most);
  KeyRange range{world_->table_keys + random->Below(keys - count + 1), 0, random->Below(2) == 0};
  range.end = range.first + count;
  const std::optional<GrantedKeys> own = ChooseGranted(*user, random);
  if (own.has_value()) range.first = own->first, range.end = own->end;
  range.slices_left = random->Below(4) == 0 ? static_cast<int>(random->Below(3)) : INT32_MAX;
  range.deletes = range.deletes && !user->plan->reads_only;
  for (size_t key = range.first; key < range.end; ++key) range.deletes = range.deletes && MayWrite(key);
  const int64_t begin_ns = range.slice_ns = world_->now_ns();
  range.order = writes_ever_ + 1;
  for (size_t key = range.first; range.deletes && key < range.end; ++key) {
    user->writes[++writes_ever_] = {key, {KeyOperation::Kind::kDelete, begin_ns, 0}};
  }
  RangeOptions options;
  options.timeout_us = call.timeout_us;
  bool stopped = false;
  options.progress = [&](const RangeProgress& progress) {
    size_t reached = range.first;
    while (reached < range.end && KeyName(reached) < progress.reached) ++reached;
    EndSlice(user, reached, progress.pairs, &range);
    stopped = range.slices_left-- == 0;
    return !stopped;
  };
  // The tree has no keys below the first and above the last.
  const bool from_begin = range.first == world_->table_keys && random->Below(2) == 0;
  const bool to_end = range.end == world_->history.keys() && random->Below(2) == 0;
  std::string from = from_begin ? "" : KeyName(range.first);
  std::optional<std::string> to;
  if (!to_end) to = KeyName(range.end);
  if (own.has_value()) from = own->from, to = own->to;
  const char* const what = range.deletes ? "deletion of a range" : "count";
  const uint64_t since = world_->grants.oldest();
  Client* const client = user->of.client.get();
  Task<absl::StatusOr<uint64_t>> task = range.deletes ? client->AsyncDeleteRange(from, to, std::move(options))
                                                      : client->AsyncCount(from, to, std::move(options));
  const absl::StatusOr<uint64_t> pairs = co_await std::move(task);
  ++world_->report.operations;
  ++world_->report.ranges;
  world_->journal.Trace("client {} {} from {} to {} since {}: {}", user->index, what, from, to.value_or("the end"),
                        begin_ns, pairs.ok() ? fmt::format("{} pairs", *pairs) : std::string(pairs.status().message()));
  CheckTime(*user, what, begin_ns, *call.timeout_us);
  const Right right = range.deletes ? Right::kWrite : Right::kScan;
  const Verdict granted = Granted(*user, since, [&](const UserRights& rights) {
    return rights.OfRange(right, from, to.has_value() ? std::optional<std::string_view>(*to) : std::nullopt);
  });
  CheckGranted(*user, fmt::format("a {} from {} to {}", what, from, to.value_or("the end")), granted, since,
               Path::kServer, pairs.status());
  if (pairs.ok()) {
    EndSlice(user, range.end, *pairs, &range);
    co_return true;
  }
  const bool maybe = range.deletes && IsMaybeApplied(pairs.status());
  ++(maybe ? world_->report.maybe : world_->report.failed);
  if (!maybe && !(stopped && absl::IsCancelled(pairs.status()))) CheckError(*user, what, pairs.status());
  for (; range.deletes && range.first < range.end; ++range.first) {
    user->writes.erase(range.order++);
    if (!maybe) continue;
    ++unknown_[range.first];
    world_->history.Add(range.first, {KeyOperation::Kind::kDelete, range.slice_ns, KeyOperation::kNever});
  }
  co_return false;
}

}  // namespace cell

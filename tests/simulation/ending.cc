#include "tests/simulation/ending.h"

#include <optional>

#include "tests/simulation/grant_changes.h"

namespace cell {
namespace {

// Everything must have ended this long after the faults. Sessions, leases and timeouts are some ten thousand times
// shorter than in a real cluster, so this is not a tight bound, but 30 s would only make a failing seed take longer.
constexpr int64_t kSettleNs = 300'000'000;
constexpr int64_t kLookEveryNs = 20'000;
constexpr int64_t kHeardNs = 1'000'000;  // After this all servers know the newest region table.
// Joins come one after the other, and each removes a route, which it tries again after a pause.
constexpr int64_t kEmptyNs = 500'000'000;

ClientOptions Patient() {
  ClientOptions options;
  options.report = false;
  options.reconnect_us = 20;
  options.timeout_us = 50'000;
  return options;
}

}  // namespace

bool Ending::Settle() {
  const int64_t begin_ns = world_->now_ns();
  const bool ended = world_->RunUntil(begin_ns + kSettleNs, [this] { return users_->tasks_left() == 0 && Settled(); });
  world_->report.settled_ns = world_->now_ns() - begin_ns;
  world_->journal.Trace("settled after {} us: {}", world_->report.settled_ns / 1000, ended);
  if (!ended && world_->journal.right()) {
    world_->journal.Violate("{} tasks have not ended, or a region has no server, {} ms after the last fault:{}",
                            users_->tasks_left(), kSettleNs / 1'000'000, Unserved());
  }
  return ended;
}

std::string Ending::Unserved() {
  SimCluster& cluster = world_->cluster;
  std::string text;
  for (const auto& [region, entry] : cluster.table().regions) {
    const auto owner = static_cast<size_t>(std::stoi(entry.owner.server.substr(7)));
    const HeldRegion* const held = cluster.Dead(owner) ? nullptr : cluster.worker(owner)->regions()->Find(region);
    // Its owner may be about to find that it has lost it, and recover it, and so may one whose log has failed.
    const bool failed = held != nullptr && held->log != nullptr && !held->log->status().ok();
    if (entry.recovering || (!entry.split_parent.has_value() && (held == nullptr || held->lost() || failed))) {
      text += fmt::format(" region {} of {} at epoch {}{}{}", region, entry.owner.server, entry.epoch,
                          entry.recovering ? " recovering" : "", failed ? " whose log has failed" : "");
    }
  }
  return text;
}

bool Ending::Settled() {
  if (world_->now_ns() < look_ns_) return false;
  look_ns_ = world_->now_ns() + kLookEveryNs;
  SimCluster& cluster = world_->cluster;
  for (size_t i = 0; i < cluster.servers(); ++i) {
    if (!cluster.Dead(i) && cluster.worker(i)->recoverer()->recovering() > 0) return false;
    if (!cluster.Dead(i) && cluster.Expired(i)) return false;
  }
  return Unserved().empty();
}

void Ending::ReadAll() {
  SimCluster& cluster = world_->cluster;
  for (size_t i = 0; i < cluster.servers(); ++i) {
    if (!cluster.Dead(i)) cluster.worker(i)->rebalancer()->set_enabled(false);
  }
  world_->RunUntil(world_->history.reads_count_from_ns(), [] { return false; });
  const auto client = cluster.NewClient(Patient());
  ReadAllBy(client.get(), {Path::kServer, Path::kClient});
  if (world_->plan.transaction_share > 0 && world_->journal.right()) transactions_->Check(client.get());
  if (world_->plan.users == 0 || !world_->journal.right()) return;
  // The same by a user who may only read, whatever has become of regions since the first grants.
  constexpr const char* kReader = "reader";
  GrantChanges(world_).GiveAll(kReader, *Rights::Parse("read"));
  world_->RunUntil(world_->now_ns() + kHeardNs, [] { return false; });
  const auto reader = cluster.NewClientOf({Role::kClient, kReader}, Patient());
  ReadAllBy(reader.get(), {Path::kHybrid});
}

void Ending::ReadAllBy(Client* client, const std::vector<Path>& paths) {
  std::optional<Table> table;
  if (world_->table_keys > 0) table.emplace(*client->OpenTable("t"));
  for (size_t key = 0; key < world_->history.keys() && world_->journal.right(); ++key) {
    if (world_->history.of(key).empty()) continue;
    for (const Path path : paths) {
      CallOptions call;
      call.path = path;
      const int64_t begin_ns = world_->now_ns();
      const auto value = key < world_->table_keys ? table->Get(KeyName(key), call) : client->Get(KeyName(key), call);
      if (!value.ok()) {
        world_->journal.Violate("at the end, {} by {}: {}", KeyName(key), cell::ToString(path),
                                value.status().ToString());
        return;
      }
      const int64_t number = users_->NumberOf(key, *value);
      world_->history.Add(key, {KeyOperation::Kind::kGet, begin_ns, world_->now_ns(), number});
    }
  }
}

void Ending::CheckCluster() {
  const TestReport report = world_->cluster.Check();
  Journal& journal = world_->journal;
  for (const std::string& error : report.errors) journal.Violate("at the end: {}", error);
  const bool enough = world_->plan.regions_max >= kRegionsEnough;
  if (enough && report.half_splits > 0) journal.Violate("at the end: {} meganodes have no route", report.half_splits);
  if (enough && report.unfinished > 0) journal.Violate("at the end: {} nodes have no separator", report.unfinished);
  journal.Trace("{} keys in the tree, {} in tables", report.keys, report.hash_keys);
}

void Ending::Empty() {
  SimCluster& cluster = world_->cluster;
  if (!world_->plan.join.enabled || world_->table_keys == world_->history.keys()) return;
  // Servers that hold as many regions as they may cannot move them to each other.
  const bool one_server = world_->plan.servers + world_->plan.joining == 1;
  if (!one_server && world_->plan.regions_max < kRegionsEnough) return;
  const absl::StatusOr<uint64_t> deleted = cluster.NewClient(Patient())->DeleteRange("", std::nullopt);
  if (!deleted.ok()) return world_->journal.Violate("at the end, delete all: {}", deleted.status().ToString());
  const auto of_tree = [&cluster] {
    std::vector<const HeldRegion*> regions;
    for (size_t i = 0; i < cluster.servers(); ++i) {
      if (cluster.Dead(i)) continue;
      cluster.worker(i)->regions()->ForEach([&regions](const HeldRegion* region) {
        if (region->tree != nullptr) regions.push_back(region);
      });
    }
    return regions;
  };
  const size_t before = of_tree().size();
  world_->RunUntil(world_->now_ns() + kEmptyNs, [&] { return of_tree().size() == 1; });
  const std::vector<const HeldRegion*> after = of_tree();
  world_->journal.Trace("{} pairs were deleted at the end, and {} regions are {} now", *deleted, before, after.size());
  if (after.size() == 1) return;
  std::string left;
  for (const HeldRegion* region : after) {
    left += fmt::format("\n    region {}: tier {}, from {}, {} keys in {} nodes{}", region->region(),
                        region->tree->tier(), ForMessage(region->tree->range().low), region->tree->keys(),
                        region->tree->header().nodes_used, region->claimed() ? ", claimed" : "");
  }
  world_->journal.Violate("at the end, {} of {} regions of the empty tree are left:{}", after.size(), before, left);
}

void Ending::CheckHistories() {
  // Lost writes were acknowledged within one bound, after which nothing was acknowledged until the disk had them. They
  // may therefore be up to this old.
  const int64_t slack_ns = 2 * kAsyncBoundNs + 3 * kSlowestDisk * world_->plan.disk_ns;
  const History::Verdict verdict = world_->history.Check(world_->plan.MayLose(), slack_ns, Journal::kViolationsMax);
  for (const std::string& violation : verdict.violations) world_->journal.Violate("{}", violation);
  world_->report.checked = verdict.checked;
  world_->report.gave_up = verdict.gave_up;
}

}  // namespace cell

#include "tests/simulation/plan.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "cell/base/random.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cell {
namespace {

// A call ends this soon after its deadline, by its client's clock.
constexpr int64_t kLateNs = 1'000;
// The approximate maximum duration of a split's step: half of a session. With a longer one its server loses the region
// before the split is done, and the next owner loses it in the same way, forever.
constexpr int64_t kSplitTurnNs = 150'000;
constexpr uint32_t kLineBytes = 64;  // A step of a writer.
constexpr size_t kHurriedSteps =
    16;  // While writes wait, a step copies this many times as much (cell/server/change/splitter.cc).

constexpr std::array<std::string_view, kFaults> kNames = {
    "kill",       "power loss",      "stop",           "partition",      "one way",
    "slow host",  "slow disk",       "delay",          "break",          "disk error",
    "expire",     "coordinator cut", "join",           "drain",          "checkpoint",
    "client cut", "disk full",       "slow directory", "no descriptors", "membership error",
    "leaderless", "freeze",          "rollback",       "check",          "flood",
    "grant",      "revoke",          "lost answers",   "silence"};

// Returns whether a fault is allowed when nobody recovers regions, so that a dying server takes its regions with it.
bool WithoutLogs(Fault fault) {
  switch (fault) {
    case Fault::kKill:
    case Fault::kPowerLoss:
    case Fault::kDiskError:
    case Fault::kSlowDisk:
    case Fault::kExpire:
    case Fault::kCheckpoint:
    case Fault::kDiskFull:
    case Fault::kSlowDirectory:
    case Fault::kDescriptors:
    case Fault::kRollback:
    case Fault::kLostAnswers:
    case Fault::kSilence:
      return false;
    default:
      return true;
  }
}

// Draws from one seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int Below(int bound) { return static_cast<int>(random_.Below(static_cast<uint64_t>(bound))); }
  int64_t OneOf(std::initializer_list<int64_t> values) {
    return values.begin()[Below(static_cast<int>(values.size()))];
  }
  // Returns a number from 1 to twice the mean.
  int64_t Around(int64_t mean) { return 1 + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(2 * mean))); }
  uint64_t Seed() { return random_.Next(); }

 private:
  Random random_;
};

// Makes a writer that is interrupted all the time move keys while readers that wait for nobody watch. By chance alone
// this combination is too rare.
void FillTable(SimulationPlan* plan, bool slots, int* clients, int* tasks_each) {
  plan->table_share = 1;
  plan->bucket_bytes = slots ? 0 : 512;
  plan->split.split_at = 0.95;
  plan->shape.node_bytes = 512;
  plan->shape.meganode_bytes = 16 << 10;
  plan->shape.extents_bytes = 128 << 10;
  plan->keys = 1'500;
  plan->hot_share = 0;
  plan->value_bytes_max = 8;
  plan->latency_ns = 100;
  plan->line_ns = 5;
  if (plan->durability != Durability::kAsync) plan->writer_step_ns = 1'000;
  *clients = std::max(*clients, 3);
  *tasks_each = std::max(*tasks_each, 4);
  plan->duration_ns = std::min<int64_t>(plan->duration_ns, 3'000'000);
}

void DrawCluster(SimulationPlan* plan, Dice* dice) {
  plan->durability = static_cast<Durability>(dice->OneOf({0, 1, 2, 2, 2}));
  plan->servers = 1 + dice->Below(4);
  plan->joining = dice->Below(3) == 0 ? 1 + dice->Below(2) : 0;
  plan->shape.node_bytes = static_cast<uint32_t>(dice->OneOf({512, 512, 1024}));
  plan->shape.meganode_bytes =
      static_cast<uint64_t>(dice->OneOf({16, 16, 32, 64})) * plan->shape.node_bytes / 512 * 1024;
  plan->shape.extents_bytes = static_cast<uint64_t>(dice->OneOf({32, 64, 128})) << 10;
  plan->split.pace.copied = 1 + static_cast<size_t>(dice->Below(32));
  plan->split.pace.freed = 1 + static_cast<size_t>(dice->Below(8));
  plan->balance.every_ns = dice->OneOf({20'000, 50'000, 200'000});
  plan->balance.enabled = dice->Below(8) != 0;
  plan->membership_polls_max = 1 + dice->Below(20);
  plan->clock_gain_ppm = dice->Below(2) == 0 ? 0 : 40'000;
  plan->latency_ns = dice->OneOf({100, 200, 500, 2'000});
  plan->line_ns = dice->OneOf({5, 20, 60, 200});
  plan->writer_step_ns = dice->OneOf({10, 40, 100, 1'000});  // With the last one it is interrupted very often.
  // A server that is interrupted so often may lose its session in any long step, and with async what it has just
  // acknowledged, so that nobody could tell what may be lost.
  if (plan->durability == Durability::kAsync) plan->writer_step_ns = std::min<int64_t>(plan->writer_step_ns, 100);
  plan->disk_ns = dice->OneOf({1'000, 5'000, 20'000});
  plan->checkpoint_bytes_min = static_cast<uint64_t>(dice->OneOf({4, 8, 64})) << 10;
}

void DrawUse(SimulationPlan* plan, Dice* dice) {
  plan->keys = static_cast<int>(dice->OneOf({20, 200, 800, 3'000}));
  plan->hot_keys = 1 + dice->Below(12);
  plan->hot_share = static_cast<double>(dice->Below(4)) / 4;
  plan->table_share = static_cast<double>(dice->OneOf({0, 0, 1, 2})) / 2;
  plan->bucket_bytes = static_cast<uint32_t>(dice->OneOf({0, 0, 512, 1024}));
  plan->value_bytes_max = static_cast<int>(dice->OneOf({8, 100, 300, 300}));
  plan->cache_level_min = 1 + dice->Below(2);
  for (int& weight : plan->weights) weight = dice->Below(4) == 0 ? 0 : 1 + dice->Below(10);
  plan->weights[0] = 2 + dice->Below(10);
  plan->weights[1] /= 2;  // Ensures that some keys are there.
  for (int& weight : plan->paths) weight = dice->Below(3);
  if (plan->paths == std::array<int, 3>{}) plan->paths = {1, 1, 1};
  plan->one_path_each = dice->Below(3) == 0;
}

// Draws the kinds of faults.
std::vector<Fault> DrawKinds(const SimulationPlan& plan, Dice* dice) {
  std::vector<Fault> kinds;
  for (size_t i = 0; i < static_cast<size_t>(Fault::kClientCut); ++i) {
    const auto fault = static_cast<Fault>(i);
    if (dice->Below(2) == 0 || (plan.durability == Durability::kNone && !WithoutLogs(fault))) continue;
    kinds.push_back(fault);
  }
  if (dice->Below(10) == 0) kinds.clear();
  if (dice->Below(3) == 0) {  // A few kinds, each often.
    while (kinds.size() > 2) kinds.erase(kinds.begin() + dice->Below(static_cast<int>(kinds.size())));
  }
  if (!kinds.empty() && dice->Below(2) == 0) kinds.push_back(Fault::kClientCut);
  return kinds;
}

// Draws values that are sent in pieces, and regions that can hold some of them.
void DrawLargeValues(SimulationPlan* plan, Dice* dice, int* clients, int* tasks_each) {
  plan->large_bytes_max = static_cast<int>(dice->OneOf({6'000, 6'000, 70'000, 300'000, 1 << 20}));
  plan->large_share = static_cast<double>(dice->OneOf({5, 20, 60})) / 100;
  const auto bytes = static_cast<uint64_t>(plan->large_bytes_max);
  plan->shape.extents_bytes = std::max(plan->shape.extents_bytes, RegionShape::RoundUp(8 * bytes, 4096));
  plan->keys = std::min(plan->keys, bytes > 10'000 ? 60 : 200);
  // Storing a value is a step for each line. Limit them so that this takes no longer than a session.
  plan->writer_step_ns = std::min<int64_t>(plan->writer_step_ns, bytes > 10'000 ? 2 : 20);
  if (bytes > 10'000) {
    *clients = std::min(*clients, 3);
    *tasks_each = std::min(*tasks_each, 4);
    plan->duration_ns = std::min<int64_t>(plan->duration_ns, 3'000'000);
  }
}

// Says which faults there are, how often, and for how long.
struct FaultDraws {
  std::vector<Fault> kinds;
  int64_t between_ns, lasts_ns;
};

// Live servers are repeatedly taken for dead, and a few keys are written and read all the time. A server that learns
// late that it has lost a region would answer for it.
void DrawSuspicion(SimulationPlan* plan, Dice* dice, int* clients, int* tasks_each, FaultDraws* faults) {
  plan->durability = Durability::kSync;
  plan->servers = 2 + dice->Below(2);
  plan->joining = 0;
  plan->keys = 20;
  plan->hot_share = 0;
  plan->table_share = 0;
  plan->value_bytes_max = 100;
  plan->weights = {6, 1, 6, 3, dice->Below(2)};
  plan->paths = {1 + dice->Below(2), 1 + dice->Below(2), dice->Below(2)};
  plan->disk_ns = dice->OneOf({5'000, 20'000});
  plan->duration_ns = 10'000'000;
  *clients = 4 + dice->Below(3);
  *tasks_each = 1 + dice->Below(3);
  faults->kinds = {Fault::kStop, Fault::kExpire, Fault::kCoordinator, Fault::kLeaderless, Fault::kClientCut};
  if (dice->Below(2) == 0) faults->kinds.push_back(Fault::kSlowDisk);
  if (dice->Below(4) == 0) faults->kinds.push_back(Fault::kFreeze);
  while (faults->kinds.size() > 3) {
    faults->kinds.erase(faults->kinds.begin() + dice->Below(static_cast<int>(faults->kinds.size())));
  }
  faults->between_ns = dice->OneOf({100'000, 300'000});
  faults->lasts_ns = dice->OneOf({200'000, 800'000, 1'500'000});
  if (dice->Below(3) > 0) return;
  // Clients without new information read the memory of a stopped server, while another has just taken over.
  faults->kinds = {Fault::kStop, Fault::kClientCut};
  faults->between_ns = 150'000;
  faults->lasts_ns = 800'000;
  plan->keys = 200;  // Each write with an unknown outcome reduces the number of keys that can be written.
  plan->disk_ns = 1'000;
  plan->paths = {1, 2, 0};
}

void DrawMix(SimulationPlan* plan, Dice* dice) {
  switch (dice->Below(6)) {
    case 0:  // More is deleted than put.
      plan->weights[0] = 2 + dice->Below(3);
      plan->weights[1] = 6 + dice->Below(6);
      break;
    case 1:
      plan->queue_share = static_cast<double>(dice->OneOf({50, 90})) / 100;
      plan->table_share = std::min(plan->table_share, 0.5);
      break;
    case 2:  // All clients use one key.
      plan->hot_keys = 1;
      plan->hot_share = 0.9;
      break;
    default:
      break;
  }
}

// The keys become many, and then few, so that nodes split and merge, and are used again.
void DrawTides(SimulationPlan* plan, Dice* dice) {
  plan->tide_ns = dice->OneOf({50'000, 200'000, 800'000});
  plan->weights[0] = 6 + dice->Below(6);
  plan->weights[1] = dice->Below(2);
  plan->table_share = std::min(plan->table_share, 0.5);
}

void DrawExpiries(SimulationPlan* plan, Dice* dice) {
  plan->expiry_share = static_cast<double>(dice->OneOf({10, 50, 100})) / 100;
  plan->expiry_ns_max = dice->OneOf({20'000, 100'000, 1'000'000});
  plan->sweep_every_ns = dice->OneOf({5'000, 50'000, 500'000});
  plan->table_share = std::min(plan->table_share, 0.5);
}

// So few regions that they are full before long.
void DrawEvictions(SimulationPlan* plan, Dice* dice) {
  plan->evict = plan->expiry_share > 0 && dice->Below(2) == 0 ? Eviction::kTtl : Eviction::kLru;
  plan->regions_max = 2 + dice->Below(3);
  plan->weights[0] += 6;
  plan->table_share = std::min(plan->table_share, 0.5);
}

// So few regions that they are about two thirds full, with values of all sizes.
void DrawScattered(SimulationPlan* plan, Dice* dice) {
  plan->regions_max = 2 + dice->Below(2);
  plan->large_bytes_max = static_cast<int>(dice->OneOf({6'000, 6'000, 20'000}));
  plan->large_share = static_cast<double>(dice->OneOf({20, 50})) / 100;
  plan->value_bytes_max = static_cast<int>(dice->OneOf({300, 2'000, 2'000}));
  plan->shape.extents_bytes = RegionShape::RoundUp(static_cast<uint64_t>(dice->OneOf({8, 12, 20})) * 6'000, 4096);
  const double mean = plan->large_share * (plan->large_bytes_max + 4'000) / 2 +  // Large ones have 4 KB at least.
                      (1 - plan->large_share) * plan->value_bytes_max / 2;
  const auto bytes = plan->shape.extents_bytes * static_cast<uint64_t>(plan->servers * plan->regions_max);
  plan->keys = std::max(20, static_cast<int>(static_cast<double>(bytes) / mean));
  plan->hot_share = 0;
  plan->weights = {10, 4 + dice->Below(4), 1 + dice->Below(6), dice->Below(3), dice->Below(2)};
  plan->compact_every_ns = dice->OneOf({10'000, 50'000, 200'000});
  plan->writer_step_ns = std::min<int64_t>(plan->writer_step_ns, 20);
}

void DrawJoins(SimulationPlan* plan, Dice* dice) {
  plan->join.enabled = true;
  plan->join.every_ns = dice->OneOf({10'000, 50'000, 200'000});
  plan->join.failed_pause_ns = 1'000'000;
  plan->join.migrate_again_after_ns = dice->OneOf({200'000, 2'000'000});
  plan->join.copied = 1 + static_cast<size_t>(dice->Below(32));
}

// Small meganodes become many and few in turns, so that they are split and joined.
void DrawTidesOfMeganodes(SimulationPlan* plan, Dice* dice, int* clients, int* tasks_each) {
  plan->shape.node_bytes = 512;
  plan->shape.meganode_bytes = 8 << 10;
  plan->balance.enabled = dice->Below(3) == 0;
  plan->keys = static_cast<int>(dice->OneOf({300, 600}));
  plan->hot_share = 0;
  plan->table_share = 0;
  plan->value_bytes_max = 100;
  plan->weights = {10, dice->Below(2), 1 + dice->Below(5), dice->Below(3), dice->Below(3)};
  plan->tide_ns = dice->OneOf({300'000, 800'000});
  plan->duration_ns = 10'000'000;
  plan->latency_ns = 100;
  plan->line_ns = 5;
  plan->writer_step_ns = 10;
  plan->disk_ns = dice->OneOf({1'000, 5'000});
  plan->join.every_ns = dice->OneOf({10'000, 50'000});
  plan->join.deleted_per_left = -1;
  *clients = std::max(*clients, 4);
  *tasks_each = std::max(*tasks_each, 8);
}

// The same for small parts of a table.
void DrawTidesOfTables(SimulationPlan* plan, Dice* dice, int* clients, int* tasks_each) {
  DrawTidesOfMeganodes(plan, dice, clients, tasks_each);
  plan->table_share = static_cast<double>(dice->OneOf({1, 2, 2})) / 2;
  plan->bucket_bytes = static_cast<uint32_t>(dice->OneOf({0, 512}));
  plan->join.deleted_per_left = static_cast<double>(dice->OneOf({-1, -1, 1}));
}

void DrawGoing(ClientPlan* client, Dice* dice) {
  const int how = dice->Below(3);
  client->dies = how == 0;
  client->closes = how == 1;
}

void DrawComings(SimulationPlan* plan, Dice* dice) {
  const int more = dice->Below(12);
  for (int i = 0; i < more; ++i) {
    ClientPlan client{dice->Seed(), 1 + dice->Below(4)};
    client.comes_ns = dice->Around(plan->duration_ns / 2);
    client.goes_ns = client.comes_ns + dice->Around(plan->duration_ns / 4);
    DrawGoing(&client, dice);
    plan->clients.push_back(client);
  }
  for (ClientPlan& client : plan->clients) {
    if (client.comes_ns == 0 && dice->Below(4) == 0) {
      client.goes_ns = dice->Around(plan->duration_ns / 2);
      DrawGoing(&client, dice);
    }
  }
}

void DrawIdle(SimulationPlan* plan, Dice* dice) {
  for (ClientPlan& client : plan->clients) {
    if (dice->Below(2) == 0) continue;
    client.idle_at_ns = client.comes_ns + dice->Around(plan->duration_ns / 3);
    client.idle_ns = dice->OneOf({100'000, 1'000'000, plan->duration_ns / 2});
  }
}

// Lets most clients be plain users, whose rights are changed while they run.
void DrawGrants(SimulationPlan* plan, Dice* dice) {
  plan->users = 1 + dice->Below(3);
  plan->grants_seed = dice->Seed();
  for (ClientPlan& client : plan->clients) client.user = dice->Below(4) == 0 ? 0 : 1 + dice->Below(plan->users);
  const int64_t between_ns = dice->OneOf({30'000, 200'000, 1'000'000});
  const int64_t lasts_ns = dice->OneOf({30'000, 200'000, 1'000'000});
  for (const Fault fault : {Fault::kGrant, Fault::kRevoke}) {
    if (dice->Below(5) == 0) continue;
    for (int64_t at_ns = dice->Around(between_ns); at_ns < plan->duration_ns; at_ns += dice->Around(between_ns)) {
      plan->faults.push_back({at_ns, fault, dice->Around(lasts_ns), dice->Seed()});
    }
  }
}

// Puts the logs into a pool of objects that all servers share. What would happen to a server's disk happens to the
// pool.
void DrawObjects(SimulationPlan* plan, Dice* dice, const FaultDraws& often) {
  plan->objects = true;
  plan->disk_in_steps = true;  // Otherwise no update is under way while anything else happens.
  plan->disk_cached = false;
  for (FaultPlan& fault : plan->faults) {
    if (fault.fault == Fault::kDiskError || fault.fault == Fault::kDescriptors) fault.fault = Fault::kLostAnswers;
    if (fault.fault == Fault::kSlowDirectory) fault.fault = Fault::kSilence;
  }
  for (const Fault fault : {Fault::kLostAnswers, Fault::kSilence}) {
    if (dice->Below(2) == 0 || often.kinds.empty()) continue;
    for (int64_t at_ns = dice->Around(often.between_ns); at_ns < plan->duration_ns;
         at_ns += dice->Around(often.between_ns)) {
      plan->faults.push_back({at_ns, fault, dice->Around(often.lasts_ns), dice->Seed()});
    }
  }
}

// Lets clients take snapshots, which servers keep for so long, and in so few bytes, that some end while they are read.
void DrawSnapshots(SimulationPlan* plan, Dice* dice) {
  plan->snapshot_share = static_cast<double>(dice->OneOf({1, 3, 10})) / 100;
  plan->snapshot_still_ns = dice->OneOf({60'000, 200'000, 1'000'000});
  plan->snapshot_kept_ns = dice->OneOf({1'000'000, 3'000'000, 10'000'000});
  plan->snapshot_bytes = static_cast<uint64_t>(dice->OneOf({4, 64, 1024, 1024})) << 10;
  const bool many_regions = plan->keys != 1'500 && plan->large_share == 0 && plan->regions_max == 64;
  if (!many_regions || dice->Below(3) == 0) return;
  // Small meganodes, so that a snapshot has many regions, and that these are split meanwhile.
  plan->shape.node_bytes = 512;
  plan->shape.meganode_bytes = 8 << 10;
  plan->keys = static_cast<int>(dice->OneOf({300, 800}));
  plan->hot_share = 0;
  plan->table_share = 0;
  plan->value_bytes_max = 100;
  plan->weights[0] = std::max(plan->weights[0], 8);
  plan->weights[1] = std::min(plan->weights[1], 2);
}

// The faults that Draws can leave out one by one.
constexpr size_t kFirstOfDraws = static_cast<size_t>(Fault::kDiskFull);
constexpr size_t kLastOfDraws = static_cast<size_t>(Fault::kFlood);
static_assert(kLastOfDraws - kFirstOfDraws + 1 == std::tuple_size_v<decltype(Draws::faults)>);

}  // namespace

bool Draws::Set(std::string_view name, bool on) {
  for (size_t i = kFirstOfDraws; i <= kLastOfDraws; ++i) {
    if (name == kNames[i]) return faults[i - kFirstOfDraws] = on, true;
  }
  const std::map<std::string_view, bool*> by_name = {{"large values", &large_values},
                                                     {"short timeouts", &short_timeouts},
                                                     {"tides", &tides},
                                                     {"scan modes", &scan_modes},
                                                     {"mixes", &mixes},
                                                     {"ranges", &ranges},
                                                     {"expiries", &expiries},
                                                     {"evictions", &evictions},
                                                     {"scattered", &scattered},
                                                     {"joins", &joins},
                                                     {"regions max", &regions_max},
                                                     {"region ids", &region_ids},
                                                     {"clients go", &clients_go},
                                                     {"idle", &idle},
                                                     {"encrypted", &encrypted},
                                                     {"disk steps", &disk_steps},
                                                     {"disk cached", &disk_cached},
                                                     {"files account", &files_account},
                                                     {"grants", &grants},
                                                     {"objects", &objects},
                                                     {"learns", &learns},
                                                     {"conditions", &conditions},
                                                     {"functions", &functions},
                                                     {"transactions", &transactions},
                                                     {"tables", &tables},
                                                     {"snapshots", &snapshots},
                                                     {"suspicion", &suspicion},
                                                     {"deadlines", &deadlines},
                                                     {"disks heal", &disks_heal}};
  const auto it = by_name.find(name);
  if (it != by_name.end()) *it->second = on;
  return it != by_name.end();
}

std::string_view ToString(Fault fault) { return kNames[static_cast<size_t>(fault)]; }

SimulationPlan SimulationPlan::Draw(uint64_t seed, const Draws& draws) {
  Dice dice(Mix64(seed) + 7);
  SimulationPlan plan;
  plan.seed = seed;
  DrawCluster(&plan, &dice);
  int clients = 1 + dice.Below(6);
  int tasks_each = 1 + dice.Below(8);
  DrawUse(&plan, &dice);
  plan.duration_ns = dice.OneOf({1'000'000, 3'000'000, 6'000'000, 10'000'000});
  FaultDraws often;
  often.kinds = DrawKinds(plan, &dice);
  often.between_ns = dice.OneOf({100'000, 300'000, 1'000'000});
  often.lasts_ns = dice.OneOf({20'000, 200'000, 800'000, 1'500'000});
  int readers = dice.Below(2) == 0 ? 0 : dice.Below(std::min(clients, 3));
  if (dice.Below(16) == 0) {
    FillTable(&plan, dice.Below(2) == 0, &clients, &tasks_each);
    readers = clients / 2;
  }
  // Each uses dice of its own, so that disabling one changes nothing else.
  const auto dice_for = [seed](uint64_t what) { return Dice(Mix64(seed + (what << 40)) + what); };
  if (Dice own = dice_for(32); own.Below(8) == 0 && draws.suspicion && plan.keys != 1'500) {
    DrawSuspicion(&plan, &own, &clients, &tasks_each, &often);
    readers = 0;
  }
  const auto& [kinds, between_faults_ns, fault_ns] = often;
  if (Dice own = dice_for(1); own.Below(4) == 0 && draws.large_values && plan.keys != 1'500) {
    DrawLargeValues(&plan, &own, &clients, &tasks_each);
    readers = std::min(readers, clients - 1);
  }
  if (Dice own = dice_for(2); own.Below(2) == 0 && draws.short_timeouts) {
    plan.short_share = static_cast<double>(own.OneOf({5, 30})) / 100;
  }
  if (Dice own = dice_for(3); own.Below(2) == 0 && draws.scan_modes) {
    plan.scan_limits = true;
    plan.scan_tries = 1 + own.Below(4);
  }
  if (Dice own = dice_for(4); draws.mixes && plan.keys != 1'500) DrawMix(&plan, &own);
  if (Dice own = dice_for(33); own.Below(6) == 0 && draws.tides && plan.keys != 1'500) DrawTides(&plan, &own);
  if (Dice own = dice_for(34); own.Below(5) == 0 && draws.ranges && plan.keys != 1'500) {
    plan.range_share = static_cast<double>(own.OneOf({2, 10})) / 100;
  }
  if (Dice own = dice_for(36); own.Below(3) == 0 && draws.expiries && plan.keys != 1'500) DrawExpiries(&plan, &own);
  plan.join.enabled = false;
  if (Dice own = dice_for(35); own.Below(4) != 0 && draws.joins) {
    DrawJoins(&plan, &own);
    if (own.Below(3) == 0 && plan.keys != 1'500 && plan.large_share == 0) {
      DrawTidesOfMeganodes(&plan, &own, &clients, &tasks_each);
    }
  }
  if (Dice own = dice_for(50); own.Below(10) == 0 && plan.join.enabled && plan.keys != 1'500 && plan.large_share == 0) {
    DrawTidesOfTables(&plan, &own, &clients, &tasks_each);
  }
  if (Dice own = dice_for(5); own.Below(4) == 0 && draws.regions_max) plan.regions_max = 3 + own.Below(6);
  if (Dice own = dice_for(37); own.Below(6) == 0 && draws.evictions && draws.regions_max && plan.keys > 500) {
    DrawEvictions(&plan, &own);
  }
  if (Dice own = dice_for(38); own.Below(12) == 0 && draws.scattered && draws.regions_max && plan.keys != 1'500) {
    DrawScattered(&plan, &own);
  }
  // As many as regions come and go in a tide.
  if (Dice own = dice_for(51); own.Below(2) == 0 && draws.region_ids && plan.tide_ns > 0) {
    plan.region_ids = own.OneOf({8, 12, 20});
  }
  if (Dice own = dice_for(6); own.Below(2) == 0 && draws.disk_steps) plan.disk_in_steps = true;
  if (Dice own = dice_for(31); own.Below(4) == 0 && draws.disk_cached) plan.disk_cached = true;
  // A split that hurries copies at least kHurriedSteps buckets in a step, with about two steps of the writer for each
  // of their lines.
  if (plan.bucket_bytes > 0) {
    const auto steps = static_cast<int64_t>(2 * kHurriedSteps * plan.bucket_bytes / kLineBytes);
    plan.writer_step_ns = std::min(plan.writer_step_ns, kSplitTurnNs / steps);
  }
  const auto turn_steps = static_cast<size_t>(kSplitTurnNs / plan.writer_step_ns);
  plan.split.pace.copied = std::min(plan.split.pace.copied, std::max<size_t>(1, turn_steps / kHurriedSteps));
  plan.join.copied = std::min(plan.join.copied, plan.split.pace.copied);
  plan.compact_bytes = std::min(plan.compact_bytes, kLineBytes * turn_steps / 2);
  plan.files_account = draws.files_account;
  plan.late_ns_max = draws.deadlines ? kLateNs : INT64_MAX;
  if (Dice own = dice_for(7); own.Below(2) == 0 && draws.disks_heal) plan.restarts_after_disk = false;
  for (int i = 0; i < clients; ++i) plan.clients.push_back({dice.Seed(), tasks_each, i < readers});
  for (int64_t at_ns = dice.Around(between_faults_ns); !kinds.empty() && at_ns < plan.duration_ns;
       at_ns += dice.Around(between_faults_ns)) {
    const Fault fault = kinds[static_cast<size_t>(dice.Below(static_cast<int>(kinds.size())))];
    plan.faults.push_back({at_ns, fault, dice.Around(fault_ns), dice.Seed()});
  }
  if (Dice own = dice_for(30); own.Below(3) == 0 && draws.clients_go) DrawComings(&plan, &own);
  if (Dice own = dice_for(52); own.Below(4) == 0 && draws.idle) DrawIdle(&plan, &own);
  for (size_t i = kFirstOfDraws; i <= kLastOfDraws; ++i) {
    Dice own = dice_for(i < static_cast<size_t>(Fault::kRollback) ? 8 + i : 18 + i);  // 30 to 34 are used elsewhere.
    const auto fault = static_cast<Fault>(i);
    const bool there = own.Below(4) == 0 && !kinds.empty() && draws.faults[i - kFirstOfDraws];
    if (!there || (plan.durability == Durability::kNone && !WithoutLogs(fault))) continue;
    for (int64_t at_ns = own.Around(2 * between_faults_ns); at_ns < plan.duration_ns;
         at_ns += own.Around(2 * between_faults_ns)) {
      plan.faults.push_back({at_ns, fault, own.Around(fault_ns), own.Seed()});
    }
  }
  if (Dice own = dice_for(53); own.Below(6) == 0 && draws.grants) DrawGrants(&plan, &own);
  // LaterReleaseStore writes files. Without rollbacks there are more of these, so that half of all logs are in objects.
  const bool may_be_objects = plan.durability != Durability::kNone && !plan.Has(Fault::kRollback);
  if (Dice own = dice_for(54); own.Below(8) < 5 && draws.objects && may_be_objects) DrawObjects(&plan, &own, often);
  if (Dice own = dice_for(55); own.Below(3) != 0 && draws.learns) plan.learns = true;
  if (Dice own = dice_for(56); own.Below(3) != 0 && draws.conditions) {
    plan.condition_share = static_cast<double>(own.OneOf({10, 30, 80})) / 100;
  }
  if (Dice own = dice_for(57); own.Below(2) == 0 && draws.functions) {
    plan.function_share = static_cast<double>(own.OneOf({30, 100})) / 100;
    plan.condition_share = std::max(plan.condition_share, 0.5);  // Functions take the place of conditions.
  }
  // Scans, counts and deletions of ranges would meet the keys of transactions, and users have no grants for those.
  const bool apart = plan.users == 0 && plan.evict == Eviction::kNone && plan.table_share < 1;
  if (Dice own = dice_for(58); own.Below(3) == 0 && draws.transactions && apart) {
    plan.transaction_share = static_cast<double>(own.OneOf({20, 50, 90})) / 100;
    plan.weights[4] = 0;
    plan.range_share = plan.queue_share = 0;
  }
  // Tables have no snapshots, and users have no grants for a range of some keys of others.
  const bool may_snapshot = draws.snapshots && plan.users == 0 && plan.table_share < 1;
  if (Dice own = dice_for(59); may_snapshot && (plan.transaction_share > 0 || own.Below(3) == 0)) {
    DrawSnapshots(&plan, &own);
  }
  if (Dice own = dice_for(60); plan.transaction_share > 0 && draws.tables) {
    if (plan.table_share == 0) plan.table_share = static_cast<double>(own.Below(2)) / 2;
    plan.transactions_in_table = plan.table_share > 0;
  }
  std::stable_sort(plan.faults.begin(), plan.faults.end(),
                   [](const FaultPlan& a, const FaultPlan& b) { return a.at_ns < b.at_ns; });
  plan.encrypted = draws.encrypted && !plan.Has(Fault::kRollback);  // LaterReleaseStore changes the format of others.
  return plan;
}

bool SimulationPlan::Has(Fault fault) const {
  return std::any_of(faults.begin(), faults.end(), [fault](const FaultPlan& one) { return one.fault == fault; });
}

bool SimulationPlan::MayLose() const {
  if (durability != Durability::kAsync) return false;
  return Has(Fault::kKill) || Has(Fault::kPowerLoss) || Has(Fault::kStop) || Has(Fault::kDiskError) ||
         Has(Fault::kExpire) || Has(Fault::kCoordinator) || Has(Fault::kSlowHost) || Has(Fault::kDiskFull) ||
         Has(Fault::kDescriptors) || Has(Fault::kLeaderless) || Has(Fault::kFreeze) || Has(Fault::kMembership) ||
         Has(Fault::kRollback) || Has(Fault::kLostAnswers) || Has(Fault::kSilence);
}

// Many parts have more than one object. A large value comes in a few updates.
uint64_t SimulationPlan::ObjectBytes() const {
  return std::max(uint64_t{16} << 10, static_cast<uint64_t>(large_bytes_max));
}

EvictionRules SimulationPlan::Rules() const {
  EvictionRules rules;
  CELL_CHECK(rules.Set("", evict).ok());
  CELL_CHECK(rules.Set(kPinned, Eviction::kNone).ok());
  return rules;
}

bool SimulationPlan::Evicts(std::string_view key, bool in_table, bool expires) const {
  if (!in_table && key.substr(0, kPinned.size()) == kPinned) return false;
  return evict == Eviction::kLru || (evict == Eviction::kTtl && expires);
}

}  // namespace cell

#include "tests/simulation/plan.h"

#include <algorithm>

#include "cell/base/random.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cell {
namespace {

constexpr std::array<std::string_view, kFaults> kNames = {
    "kill",  "power loss", "stop",   "partition",       "one way", "slow host", "slow disk",  "delay",
    "break", "disk error", "expire", "coordinator cut", "join",    "drain",     "checkpoint", "client cut"};

// What may be when nobody recovers regions: a server that dies takes what it holds with it.
bool WithoutLogs(Fault fault) {
  switch (fault) {
    case Fault::kKill:
    case Fault::kPowerLoss:
    case Fault::kDiskError:
    case Fault::kSlowDisk:
    case Fault::kExpire:
    case Fault::kCheckpoint:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::string_view ToString(Fault fault) { return kNames[static_cast<size_t>(fault)]; }

SimulationPlan SimulationPlan::Draw(uint64_t seed) {
  Random random(Mix64(seed) + 7);
  const auto below = [&](int bound) { return static_cast<int>(random.Below(static_cast<uint64_t>(bound))); };
  const auto one_of = [&](std::initializer_list<int64_t> values) {
    return values.begin()[below(static_cast<int>(values.size()))];
  };
  SimulationPlan plan;
  plan.seed = seed;
  plan.durability = static_cast<Durability>(one_of({0, 1, 2, 2, 2}));
  plan.servers = 1 + below(4);
  plan.joining = below(3) == 0 ? 1 + below(2) : 0;
  plan.shape.node_bytes = static_cast<uint32_t>(one_of({512, 512, 1024}));
  plan.shape.meganode_bytes = static_cast<uint64_t>(one_of({16, 16, 32, 64})) * plan.shape.node_bytes / 512 * 1024;
  plan.shape.extents_bytes = static_cast<uint64_t>(one_of({32, 64, 128})) << 10;
  plan.steward.copied_per_turn = static_cast<size_t>(1 + below(32));
  plan.steward.freed_per_turn = static_cast<size_t>(1 + below(8));
  plan.steward.balance_every_ns = one_of({20'000, 50'000, 200'000});
  plan.steward.balance = below(8) != 0;
  plan.membership_polls_max = 1 + below(20);
  plan.clock_gain_ppm = below(2) == 0 ? 0 : 40'000;
  plan.latency_ns = one_of({100, 200, 500, 2'000});
  plan.line_ns = one_of({5, 20, 60, 200});
  plan.writer_step_ns = one_of({10, 40, 100, 1'000});  // The last: it is interrupted again and again.
  // A server that is interrupted so often may lose its session in any long turn, and with async what it has just
  // acknowledged: there would be no telling what may be lost.
  if (plan.durability == Durability::kAsync) plan.writer_step_ns = std::min<int64_t>(plan.writer_step_ns, 100);
  plan.disk_ns = one_of({1'000, 5'000, 20'000});
  plan.checkpoint_bytes_min = static_cast<uint64_t>(one_of({4, 8, 64})) << 10;

  plan.clients = 1 + below(6);
  plan.tasks_each = 1 + below(8);
  plan.keys = static_cast<int>(one_of({20, 200, 800, 3'000}));
  plan.hot_keys = 1 + below(12);
  plan.hot_share = static_cast<double>(below(4)) / 4;
  plan.table_share = static_cast<double>(one_of({0, 0, 1, 2})) / 2;
  plan.bucket_bytes = static_cast<uint32_t>(one_of({0, 0, 512, 1024}));
  plan.value_bytes_max = static_cast<int>(one_of({8, 100, 300, 300}));
  plan.cache_level_min = 1 + below(2);
  for (int& weight : plan.weights) weight = below(4) == 0 ? 0 : 1 + below(10);
  plan.weights[0] = 2 + below(10);
  plan.weights[1] /= 2;  // So that there is something.
  for (int& weight : plan.paths) weight = below(3);
  if (plan.paths == std::array<int, 3>{}) plan.paths = {1, 1, 1};
  plan.one_path_each = below(3) == 0;

  plan.duration_ns = one_of({1'000'000, 3'000'000, 6'000'000, 10'000'000});
  for (size_t i = 0; i < kFaults - 1; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (below(2) == 0 || (plan.durability == Durability::kNone && !WithoutLogs(fault))) continue;
    plan.faults.push_back(fault);
  }
  if (below(10) == 0) plan.faults.clear();
  if (below(3) == 0) {  // A few kinds, each often.
    while (plan.faults.size() > 2) plan.faults.erase(plan.faults.begin() + below(static_cast<int>(plan.faults.size())));
  }
  if (!plan.faults.empty() && below(2) == 0) plan.faults.push_back(Fault::kClientCut);
  plan.between_faults_ns = one_of({100'000, 300'000, 1'000'000});
  plan.fault_ns = one_of({20'000, 200'000, 800'000, 1'500'000});
  plan.readers = below(2) == 0 ? 0 : below(std::min(plan.clients, 3));
  if (below(16) == 0) plan.FillTable(below(2) == 0);
  return plan;
}

// Keys are moved before the eyes of readers that wait for nobody, by a writer that is interrupted all the time. Chance
// alone brings that together too seldom.
void SimulationPlan::FillTable(bool slots) {
  table_share = 1;
  bucket_bytes = slots ? 0 : 512;
  steward.split_at = 0.95;
  shape.node_bytes = 512;
  shape.meganode_bytes = 16 << 10;
  shape.extents_bytes = 128 << 10;
  keys = 1'500;
  hot_share = 0;
  value_bytes_max = 8;
  latency_ns = 100;
  line_ns = 5;
  if (durability != Durability::kAsync) writer_step_ns = 1'000;
  clients = std::max(clients, 3);
  tasks_each = std::max(tasks_each, 4);
  readers = clients / 2;
  duration_ns = std::min<int64_t>(duration_ns, 3'000'000);
}

bool SimulationPlan::MayLose() const {
  if (durability != Durability::kAsync) return false;
  return std::any_of(faults.begin(), faults.end(), [](Fault fault) {
    return fault == Fault::kKill || fault == Fault::kPowerLoss || fault == Fault::kStop || fault == Fault::kDiskError ||
           fault == Fault::kExpire || fault == Fault::kCoordinator || fault == Fault::kSlowHost;
  });
}

std::string SimulationPlan::ToString() const {
  std::vector<std::string_view> names;
  for (const Fault fault : faults) names.push_back(cell::ToString(fault));
  return fmt::format(
      "{} servers and {} to come, durability {}, nodes of {} B, meganodes of {} KB; {} clients with {} operations in "
      "flight each on {} keys ({} hot), {:.0f} % in a table ({} B buckets), clocks within {} ppm; {} us; faults: {}",
      servers, joining, cell::ToString(durability), shape.node_bytes, shape.meganode_bytes >> 10, clients, tasks_each,
      keys, hot_keys, table_share * 100, bucket_bytes, clock_gain_ppm, duration_ns / 1000, fmt::join(names, ", "));
}

}  // namespace cell

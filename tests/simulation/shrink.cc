#include "tests/simulation/shrink.h"

#include <algorithm>
#include <utility>

namespace cell {
namespace {

class Shrinker {
 public:
  Shrinker(SimulationPlan plan, const FirstFailing& first_failing, int rounds_max)
      : plan_(std::move(plan)), first_failing_(first_failing), rounds_left_(rounds_max) {}

  SimulationPlan Run() {
    for (bool smaller = true; smaller && rounds_left_ > 0;) {
      smaller = Remove(&SimulationPlan::faults, 0);
      smaller |= Remove(&SimulationPlan::clients, 1);
      smaller |= LessOfEachClient();
      for (; Simplify(); smaller = true) {
      }
    }
    return std::move(plan_);
  }

 private:
  // Continues with the first of these plans that fails.
  bool Try(const std::vector<SimulationPlan>& plans) {
    if (plans.empty() || rounds_left_ <= 0) return false;
    --rounds_left_;
    const std::optional<size_t> failing = first_failing_(plans);
    if (failing.has_value()) plan_ = plans[*failing];
    return failing.has_value();
  }

  // Removes items from a list, in pieces that get smaller, until no single one can be removed.
  template <typename Item>
  bool Remove(std::vector<Item> SimulationPlan::*list, size_t least) {
    bool smaller = false;
    for (size_t piece = (plan_.*list).size(); piece > 0 && rounds_left_ > 0;) {
      std::vector<SimulationPlan> plans;
      for (size_t at = 0; at < (plan_.*list).size(); at += piece) {
        SimulationPlan one = plan_;
        auto& items = one.*list;
        const auto begin = items.begin() + static_cast<ptrdiff_t>(at);
        items.erase(begin, begin + static_cast<ptrdiff_t>(std::min(piece, items.size() - at)));
        if (items.size() >= least) plans.push_back(std::move(one));
      }
      if (Try(plans)) {
        smaller = true;
        piece = std::min(piece, (plan_.*list).size());
      } else {
        piece /= 2;
      }
    }
    return smaller;
  }

  bool LessOfEachClient() {
    bool smaller = false;
    for (size_t i = 0; i < plan_.clients.size(); ++i) {
      while (plan_.clients[i].tasks > 1) {
        std::vector<SimulationPlan> plans;
        for (const int tasks : {1, plan_.clients[i].tasks / 2, plan_.clients[i].tasks - 1}) {
          plans.push_back(plan_);
          plans.back().clients[i].tasks = tasks;
        }
        if (!Try(plans)) break;
        smaller = true;
      }
      for (;;) {
        std::vector<SimulationPlan> plans;
        const uint64_t most = plan_.clients[i].operations_max;
        for (const uint64_t operations : {most / 4, most / 2, most - most / 8}) {
          if (operations >= std::min<uint64_t>(most, 1'000)) continue;
          plans.push_back(plan_);
          plans.back().clients[i].operations_max = operations;
        }
        if (most > 1'000) {
          for (const uint64_t operations : {10u, 100u, 1'000u}) {
            plans.push_back(plan_);
            plans.back().clients[i].operations_max = operations;
          }
        }
        if (!Try(plans)) break;
        smaller = true;
      }
    }
    return smaller;
  }

  // Tries each change that makes a plan easier to follow.
  bool Simplify() {
    std::vector<SimulationPlan> plans;
    const auto add = [this, &plans](const auto& change) {
      SimulationPlan one = plan_;
      if (change(&one)) plans.push_back(std::move(one));
    };
    const auto set = [&add](auto SimulationPlan::*field, auto value) {
      add([field, value](SimulationPlan* plan) { return std::exchange(plan->*field, value) != value; });
    };
    set(&SimulationPlan::joining, 0);
    set(&SimulationPlan::clock_gain_ppm, int64_t{0});
    set(&SimulationPlan::membership_polls_max, 1);
    set(&SimulationPlan::table_share, 0.0);
    add([](SimulationPlan* plan) { return plan->table_share < 1 && std::exchange(plan->table_share, 1) > 0; });
    set(&SimulationPlan::region_ids, 0);
    set(&SimulationPlan::hot_share, 0.0);
    set(&SimulationPlan::range_share, 0.0);
    set(&SimulationPlan::condition_share, 0.0);
    set(&SimulationPlan::function_share, 0.0);
    set(&SimulationPlan::snapshot_share, 0.0);
    set(&SimulationPlan::expiry_share, 0.0);
    set(&SimulationPlan::evict, Eviction::kNone);
    set(&SimulationPlan::objects, false);
    set(&SimulationPlan::learns, false);
    add([](SimulationPlan* plan) {
      for (ClientPlan& client : plan->clients) client.user = 0;
      return std::exchange(plan->users, 0) > 0;
    });
    add([](SimulationPlan* plan) { return std::exchange(plan->balance.enabled, false); });
    add([](SimulationPlan* plan) { return std::exchange(plan->join.enabled, false); });
    add([](SimulationPlan* plan) { return plan->servers > 1 && --plan->servers > 0; });
    add([](SimulationPlan* plan) { return (plan->keys /= 2) >= 1; });
    add([](SimulationPlan* plan) { return plan->keys > 1 && --plan->keys > 0; });
    add([](SimulationPlan* plan) { return (plan->duration_ns /= 2) > 10'000; });
    add([](SimulationPlan* plan) { return (plan->duration_ns -= plan->duration_ns / 8) > 10'000; });
    for (size_t i = 0; i < plan_.weights.size(); ++i) {
      add([i](SimulationPlan* plan) {
        return std::exchange(plan->weights[i], 0) != 0 &&
               std::any_of(plan->weights.begin(), plan->weights.end(), [](int weight) { return weight > 0; });
      });
    }
    for (size_t i = 0; i < plan_.paths.size(); ++i) {
      add([i](SimulationPlan* plan) {
        return std::exchange(plan->paths[i], 0) != 0 &&
               std::any_of(plan->paths.begin(), plan->paths.end(), [](int weight) { return weight > 0; });
      });
    }
    return Try(plans);
  }

  SimulationPlan plan_;
  const FirstFailing& first_failing_;
  int rounds_left_;
};

}  // namespace

SimulationPlan Shrink(SimulationPlan plan, const FirstFailing& first_failing, int rounds_max) {
  return Shrinker(std::move(plan), first_failing, rounds_max).Run();
}

}  // namespace cell

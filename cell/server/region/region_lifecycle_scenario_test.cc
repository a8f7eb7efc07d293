// Tells what a worker's regions go through, step by step, as testdata/*.txt shows it.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>

#include "cell/base/scenario.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/server/region/region_claim.h"
#include "cell/server/region/regions.h"

namespace cell {
namespace {

constexpr RegionShape kShape{512, 32 << 10, 64 << 10};
constexpr size_t kRegionsMax = 3;
const std::map<std::string, RegionState> kStates = {{"filling", RegionState::kFilling},
                                                    {"serving", RegionState::kServing},
                                                    {"frozen", RegionState::kFrozen},
                                                    {"sealed", RegionState::kSealed},
                                                    {"lost", RegionState::kLost}};
const std::map<std::string, ClaimPurpose> kPurposes = {
    {"fill", ClaimPurpose::kFill},       {"split", ClaimPurpose::kSplit},
    {"migrate", ClaimPurpose::kMigrate}, {"checkpoint", ClaimPurpose::kCheckpoint},
    {"recover", ClaimPurpose::kRecover}, {"route", ClaimPurpose::kRoute}};

template <typename Value>
std::string NameOf(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, named] : names) {
    if (named == value) return name;
  }
  return "unnamed";
}

std::string Outcome(const absl::Status& status) {
  if (status.ok()) return "ok";
  return std::string(absl::StatusCodeToString(status.code())) + ": " + std::string(status.message());
}

// A worker's regions, and what holds claims on them.
class Stage {
 public:
  std::string Run(const ScenarioCommand& command) {
    const uint32_t region = command.Number(0);
    const std::string word = command.words.size() > 1 ? command.words[1] : "";
    HeldRegion* const held = regions_.Find(region);
    if (command.name == "create") {
      const RegionState state = word.empty() ? RegionState::kServing : kStates.at(word);
      return Outcome(regions_.Create(region, {}, state).status());
    }
    if (command.name == "expect") return Outcome(regions_.Expect(region));
    if (command.name == "unexpect") return Do([&] { regions_.Unexpect(region); });
    if (command.name == "receive") return Receive(region);
    if (command.name == "arrived") return Arrived(region, word, command.Number("epoch"));
    if (command.name == "not-arrived") {
      return Do([&] { regions_.NotArrived(region, memory_.at(region), WrittenPages(kShape.region_bytes())); });
    }
    if (command.name == "show") return Show();
    if (held == nullptr) return fmt::format("region {} is not held", region);
    if (command.name == "change") {
      if (!CanChange(held->state(), kStates.at(word))) return "not allowed";
      return Do([&] { held->ChangeState(kStates.at(word)); });
    }
    if (command.name == "unfreeze") return Do([&] { held->Unfreeze(); });
    if (command.name == "claim") {
      if (!held->claimable()) return "not claimable";
      return Do([&] { claims_[region] = RegionClaim(held, kPurposes.at(word)); });
    }
    if (command.name == "release") return Do([&] { claims_.erase(region); });
    if (command.name == "drop") return Do([&] { regions_.Drop(region); });
    return "no such command";
  }

 private:
  template <typename Work>
  static std::string Do(Work work) {
    work();
    return "ok";
  }
  std::string Receive(uint32_t region) {
    if (!regions_.Arriving(region)) return "not expected";
    const absl::StatusOr<RegionMemory*> memory = regions_.Receive(region);
    if (memory.ok()) memory_[region] = *memory;
    return Outcome(memory.status());
  }
  std::string Arrived(uint32_t region, const std::string& state, uint64_t epoch) {
    const absl::Status formatted = FormatRegion(memory_.at(region), region, kShape, {});
    if (!formatted.ok()) return Outcome(formatted);
    regions_.Arrived(region, memory_.at(region), std::make_unique<WrittenPages>(kShape.region_bytes()), epoch,
                     kStates.at(state));
    return "ok";
  }
  std::string Show() const {
    std::string text;
    regions_.ForEach([&](const HeldRegion* held) {
      text += fmt::format("{} epoch {}: {}", held->region(), held->epoch(), NameOf(kStates, held->state()));
      text += held->readable() ? held->writable() ? ", read and written" : ", read" : "";
      for (const auto& [name, purpose] : kPurposes) {
        if (held->ClaimedFor(purpose)) text += ", claimed to " + name;
      }
      text += "\n";
    });
    for (const auto& [region, claim] : claims_) {
      if (claim.region() == nullptr) text += fmt::format("the claim on {} holds nothing\n", region);
    }
    return text + fmt::format("{} of {}\n", regions_.size(), kRegionsMax);
  }

  ShmFabric fabric_{{.huge_pages = false}};
  Regions regions_{&fabric_, kShape, kRegionsMax};
  std::map<uint32_t, RegionMemory*> memory_;
  std::map<uint32_t, RegionClaim> claims_;
};

class RegionLifecycleScenario : public ::testing::TestWithParam<std::string> {};

TEST_P(RegionLifecycleScenario, EndsAsWritten) {
  Stage stage;
  EXPECT_EQ(RunScenario("cell/server/region/testdata/" + GetParam() + ".txt",
                        [&](const ScenarioCommand& command) { return stage.Run(command); }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Files, RegionLifecycleScenario, ::testing::Values("split", "migration", "room"),
                         [](const auto& info) { return info.param; });

TEST(RegionLifecycleScenarios, NoFileIsForgotten) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("cell/server/region/testdata")) {
    files += entry.path().extension() == ".txt";
  }
  EXPECT_EQ(files, 3u);
}

}  // namespace
}  // namespace cell

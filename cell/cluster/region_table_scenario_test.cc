// Tells what becomes of the region table, change by change, as testdata/*.txt shows it.
#include <gtest/gtest.h>

#include <filesystem>

#include "cell/base/scenario.h"
#include "cell/cluster/cluster_text.h"
#include "cell/cluster/region_table.h"

namespace cell {
namespace {

std::string Outcome(const absl::Status& status) {
  if (status.ok()) return "ok";
  return std::string(absl::StatusCodeToString(status.code())) + ": " + std::string(status.message());
}

WorkerId Worker(const std::string& text) { return ParseWorkerId(text).value_or(WorkerId{"no such worker", 0}); }

// Prints the table: a line for the root, for each region and for each Pilaf table.
std::string Show(const RegionTable& table) {
  std::string text = table.root == 0 ? "no root\n" : fmt::format("root {}\n", table.root);
  for (const auto& [region, entry] : table.regions) {
    text += fmt::format("{} at {}, epoch {}", region, ToString(entry.owner), entry.epoch);
    if (entry.split_parent.has_value()) text += fmt::format(", split from {}", *entry.split_parent);
    text += entry.recovering ? ", recovering\n" : "\n";
  }
  for (const auto& [name, parts] : table.tables) {
    text += fmt::format("table {}:", name);
    for (const auto& [first, region] : parts.parts) text += fmt::format(" {} from {}", region, first);
    text += "\n";
  }
  return text;
}

std::string Execute(RegionTable* table, const ScenarioCommand& command) {
  const uint32_t region = command.Number(0);
  const auto named = [&](const std::string& name) {
    const auto it = command.named.find(name);
    return it == command.named.end() ? std::string() : it->second;
  };
  if (command.name == "add") {
    std::optional<uint32_t> parent;
    if (command.named.contains("parent")) parent = command.Number("parent");
    const absl::StatusOr<uint32_t> added = table->Add(Worker(command.words.at(0)), parent);
    return added.ok() ? fmt::format("region {}", *added) : Outcome(added.status());
  }
  if (command.name == "join") {
    table->Joined(region);
    return "ok";
  }
  if (command.name == "root") return Outcome(table->SetRoot(command.Number("from"), command.Number("to")));
  if (command.name == "move") return Outcome(table->Move(region, command.Number("epoch"), Worker(named("to"))));
  if (command.name == "claim") return Outcome(table->Claim(region, command.Number("epoch"), Worker(named("by"))));
  if (command.name == "recovered") {
    std::map<uint32_t, uint32_t> cuts;
    if (command.named.contains("cut")) cuts[command.Number("cut")] = command.Number("at");
    return Outcome(table->Recovered(region, command.Number("epoch"), cuts));
  }
  if (command.name == "remove") return Outcome(table->Remove(region));
  if (command.name == "create-table") {
    return Outcome(table->CreateTable(command.words.at(0), command.Number("buckets"), command.Number("region")));
  }
  if (command.name == "split-part") {
    return Outcome(table->SplitPart(region, command.Number("first"), command.Number("to")));
  }
  if (command.name == "join-part") {
    return Outcome(table->Join(region, command.Number("epoch"), command.Number("upper"), command.Number("its-epoch")));
  }
  if (command.name == "drop-table") return Outcome(table->DropTable(command.words.at(0)));
  if (command.name == "show") {
    const absl::StatusOr<RegionTable> read = RegionTable::Parse(table->ToJson());
    if (!read.ok()) return "it cannot be read back: " + Outcome(read.status());
    if (!(*read == *table)) return "it is another one when it is read back";
    return Show(*table);
  }
  return "no such command";
}

class RegionTableScenario : public ::testing::TestWithParam<std::string> {};

TEST_P(RegionTableScenario, EndsAsWritten) {
  RegionTable table;
  EXPECT_EQ(RunScenario("cell/cluster/testdata/" + GetParam() + ".txt",
                        [&](const ScenarioCommand& command) { return Execute(&table, command); }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Files, RegionTableScenario, ::testing::Values("split", "migration", "takeover", "hash_table"),
                         [](const auto& info) { return info.param; });

TEST(RegionTableScenarios, NoFileIsForgotten) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("cell/cluster/testdata")) {
    files += entry.path().extension() == ".txt";
  }
  EXPECT_EQ(files, 4u);
}

}  // namespace
}  // namespace cell

// libFuzzer: parses any text as what a cluster's members write: cluster.json and regions.json, znodes, reports of
// regions. The parser refuses it, or all code that uses it gives an answer.
//
// The input consists of texts, separated by bytes of 0: a region table, the cluster's file, a worker's znode and its
// name, a report of a region and its routes.
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "cell/client/check/region_report.h"
#include "cell/cluster/cluster_text.h"
#include "cell/cluster/embedded/embedded_membership.h"
#include "cell/cluster/placement.h"
#include "cell/io/fabric/fabric_address.h"

namespace cell {
namespace {

// Makes every change that a member may make, to every region.
void Change(const RegionTable& table, const ClusterState& state, Random* random) {
  const auto still_a_table = [](const RegionTable& changed) {
    const absl::StatusOr<RegionTable> parsed = RegionTable::Parse(changed.ToJson());
    CELL_CHECK(parsed.ok() && *parsed == changed);
  };
  const WorkerId self{state.servers[0].name, 0};
  size_t tried = 0;
  for (const auto& [region, entry] : table.regions) {
    if (++tried > 4) break;
    RegionTable changed = table;
    if (changed.Claim(region, entry.epoch, self).ok()) {
      (void)changed.Recovered(region, entry.epoch + 1, {});
      still_a_table(changed);
    }
    const absl::StatusOr<uint32_t> made = changed.Add(self, region);
    if (made.ok()) (void)changed.SplitPart(region, 1000 + region, *made);
    (void)changed.Remove(region);
    still_a_table(changed);
    (void)state.OwnerOf(region);
  }
  for (const auto& [name, parts] : table.tables) {
    CELL_CHECK_NE(table.Find(parts.RegionOf(static_cast<uint32_t>(random->Next()))), nullptr);
    RegionTable changed = table;
    CELL_CHECK(changed.DropTable(name).ok());
    still_a_table(changed);
    if (++tried > 8) break;
  }
}

void Place(const ClusterState& state, Random* random) {
  const WorkerId self{state.servers[0].name, 0};
  std::vector<uint32_t> orphans;
  std::vector<WorkerId> alive;
  for (const auto& [region, entry] : state.table.regions) {
    if (state.FindWorker(entry.owner) == nullptr) orphans.push_back(region);
  }
  for (const ClusterState::Server& server : state.servers) {
    for (uint32_t i = 0; i < server.workers.size(); ++i) {
      alive.push_back({server.name, i});
      (void)ParseAddresses(server.workers[i].address);
    }
  }
  (void)ShareOut(state, orphans, alive, self);
  (void)ChooseTarget(state, self, random);
}

}  // namespace
}  // namespace cell

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cell;
  std::vector<std::string> texts(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      texts.emplace_back();
    } else {
      texts.back().push_back(static_cast<char>(data[i]));
    }
  }
  texts.resize(6);
  Random random(size);
  absl::StatusOr<ClusterState> state = EmbeddedMembership::ParseConfig(texts[1], "/d");
  if (!state.ok()) {
    state = ClusterState();
    state->servers = {{"a", {{"shm:///d/a", 2}}, ""}, {"b", {{"shm:///d/b", 2}}, ""}};
  }
  if (const absl::StatusOr<RegionTable> table = RegionTable::Parse(texts[0]); table.ok()) {
    const absl::StatusOr<RegionTable> again = RegionTable::Parse(table->ToJson());
    CELL_CHECK(again.ok() && *again == *table);
    state->table = *table;
    Change(*table, *state, &random);
    Place(*state, &random);
  }
  if (const absl::StatusOr<WorkerText> worker = ParseWorkerText(texts[2]); worker.ok()) {
    CELL_CHECK(ParseWorkerText(ToText(*worker)).ok());
  }
  if (const std::optional<WorkerId> id = ParseWorkerId(texts[3])) CELL_CHECK_EQ(ToString(*id), texts[3]);
  absl::StatusOr<RegionReport> report = ParseRegionReport(texts[4]);
  if (report.ok()) (void)ParseRoutes(texts[5], &report->tree);
  return 0;
}

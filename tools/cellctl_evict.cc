// cellctl: what is evicted when there is no room.
#include <string>

#include "cell/base/json.h"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"
#include "tools/pair_text.h"

namespace cell {
namespace {

int List(Client* client, const CtlFlags& flags) {
  const Client::EvictionInfo rules = client->Evictions();
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [prefix, rule] : rules.by_prefix) list.push_back({{"prefix", BytesAsJson(prefix)}, {"rule", rule}});
  for (const auto& [table, rule] : rules.by_table) list.push_back({{"table", table}, {"rule", rule}});
  if (flags.json()) {
    fmt::print("{}\n", JsonText(list));
    return kDone;
  }
  if (list.empty()) fmt::print("there are no rules: nothing is evicted\n");
  if (!rules.by_prefix.empty()) fmt::print("{:<12}  {}\n", "rule", "keys that begin with");
  for (const auto& [prefix, rule] : rules.by_prefix) fmt::print("{:<12}  {}\n", rule, EscapeText(prefix));
  if (!rules.by_table.empty()) fmt::print("{:<12}  {}\n", "rule", "table");
  for (const auto& [table, rule] : rules.by_table) fmt::print("{:<12}  {}\n", rule, table);
  return kDone;
}

}  // namespace

int Evict(Client* client, const CtlFlags& flags) {
  if (flags.evict.empty()) return List(client, flags);
  const auto control = AnyControl(client, flags, 0);
  const absl::Status status =
      control.ok() ? (*control)->SetEviction(flags.table, flags.prefix, flags.evict) : control.status();
  if (!status.ok()) return Fail(status);
  return List(client, flags);
}

}  // namespace cell

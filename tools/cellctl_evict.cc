// cellctl: what is evicted when there is no room.
#include <map>
#include <string>

#include "cell/base/json.h"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"
#include "tools/pair_text.h"

namespace cell {
namespace {

int List(Client* client, const CtlFlags& flags) {
  const std::map<std::string, std::string> rules = client->Evictions();
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [prefix, rule] : rules) list.push_back({{"prefix", EscapeText(prefix)}, {"rule", rule}});
  if (flags.json()) {
    fmt::print("{}\n", JsonText(list));
  } else if (rules.empty()) {
    fmt::print("there are no rules: nothing is evicted\n");
  } else {
    fmt::print("{:<12}  {}\n", "rule", "keys that begin with");
    for (const auto& [prefix, rule] : rules) fmt::print("{:<12}  {}\n", rule, EscapeText(prefix));
  }
  return kDone;
}

}  // namespace

int Evict(Client* client, const CtlFlags& flags) {
  if (flags.evict.empty()) return List(client, flags);
  const auto control = AnyControl(client, flags, 0);
  const absl::Status status = control.ok() ? (*control)->SetEviction(flags.prefix, flags.evict) : control.status();
  if (!status.ok()) return Fail(status);
  return List(client, flags);
}

}  // namespace cell

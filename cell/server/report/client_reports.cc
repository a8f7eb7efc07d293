#include "cell/server/report/client_reports.h"

#include <utility>

#include "cell/base/json.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr size_t kShown = 64;
constexpr size_t kShownBytes = 24 << 10;  // Together. The status, with everything else, must fit into a message.
constexpr size_t kBytesMax = 4096;

}  // namespace

absl::Status ClientReports::Set(ConnectionId client, std::string_view text) {
  const absl::StatusOr<nlohmann::json> json =
      text.size() > kBytesMax ? absl::InvalidArgumentError("the text is too long") : ParseJson(text);
  if (!json.ok() || !json->is_object()) {
    return absl::InvalidArgumentError("a client's report is too long or not a JSON object");
  }
  std::string shown = JsonText(*json);  // Numbers may be longer than they came.
  if (shown.size() > kBytesMax) return absl::InvalidArgumentError("a client's report is too long");
  // They are summed up in each status, which must not parse what all clients have reported.
  Counters counters{};
  for (size_t i = 0; i < counters.size(); ++i) counters[i] = JsonView(*json)[kCounters[i]].Or<uint64_t>(0);
  reports_[client] = {std::move(shown), counters};
  return absl::OkStatus();
}

void ClientReports::Forget(ConnectionId client) {
  const auto it = reports_.find(client);
  if (it == reports_.end()) return;
  AddCounters(it->second.counters, &departed_);
  reports_.erase(it);
}

void ClientReports::AddTo(nlohmann::json* status) const {
  nlohmann::json& clients = (*status)["clients"] = nlohmann::json::array();
  Counters others{};
  size_t bytes = 0;
  for (const auto& [id, report] : reports_) {
    bytes += report.text.size();
    if (clients.size() == kShown || bytes > kShownBytes) {
      AddCounters(report.counters, &others);
      continue;
    }
    clients.push_back(ParseJson(report.text).value_or(nlohmann::json::object()));  // It was parsed when it came.
    clients.back()["connection"] = id;
  }
  for (size_t i = 0; i < kCounters.size(); ++i) {
    (*status)["departed_clients"][kCounters[i]] = departed_[i];
    (*status)["other_clients"][kCounters[i]] = others[i];
  }
  (*status)["other_clients"]["clients"] = reports_.size() - clients.size();
}

void ClientReports::AddCounters(const Counters& counters, Counters* to) {
  for (size_t i = 0; i < to->size(); ++i) (*to)[i] += counters[i];
}

}  // namespace cell

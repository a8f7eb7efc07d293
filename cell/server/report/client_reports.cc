#include "cell/server/report/client_reports.h"

#include <utility>

#include "cell/base/json.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr size_t kShown = 64;
constexpr size_t kBytesMax = 4096;

}  // namespace

absl::Status ClientReports::Set(ConnectionId client, std::string_view text) {
  const absl::StatusOr<nlohmann::json> json =
      text.size() > kBytesMax ? absl::InvalidArgumentError("the text is too long") : ParseJson(text);
  if (!json.ok() || !json->is_object()) {
    return absl::InvalidArgumentError("a client's report is too long or not a JSON object");
  }
  reports_[client] = text;
  return absl::OkStatus();
}

void ClientReports::Forget(ConnectionId client) {
  const auto it = reports_.find(client);
  if (it == reports_.end()) return;
  const absl::StatusOr<nlohmann::json> report = ParseJson(it->second);
  for (size_t i = 0; report.ok() && i < departed_.size(); ++i) {
    departed_[i] += JsonView(*report)[kCounters[i]].Or<uint64_t>(0);
  }
  reports_.erase(it);
}

void ClientReports::AddTo(nlohmann::json* status) const {
  for (size_t i = 0; i < departed_.size(); ++i) (*status)["departed_clients"][kCounters[i]] = departed_[i];
  nlohmann::json& clients = (*status)["clients"] = nlohmann::json::array();
  for (const auto& [id, text] : reports_) {
    absl::StatusOr<nlohmann::json> report = ParseJson(text);
    if (!report.ok()) continue;  // It was parsed when it came.
    clients.push_back(*std::move(report));
    clients.back()["connection"] = id;
    if (clients.size() == kShown) break;
  }
}

}  // namespace cell

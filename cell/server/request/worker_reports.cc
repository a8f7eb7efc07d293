#include "cell/server/request/worker_reports.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "cell/layout/wire.h"
#include "cell/server/report/region_report.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

constexpr size_t kRegionsPerStatus = 60;  // This many fit into a message.

}  // namespace

WorkerReports::WorkerReports(const WorkerContext& context, std::string server)
    : fabric_(context.fabric),
      regions_(context.regions),
      status_(context.status),
      server_(std::move(server)),
      started_ns_(fabric_->NowNs()) {}

absl::StatusOr<size_t> WorkerReports::Status(std::string_view text, MutableBytes to) const {
  unsigned first = 0;
  if (!text.empty() && std::sscanf(std::string(text).c_str(), "%u", &first) != 1) {
    return absl::InvalidArgumentError("a status request must contain \"FIRST\" or nothing");
  }
  return WriteTextReply(to, MessageKind::kStatus, StatusJson(first, kRegionsPerStatus));
}

std::string WorkerReports::StatusJson(size_t first, size_t regions_max) const {
  nlohmann::json json;
  json["server"] = server_;
  json["uptime_seconds"] = static_cast<double>(fabric_->NowNs() - started_ns_) / 1e9;
  json["connections"] = fabric_->peers();
  json["regions_max"] = regions_->regions_max();
  json["regions_ready"] = regions_->free();
  const std::vector<HeldRegion*> held = regions_->all();
  json["regions_held"] = held.size();
  json["regions"] = nlohmann::json::array();
  for (size_t i = first; i < held.size() && i - first < regions_max; ++i) {
    json["regions"].push_back(RegionStatus(*held[i]));
  }
  clients_.AddTo(&json);
  status_->AddTo(&json);
  return JsonText(json);
}

absl::StatusOr<size_t> WorkerReports::Weigh(MutableBytes to) const {
  auto reply = ReplyOf<WeighReply>(MessageKind::kWeigh);
  reply.bytes_used = regions_->bytes_used();
  Store(to.data(), reply);
  return sizeof(reply);
}

absl::StatusOr<size_t> WorkerReports::Report(ConnectionId client, std::string_view text, MutableBytes to) {
  RETURN_IF_ERROR(clients_.Set(client, text));
  return WriteTextReply(to, MessageKind::kReport, "");
}

}  // namespace cell

#include "cell/client/check/cluster_check.h"

#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "cell/client/check/region_report.h"
#include "cell/tree/tree_report.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "pilaf/hash_layout.h"

namespace cell {
namespace {

constexpr int kChecksMax = 5;    // Of the cluster.
constexpr int kCheckTries = 10;  // Of one region.
constexpr int64_t kCheckPauseNs = 100'000'000;

Task<absl::StatusOr<std::string>> AskText(Session* session, WorkerConnection* worker, MessageKind kind,
                                          std::string text) {
  if (!worker->up) {
    absl::Status status = co_await session->connections()->Connect(worker);
    if (!status.ok())
      co_return absl::Status(status.code(),
                             fmt::format("{}: {}", worker->worker_id.server, std::string(status.message())));
  }
  const CallContext context = session->ContextOf({});
  const std::string request = MakeTextRequest(kind, text);
  const OutgoingCall call{.head = request, .reply_bytes_max = kMessageBytesMax, .deadline_ns = context.deadline_ns};
  const absl::StatusOr<ConstBytes> reply = co_await session->connections()->Call(worker, call);
  if (!reply.ok()) co_return reply.status();
  const absl::StatusOr<ConstBytes> answer = ParseBytesReply(*reply, kind);
  if (!answer.ok()) co_return answer.status();
  co_return std::string(AsText(*answer));
}

// Returns all pages of a worker's status as one.
Task<absl::StatusOr<std::string>> AskStatus(Session* session, WorkerConnection* worker) {
  nlohmann::json whole;
  for (size_t first = 0;;) {
    std::string ask = fmt::format("{}", first);
    const absl::StatusOr<std::string> text = co_await AskText(session, worker, MessageKind::kStatus, std::move(ask));
    if (!text.ok()) co_return text.status();
    absl::StatusOr<nlohmann::json> page = ParseJson(*text);
    if (!page.ok() || !JsonView(*page)["regions"].is_array() || first > Pointer::kRegionMax) {
      co_return absl::DataLossError(fmt::format("the status of {} is malformed", worker->worker_id.server));
    }
    nlohmann::json& regions = (*page)["regions"];
    const size_t listed = regions.size();
    first += listed;
    if (whole.is_null()) {
      whole = *std::move(page);
    } else {
      for (nlohmann::json& region : regions) whole["regions"].push_back(std::move(region));
    }
    if (listed == 0 || first >= JsonView(whole)["regions_held"].Or<uint64_t>(0)) co_return JsonText(whole);
  }
}

// Returns the report of a region's owner. Returns FailedPrecondition if the region is not part of the tree yet, and
// NotFound if the owner in the newest table does not hold it, or if it is gone from that table.
Task<absl::StatusOr<std::string>> AskCheck(Session* session, uint32_t region, std::string ask) {
  for (int tries = 1;; ++tries) {
    if (session->view()->cluster().table.Find(region) == nullptr) {
      co_return absl::NotFoundError(fmt::format("region {} is gone", region));
    }
    const absl::StatusOr<WorkerConnection*> worker = co_await session->view()->Connect(region);
    if (!worker.ok()) co_return worker.status();
    std::string text = ask;
    absl::StatusOr<std::string> report = co_await AskText(session, *worker, MessageKind::kCheck, std::move(text));
    // The region may have just moved, or is being joined.
    const bool passing = absl::IsNotFound(report.status()) || absl::IsAborted(report.status());
    if (!passing || tries == kCheckTries) co_return report;
    co_await session->loop()->SleepUntil(session->NowNs() + kCheckPauseNs);
    co_await session->view()->Refresh(session->NowNs() + kCheckPauseNs);
  }
}

// Compares the parts of each table with the region table. `ranges` holds the regions' own ranges.
void CheckParts(const RegionTable& table, const std::map<uint32_t, HashRange>& ranges,
                std::vector<std::string>* errors) {
  for (const auto& [name, hash_parts] : table.tables) {
    for (auto part = hash_parts.parts.begin(); part != hash_parts.parts.end(); ++part) {
      const auto next = std::next(part);
      const HashRange expected{part->first, next == hash_parts.parts.end() ? UINT32_MAX : next->first - 1};
      const auto range = ranges.find(part->second);
      if (range != ranges.end() && range->second != expected) {
        errors->push_back(fmt::format(
            "table {}: region {} has hashes {:#010x} to {:#010x}, but the region table says {:#010x} to {:#010x}", name,
            part->second, range->second.first, range->second.last, expected.first, expected.last));
      }
    }
  }
}

absl::StatusOr<Client::ClusterCheck> CheckOnce(Session* session) {
  Client::ClusterCheck check;
  std::vector<TreeReport> reports;
  std::map<uint32_t, HashRange> ranges;
  const RegionMap regions = session->view()->cluster().table.regions;
  for (const auto& [region, entry] : regions) {
    const absl::StatusOr<std::string> text = session->Run(AskCheck(session, region, fmt::format("{}", region)));
    if (text.status().code() == absl::StatusCode::kFailedPrecondition) continue;
    if (text.status().code() == absl::StatusCode::kNotFound) {
      check.errors.push_back(std::string(text.status().message()));
      continue;
    }
    if (!text.ok()) return text.status();
    const auto nonsense = [region = region](const absl::Status& status) {
      return absl::DataLossError(
          fmt::format("the report of region {} is malformed: {}", region, std::string(status.message())));
    };
    absl::StatusOr<RegionReport> report = ParseRegionReport(*text);
    if (!report.ok()) return nonsense(report.status());
    for (const std::string& error : report->errors) {
      check.errors.push_back(report->hash.has_value() ? error : fmt::format("region {}: {}", region, error));
    }
    check.regions_json.push_back(*text);
    if (report->hash.has_value()) {
      ranges[region] = *report->hash;
      check.table_keys += report->tree.keys;
      continue;
    }
    while (report->tree.routes.size() < report->routes) {
      const std::string ask = fmt::format("{} {}", region, report->tree.routes.size());
      ASSIGN_OR_RETURN(const std::string part, session->Run(AskCheck(session, region, ask)));
      const absl::StatusOr<size_t> listed = ParseRoutes(part, &report->tree);
      if (!listed.ok()) return nonsense(listed.status());
      if (*listed == 0) break;  // There are fewer routes by now.
    }
    reports.push_back(std::move(report->tree));
  }
  CheckParts(session->view()->cluster().table, ranges, &check.errors);
  const ClusterReport between = CheckNeighbours(reports);
  check.errors.insert(check.errors.end(), between.errors.begin(), between.errors.end());
  check.keys = between.keys;
  check.missing_routes = between.missing_routes;
  return check;
}

}  // namespace

std::vector<absl::StatusOr<std::string>> StatusOfAll(Session* session) {
  std::vector<absl::StatusOr<std::string>> texts;
  for (WorkerConnection* const worker : session->view()->AllWorkers()) {
    texts.push_back(session->Run(AskStatus(session, worker)));
  }
  return texts;
}

absl::StatusOr<Client::ClusterCheck> CheckCluster(Session* session) {
  const auto version = [session] {
    session->Run(session->view()->Refresh(session->ContextOf({}).deadline_ns));
    return session->view()->cluster().table.version;
  };
  // Regions that are split or joined meanwhile may be seen in states that do not match. If that goes on, only what each
  // check has found counts.
  std::optional<std::set<std::string>> always;
  for (int checks = 1;; ++checks) {
    const uint64_t before = version();
    absl::StatusOr<Client::ClusterCheck> check = CheckOnce(session);
    const bool wrong = !check.ok() || !check->errors.empty();
    if (!wrong || version() == before) return check;
    if (check.ok()) {
      if (always.has_value()) std::erase_if(check->errors, [&](const auto& error) { return !always->contains(error); });
      always.emplace(check->errors.begin(), check->errors.end());
    }
    if (checks == kChecksMax) return check;
  }
}

}  // namespace cell

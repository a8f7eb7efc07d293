// WorkerReports serves requests about the worker itself: its status (kStatus), the bytes that it holds
// (kWeigh), and what a client reports about itself for the status (kReport).
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/io/fabric/fabric.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/regions.h"
#include "cell/server/report/client_reports.h"
#include "cell/server/report/status_report.h"

namespace cell {

class WorkerReports {
 public:
  // All arguments must outlive this. `server` is the name of the server.
  WorkerReports(const WorkerContext& context, std::string server);

  // These write a reply to `to` and return its size. `text` is what follows the request's header.
  //
  // Status: "FIRST", or nothing for 0. The reply lists the regions from number FIRST on, as many as are sure to fit
  // into a message.
  absl::StatusOr<size_t> Status(std::string_view text, MutableBytes to) const;
  absl::StatusOr<size_t> Weigh(MutableBytes to) const;
  absl::StatusOr<size_t> Report(ConnectionId client, std::string_view text, MutableBytes to);

  // Forgets a client whose connection has ended.
  void Disconnected(ConnectionId client) { clients_.Forget(client); }

  // Returns the worker's state and statistics, with at most `regions_max` of its regions, starting with number `first`.
  std::string StatusJson(size_t first, size_t regions_max) const;

 private:
  Fabric* const fabric_;
  Regions* const regions_;
  const StatusReport* const status_;
  const std::string server_;
  const int64_t started_ns_;
  ClientReports clients_;
};

}  // namespace cell

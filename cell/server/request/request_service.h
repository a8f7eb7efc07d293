// RequestService serves the calls that a worker's fabric delivers. It parses each request once and passes it on:
// lookups to Lookups, puts and deletes to WritePipeline, steps of migrations to a MigrationHandler.
//
// Everything except writes is answered before Serve returns. Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"
#include "cell/server/context/worker_context.h"
#include "cell/server/region/regions.h"
#include "cell/server/report/client_reports.h"
#include "cell/server/report/status_report.h"
#include "cell/server/request/lookups.h"
#include "cell/server/request/migration_handler.h"
#include "cell/server/request/replies.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/uploads.h"
#include "cell/server/request/value_copies.h"
#include "cell/server/request/write_pipeline.h"

namespace cell {

class RequestService : public Service {
 public:
  struct Options {
    std::string name;                     // Name of the server, for its status.
    bool batching = true;                 // If off, each search runs by itself, to measure the gain of batching.
    int64_t held_max_ns = 1'000'000'000;  // How long a write waits until its region has room, or has migrated.
    Uploads::Limits uploads = {};
  };

  // Serve the requests that this class does not serve itself.
  struct Handlers {
    MigrationHandler* migrations = nullptr;  // Null if regions never migrate.
    RoomMaker* room = nullptr;               // Null if regions are never split.
  };

  // All arguments must outlive this.
  RequestService(const WorkerContext& context, ServedRegions* served, HeldWrites* held, Handlers handlers,
                 Options options);

  void Serve(absl::Span<const IncomingCall> calls) override;
  void Disconnected(ConnectionId peer) override;
  // Drops what has expired.
  void Step();

  // Returns the pipeline of writes. The worker calls its RetryHeld and ApplyDurable in each Poll, after everything that
  // may have made room. Nobody else may call them, because they compose replies, and another reply may be half
  // composed.
  WritePipeline* writes() { return &writes_; }
  const WritePipeline& writes() const { return writes_; }
  const Uploads& uploads() const { return uploads_; }

  // Returns the worker's state and statistics, with at most `regions_max` of its regions, starting with number `first`.
  std::string StatusJson(size_t first, size_t regions_max) const;

 private:
  static constexpr size_t kCopyBytesMax = size_t{256} << 20;

  void Parse(const IncomingCall& call, BatchedRequest* request) const;
  void ServeOne(const BatchedRequest& request);
  // These write a reply to `to` and return its size.
  absl::StatusOr<size_t> ServeInPlace(MessageKind kind, const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Scan(ConstBytes request, MutableBytes to);
  absl::StatusOr<size_t> Fetch(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Upload(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Weigh(MutableBytes to) const;
  absl::StatusOr<size_t> Report(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Status(std::string_view text, MutableBytes to) const;
  absl::StatusOr<size_t> Check(std::string_view text, MutableBytes to);

  Fabric* const fabric_;
  const Options options_;
  const int64_t started_ns_;
  Regions* const regions_;
  const StatusReport* const status_;
  const Handlers handlers_;
  ServedRegions* const served_;
  Replies replies_;
  Uploads uploads_;
  ValueCopies copies_{kCopyBytesMax};
  Lookups lookups_;
  WritePipeline writes_;
  ClientReports clients_;
  uint64_t batches_ = 0;
  std::vector<BatchedRequest> batch_;  // Requests that are being served.
};

}  // namespace cell

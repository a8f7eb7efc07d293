// RequestService: what a worker does with the calls that its fabric hands it. It parses each request once, and gives it
// to who serves it: lookups to Lookups, puts and deletes to WritePipeline, steps of migrations to a MigrationHandler.
//
// Everything but a write is answered before Serve returns. One thread: the worker's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"
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
#include "cell/server/worker_context.h"

namespace cell {

class RequestService : public Service {
 public:
  struct Options {
    std::string name;      // Of the server, for its status.
    bool batching = true;  // Off: each search by itself, to measure what batching gains.
    int64_t held_max_ns = 1'000'000'000;  // How long a write waits for its region to have room, or to have moved.
    Uploads::Limits uploads = {};
  };

  // What serves what it does not serve by itself.
  struct Handlers {
    MigrationHandler* migrations = nullptr;  // Null where no region ever moves.
    RoomMaker* room = nullptr;               // Null where none is ever split.
  };

  // All must outlive this.
  RequestService(const WorkerContext& context, ServedRegions* served, HeldWrites* held, Handlers handlers,
                 Options options);

  void Serve(absl::Span<const IncomingCall> calls) override;
  void Disconnected(ConnectionId peer) override;
  // Looks for what has expired.
  void Step();

  // The writes that wait. The worker calls their RetryHeld and ApplyDurable with each Poll, after all that may have
  // made room; nobody else does, since they compose replies, and another may be half composed.
  WritePipeline* writes() { return &writes_; }
  const WritePipeline& writes() const { return writes_; }
  const Uploads& uploads() const { return uploads_; }

  // Returns the worker's state and statistics, with at most `regions_max` of its regions, from the `first` on.
  std::string StatusJson(size_t first, size_t regions_max) const;

 private:
  static constexpr size_t kCopyBytesMax = size_t{256} << 20;

  void Parse(const IncomingCall& call, BatchedRequest* request) const;
  void ServeOne(const BatchedRequest& request);
  // These write a reply to `to`, and return its size.
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
  std::vector<BatchedRequest> batch_;  // What is being served.
};

}  // namespace cell

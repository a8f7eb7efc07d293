// RequestService: what a worker does with the calls that its fabric hands it. It parses each request once, and gives it
// to who serves it: lookups to Lookups, puts and deletes to WritePipeline, steps of migrations to a MigrationHandler.
//
// Everything but a write is answered before Serve returns. One thread: the worker's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cell/cluster/membership.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"
#include "cell/server/region/regions.h"
#include "cell/server/request/lookups.h"
#include "cell/server/request/migration_handler.h"
#include "cell/server/request/replies.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/uploads.h"
#include "cell/server/request/value_copies.h"
#include "cell/server/request/write_pipeline.h"
#include "nlohmann/json_fwd.hpp"

namespace cell {

class RequestService : public Service {
 public:
  struct Options {
    std::string name;      // Of the server, for its status.
    bool batching = true;  // Off: each search by itself, to measure what batching gains.
    int64_t held_max_ns = 1'000'000'000;  // How long a write waits for its region to have room, or to have moved.
    Uploads::Limits uploads = {};
  };

  // All must outlive this. `migrations` is null where no region ever moves. `membership`: whose lease regions need that
  // have a log.
  RequestService(Fabric* fabric, Regions* regions, const Membership* membership, MigrationHandler* migrations,
                 Options options);

  void Serve(absl::Span<const IncomingCall> calls) override;
  void Disconnected(ConnectionId peer) override;
  // Looks for what has expired.
  void Step();

  // Answers a request between servers, of this worker to itself.
  std::string AnswerPeer(ConstBytes request);

  // The writes that wait. The worker calls their RetryHeld and ApplyDurable with each Poll, after all that may have
  // made room; nobody else does, since they compose replies, and another may be half composed.
  WritePipeline* writes() { return &writes_; }
  const WritePipeline& writes() const { return writes_; }
  const Uploads& uploads() const { return uploads_; }

  // Returns the worker's state and statistics, with at most `regions_max` of its regions, from the `first` on.
  std::string StatusJson(size_t first, size_t regions_max) const;
  // What the steward adds to the status.
  void set_more_status(std::function<void(nlohmann::json*)> more_status) { more_status_ = std::move(more_status); }
  // Called before a check, so that what is being freed is freed.
  void set_before_check(std::function<void()> before_check) { before_check_ = std::move(before_check); }

 private:
  // What clients told of themselves (kReport), summed up.
  static constexpr std::array kClientCounters = {"operations",  "server_path",    "client_path",
                                                 "retries",     "lookups",        "lookup_reads",
                                                 "lookup_torn", "lookup_extents", "lookup_moved"};
  using ClientTotals = std::array<uint64_t, kClientCounters.size()>;

  static constexpr size_t kCopyBytesMax = size_t{256} << 20;

  void Parse(const IncomingCall& call, BatchedRequest* request) const;
  void ServeOne(const BatchedRequest& request);
  // These write a reply to `to`, and return its size.
  absl::StatusOr<size_t> ServeInPlace(MessageKind kind, const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Scan(ConstBytes request, MutableBytes to);
  absl::StatusOr<size_t> Fetch(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Upload(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> AddRoute(ConstBytes request, MutableBytes to);
  absl::StatusOr<size_t> Weigh(MutableBytes to) const;
  void ForgetReport(ConnectionId peer);
  absl::StatusOr<size_t> Report(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Status(std::string_view text, MutableBytes to) const;
  absl::StatusOr<size_t> Check(std::string_view text, MutableBytes to);

  Fabric* const fabric_;
  const Options options_;
  const int64_t started_ns_;
  Regions* const regions_;
  MigrationHandler* const migrations_;
  std::function<void(nlohmann::json*)> more_status_;
  std::function<void()> before_check_;
  ServedRegions served_;
  Replies replies_;
  Uploads uploads_;
  ValueCopies copies_{kCopyBytesMax};
  Lookups lookups_;
  WritePipeline writes_;
  std::map<ConnectionId, std::string> reports_;  // JSON, checked.
  ClientTotals departed_{};
  uint64_t batches_ = 0;
  std::vector<BatchedRequest> batch_;  // What is being served.
};

}  // namespace cell

// Snapshot is what the tree, or a range of it, had at one moment. It can be read for some minutes, while writers go on.
//
//   absl::StatusOr<cell::Snapshot> snapshot = client->TakeSnapshot({.from = "account/", .to = "account0"});
//   cell::Scan scan = snapshot->NewScan({});     // all accounts of that moment, whichever servers have them
//   auto value = snapshot->Get("account/a");     // of the same moment
//
// The moment is between the beginning and the end of Client::TakeSnapshot. All that was written before it is there, and
// nothing that was written afterwards. A transaction is there as a whole, or not at all. A pair that expired while the
// snapshot was taken may be there or not; one that expires later stays. Tables take no part.
//
// Servers keep what changes after the moment, in memory (256 MB a worker, `cell_server --snapshot-bytes`). A read
// returns an error that IsSnapshotTooOld if its part of the snapshot is gone: its time is over; too much has changed,
// and it kept most; or its region was moved, or taken over by another server. It never returns anything that is not of
// the moment. Reads are served by calls, on whatever path the client is.
//
// Not thread-safe, like Client. A snapshot must not outlive its client, nor may a finished task that holds one. It must
// not be moved or destroyed while one of its tasks runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cell/base/task.h"
#include "cell/client/client.h"

namespace cell {

struct SnapshotOptions {
  std::string from = {};               // Inclusive; empty: the first key.
  std::optional<std::string> to = {};  // Exclusive; nullopt: to the end.
  // How long servers keep it: from 0.2 s to an hour.
  int64_t keep_us = 600'000'000;
  CallOptions call = {};  // Of TakeSnapshot.
};

class Snapshot {
 public:
  Snapshot(Snapshot&&) noexcept;
  Snapshot& operator=(Snapshot&&) noexcept;
  ~Snapshot();  // Tells the servers that it is not needed any more, in the background, while the client lives.

  // Tells the servers that it is not needed any more, and waits for their answers. Returns whether all have come within
  // a second. For a program that ends: servers whom nobody tells keep it for all of its time. Later reads of it return
  // an error that IsSnapshotTooOld.
  bool Forget();

  // Return what the snapshot has, as those of Client do. Return OutOfRange for a key that is not in its range.
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key, const CallOptions& options = {});
  absl::StatusOr<std::vector<std::optional<std::string>>> MultiGet(absl::Span<const std::string_view> keys,
                                                                   const CallOptions& options = {});
  // Scans what the snapshot has of a range.
  Scan NewScan(ScanOptions options);

  Task<absl::StatusOr<std::optional<std::string>>> AsyncGet(std::string_view key, CallOptions options = {});
  Task<bool> AsyncForget();

 private:
  friend class Client;  // Client::TakeSnapshot makes them.
  struct State;
  explicit Snapshot(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace cell

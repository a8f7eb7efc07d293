// LargeValues serves kUpload and kFetch, by which clients send and fetch values that do not fit into one message. It
// holds the uploads, which puts use (WritePipeline), and the copies of values, which gets make (Lookups).
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/io/fabric/fabric.h"
#include "cell/server/request/held_writes.h"
#include "cell/server/request/served_regions.h"
#include "cell/server/request/uploads.h"
#include "cell/server/request/value_copies.h"

namespace cell {

class LargeValues {
 public:
  // All arguments must outlive this. `server` is the name of the server, for errors.
  LargeValues(const Clock* clock, const ServedRegions* served, HeldWrites* held, std::string server,
              Uploads::Limits limits);

  // These write a reply to `to` and return its size.
  absl::StatusOr<size_t> Fetch(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Upload(const IncomingCall& call, MutableBytes to);

  // Drops uploads that have expired.
  void Step();
  // Drops what belongs to a peer whose connection has ended.
  void Disconnected(ConnectionId peer);

  // Returns how many empty pieces were uploaded. Only the benchmark of raw calls sends them.
  uint64_t empty_uploads() const { return empty_uploads_; }
  Uploads* uploads() { return &uploads_; }
  const Uploads* uploads() const { return &uploads_; }
  ValueCopies* copies() { return &copies_; }

 private:
  static constexpr size_t kCopyBytesMax = size_t{256} << 20;

  const Clock* const clock_;
  const ServedRegions* const served_;
  HeldWrites* const held_;
  const std::string server_;
  Uploads uploads_;
  uint64_t empty_uploads_ = 0;
  ValueCopies copies_{kCopyBytesMax};
};

}  // namespace cell

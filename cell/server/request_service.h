// RequestService: what a worker does with the calls that its fabric hands it.
//
// Searches and gets that arrive together are walked together, so that their cache misses overlap (Meganode::FindBatch).
// Everything is answered before Serve returns. One thread: the worker's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cell/io/fabric.h"
#include "cell/layout/wire.h"
#include "cell/tree/meganode.h"

namespace cell {

class RequestService : public Service {
 public:
  struct Options {
    std::string name;      // Of the server, for its status.
    bool batching = true;  // Off: each search by itself, to measure what batching gains.
  };

  // Everything must outlive this. `memory` is formatted.
  RequestService(Fabric* fabric, std::vector<RegionMemory*> memory, Options options);

  void Serve(absl::Span<const IncomingCall> calls) override;
  void Disconnected(ConnectionId peer) override;

  const Meganode& meganode(size_t i) const { return regions_[i]->meganode; }

 private:
  struct Region {
    explicit Region(RegionMemory* memory) : memory(memory), meganode(memory) {}
    RegionMemory* memory;
    Meganode meganode;
  };
  struct Peer {
    std::array<std::string, kUploadsMax> uploads;
    std::string report;  // JSON, checked.
  };
  // What clients told of themselves (kReport), summed up.
  struct ClientTotals {
    uint64_t operations = 0, server_path = 0, client_path = 0, retries = 0;
  };
  // The uploads of all peers together: beyond it puts of large values must wait.
  static constexpr size_t kUploadBytesMax = size_t{256} << 20;

  absl::StatusOr<Meganode*> Find(Pointer root);
  void ServeLookups(absl::Span<const IncomingCall> calls);
  void ServeOne(const IncomingCall& call);

  absl::StatusOr<size_t> Put(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Delete(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Scan(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Fetch(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Upload(const IncomingCall& call, MutableBytes to);
  absl::StatusOr<size_t> Report(const IncomingCall& call, MutableBytes to);
  std::string StatusJson() const;
  std::string CheckJson() const;

  void AnswerLookup(const IncomingCall& call, MessageKind kind, const Meganode& tree, const Meganode::Lookup& lookup);
  void AnswerError(const IncomingCall& call, MessageKind kind, const absl::Status& status);

  Fabric* fabric_;
  const Options options_;
  const int64_t started_ns_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::map<ConnectionId, Peer> peers_;
  size_t upload_bytes_ = 0;
  ClientTotals departed_;
  std::array<uint64_t, 16> served_{};  // By MessageKind.
  uint64_t refused_ = 0;               // Answered with an error.
  uint64_t batches_ = 0;

  // Of the lookups being served.
  std::vector<Meganode::Lookup> lookups_;
  std::vector<const IncomingCall*> lookup_calls_;
};

}  // namespace cell

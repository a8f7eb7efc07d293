// FileLogHost and ObjectLogHost are the log stores of simulated servers. A server's store has its files, or its view of
// the pool of objects, which live as long as the store does.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "cell/base/mutant.h"
#include "cell/io/sim/sim_files.h"
#include "cell/io/sim/sim_object_store.h"
#include "cell/log/object_log_store.h"
#include "tests/later_release_store.h"

namespace cell {

// Lacks one of the protections of a log: kSyncedTooEarly or kNoFence.
class BadWriter : public LogWriter {
 public:
  BadWriter(std::unique_ptr<LogWriter> writer, Mutant mutant) : writer_(std::move(writer)), mutant_(mutant) {}
  absl::Status Append(std::string_view bytes) override { return writer_->Append(bytes); }
  absl::Status Sync() override {
    if (mutant_ == Mutant::kSyncedTooEarly) return absl::OkStatus();
    const absl::Status status = writer_->Sync();
    return absl::IsAborted(status) ? absl::OkStatus() : status;
  }
  // Returns `writer`, or a bad one in its place if the mutant wants that.
  static absl::StatusOr<std::unique_ptr<LogWriter>> InPlaceOf(absl::StatusOr<std::unique_ptr<LogWriter>> writer,
                                                              Mutant mutant) {
    if (!writer.ok() || (mutant != Mutant::kNoFence && mutant != Mutant::kSyncedTooEarly)) return writer;
    return std::make_unique<BadWriter>(*std::move(writer), mutant);
  }

 private:
  const std::unique_ptr<LogWriter> writer_;
  const Mutant mutant_;
};

class FileLogHost : public LaterReleaseStore {
 public:
  FileLogHost(std::shared_ptr<SimFiles> files, bool later, Mutant mutant)
      : LaterReleaseStore(files.get(), "log", later), files_(std::move(files)), mutant_(mutant) {}
  absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                  std::string_view first) override {
    return BadWriter::InPlaceOf(LaterReleaseStore::Open(region, epoch, sequence, first), mutant_);
  }

 private:
  const std::shared_ptr<SimFiles> files_;
  const Mutant mutant_;
};

class ObjectLogHost : public ObjectLogStore {
 public:
  ObjectLogHost(std::shared_ptr<SimObjectStore> objects, Options options, Mutant mutant)
      : ObjectLogStore(objects.get(), std::move(options)), objects_(std::move(objects)), mutant_(mutant) {}
  absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                  std::string_view first) override {
    return BadWriter::InPlaceOf(ObjectLogStore::Open(region, epoch, sequence, first), mutant_);
  }

 private:
  const std::shared_ptr<SimObjectStore> objects_;
  const Mutant mutant_;
};

}  // namespace cell

// DirectoryLogStore keeps logs as files of a directory, on a local disk or on a file system that all servers share.
//
//   DIR/region-7/0000000000000001.00000002.log          the segment of epoch 2 that begins with record 1
//   DIR/region-7/00000000000004d2.00000002.checkpoint   makes up the region, together with the log from record 1234 on
//   DIR/region-7/00000003.fence                         no Sync of an epoch below 3 succeeds
//   DIR/region-7/00000000000004d2.00000002.unfinished   becomes one of the first two when it is complete
//
// A server creates a fence before it reads anything. A writer looks for fences after it has synced its data. Either it
// sees the fence and fails, or it looked before the fence existed, and then the server that made the fence reads that
// data. This requires a file system on which all servers see a file once its creation has returned (a local one, NFSv4
// with `noac`, Ceph, Lustre).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cell/io/file/files.h"
#include "cell/log/log_store.h"

namespace cell {

class DirectoryLogStore : public LogStore {
 public:
  // `files` must outlive this.
  DirectoryLogStore(Files* files, std::string directory) : files_(files), directory_(std::move(directory)) {}

  absl::StatusOr<bool> Has(uint32_t region) override;
  absl::StatusOr<uint32_t> LastEpoch(uint32_t region) override;
  absl::Status Fence(uint32_t region, uint32_t epoch) override;
  using LogStore::Open;
  absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                  std::string_view first) override;
  absl::StatusOr<std::unique_ptr<LogWriter>> BeginCheckpoint(uint32_t region, uint32_t epoch,
                                                             uint64_t sequence) override;
  absl::Status CommitCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) override;
  absl::Status DiscardCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) override;
  absl::Status NoteEnd(uint32_t region, uint32_t epoch, uint64_t sequence) override;
  absl::StatusOr<uint64_t> NotedEnd(uint32_t region, uint64_t first_epoch) override;
  absl::StatusOr<std::vector<LogPart>> List(uint32_t region) override;
  absl::StatusOr<size_t> Read(uint32_t region, const LogPart& part, uint64_t offset, MutableBytes to) override;
  absl::StatusOr<uint64_t> Size(uint32_t region, const LogPart& part) override;
  absl::Status Trim(uint32_t region, uint32_t epoch, uint64_t sequence) override;
  absl::StatusOr<std::vector<uint32_t>> Regions() override;
  absl::Status Remove(uint32_t region, uint32_t last_epoch) override;
  absl::Status RemoveAll() override;
  absl::Status Probe(uint32_t region) override;

 private:
  class Writer;

  std::string PathOf(uint32_t region) const;
  // Begins a file that readers do not see yet. Removes the file of an earlier attempt.
  absl::StatusOr<std::unique_ptr<File>> Begin(const std::string& path);
  // Removes unfinished files that were begun before `sequence` of `epoch`.
  absl::Status RemoveUnfinished(uint32_t region, uint32_t epoch, uint64_t sequence);
  // Checks for fences. Returns Aborted if there is one of a higher epoch. Returns NotFound if there is none of this
  // epoch either, because the log was removed.
  static absl::Status CheckFence(Directory* directory, uint32_t region, uint32_t epoch);

  Files* const files_;
  const std::string directory_;
};

}  // namespace cell

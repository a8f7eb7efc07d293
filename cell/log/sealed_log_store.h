// SealedLogStore is a LogStore whose files are encrypted (record_cipher.h). It seals what is written, on the thread
// that writes, and gives out what is read as it is: who reads records opens them with its keys.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cell/log/data_keys.h"
#include "cell/log/log_store.h"

namespace cell {

class SealedLogStore : public LogStore {
 public:
  SealedLogStore(std::shared_ptr<LogStore> store, std::shared_ptr<KeySource> keys)
      : store_(std::move(store)), keys_(std::move(keys)) {}

  KeySource* keys() override { return keys_.get(); }
  using LogStore::Open;
  absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                  std::string_view first) override;
  absl::StatusOr<std::unique_ptr<LogWriter>> BeginCheckpoint(uint32_t region, uint32_t epoch,
                                                             uint64_t sequence) override;

  absl::StatusOr<bool> Has(uint32_t region) override { return store_->Has(region); }
  absl::StatusOr<uint32_t> LastEpoch(uint32_t region) override { return store_->LastEpoch(region); }
  absl::Status Fence(uint32_t region, uint32_t epoch) override { return store_->Fence(region, epoch); }
  absl::Status CommitCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) override {
    return store_->CommitCheckpoint(region, epoch, sequence);
  }
  absl::Status DiscardCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) override {
    return store_->DiscardCheckpoint(region, epoch, sequence);
  }
  absl::Status NoteEnd(uint32_t region, uint32_t epoch, uint64_t sequence) override {
    return store_->NoteEnd(region, epoch, sequence);
  }
  absl::StatusOr<uint64_t> NotedEnd(uint32_t region, uint64_t first_epoch) override {
    return store_->NotedEnd(region, first_epoch);
  }
  absl::StatusOr<std::vector<LogPart>> List(uint32_t region) override { return store_->List(region); }
  absl::StatusOr<size_t> Read(uint32_t region, const LogPart& part, uint64_t offset, MutableBytes to) override {
    return store_->Read(region, part, offset, to);
  }
  absl::StatusOr<uint64_t> Size(uint32_t region, const LogPart& part) override { return store_->Size(region, part); }
  absl::Status Trim(uint32_t region, uint32_t epoch, uint64_t sequence) override {
    return store_->Trim(region, epoch, sequence);
  }
  absl::StatusOr<std::vector<uint32_t>> Regions() override { return store_->Regions(); }
  absl::Status Remove(uint32_t region, uint32_t last_epoch) override { return store_->Remove(region, last_epoch); }
  absl::Status RemoveAll() override { return store_->RemoveAll(); }
  absl::Status Probe(uint32_t region) override { return store_->Probe(region); }

 private:
  class Writer;

  const std::shared_ptr<LogStore> store_;
  const std::shared_ptr<KeySource> keys_;
};

}  // namespace cell

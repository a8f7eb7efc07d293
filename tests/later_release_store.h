// LaterReleaseStore writes and reads logs like a later release if it is `later`: it gives their files the number of the
// next format, and reads both. So a simulated server that is rolled back finds files that it does not know.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/layout/log_record.h"
#include "cell/log/directory_log_store.h"

namespace cell {

class LaterReleaseStore : public DirectoryLogStore {
 public:
  LaterReleaseStore(Files* files, std::string root, bool later)
      : DirectoryLogStore(files, std::move(root)), later_(later) {}

  absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                  std::string_view first) override {
    return Wrap(region,
                DirectoryLogStore::Open(region, epoch, sequence, later_ ? Later(region, first) : std::string(first)));
  }
  absl::StatusOr<std::unique_ptr<LogWriter>> BeginCheckpoint(uint32_t region, uint32_t epoch,
                                                             uint64_t sequence) override {
    return Wrap(region, DirectoryLogStore::BeginCheckpoint(region, epoch, sequence));
  }
  absl::StatusOr<size_t> Read(uint32_t region, const LogPart& part, uint64_t offset, MutableBytes to) override {
    ASSIGN_OR_RETURN(const size_t bytes, DirectoryLogStore::Read(region, part, offset, to));
    if (later_ && offset == 0) {
      const std::string begin = WithFormat(region, AsText({to.data(), bytes}), kSealedLogFormat + 1, kLogFormat);
      std::memcpy(to.data(), begin.data(), begin.size());
    }
    return bytes;
  }

 private:
  struct Writer : LogWriter {
    Writer(uint32_t region, std::unique_ptr<LogWriter> writer) : region(region), writer(std::move(writer)) {}
    absl::Status Append(std::string_view bytes) override { return writer->Append(Later(region, bytes)); }
    absl::Status Sync() override { return writer->Sync(); }
    const uint32_t region;
    const std::unique_ptr<LogWriter> writer;
  };

  // Returns the beginning of `bytes`, a file's first record, with the format `to`. Returns "" if it is not one of
  // format `from`.
  static std::string WithFormat(uint32_t region, std::string_view bytes, uint32_t from, uint32_t to) {
    const std::optional<LogRecord> record = ParseFrame(bytes, region);
    if (!record.has_value() || record->kind != RecordKind::kBegin) return "";
    auto begin = Load<SegmentBegin>(AsBytes(record->value).data());
    if (begin.format != from) return "";
    begin.format = to;
    std::string made;
    const auto unsynced = static_cast<uint32_t>(record->sequence - 1 - record->synced);
    AppendRecord({region, record->epoch, record->sequence, unsynced}, RecordKind::kBegin, record->key,
                 std::string_view(reinterpret_cast<const char*>(&begin), sizeof(begin)), {}, &made);
    return made;
  }
  static std::string Later(uint32_t region, std::string_view bytes) {
    const std::string begin = WithFormat(region, bytes, kLogFormat, kSealedLogFormat + 1);
    return begin + std::string(bytes.substr(begin.size()));
  }
  absl::StatusOr<std::unique_ptr<LogWriter>> Wrap(uint32_t region,
                                                  absl::StatusOr<std::unique_ptr<LogWriter>> writer) const {
    if (!writer.ok() || !later_) return writer;
    return std::make_unique<Writer>(region, *std::move(writer));
  }

  const bool later_;
};

}  // namespace cell

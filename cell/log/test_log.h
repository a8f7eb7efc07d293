// Writes a region's log to a simulated disk and replays it, for tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "cell/base/status_macros.h"
#include "cell/io/sim/sim_files.h"
#include "cell/log/directory_log_store.h"
#include "cell/log/log_replay.h"
#include "cell/log/region_log.h"
#include "fmt/format.h"

namespace cell {

inline constexpr uint32_t kRegion = 7;
// Values by key. A pair with an expiry has it behind its value: "value@7".
using Model = std::map<std::string, std::string>;

inline std::string InModel(std::string_view value, Expiry expiry) {
  return expiry == kNeverExpires ? std::string(value) : fmt::format("{}@{}", value, expiry);
}

// Writes a region's log and remembers the meaning of each of its prefixes.
class Owner {
 public:
  Owner(LogStore* store, uint32_t epoch) : store_(store), epoch_(epoch) {}

  absl::Status Open(uint64_t sequence) {
    ASSIGN_OR_RETURN(auto writer, store_->Open(kRegion, epoch_, sequence));
    log_ = std::make_unique<RegionLog>(kRegion, epoch_, sequence, std::move(writer));
    states_[sequence] = model_;
    return absl::OkStatus();
  }
  // Opens the log as the next owner, after it was read.
  absl::Status GoOn(const LogReplay& replay) {
    const LogReplay::Rest rest = replay.RestFor(epoch_);
    ASSIGN_OR_RETURN(auto writer, store_->Open(kRegion, epoch_, rest.sequence, rest.bytes));
    log_ = std::make_unique<RegionLog>(kRegion, epoch_, rest.next_sequence, std::move(writer), /*begun=*/true);
    states_[rest.next_sequence - 1] = model_;
    return absl::OkStatus();
  }
  void Range(const MeganodeRange& range) { Note(log_->Append(RecordKind::kRange, range.low, EncodeRange(range))); }
  void Put(const std::string& key, const std::string& value, Expiry expiry = kNeverExpires) {
    model_[key] = InModel(value, expiry);
    Note(log_->AppendPut({key, value, expiry}));
  }
  void Delete(const std::string& key) {
    model_.erase(key);
    Note(log_->Append(RecordKind::kDelete, key, ""));
  }
  absl::Status Flush() {
    auto flush = log_->BeginFlush();
    const absl::Status status = flush.Write();
    log_->EndFlush(std::move(flush), status);
    return status;
  }
  // Writes a checkpoint of the current state, as if it took no time, and trims the log before it.
  absl::Status Checkpoint() {
    const uint64_t sequence = log_->BeginRoll();
    RETURN_IF_ERROR(Flush());
    ASSIGN_OR_RETURN(auto segment, store_->Open(kRegion, epoch_, sequence));
    log_->EndRoll(std::move(segment));
    Note(sequence);
    RETURN_IF_ERROR(WriteCheckpoint(sequence, log_->appended()));
    return store_->Trim(kRegion, epoch_, sequence);
  }
  absl::Status WriteCheckpoint(uint64_t sequence, uint64_t log_sequence) {
    RETURN_IF_ERROR(Flush());
    ASSIGN_OR_RETURN(auto writer, store_->BeginCheckpoint(kRegion, epoch_, sequence));
    std::string bytes;
    uint64_t records = 0;
    const auto add = [&](RecordKind kind, std::string_view key, const std::string& value) {
      AppendRecord({kRegion, epoch_, ++records, 0}, kind, key, value, {}, &bytes);
    };
    add(RecordKind::kBegin, "", BeginValue(kRegion));
    add(RecordKind::kRange, "", EncodeRange({}));
    for (const auto& [key, value] : model_) {
      const size_t end = value.find('@');
      const Expiry expiry = end == std::string::npos ? kNeverExpires : std::stoull(value.substr(end + 1));
      AppendPut({kRegion, epoch_, ++records, 0}, {key, value.substr(0, end), expiry}, &bytes);
    }
    const CheckpointEnd end{records, log_sequence};
    add(RecordKind::kEnd, "", std::string(reinterpret_cast<const char*>(&end), sizeof(end)));
    RETURN_IF_ERROR(writer->Append(bytes));
    RETURN_IF_ERROR(writer->Sync());
    return store_->CommitCheckpoint(kRegion, epoch_, sequence);
  }

  RegionLog* log() { return log_.get(); }
  Model* model() { return &model_; }
  // Returns the meaning of the log up to each sequence.
  const std::map<uint64_t, Model>& states() const { return states_; }

 private:
  void Note(uint64_t sequence) { states_[sequence] = model_; }

  LogStore* const store_;
  const uint32_t epoch_;
  std::unique_ptr<RegionLog> log_;
  Model model_;
  std::map<uint64_t, Model> states_;
};

inline absl::StatusOr<Model> Replayed(const LogReplay& replay) {
  Model model;
  std::string last;
  RETURN_IF_ERROR(replay.ForEach([&](const LogRecord& record) {
    EXPECT_LT(last, record.key);
    last = record.key;
    model.emplace(record.key, InModel(record.value, record.expiry));
    return absl::OkStatus();
  }));
  return model;
}

class LogTest : public ::testing::Test {
 protected:
  std::string Segment(uint64_t sequence, uint32_t epoch) const {
    return fmt::format("log/region-{}/{:016x}.{:08x}.log", kRegion, sequence, epoch);
  }

  SimDisk disk_{1};
  std::unique_ptr<SimFiles> host_ = disk_.NewHost();
  DirectoryLogStore store_{host_.get(), "log"};
};

}  // namespace cell

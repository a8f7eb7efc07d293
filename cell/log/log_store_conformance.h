// What every LogStore must do (log_store.h), as tests that run for each of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cell/io/file/block_buffer.h"
#include "cell/log/log_store.h"

namespace cell {

// Makes stores that have the same logs, as different servers use them. A harness that cannot be made is null.
class LogStoreHarness {
 public:
  virtual ~LogStoreHarness() = default;
  virtual std::unique_ptr<LogStore> NewStore() = 0;
};
using MakeLogStoreHarness = std::function<std::unique_ptr<LogStoreHarness>()>;

class LogStoreConformance : public ::testing::TestWithParam<MakeLogStoreHarness> {
 protected:
  static constexpr uint32_t kRegion = 7;

  void SetUp() override {
    harness_ = GetParam()();
    if (harness_ == nullptr) GTEST_SKIP() << "this store is not here; //tests:rados_test has one";
    store_ = harness_->NewStore();
    other_ = harness_->NewStore();
  }

  static absl::Status Write(LogWriter* writer, std::string_view bytes) {
    absl::Status status = writer->Append(bytes);
    return status.ok() ? writer->Sync() : status;
  }
  static absl::Status WriteCheckpoint(LogStore* store, uint32_t epoch, uint64_t sequence, std::string_view bytes) {
    absl::StatusOr<std::unique_ptr<LogWriter>> writer = store->BeginCheckpoint(kRegion, epoch, sequence);
    return writer.ok() ? Write(writer->get(), bytes) : writer.status();
  }
  // Returns the first `bytes` bytes of a part, read in pieces of a block.
  static std::string Read(LogStore* store, const LogPart& part, size_t bytes) {
    const absl::StatusOr<uint64_t> size = store->Size(kRegion, part);
    EXPECT_TRUE(size.ok()) << size.status();
    EXPECT_GE(size.value_or(0), bytes);
    BlockBuffer block(kBlockBytes);
    std::string all;
    for (uint64_t offset = 0; all.size() < bytes; offset += kBlockBytes) {
      const absl::StatusOr<size_t> got = store->Read(kRegion, part, offset, {block.data(), kBlockBytes});
      EXPECT_TRUE(got.ok()) << got.status();
      if (got.value_or(0) == 0) break;
      all.append(reinterpret_cast<const char*>(block.data()), *got);
    }
    return all.substr(0, bytes);
  }
  // Returns the parts as text, such as "1.1.log 5.1.checkpoint": sequence, epoch, kind.
  static std::string Parts(LogStore* store) {
    const absl::StatusOr<std::vector<LogPart>> parts = store->List(kRegion);
    if (absl::IsNotFound(parts.status())) return "none";
    EXPECT_TRUE(parts.ok()) << parts.status();
    std::string text;
    for (const LogPart& part : *parts) {
      text += (text.empty() ? "" : " ") + std::to_string(part.sequence) + "." + std::to_string(part.epoch) +
              (part.kind == LogPart::Kind::kSegment ? ".log" : ".checkpoint");
    }
    return text;
  }
  // Returns bytes that differ from place to place, and are longer than several chunks of the tests' object stores.
  static std::string Long(size_t bytes) {
    std::string text;
    for (size_t i = 0; text.size() < bytes; ++i) text += std::to_string(i) + ",";
    text.resize(bytes);
    return text;
  }

  std::unique_ptr<LogStoreHarness> harness_;
  std::unique_ptr<LogStore> store_, other_;
};

TEST_P(LogStoreConformance, ThereIsNothingAtFirst) {
  EXPECT_FALSE(*store_->Has(kRegion));
  EXPECT_EQ(*store_->LastEpoch(kRegion), 0u);
  EXPECT_EQ(Parts(store_.get()), "none");
  EXPECT_TRUE(store_->Regions()->empty());
  EXPECT_TRUE(store_->Remove(kRegion, 5).ok());
  EXPECT_TRUE(store_->RemoveAll().ok());
}

TEST_P(LogStoreConformance, WhatWasSyncedIsSeenByOthers) {
  const std::unique_ptr<LogWriter> segment = *store_->Open(kRegion, 1, 1);
  std::string all;
  for (const size_t bytes : {1u, 100u, 5'000u, 1u, 30'000u}) {
    all += Long(bytes);
    ASSERT_TRUE(Write(segment.get(), Long(bytes)).ok());
    ASSERT_EQ(Parts(other_.get()), "1.1.log");
    EXPECT_EQ(Read(other_.get(), other_->List(kRegion)->front(), all.size()), all);
  }
  EXPECT_TRUE(*other_->Has(kRegion));
  EXPECT_EQ(*other_->LastEpoch(kRegion), 1u);
  EXPECT_EQ(*other_->Regions(), std::vector<uint32_t>{kRegion});
}

TEST_P(LogStoreConformance, SeveralAppendsAreSyncedTogether) {
  const std::unique_ptr<LogWriter> segment = *store_->Open(kRegion, 1, 1);
  std::string all;
  for (int i = 0; i < 20; ++i) {
    const std::string bytes = Long(static_cast<size_t>(i) * 997);
    ASSERT_TRUE(segment->Append(bytes).ok());
    all += bytes;
  }
  ASSERT_TRUE(segment->Sync().ok());
  EXPECT_EQ(Read(other_.get(), other_->List(kRegion)->front(), all.size()), all);
}

TEST_P(LogStoreConformance, ASegmentAppearsWithItsFirstBytes) {
  const std::string first = Long(20'000);
  const std::unique_ptr<LogWriter> segment = *store_->Open(kRegion, 1, 4, first);
  ASSERT_EQ(Parts(other_.get()), "4.1.log");
  ASSERT_TRUE(Write(segment.get(), "more").ok());
  EXPECT_EQ(Read(other_.get(), other_->List(kRegion)->front(), first.size() + 4), first + "more");
  EXPECT_TRUE(absl::IsAlreadyExists(store_->Open(kRegion, 1, 4).status()));
  EXPECT_TRUE(store_->Open(kRegion, 1, 5).ok());
  EXPECT_EQ(Parts(other_.get()), "4.1.log 5.1.log");
}

TEST_P(LogStoreConformance, AFencedOwnerAddsNothing) {
  const std::unique_ptr<LogWriter> segment = *store_->Open(kRegion, 1, 1);
  ASSERT_TRUE(Write(segment.get(), "one").ok());
  ASSERT_TRUE(WriteCheckpoint(store_.get(), 1, 2, "checkpoint").ok());
  ASSERT_TRUE(other_->Fence(kRegion, 2).ok());
  ASSERT_TRUE(other_->Fence(kRegion, 2).ok());  // Again, as after an error.
  EXPECT_EQ(*store_->LastEpoch(kRegion), 2u);
  const absl::Status late = Write(segment.get(), "two");
  EXPECT_TRUE(absl::IsAborted(late)) << late;
  EXPECT_FALSE(Write(segment.get(), "three").ok());  // It stays failed.
  EXPECT_TRUE(absl::IsAborted(store_->Open(kRegion, 1, 2).status()));
  EXPECT_TRUE(absl::IsAborted(store_->Open(kRegion, 1, 2, "first").status()));
  EXPECT_FALSE(store_->CommitCheckpoint(kRegion, 1, 2).ok());
  EXPECT_EQ(Parts(other_.get()), "1.1.log");
  EXPECT_EQ(Read(other_.get(), other_->List(kRegion)->front(), 3), "one");
  EXPECT_TRUE(other_->Open(kRegion, 2, 2).ok());
  EXPECT_EQ(Parts(store_.get()), "1.1.log 2.2.log");
}

TEST_P(LogStoreConformance, ACheckpointAppearsWhenItIsCommitted) {
  const std::string bytes = Long(50'000);
  ASSERT_TRUE(store_->Open(kRegion, 1, 1).ok());
  ASSERT_TRUE(WriteCheckpoint(store_.get(), 1, 9, bytes).ok());
  EXPECT_EQ(Parts(other_.get()), "1.1.log");
  ASSERT_TRUE(store_->CommitCheckpoint(kRegion, 1, 9).ok());
  ASSERT_EQ(Parts(other_.get()), "1.1.log 9.1.checkpoint");
  EXPECT_EQ(Read(other_.get(), other_->List(kRegion)->back(), bytes.size()), bytes);
  EXPECT_FALSE(store_->CommitCheckpoint(kRegion, 1, 10).ok());  // It was not begun.
}

TEST_P(LogStoreConformance, ACheckpointThatWasDiscardedCanBeBegunAgain) {
  ASSERT_TRUE(store_->Open(kRegion, 1, 1).ok());
  ASSERT_TRUE(WriteCheckpoint(store_.get(), 1, 9, Long(50'000)).ok());
  ASSERT_TRUE(store_->DiscardCheckpoint(kRegion, 1, 9).ok());
  EXPECT_FALSE(store_->CommitCheckpoint(kRegion, 1, 9).ok());
  ASSERT_TRUE(WriteCheckpoint(store_.get(), 1, 9, "never committed, and not discarded").ok());
  ASSERT_TRUE(WriteCheckpoint(store_.get(), 1, 9, "the third").ok());
  ASSERT_TRUE(store_->CommitCheckpoint(kRegion, 1, 9).ok());
  EXPECT_EQ(Read(other_.get(), other_->List(kRegion)->back(), 9), "the third");
}

TEST_P(LogStoreConformance, TrimKeepsWhatARecoveryNeeds) {
  ASSERT_TRUE(store_->Open(kRegion, 1, 1).ok());
  ASSERT_TRUE(store_->Open(kRegion, 1, 10).ok());
  ASSERT_TRUE(WriteCheckpoint(store_.get(), 1, 5, "old").ok());
  ASSERT_TRUE(store_->CommitCheckpoint(kRegion, 1, 5).ok());
  ASSERT_TRUE(store_->NoteEnd(kRegion, 1, 5).ok());
  ASSERT_TRUE(store_->Trim(kRegion, 1, 5).ok());
  EXPECT_EQ(Parts(store_.get()), "1.1.log 5.1.checkpoint 10.1.log");  // The first has records 5 to 9.
  EXPECT_EQ(*store_->NotedEnd(kRegion, 1), 5u);
  ASSERT_TRUE(WriteCheckpoint(store_.get(), 1, 10, "new").ok());
  ASSERT_TRUE(store_->CommitCheckpoint(kRegion, 1, 10).ok());
  ASSERT_TRUE(store_->Trim(kRegion, 1, 10).ok());
  std::string left = Parts(store_.get());
  EXPECT_TRUE(left == "10.1.log 10.1.checkpoint" || left == "10.1.checkpoint 10.1.log") << left;
  EXPECT_EQ(*store_->NotedEnd(kRegion, 1), 0u);
}

// A former owner that does not know yet of the takeover trims its log. The next owner's parts stay.
TEST_P(LogStoreConformance, AFormerOwnersTrimKeepsTheNextOnesCheckpoint) {
  ASSERT_TRUE(store_->Open(kRegion, 1, 1).ok());
  ASSERT_TRUE(WriteCheckpoint(store_.get(), 1, 1, "old").ok());
  ASSERT_TRUE(other_->Open(kRegion, 2, 5).ok());
  ASSERT_TRUE(WriteCheckpoint(other_.get(), 2, 8, "new").ok());
  const absl::Status trimmed = store_->Trim(kRegion, 1, 3);
  EXPECT_TRUE(trimmed.ok() || absl::IsAborted(trimmed)) << trimmed;
  EXPECT_TRUE(other_->CommitCheckpoint(kRegion, 2, 8).ok());
  const std::vector<LogPart> parts = *other_->List(kRegion);
  EXPECT_EQ(Read(other_.get(), parts.back(), 3), "new");
}

TEST_P(LogStoreConformance, WhatIsRemovedIsNotOfALaterRegionWithTheId) {
  ASSERT_TRUE(store_->Open(kRegion, 3, 1).ok());
  ASSERT_TRUE(store_->NoteEnd(kRegion, 3, 5).ok());
  ASSERT_TRUE(WriteCheckpoint(store_.get(), 3, 4, Long(40'000)).ok());
  EXPECT_EQ(*store_->LastEpoch(kRegion), 3u);
  ASSERT_TRUE(store_->Open(kRegion, 5, 1).ok());
  ASSERT_TRUE(store_->NoteEnd(kRegion, 5, 2).ok());
  EXPECT_EQ(*store_->LastEpoch(kRegion), 5u);
  EXPECT_EQ(*store_->NotedEnd(kRegion, 1), 5u);
  EXPECT_EQ(*store_->NotedEnd(kRegion, 4), 2u);
  ASSERT_TRUE(store_->Remove(kRegion, 4).ok());
  EXPECT_EQ(Parts(store_.get()), "1.5.log");
  EXPECT_EQ(*store_->NotedEnd(kRegion, 1), 2u);
  EXPECT_EQ(*store_->LastEpoch(kRegion), 5u);
  ASSERT_TRUE(store_->Remove(kRegion, 5).ok());
  EXPECT_EQ(Parts(store_.get()), "none");
  EXPECT_EQ(*store_->LastEpoch(kRegion), 0u);
  EXPECT_TRUE(store_->Regions()->empty());
  EXPECT_TRUE(store_->Remove(kRegion, 5).ok());
}

TEST_P(LogStoreConformance, NothingIsAcknowledgedIntoALogThatWasRemoved) {
  const std::unique_ptr<LogWriter> segment = *store_->Open(kRegion, 1, 1);
  ASSERT_TRUE(Write(segment.get(), "one").ok());
  ASSERT_TRUE(other_->Remove(kRegion, 1).ok());
  const absl::Status late = Write(segment.get(), "two");
  EXPECT_FALSE(late.ok());
  EXPECT_EQ(Parts(other_.get()), "none");
}

TEST_P(LogStoreConformance, RegionsDoNotMeet) {
  for (const uint32_t region : {1u, 10u, 11u, 4'000'000'000u}) {
    const std::unique_ptr<LogWriter> segment = *store_->Open(region, 1, 1);
    ASSERT_TRUE(Write(segment.get(), std::to_string(region)).ok());
  }
  std::vector<uint32_t> regions = *other_->Regions();
  std::sort(regions.begin(), regions.end());
  EXPECT_EQ(regions, (std::vector<uint32_t>{1, 10, 11, 4'000'000'000u}));
  ASSERT_TRUE(store_->Remove(1, 1).ok());
  EXPECT_EQ(other_->Regions()->size(), 3u);
  ASSERT_TRUE(store_->RemoveAll().ok());
  EXPECT_TRUE(other_->Regions()->empty());
}

TEST_P(LogStoreConformance, AProbeLeavesNothing) {
  ASSERT_TRUE(store_->Open(kRegion, 1, 1).ok());
  ASSERT_TRUE(store_->Probe(kRegion).ok());
  ASSERT_TRUE(store_->Probe(kRegion).ok());
  EXPECT_EQ(Parts(other_.get()), "1.1.log");
  ASSERT_TRUE(store_->Remove(kRegion, 1).ok());
  EXPECT_TRUE(other_->Regions()->empty());
}

}  // namespace cell

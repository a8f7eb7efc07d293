// Checks that replay of a damaged log gives an exact prefix of what was appended, which includes all that was synced;
// or else an error that names the damage.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "cell/log/test_log.h"
#include "fmt/format.h"

namespace cell {
namespace {

// Each byte and each bit is tried, and the whole log is read each time. Sanitizers make that many times slower, so they
// use a smaller log.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kLogShare = 4;
#else
constexpr size_t kLogShare = 1;
#endif

// Cuts a log of 1 MiB at each byte, a quarter of them in each test, so that shards share the work. The whole records
// before the cut are what is left.
constexpr size_t kQuarters = 4;
class CutTest : public LogTest, public ::testing::WithParamInterface<size_t> {};
INSTANTIATE_TEST_SUITE_P(Quarters, CutTest, ::testing::Range(size_t{0}, kQuarters));

TEST_P(CutTest, CutAtEachByte) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  std::string* bytes = disk_.bytes(Segment(1, 1));
  std::vector<size_t> ends = {0};  // End of each record.
  Random random(5);
  for (int i = 0; bytes->size() < (size_t{1} << 20) / kLogShare; ++i) {
    ASSERT_TRUE(owner.Flush().ok());
    if (i == 0) ends.push_back(RecordBytes(0, sizeof(SegmentBegin)));
    ends.push_back(owner.log()->bytes());
    owner.Put(fmt::format("{:06}", i), std::string(random.Below(10) == 0 ? random.Below(64) : 8192, 'v'));
  }
  ASSERT_TRUE(owner.Flush().ok());
  ends.push_back(owner.log()->bytes());
  size_t whole = ends.size() - 1;
  for (size_t size = bytes->size(); size > 0; --size) {
    if (size % kQuarters != GetParam()) continue;
    bytes->resize(size);
    while (ends[whole] > size) --whole;
    LogReplay replay(&store_, kRegion);
    const absl::Status status = replay.Open();
    if (whole < 2) {
      ASSERT_EQ(status.code(), absl::StatusCode::kNotFound) << size << ": " << status;
      continue;
    }
    ASSERT_TRUE(status.ok()) << size << ": " << status;
    ASSERT_EQ(replay.next_sequence(), whole + 1) << size;
    ASSERT_EQ(replay.torn_bytes(), std::string_view(*bytes).substr(ends[whole]).find_last_not_of('\0') + 1) << size;
    if (size != ends[whole] && size % 1009 != 0) continue;
    const absl::StatusOr<Model> model = Replayed(replay);
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ(*model, owner.states().at(whole)) << size;
  }
}

// Flips each bit of 64 KiB. A flip is an error, or makes the log end within what the last sync wrote.
TEST_F(LogTest, EachBitFlipped) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  std::string* bytes = disk_.bytes(Segment(1, 1));
  size_t last_flush = 0, flushed = 0;
  for (int i = 0; bytes->size() < (size_t{64} << 10) / kLogShare; ++i) {
    owner.Put(fmt::format("{:06}", i), std::string(static_cast<size_t>(i % 700), 'v'));
    if (i % 4 != 3) continue;
    last_flush = std::exchange(flushed, owner.log()->bytes());
    ASSERT_TRUE(owner.Flush().ok());
  }
  size_t damaged = 0, torn = 0;
  for (size_t bit = 0; bit < bytes->size() * 8; ++bit) {
    (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
    LogReplay replay(&store_, kRegion);
    const absl::Status status = replay.Open();
    if (status.ok()) {
      ASSERT_GE(bit / 8, last_flush);
      ASSERT_GT(replay.torn_bytes(), 0u);
      if (bit % 8 == 0) {
        ASSERT_EQ(*Replayed(replay), owner.states().at(replay.next_sequence() - 1));
      }
      ++torn;
    } else {
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      if (damaged++ == 100'000 / kLogShare) {
        EXPECT_NE(status.ToString().find(Segment(1, 1)), std::string::npos) << status;
        EXPECT_NE(status.ToString().find("offset"), std::string::npos) << status;
        EXPECT_NE(status.ToString().find("cellctl restore"), std::string::npos) << status;
      }
    }
    (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  EXPECT_GT(damaged, kLogShare == 1 ? 400'000u : 90'000u);
  EXPECT_GT(torn, 1'000u);
}

TEST_F(LogTest, EachBitOfACheckpointFlipped) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  for (int i = 0; i < 20; ++i) owner.Put(fmt::format("{:06}", i), std::string(static_cast<size_t>(10 * i), 'v'));
  ASSERT_TRUE(owner.Checkpoint().ok());
  std::string* bytes = nullptr;
  for (const std::string& path : disk_.paths()) {
    if (path.find(".checkpoint") != std::string::npos) bytes = disk_.bytes(path);
  }
  bytes->resize(bytes->find_last_not_of('\0') + 1);  // The rest fills up a block.
  for (size_t bit = 0; bit < bytes->size() * 8; ++bit) {
    (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
    LogReplay replay(&store_, kRegion);
    absl::Status status = replay.Open();
    if (status.ok()) status = Replayed(replay).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << bit << status;
    (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  for (size_t size = bytes->size() - 1; size > 0; --size) {
    bytes->resize(size);
    LogReplay replay(&store_, kRegion);
    absl::Status status = replay.Open();
    if (status.ok()) status = Replayed(replay).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << status;
  }
}

TEST_F(LogTest, AMissingSegmentIsNoticed) {
  Owner owner(&store_, 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  owner.Put("a", "1");
  ASSERT_TRUE(owner.Flush().ok());
  Owner next(&store_, 2);
  ASSERT_TRUE(next.Open(4).ok());
  next.Put("b", "2");
  ASSERT_TRUE(next.Flush().ok());
  ASSERT_TRUE(LogReplay(&store_, kRegion).Open().ok());
  std::string* bytes = disk_.bytes(Segment(1, 1));
  const std::string whole = *bytes;
  bytes->resize(owner.log()->bytes() - 1);  // This is not the log's end: the next owner saw the whole record.
  const absl::Status torn = LogReplay(&store_, kRegion).Open();
  EXPECT_EQ(torn.code(), absl::StatusCode::kDataLoss);
  // The message must ask for a copy of this file.
  EXPECT_NE(torn.message().find(Segment(1, 1)), std::string::npos) << torn;
  ASSERT_TRUE(host_->Remove(Segment(1, 1)).ok());
  EXPECT_EQ(LogReplay(&store_, kRegion).Open().code(), absl::StatusCode::kDataLoss);
}

// Otherwise the next owner's records after the file would be cut off as a torn end, or start again at the first number.
TEST_F(LogTest, AnEndThatWasNotedIsMissed) {
  uint64_t last = 0;
  {
    Owner owner(&store_, 1);
    ASSERT_TRUE(owner.Open(1).ok());
    owner.Range({0, "", std::nullopt, {}});
    owner.Put("a", "1");
    ASSERT_TRUE(owner.Flush().ok());
    last = owner.log()->appended();
  }
  ASSERT_TRUE(store_.NoteEnd(kRegion, 1, last).ok());
  ASSERT_TRUE(store_.NoteEnd(kRegion, 1, last).ok());
  EXPECT_EQ(*store_.NotedEnd(kRegion, 1), last);
  EXPECT_TRUE(LogReplay(&store_, kRegion).Open().ok());
  ASSERT_TRUE(store_.NoteEnd(kRegion, 1, last + 1).ok());
  const absl::Status missed = LogReplay(&store_, kRegion).Open();
  EXPECT_TRUE(absl::IsDataLoss(missed)) << missed;
  EXPECT_NE(missed.message().find(Segment(1, 1)), std::string::npos) << missed;
  ASSERT_TRUE(store_.Trim(kRegion, 1, last + 2).ok());  // A checkpoint includes it.
  EXPECT_EQ(*store_.NotedEnd(kRegion, 1), 0u);
}

TEST_F(LogTest, AFileWhoseNumberNoLogHasIsDamage) {
  for (const uint64_t sequence : {uint64_t{0}, UINT64_MAX}) {
    SCOPED_TRACE(sequence);
    Owner owner(&store_, 1);
    ASSERT_TRUE(store_.Remove(kRegion, UINT32_MAX).ok());
    ASSERT_TRUE(owner.Open(1).ok());
    owner.Range({});
    owner.Put("a", "1");
    ASSERT_TRUE(owner.WriteCheckpoint(sequence, owner.log()->appended()).ok());
    const absl::Status status = LogReplay(&store_, kRegion).Open();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_NE(status.message().find(".checkpoint"), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace cell

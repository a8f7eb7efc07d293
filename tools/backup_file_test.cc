#include "tools/backup_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cell/log/region_log.h"

namespace cell {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

RecordReader::Read From(const std::string& file) {
  return [&file](uint64_t at, MutableBytes to) -> absl::StatusOr<size_t> {
    if (at >= file.size()) return 0;
    const size_t bytes = std::min<size_t>(to.size(), file.size() - at);
    std::memcpy(to.data(), file.data() + at, bytes);
    return bytes;
  };
}

// Pairs whose value begins with a t have an expiry.
Expiry TestExpiry(std::string_view value) { return value.starts_with('t') ? 0x1122334455667788 : kNeverExpires; }

absl::StatusOr<Pairs> Read(const std::string& file) {
  BackupReader reader(From(file), "/backup");
  Pairs pairs;
  for (;;) {
    const auto record = reader.Next();
    if (!record.ok()) return record.status();
    if (!record->has_value()) return pairs;
    pairs.emplace_back((*record)->key, (*record)->value);
    EXPECT_EQ((*record)->expiry, TestExpiry((*record)->value));
  }
}

std::string Write(const Pairs& pairs) {
  BackupWriter writer;
  for (const auto& [key, value] : pairs) EXPECT_TRUE(writer.Add(key, value, TestExpiry(value)).ok());
  writer.End();
  return writer.Take();
}

const Pairs& Sample() {
  static const auto* pairs =
      new Pairs{{"a", ""}, {std::string("a\0b", 3), "one"}, {"b", std::string(1 << 20, 'x')}, {"c", "three"}};
  return *pairs;
}

TEST(BackupFile, GivesBackWhatWasAdded) {
  EXPECT_EQ(*Read(Write({})), Pairs());
  EXPECT_EQ(*Read(Write(Sample())), Sample());
}

TEST(BackupFile, RefusesAnyFlippedBitAndAnyEnd) {
  const std::string whole = Write({{"a", "1"}, {"b", "two"}, {"c", ""}});
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1 << i % 8);
    EXPECT_EQ(Read(damaged).status().code(), absl::StatusCode::kDataLoss) << i;
    EXPECT_EQ(Read(whole.substr(0, i)).status().code(), absl::StatusCode::kDataLoss) << i;
  }
}

// A record may be sound without being the one that was written, in a file that was combined from two.
TEST(BackupFile, RefusesAnotherPairWhoseRecordIsSound) {
  const std::string file = Write({{"a", "1"}, {"b", "2"}}), other = Write({{"a", "1"}, {"b", "3"}});
  const size_t first = RecordBytes(0, sizeof(SegmentBegin)) + RecordBytes(1, 1);
  std::string mixed = file;
  mixed.replace(first, RecordBytes(1, 1), other.substr(first, RecordBytes(1, 1)));
  const absl::Status status = Read(mixed).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("2 pairs with checksum"), std::string::npos) << status;
}

TEST(BackupFile, RefusesKeysOutOfOrder) {
  BackupWriter writer;
  EXPECT_TRUE(writer.Add("b", "", 0).ok());
  EXPECT_EQ(writer.Add("b", "", 0).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(writer.Add("a", "", 0).code(), absl::StatusCode::kDataLoss);
  const auto file = [](const std::string& first, const std::string& second) {
    std::string bytes;
    const SegmentBegin begin{kBackupMagic, kBackupFormat, 0};
    const auto text = [](const auto& value) {
      return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    PairSum sum;
    sum.Add(first, "", 0);
    sum.Add(second, "", 0);
    AppendRecord({0, 0, 1, 0}, RecordKind::kBegin, "", text(begin), {}, &bytes);
    AppendRecord({0, 0, 2, 0}, RecordKind::kPut, first, "", {}, &bytes);
    AppendRecord({0, 0, 3, 0}, RecordKind::kPut, second, "", {}, &bytes);
    AppendRecord({0, 0, 4, 0}, RecordKind::kEnd, "", text(BackupEnd{sum.pairs, sum.checksum}), {}, &bytes);
    return bytes;
  };
  EXPECT_EQ(*Read(file("a", "b")), (Pairs{{"a", ""}, {"b", ""}}));
  EXPECT_EQ(Read(file("b", "a")).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Read(file("a", "a")).status().code(), absl::StatusCode::kDataLoss);
}

TEST(BackupFile, ReadsTheFormatBefore) {
  const auto file = [](uint64_t count) {
    std::string bytes;
    AppendRecord({0, 0, 1, 0}, RecordKind::kBegin, "", BeginValue(0), {}, &bytes);
    AppendRecord({0, 0, 2, 0}, RecordKind::kPut, "a", "1", {}, &bytes);
    const CheckpointEnd end{count, 0};
    AppendRecord({0, 0, 3, 0}, RecordKind::kEnd, "", {reinterpret_cast<const char*>(&end), sizeof(end)}, {}, &bytes);
    return bytes;
  };
  EXPECT_EQ(*Read(file(2)), (Pairs{{"a", "1"}}));
  EXPECT_EQ(Read(file(3)).status().code(), absl::StatusCode::kDataLoss);
}

TEST(BackupFile, NamesAFormatThatItDoesNotRead) {
  std::string file;
  const SegmentBegin begin{kBackupMagic, kBackupFormat + 7, 0};
  AppendRecord({0, 0, 1, 0}, RecordKind::kBegin, "", {reinterpret_cast<const char*>(&begin), sizeof(begin)}, {}, &file);
  const absl::Status status = Read(file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(fmt::format("/backup has format {}", kBackupFormat + 7)), std::string::npos)
      << status;
}

}  // namespace
}  // namespace cell

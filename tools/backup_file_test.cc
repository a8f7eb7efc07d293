#include "tools/backup_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cell/log/record_cipher.h"
#include "cell/log/region_log.h"
#include "cell/log/test_keys.h"

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

absl::StatusOr<Pairs> Read(const std::string& file, KeySource* keys = nullptr) {
  BackupReader reader(From(file), "/backup", keys);
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

// For example that an object of the backup is missing.
TEST(BackupFile, ReturnsAnErrorOfReadingAsItIs) {
  const auto read = [](uint64_t, MutableBytes) -> absl::StatusOr<size_t> { return absl::DataLossError("named"); };
  BackupReader reader(read, "/backup");
  const absl::Status status = reader.Next().status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(status.message(), "named");
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

// Encrypts a backup, in two pieces, as it is written.
std::string Sealed(const std::string& plain, KeySource* keys) {
  const size_t first = RecordBytes(0, sizeof(SegmentBegin));
  RecordSealer sealer(keys, {});
  std::string sealed;
  EXPECT_TRUE(sealer.Seal(plain.substr(0, first), &sealed).ok());
  EXPECT_TRUE(sealer.Seal(plain.substr(first), &sealed).ok());
  return sealed;
}

TEST(EncryptedBackup, HidesAndGivesBackWhatWasAdded) {
  TestKeys keys({TestKey(1)});
  const std::string file = Sealed(Write(Sample()), &keys);
  EXPECT_EQ(file.find("three"), std::string::npos);
  EXPECT_EQ(file.find("xxxxxxxx"), std::string::npos);
  EXPECT_EQ(*Read(file, &keys), Sample());
  EXPECT_EQ(*Read(Sealed(Write({}), &keys), &keys), Pairs());
  keys.Set({TestKey(2), TestKey(1)});
  EXPECT_EQ(*Read(file, &keys), Sample());
}

TEST(EncryptedBackup, IsReadWithItsKeyAlone) {
  TestKeys keys({TestKey(1)}), others({TestKey(2)});
  const std::string plain = Write({{"a", "1"}}), file = Sealed(plain, &keys);
  for (const absl::Status& refused : {Read(file).status(), Read(file, &others).status(), Read(plain, &keys).status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_NE(refused.message().find("/backup is "), std::string::npos) << refused;
  }
}

// Whatever bit is flipped: the key's id in the begin record names another key then.
TEST(EncryptedBackup, RefusesAnyFlippedBitAndAnyEnd) {
  TestKeys keys({TestKey(1)});
  const std::string whole = Sealed(Write({{"a", "1"}, {"b", "two"}, {"c", ""}}), &keys);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    ASSERT_TRUE(absl::IsDataLoss(Read(damaged, &keys).status())) << bit;
  }
  for (size_t end = 0; end < whole.size(); ++end) {
    ASSERT_TRUE(absl::IsDataLoss(Read(whole.substr(0, end), &keys).status())) << end;
  }
}

// A file that was combined from two, which have the same key. Without encryption the sum at the end would notice it,
// and whoever combines them could correct it.
TEST(EncryptedBackup, RefusesARecordOfAnother) {
  TestKeys keys({TestKey(1)});
  const std::string file = Sealed(Write({{"a", "1"}, {"b", "2"}}), &keys),
                    other = Sealed(Write({{"a", "1"}, {"b", "2"}}), &keys);
  const size_t begin = RecordBytes(0, sizeof(SegmentBegin) + sizeof(SealBegin));
  const size_t pair = RecordBytes(1, 1 + kSealTagBytes);
  std::string mixed = file;
  mixed.replace(begin + pair, pair, other.substr(begin + pair, pair));
  EXPECT_TRUE(absl::IsDataLoss(Read(mixed, &keys).status()));
  mixed.replace(0, begin + 2 * pair, other.substr(0, begin + 2 * pair));
  EXPECT_TRUE(absl::IsDataLoss(Read(mixed, &keys).status()));  // The end is of the first.
}

}  // namespace
}  // namespace cell

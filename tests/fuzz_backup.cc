// libFuzzer: reads any bytes as a backup. The reader refuses them, or all pairs that it returns can be written again
// and are read back unchanged. The first byte of the input says which fields are corrected before, so that more than
// checksums is tested, and whether the file is then encrypted, with a byte changed or not.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/log/record_cipher.h"
#include "cell/log/test_keys.h"
#include "tools/backup_file.h"

namespace {

using namespace cell;

enum MadeRight : uint8_t { kFrames = 1, kSum = 2, kEncrypted = 4, kChanged = 8 };

using Pairs = std::vector<std::tuple<std::string, std::string, Expiry>>;

// Gives each record that fits its checksum and number, and optionally the end the sum of all pairs.
void MakeRight(bool sum_too, std::string* file) {
  PairSum sum;
  uint64_t sequence = 0;
  for (size_t at = 0; at + sizeof(RecordHeader) <= file->size();) {
    RecordHeader header;
    std::memcpy(&header, file->data() + at, sizeof(header));
    const size_t end = at + RoundUp(header.bytes, kRecordAlignment);
    if (header.bytes < sizeof(header) + header.key_bytes || end > file->size() || end <= at) return;
    header.sequence = ++sequence;
    header.epoch = 0;
    header.flags = 0;
    std::memcpy(file->data() + at, &header, sizeof(header));
    const LogRecord record = ReadRecord(file->data() + at);
    const std::string_view value = record.value;
    if (record.kind == RecordKind::kPut) sum.Add(record.key, record.value, record.expiry);
    if (header.kind == RecordKind::kEnd && sum_too && value.size() == sizeof(BackupEnd)) {
      const BackupEnd right{sum.pairs, sum.checksum};
      std::memcpy(file->data() + (value.data() - file->data()), &right, sizeof(right));
    }
    header.crc = Crc64(std::string_view(*file).substr(at + sizeof(header.crc), header.bytes - sizeof(header.crc)), 0);
    std::memcpy(file->data() + at, &header.crc, sizeof(header.crc));
    std::memset(file->data() + at + header.bytes, 0, end - at - header.bytes);
    at = end;
  }
}

absl::Status Read(const std::string& file, KeySource* keys, Pairs* pairs, PairSum* sum, uint64_t* end = nullptr) {
  const RecordReader::Read from = [&file](uint64_t at, MutableBytes to) -> absl::StatusOr<size_t> {
    const size_t bytes = at >= file.size() ? 0 : std::min<size_t>(to.size(), file.size() - at);
    if (bytes > 0) std::memcpy(to.data(), file.data() + at, bytes);
    return bytes;
  };
  BackupReader reader(from, "a backup", keys);
  for (;;) {
    const auto record = reader.Next();
    if (!record.ok()) return record.status();
    if (!record->has_value()) break;
    pairs->push_back({std::string((*record)->key), std::string((*record)->value), (*record)->expiry});
  }
  *sum = reader.sum();
  if (end != nullptr) *end = reader.offset();
  return absl::OkStatus();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string file(reinterpret_cast<const char*>(data + 1), size - 1);
  if ((data[0] & kFrames) != 0) MakeRight((data[0] & kSum) != 0, &file);
  TestKeys with({TestKey(1)});
  KeySource* const keys = (data[0] & kEncrypted) != 0 ? &with : nullptr;
  Pairs pairs, again;
  PairSum sum, sum_again;
  uint64_t end = 0;
  if (keys != nullptr) {
    // A sound backup is so also if it is encrypted, and then no byte of it can be changed.
    const bool sound = Read(file, nullptr, &pairs, &sum).ok();
    std::string sealed;
    if (!RecordSealer(keys, {}).Seal(file, &sealed).ok()) sealed = file;  // It may say that it is encrypted.
    const absl::Status read = Read(sealed, keys, &again, &sum_again, &end);
    if (sound && sealed != file && (!read.ok() || again != pairs || sum_again != sum)) std::abort();
    if (!read.ok() || (data[0] & kChanged) == 0) return 0;
    sealed[size % end] ^= 1;
    if (Read(sealed, keys, &again, &sum_again).ok()) std::abort();
    return 0;
  }
  if (!Read(file, keys, &pairs, &sum).ok()) return 0;
  BackupWriter writer;
  for (const auto& [key, value, expiry] : pairs) {
    if (!writer.Add(key, value, expiry).ok()) std::abort();
  }
  writer.End();
  if (writer.sum() != sum) std::abort();
  if (!Read(writer.Take(), keys, &again, &sum_again).ok() || again != pairs || sum_again != sum) std::abort();
  return 0;
}

#include "cell/log/record_cipher.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstddef>
#include <cstring>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "fmt/format.h"

namespace cell {
namespace {

using Hash = std::array<unsigned char, 32>;

Hash HmacOf(const void* key, size_t key_bytes, std::string_view text) {
  Hash mac;
  unsigned int bytes = 0;
  CELL_CHECK_NE(::HMAC(::EVP_sha256(), key, static_cast<int>(key_bytes),
                       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &bytes),
                nullptr);
  CELL_CHECK_EQ(bytes, mac.size());
  return mac;
}

// HKDF-SHA256 of as many bytes as one hash has.
Hash FileKey(const DataKey& key, const SealBegin& seal, uint64_t magic, const FileIdentity& file) {
  const std::string_view secret(reinterpret_cast<const char*>(key.key.data()), key.key.size());
  const Hash extracted = HmacOf(seal.salt, sizeof(seal.salt), secret);
  std::string info = fmt::format("cell records {:016x} {} {} {} {}", magic, file.region, file.epoch, file.sequence,
                                 file.checkpoint ? "checkpoint" : "segment");
  info.push_back('\x01');
  return HmacOf(extracted.data(), extracted.size(), info);
}

RecordHeader HeaderOf(const char* record) {
  RecordHeader header;
  std::memcpy(&header, record, sizeof(header));
  return header;
}

unsigned char* Bytes(char* text) { return reinterpret_cast<unsigned char*>(text); }

constexpr uint64_t SealedFormatOf(uint64_t magic) {
  return magic == kLogMagic ? kSealedLogFormat : kSealedBackupFormat;
}

}  // namespace

RecordCipher::RecordCipher(const DataKey& key, const SealBegin& seal, uint64_t magic, const FileIdentity& file)
    : context_(::EVP_CIPHER_CTX_new()), key_(FileKey(key, seal, magic, file)) {
  CELL_CHECK_NE(context_, nullptr);
}

RecordCipher::~RecordCipher() {
  ::EVP_CIPHER_CTX_free(context_);
  ::OPENSSL_cleanse(key_.data(), key_.size());
}

bool RecordCipher::Run(char* record, bool seals) {
  const RecordHeader header = HeaderOf(record);
  const int direction = seals ? 1 : 0;
  if (seals_ != seals) {
    CELL_CHECK_EQ(::EVP_CipherInit_ex(context_, ::EVP_aes_256_gcm(), nullptr, key_.data(), nullptr, direction), 1);
    seals_ = seals;
  }
  std::array<unsigned char, 12> nonce{};
  std::memcpy(nonce.data(), &header.sequence, sizeof(header.sequence));
  CELL_CHECK_EQ(::EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce.data(), direction), 1);
  char* const text = record + sizeof(header);
  const auto text_bytes = static_cast<int>(header.bytes - sizeof(header) - kSealTagBytes);
  char* const tag = text + text_bytes;
  int done = 0;
  if (!seals && ::EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_GCM_SET_TAG, kSealTagBytes, tag) != 1) return false;
  const char* const checked = record + sizeof(header.crc);
  if (::EVP_CipherUpdate(context_, nullptr, &done, reinterpret_cast<const unsigned char*>(checked),
                         sizeof(header) - sizeof(header.crc)) != 1) {
    return false;
  }
  if (text_bytes > 0 && ::EVP_CipherUpdate(context_, Bytes(text), &done, Bytes(text), text_bytes) != 1) return false;
  if (::EVP_CipherFinal_ex(context_, Bytes(tag), &done) != 1) return false;
  return !seals || ::EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_GCM_GET_TAG, kSealTagBytes, tag) == 1;
}

void RecordCipher::Seal(char* record) { CELL_CHECK(Run(record, true)); }
bool RecordCipher::Open(char* record) { return Run(record, false); }

absl::Status RecordSealer::Seal(std::string_view records, std::string* to) {
  for (size_t at = 0; at < records.size();) {
    const std::string_view rest = records.substr(at);
    if (rest.size() < sizeof(RecordHeader)) return absl::InternalError("a log is written in pieces of records");
    RecordHeader header = HeaderOf(rest.data());
    const size_t bytes = RoundUp(header.bytes, kRecordAlignment);
    const bool begins = header.kind == RecordKind::kBegin;
    if (header.bytes < sizeof(header) + header.key_bytes || bytes > rest.size() || header.flags != 0 ||
        begins != (cipher_ == nullptr)) {
      return absl::InternalError("what is written into a log are no records of a file");
    }
    if (header.sequence <= last_) {
      return absl::InternalError(
          fmt::format("record {} follows record {} in an encrypted file", header.sequence, last_));
    }
    last_ = header.sequence;
    at += bytes;
    if (begins) {
      const LogRecord record = ReadRecord(rest.data());
      if (record.value.size() < sizeof(SegmentBegin)) return absl::InternalError("a file's first record is too short");
      auto begin = Load<SegmentBegin>(AsBytes(record.value).data());
      begin.format = static_cast<uint32_t>(SealedFormatOf(begin.magic));
      SealBegin seal;
      const std::shared_ptr<const DataKeys> keys = keys_->Current();
      const std::array<std::byte, 8> id = keys->newest().id();
      std::memcpy(seal.key_id, id.data(), sizeof(seal.key_id));
      const std::array<std::byte, 32> salt = keys_->NewSalt();
      std::memcpy(seal.salt, salt.data(), sizeof(seal.salt));
      cipher_ = std::make_unique<RecordCipher>(keys->newest(), seal, begin.magic, file_);
      AppendRecord({file_.region, header.epoch, header.sequence, header.unsynced}, RecordKind::kBegin, "",
                   {reinterpret_cast<const char*>(&begin), sizeof(begin)},
                   {reinterpret_cast<const char*>(&seal), sizeof(seal)}, to);
      continue;
    }
    const size_t start = to->size();
    to->append(rest.substr(0, header.bytes));
    header.bytes += static_cast<uint32_t>(kSealTagBytes);
    header.flags = kSealed;
    to->resize(start + RoundUp(header.bytes, kRecordAlignment));
    char* const record = to->data() + start;
    std::memcpy(record, &header, sizeof(header));
    cipher_->Seal(record);
    header.crc = Crc64({record + sizeof(header.crc), header.bytes - sizeof(header.crc)}, file_.region);
    std::memcpy(record, &header.crc, sizeof(header.crc));
  }
  return absl::OkStatus();
}

std::optional<std::array<std::byte, 8>> KeyIdOf(const LogRecord& record) {
  const auto begin = Load<SegmentBegin>(AsBytes(record.value).data());
  const bool sealed = begin.magic == kLogMagic ? IsSealedLogFormat(begin.format) : begin.format == kSealedBackupFormat;
  if (!sealed) return std::nullopt;
  std::array<std::byte, 8> id{};
  if (record.value.size() < sizeof(SegmentBegin) + sizeof(SealBegin)) return id;
  std::memcpy(id.data(), record.value.data() + sizeof(SegmentBegin) + offsetof(SealBegin, key_id), id.size());
  return id;
}

absl::Status RecordOpener::Begin(const LogRecord& record) {
  const auto begin = Load<SegmentBegin>(AsBytes(record.value).data());
  if (begin.format > SealedFormatOf(begin.magic)) return absl::OkStatus();  // Its reader refuses it (CheckBegin).
  const std::optional<std::array<std::byte, 8>> sealed = KeyIdOf(record);
  if (!sealed.has_value() && keys_ != nullptr && !keys_->takes_plain()) {
    return absl::FailedPreconditionError(
        fmt::format("{} is not encrypted, but the keys of {} were given: somebody may have put it there. {}", name_,
                    keys_->name(), keys_->about_plain()));
  }
  if (!sealed.has_value()) return absl::OkStatus();
  if (record.value.size() < sizeof(SegmentBegin) + sizeof(SealBegin)) {
    return absl::DataLossError(fmt::format("{} is damaged: its first record does not say how it is encrypted", name_));
  }
  const auto seal = Load<SealBegin>(AsBytes(record.value).data() + sizeof(SegmentBegin));
  const std::array<std::byte, 8>& id = *sealed;
  if (keys_ == nullptr) {
    return absl::FailedPreconditionError(fmt::format(
        "{} is encrypted with key {}: give the file that has this key (--log-key of servers and up, --key of "
        "cellctl)",
        name_, IdText(id)));
  }
  const std::shared_ptr<const DataKeys> keys = keys_->Current();
  const DataKey* const key = keys->Find(id);
  if (key == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("{} is encrypted with key {}, which {} does not have", name_, IdText(id), keys_->name()));
  }
  cipher_ = std::make_unique<RecordCipher>(*key, seal, begin.magic, file_);
  return absl::OkStatus();
}

absl::Status RecordOpener::Open(LogRecord* record, uint64_t offset) {
  if (cipher_ == nullptr && !record->sealed) return absl::OkStatus();
  char* const bytes = const_cast<char*>(record->key.data()) - sizeof(RecordHeader);
  if (cipher_ != nullptr && record->sealed && cipher_->Open(bytes)) {
    bytes[offsetof(RecordHeader, flags)] = static_cast<char>(kSealed | kOpened);
    if (std::optional<LogRecord> opened = OpenedRecord(bytes); opened.has_value()) {
      *record = *opened;
      return absl::OkStatus();
    }
  }
  return absl::DataLossError(fmt::format(
      "{} was changed at offset {}: record {} is not as it was written. Nothing was recovered from it, and nothing was "
      "changed. Restore a copy of the file, or delete the cluster (//tools:wipe) and restore a backup (cellctl "
      "restore)",
      name_, offset, record->sequence));
}

}  // namespace cell

// Encrypts the records of logs, checkpoints and backups, and decrypts them (log_record.h: sealed records).
//
// A record stays a record: its header is in plain, its CRC covers what is on disk, and so replay finds the end of a
// torn log, and damage, as without encryption. Its key and value are encrypted by AES-256-GCM, together with a check of
// the header: who changes anything, or moves a record to another place or file, is noticed, even if the CRC fits.
// Lengths, kinds and numbers of records are not hidden. Nothing prevents that whole files are replaced by older ones,
// or removed.
//
// Each file has a key of its own: HKDF-SHA256 (RFC 5869) of the data key, with 32 random bytes that the file's first
// record has as salt, and with the purpose and what the file is (FileIdentity) as info. So a file that was renamed is
// noticed, too. A record's nonce is its sequence number, which no other record of the file has.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cell/layout/log_record.h"
#include "cell/log/data_keys.h"

struct evp_cipher_ctx_st;

namespace cell {

// Says which file of a cluster it is, as its name does. That of a backup is empty.
struct FileIdentity {
  uint32_t region = 0;
  uint32_t epoch = 0;
  uint64_t sequence = 0;  // LogPart::sequence
  bool checkpoint = false;
};

// AES-256-GCM with a file's key.
class RecordCipher {
 public:
  RecordCipher(const DataKey& key, const SealBegin& seal, uint64_t magic, const FileIdentity& file);
  ~RecordCipher();
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  // Encrypts the record that begins at `record` in place: key, value, and behind it the tag. The header must be final,
  // but for the CRC.
  void Seal(char* record);
  // Decrypts such a record in place. Returns false if it is not as it was written; its bytes are worth nothing then.
  [[nodiscard]] bool Open(char* record);

 private:
  bool Run(char* record, bool seals);

  evp_cipher_ctx_st* const context_;
  std::array<unsigned char, 32> key_;
  std::optional<bool> seals_;  // What the context is set up for.
};

// Encrypts the records of one file, in their order.
class RecordSealer {
 public:
  // `keys` must outlive it.
  RecordSealer(KeySource* keys, const FileIdentity& file) : keys_(keys), file_(file) {}

  // Appends the given whole records to *to, sealed. The first one of the file is its begin record, which stays in plain
  // and gets what is needed to open the others. Returns Internal if the bytes are not records, or if one has a number
  // that the file had already: two texts with one nonce would give both away.
  absl::Status Seal(std::string_view records, std::string* to);

 private:
  KeySource* const keys_;
  const FileIdentity file_;
  std::unique_ptr<RecordCipher> cipher_;  // Null before the first record.
  uint64_t last_ = 0;                     // Number of the last record.
};

// Returns the id of the key of a file whose begin record this is, or nullopt if the file is not encrypted. Returns an
// id of zeros, which no key has, if the record is too short.
std::optional<std::array<std::byte, 8>> KeyIdOf(const LogRecord& begin);

// Decrypts the records of one file, in their order.
class RecordOpener {
 public:
  // `keys` may be null, and must outlive it. `name` is the file's, for messages.
  RecordOpener(KeySource* keys, std::string name, const FileIdentity& file)
      : keys_(keys), name_(std::move(name)), file_(file) {}

  // Takes the file's begin record, which was accepted. Returns FailedPrecondition, with what to do, if the file is
  // encrypted and its key is not there, or if it is not encrypted and only encrypted ones are taken.
  absl::Status Begin(const LogRecord& begin);
  // Decrypts a record of the file in place, if the file is encrypted: *record then refers to what it says. Returns
  // DataLoss if the record is not as it was written. REQUIRES: the record's bytes belong to the caller. Begin was OK.
  absl::Status Open(LogRecord* record, uint64_t offset);

 private:
  KeySource* const keys_;
  const std::string name_;
  const FileIdentity file_;
  std::unique_ptr<RecordCipher> cipher_;  // Null: the file is not encrypted.
};

}  // namespace cell

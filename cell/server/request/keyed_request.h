// KeyedRequest is a parsed search or get, or a write: put, delete, either with a condition, or delete of a range. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/wire.h"

namespace cell {

// The views point into the message.
struct KeyedRequest {
  MessageKind kind{};
  Pointer root;              // Root of the region that the client believes to have the key.
  Pointer hint;              // Writes: the key's leaf as far as the client knows, or null.
  std::string_view key;      // Deletes of a range: where the slice begins.
  std::string_view value;    // Puts whose value was not uploaded. Deletes of a range: where that ends; empty: nowhere.
  uint64_t crc = 0;          // Puts: CRC64 of key and value.
  uint32_t value_bytes = 0;  // Puts.
  uint16_t upload = 0;       // Puts: if not 0, the number of the upload that is the value.
  uint16_t copy = 0;         // Gets: if not 0, the number under which a large value is copied, to be fetched.
  uint64_t expires = 0;      // Puts: see PutRequest.
  std::optional<WriteCondition> condition = {};  // Of a kWriteIf.
  bool deletes = false;                          // A kWriteIf that is a delete.

  bool IsPut() const { return kind == MessageKind::kPut || (kind == MessageKind::kWriteIf && !deletes); }
};

constexpr bool IsLookup(MessageKind kind) { return kind == MessageKind::kSearch || kind == MessageKind::kGet; }
constexpr bool IsWrite(MessageKind kind) {
  return kind == MessageKind::kPut || kind == MessageKind::kDelete || kind == MessageKind::kDeleteRange ||
         kind == MessageKind::kWriteIf;
}

// Parses a request into *request, which is empty before. REQUIRES: `message` begins with a whole header of `kind`,
// which is a lookup or a write. Returns InvalidArgument if the rest is not valid.
inline absl::Status ParseKeyedRequest(MessageKind kind, ConstBytes message, KeyedRequest* request) {
  request->kind = kind;
  if (kind == MessageKind::kDeleteRange) {
    const absl::StatusOr<Parsed<RangeRequest>> parsed = ParseRangeRequest(message);
    if (!parsed.ok()) return parsed.status();
    request->root = parsed->fixed.root;
    request->key = parsed->key;
    request->value = parsed->value;
    return absl::OkStatus();
  }
  if (kind == MessageKind::kWriteIf) {
    const absl::StatusOr<ParsedWriteIf> parsed = ParseWriteIfRequest(message);
    if (!parsed.ok()) return parsed.status();
    const WriteIfRequest& write = parsed->fixed;
    *request = {kind,      write.root,        write.hint,   parsed->key, parsed->value,
                write.crc, write.value_bytes, write.upload, 0,           write.expires};
    request->condition = WriteCondition{write.condition, write.stamp, parsed->condition_value};
    request->deletes = write.deletes != 0;
    return absl::OkStatus();
  }
  if (kind != MessageKind::kPut) {
    const absl::StatusOr<Parsed<KeyRequest>> parsed = ParseKeyRequest(message);
    if (!parsed.ok()) return parsed.status();
    request->root = parsed->fixed.root;
    request->hint = parsed->fixed.hint;
    request->key = parsed->key;
    request->copy = parsed->fixed.copy;
    return absl::OkStatus();
  }
  const absl::StatusOr<Parsed<PutRequest>> parsed = ParsePutRequest(message);
  if (!parsed.ok()) return parsed.status();
  const PutRequest& put = parsed->fixed;
  *request = {kind,    put.root,        put.hint,   parsed->key, parsed->value,
              put.crc, put.value_bytes, put.upload, 0,           put.expires};
  return absl::OkStatus();
}

}  // namespace cell

// KeyedRequest is a parsed request about a key: a search or a get; an evaluation of a function; or a write, which is a
// put, a delete, either with a condition, an application of a function, a delete of a range, or a step of a
// transaction. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/crc64.h"
#include "cell/functions/functions.h"
#include "cell/layout/wire.h"
#include "cell/layout/wire_function.h"
#include "cell/layout/wire_transaction.h"
#include "fmt/format.h"

namespace cell {

// The views point into the message.
struct KeyedRequest {
  MessageKind kind{};
  Pointer root;              // Root of the region that the client believes to have the key.
  Pointer hint;              // Writes: the key's leaf as far as the client knows, or null.
  std::string_view key;      // Deletes of a range: where the slice begins.
  std::string_view value;    // Puts whose value was not uploaded. Deletes of a range: where that ends; empty: nowhere.
                             // Functions: the argument, unless it was uploaded.
  uint64_t crc = 0;          // Puts: CRC64 of key and value.
  uint32_t value_bytes = 0;  // Puts, and functions.
  uint16_t upload = 0;       // Puts, and functions: if not 0, the number of the upload that is the value.
  uint16_t copy = 0;         // Gets, and evaluations: if not 0, the number under which what is large is copied, to be
                             // fetched.
  uint64_t expires = 0;      // Puts: see PutRequest.
  bool wants_leaf = false;   // Gets: see KeyRequest.
  std::optional<WriteCondition> condition = {};  // Of a kWriteIf.
  bool deletes = false;                          // A kWriteIf that is a delete.
  const Function* function = nullptr;            // Of a kApply, or a kEvaluate.
  RequestId id = {};                             // Of a kApply, which must take effect only once if it has one.
  bool again = false;                            // A request with this id was sent before.
  uint32_t fingerprint = 0;                      // Of a kApply with an id.
  // Of a kTransact, whose `value` is its part, or of a kDecide, which has no key.
  TransactStep step{};
  Decision decision{};
  uint32_t primary = 0;
  std::string_view others = {};
  uint64_t stamp = 0;

  bool IsPut() const {
    return kind == MessageKind::kPut || kind == MessageKind::kApply || (kind == MessageKind::kWriteIf && !deletes);
  }
  // Returns whether what its key has decides what it does.
  bool Decides() const { return condition.has_value() || function != nullptr; }
};

constexpr bool IsLookup(MessageKind kind) { return kind == MessageKind::kSearch || kind == MessageKind::kGet; }
constexpr bool IsTransact(MessageKind kind) { return kind == MessageKind::kTransact || kind == MessageKind::kDecide; }
constexpr bool IsWrite(MessageKind kind) {
  return kind == MessageKind::kPut || kind == MessageKind::kDelete || kind == MessageKind::kDeleteRange ||
         kind == MessageKind::kWriteIf || kind == MessageKind::kApply || IsTransact(kind);
}
constexpr bool IsKeyed(MessageKind kind) { return IsLookup(kind) || IsWrite(kind) || kind == MessageKind::kEvaluate; }

// Returns the function that a request names. Returns InvalidArgument if this server has no such function, or if the
// function only reads and the request is to apply it, or the other way round.
inline absl::StatusOr<const Function*> FunctionNamed(std::string_view name, MessageKind kind) {
  const Function* const function = Functions().Find(name);
  if (function == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("this server has no function {}: cellctl functions lists what it has", ForMessage(name)));
  }
  if (function->writes == (kind == MessageKind::kApply)) return function;
  return absl::InvalidArgumentError(
      function->writes ? fmt::format("the function {} changes values: it is applied, not evaluated", name)
                       : fmt::format("the function {} only reads values: it is evaluated, not applied", name));
}

// Parses a request into *request, which is empty before. REQUIRES: `message` begins with a whole header of `kind`,
// which is one of IsKeyed. Returns InvalidArgument if the rest is not valid.
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
  if (kind == MessageKind::kApply || kind == MessageKind::kEvaluate) {
    const absl::StatusOr<ParsedFunction> parsed = ParseFunctionRequest(message, kind);
    if (!parsed.ok()) return parsed.status();
    const absl::StatusOr<const Function*> function = FunctionNamed(parsed->name, kind);
    if (!function.ok()) return function.status();
    request->root = parsed->fixed.root;
    request->key = parsed->key;
    request->value = parsed->value;
    request->value_bytes = parsed->fixed.argument_bytes;
    request->upload = parsed->fixed.upload;
    request->copy = parsed->fixed.copy;
    request->function = *function;
    request->id = parsed->id();
    request->again = parsed->fixed.again != 0;
    request->fingerprint = static_cast<uint32_t>(Crc64(parsed->name, Crc64(parsed->key))) ^ request->value_bytes;
    return absl::OkStatus();
  }
  if (kind == MessageKind::kTransact) {
    const absl::StatusOr<ParsedTransact> parsed = ParseTransactRequest(message);
    if (!parsed.ok()) return parsed.status();
    request->root = parsed->fixed.root;
    request->key = parsed->key;
    request->value = parsed->value;
    request->value_bytes = parsed->fixed.part_bytes;
    request->upload = parsed->fixed.upload;
    request->id = parsed->id();
    request->step = parsed->fixed.step;
    request->primary = parsed->fixed.primary;
    request->others = parsed->others;
    return absl::OkStatus();
  }
  if (kind == MessageKind::kDecide) {
    const absl::StatusOr<DecideRequest> parsed = ParseDecideRequest(message);
    if (!parsed.ok()) return parsed.status();
    request->root = parsed->root;
    request->id = {parsed->client, parsed->number, parsed->until, parsed->slot};
    request->decision = parsed->decision;
    request->stamp = parsed->stamp;
    request->expires = parsed->expires;
    return absl::OkStatus();
  }
  if (kind != MessageKind::kPut) {
    const absl::StatusOr<Parsed<KeyRequest>> parsed = ParseKeyRequest(message);
    if (!parsed.ok()) return parsed.status();
    request->root = parsed->fixed.root;
    request->hint = parsed->fixed.hint;
    request->key = parsed->key;
    request->copy = parsed->fixed.copy;
    request->wants_leaf = parsed->fixed.wants_leaf != 0;
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

#include "cell/layout/transaction.h"

#include <algorithm>

#include "absl/status/status.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status NoPart(std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("malformed part of a transaction: {}", why));
}

bool Valid(const PartOperationHeader& header) {
  const bool has_value = header.kind == PartOperationKind::kReadRange || header.kind == PartOperationKind::kPut;
  return header.kind >= PartOperationKind::kReadNothing && header.kind <= PartOperationKind::kDelete &&
         header.reserved == 0 && header.key_bytes > 0 && header.value_bytes <= (has_value ? kValueBytesMax : 0) &&
         (header.kind == PartOperationKind::kPut || header.expires == kNeverExpires);
}

}  // namespace

void AppendOperation(const PartOperation& operation, std::string* part) {
  PartOperationHeader header{};
  header.digest = operation.digest;
  header.expires = operation.expires;
  header.value_bytes = static_cast<uint32_t>(operation.value.size());
  header.key_bytes = static_cast<uint16_t>(operation.key.size());
  header.kind = operation.kind;
  part->append(reinterpret_cast<const char*>(&header), sizeof(header));
  part->append(operation.key).append(operation.value);
}

absl::StatusOr<std::vector<PartOperation>> ParseOperations(std::string_view part) {
  std::vector<PartOperation> operations;
  std::vector<std::string_view> written;
  while (!part.empty()) {
    if (part.size() < sizeof(PartOperationHeader)) return NoPart("it ends in an operation");
    if (operations.size() == kTransactionOperationsMax) return NoPart("it has too many operations");
    const auto header = Load<PartOperationHeader>(AsBytes(part).data());
    part.remove_prefix(sizeof(header));
    if (!Valid(header)) return NoPart("it has an invalid operation");
    if (part.size() < size_t{header.key_bytes} + header.value_bytes) return NoPart("it ends in an operation");
    PartOperation operation{header.kind, part.substr(0, header.key_bytes), {}, header.digest, header.expires};
    operation.value = part.substr(header.key_bytes, header.value_bytes);
    part.remove_prefix(size_t{header.key_bytes} + header.value_bytes);
    const bool backwards = !operation.value.empty() && operation.value <= operation.key;
    if (operation.kind == PartOperationKind::kReadRange && backwards) return NoPart("it has an empty range");
    if (operation.writes()) written.push_back(operation.key);
    operations.push_back(operation);
  }
  if (operations.empty()) return NoPart("it is empty");
  std::sort(written.begin(), written.end());
  if (std::adjacent_find(written.begin(), written.end()) != written.end()) return NoPart("it writes a key twice");
  return operations;
}

std::string EncodePrepared(const PreparedPart& prepared) {
  PreparedHeader header{};
  header.client = prepared.id.client;
  header.number = prepared.id.number;
  header.until = prepared.id.until;
  header.stamp = prepared.stamp;
  header.fingerprint = prepared.fingerprint;
  header.user = prepared.user;
  header.primary = prepared.primary;
  header.slot = prepared.id.slot;
  header.others = static_cast<uint8_t>(prepared.others.size() / sizeof(uint32_t));
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  return bytes.append(prepared.others).append(prepared.part);
}

absl::StatusOr<PreparedPart> ParsePrepared(std::string_view bytes) {
  if (bytes.size() < sizeof(PreparedHeader)) return NoPart("its record is too short");
  const auto header = Load<PreparedHeader>(AsBytes(bytes).data());
  bytes.remove_prefix(sizeof(header));
  const size_t others_bytes = header.others * sizeof(uint32_t);
  if (header.client == 0 || header.slot >= kRequestSlots || header.reserved != 0 || header.stamp > kLastStampMax ||
      header.others >= kTransactionRegionsMax || bytes.size() < others_bytes) {
    return NoPart("its record is not valid");
  }
  PreparedPart prepared{{header.client, header.number, header.until, header.slot},
                        header.stamp,
                        header.fingerprint,
                        header.user,
                        header.primary,
                        bytes.substr(0, others_bytes),
                        bytes.substr(others_bytes)};
  if (const auto operations = ParseOperations(prepared.part); !operations.ok()) return operations.status();
  return prepared;
}

}  // namespace cell

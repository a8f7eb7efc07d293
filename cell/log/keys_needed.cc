#include "cell/log/keys_needed.h"

#include <optional>
#include <vector>

#include "cell/base/status_macros.h"
#include "cell/io/file/block_buffer.h"
#include "cell/log/data_keys.h"
#include "cell/log/record_cipher.h"

namespace cell {
namespace {

void Count(const std::string& name, KeysNeeded::Files* files) {
  if (files->count++ == 0) files->example = name;
}

}  // namespace

absl::StatusOr<KeysNeeded> FindKeysNeeded(LogStore* store) {
  KeysNeeded needed;
  BlockBuffer block(kBlockBytes);
  ASSIGN_OR_RETURN(const std::vector<uint32_t> regions, store->Regions());
  for (const uint32_t region : regions) {
    const absl::StatusOr<std::vector<LogPart>> parts = store->List(region);
    if (absl::IsNotFound(parts.status())) continue;
    if (!parts.ok()) return parts.status();
    for (const LogPart& part : *parts) {
      const absl::StatusOr<size_t> read = store->Read(region, part, 0, {block.data(), block.size()});
      if (absl::IsNotFound(read.status())) continue;  // A checkpoint has replaced it since.
      if (!read.ok()) return read.status();
      const std::optional<LogRecord> first = ParseRecord(AsText({block.data(), *read}), region);
      if (!first.has_value() || first->kind != RecordKind::kBegin) continue;
      const auto id = KeyIdOf(*first);
      Count(part.name, id.has_value() ? &needed.by_key[IdText(*id)] : &needed.plain);
    }
  }
  return needed;
}

}  // namespace cell

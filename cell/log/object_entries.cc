#include "cell/log/object_entries.h"

#include <cinttypes>
#include <cstdio>
#include <utility>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/log/log_parts.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr std::string_view kUnfinished = "+";
constexpr std::string_view kGoing = " going";
constexpr std::string_view kEnd = "end";

absl::Status DamagedEntry(uint32_t region, const std::string& key, const std::string& value, std::string_view why) {
  return absl::DataLossError(fmt::format("the object {} of the log store is damaged: its entry {} is {}, {}",
                                         HeadOf(region), ForMessage(key), ForMessage(value), why));
}

std::optional<PartObjects> Parse(const std::string& text) {
  uint32_t count = 0, nonce = 0;
  if (std::sscanf(text.c_str(), "%" SCNu32 " %" SCNx32, &count, &nonce) != 2) return std::nullopt;
  const PartObjects parsed{count, fmt::format("{:08x}", nonce), text.ends_with(kGoing)};
  return parsed.ToText() == text ? std::optional(parsed) : std::nullopt;
}

}  // namespace

std::string PartObjects::ToText() const { return fmt::format("{} {}{}", count, nonce, going ? kGoing : ""); }

std::string HeadOf(uint32_t region) { return fmt::format("region-{}", region); }
std::string UnfinishedKey(std::string_view part) { return fmt::format("{}{}", kUnfinished, part); }

std::optional<std::string> UnfinishedPart(const std::string& key) {
  if (!key.starts_with(kUnfinished)) return std::nullopt;
  return key.substr(kUnfinished.size());
}

absl::StatusOr<PartObjects> ParseEntry(uint32_t region, const std::string& key, const std::string& value) {
  std::optional<PartObjects> parsed = Parse(value);
  if (!parsed.has_value()) return DamagedEntry(region, key, value, "which is no number of objects");
  if (parsed->count > kPartObjectsMax) {
    return DamagedEntry(region, key, value, fmt::format("more than {} objects", kPartObjectsMax));
  }
  if (UnfinishedPart(key).has_value()) return *std::move(parsed);
  if (parsed->count == 0) return DamagedEntry(region, key, value, "but each part has an object");
  if (parsed->going) return DamagedEntry(region, key, value, "but no part of the log is being removed");
  return *std::move(parsed);
}

absl::Status CheckEntries(uint32_t region, const ObjectEntries& entries) {
  for (const auto& [key, value] : entries) {
    if (ParsePart(UnfinishedPart(key).value_or(key)).has_value()) {
      RETURN_IF_ERROR(ParseEntry(region, key, value).status());
    } else if (!ParsePartName(key, kEnd).has_value()) {
      return DamagedEntry(region, key, value, "and no entry has such a key");
    } else if (!value.empty()) {
      return DamagedEntry(region, key, value, "but it should be empty");
    }
  }
  return absl::OkStatus();
}

std::optional<uint32_t> EpochOf(std::string_view text) {
  if (text.starts_with(kUnfinished)) text.remove_prefix(kUnfinished.size());
  uint64_t sequence = 0;
  uint32_t epoch = 0;
  const std::string start(text);
  if (std::sscanf(start.c_str(), "%" SCNx64 ".%" SCNx32, &sequence, &epoch) != 2) return std::nullopt;
  if (!start.starts_with(ToText({sequence, epoch}, ""))) return std::nullopt;
  return epoch;
}

}  // namespace cell

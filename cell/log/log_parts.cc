#include "cell/log/log_parts.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "fmt/format.h"

namespace cell {

std::string ToText(const PartName& name, std::string_view kind) {
  return fmt::format("{:016x}.{:08x}.{}", name.sequence, name.epoch, kind);
}

std::optional<PartName> ParsePartName(std::string_view text, std::string_view kind) {
  PartName name;
  if (std::sscanf(std::string(text).c_str(), "%" SCNx64 ".%" SCNx32, &name.sequence, &name.epoch) != 2) {
    return std::nullopt;
  }
  if (text != ToText(name, kind)) return std::nullopt;
  return name;
}

std::optional<LogPart> ParsePart(std::string_view text) {
  if (const std::optional<PartName> segment = ParsePartName(text, "log")) {
    return LogPart{LogPart::Kind::kSegment, segment->sequence, segment->epoch, std::string(text)};
  }
  if (const std::optional<PartName> checkpoint = ParsePartName(text, "checkpoint")) {
    return LogPart{LogPart::Kind::kCheckpoint, checkpoint->sequence, checkpoint->epoch, std::string(text)};
  }
  return std::nullopt;
}

void SortParts(std::vector<LogPart>* parts) {
  std::sort(parts->begin(), parts->end(), [](const LogPart& a, const LogPart& b) {
    return std::pair(a.epoch, a.sequence) < std::pair(b.epoch, b.sequence);
  });
}

std::vector<LogPart> PartsNotNeeded(const std::vector<LogPart>& parts, uint64_t sequence) {
  std::vector<LogPart> not_needed;
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    bool needed = part->sequence >= sequence;
    if (!needed && part->kind == LogPart::Kind::kSegment) {
      // All its records come before `sequence` if another segment begins there or earlier.
      needed = std::none_of(part + 1, parts.end(), [sequence](const LogPart& next) {
        return next.kind == LogPart::Kind::kSegment && next.sequence <= sequence;
      });
    }
    if (!needed) not_needed.push_back(*part);
  }
  return not_needed;
}

}  // namespace cell

// Names of the parts of a region's log, and which of them a recovery needs. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cell/log/log_store.h"

namespace cell {

struct PartName {
  uint64_t sequence = 0;
  uint32_t epoch = 0;

  auto operator<=>(const PartName&) const = default;
};

// Returns SEQUENCE.EPOCH.KIND, for example 00000000000004d2.00000002.log.
std::string ToText(const PartName& name, std::string_view kind);
// Returns nullopt if the text is not the name of a part of this kind.
std::optional<PartName> ParsePartName(std::string_view text, std::string_view kind);
// Returns the part that a text such as 00000000000004d2.00000002.checkpoint names, with the text as its name, or
// nullopt if it names none.
std::optional<LogPart> ParsePart(std::string_view text);

// Sorts parts by epoch and sequence.
void SortParts(std::vector<LogPart>* parts);
// Returns the parts that a recovery does not need which begins with record `sequence`. `parts` are sorted.
std::vector<LogPart> PartsNotNeeded(const std::vector<LogPart>& parts, uint64_t sequence);

}  // namespace cell

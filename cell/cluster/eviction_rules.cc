#include "cell/cluster/eviction_rules.h"

#include <algorithm>
#include <array>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"none", "ttl", "lru-sampled"};

}  // namespace

std::string_view ToString(Eviction eviction) { return kNames[static_cast<size_t>(eviction)]; }

std::optional<Eviction> ParseEviction(std::string_view name) {
  const auto* const it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<Eviction>(it - kNames.begin());
}

absl::Status EvictionRules::Set(std::string_view prefix, std::optional<Eviction> eviction) {
  if (prefix.size() > kPrefixBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("a prefix of {} bytes is too long: at most {}", prefix.size(), kPrefixBytesMax));
  }
  auto rules = by_prefix_;
  if (eviction.has_value()) {
    rules.insert_or_assign(std::string(prefix), *eviction);
  } else {
    rules.erase(std::string(prefix));
  }
  if (rules.size() > kRulesMax) {
    return absl::ResourceExhaustedError(
        fmt::format("there are {} rules, the limit: remove one (cellctl evict {} --prefix P)", kRulesMax, kNoRule));
  }
  by_prefix_ = std::move(rules);
  Changed();
  return absl::OkStatus();
}

void EvictionRules::SetTable(std::string_view table, std::optional<Eviction> eviction) {
  if (eviction.has_value()) {
    by_table_.insert_or_assign(std::string(table), *eviction);
  } else {
    by_table_.erase(std::string(table));
  }
  Changed();
}

void EvictionRules::Changed() {
  on_ = needs_use_ = false;
  for (const Rules* const rules : {&by_prefix_, &by_table_}) {
    for (const auto& [name, eviction] : *rules) {
      on_ |= eviction != Eviction::kNone;
      needs_use_ |= eviction == Eviction::kLru;
    }
  }
}

Eviction EvictionRules::Of(std::string_view key) const {
  // Among prefixes of one key, the longer ones are greater.
  for (auto it = by_prefix_.rbegin(); it != by_prefix_.rend(); ++it) {
    if (key.substr(0, it->first.size()) == it->first) return it->second;
  }
  return Eviction::kNone;
}

Eviction EvictionRules::OfTable(std::string_view table) const {
  const auto it = by_table_.find(table);
  return it == by_table_.end() ? Eviction::kNone : it->second;
}

std::optional<std::string> EndOfPrefix(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && end.back() == '\xff') end.pop_back();
  if (end.empty()) return std::nullopt;
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

}  // namespace cell

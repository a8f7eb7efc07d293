// EvictionRules says which pairs of the tree may be deleted when a worker has no room left (docs/guarantees.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cell {

enum class Eviction : uint8_t {
  kNone,  // A pair stays until it is deleted or expires.
  kTtl,   // Pairs with an expiry may go; of some, those go that would expire first.
  kLru,   // Any pair may go; of some, those go that were not used for longest.
};

// Returns "none", "ttl" or "lru-sampled", the names that users give.
std::string_view ToString(Eviction eviction);
std::optional<Eviction> ParseEviction(std::string_view name);
// The name that users give to remove a rule.
inline constexpr std::string_view kNoRule = "default";

// A rule for the keys with a prefix. For a key, the rule with its longest prefix counts; with none, nothing is evicted.
class EvictionRules {
 public:
  // Servers look through all rules for each pair that they consider, and each member of a cluster has them.
  static constexpr size_t kRulesMax = 64;
  static constexpr size_t kPrefixBytesMax = 64;

  // Sets the rule of a prefix. Nullopt removes it: the rule of a shorter prefix counts then. Returns InvalidArgument if
  // the prefix is too long, and ResourceExhausted if there are as many rules as there may be.
  absl::Status Set(std::string_view prefix, std::optional<Eviction> eviction);

  Eviction Of(std::string_view key) const;
  // Returns whether some pairs may be evicted at all.
  bool on() const { return on_; }
  // Returns whether some rule needs to know when pairs were used.
  bool needs_use() const { return needs_use_; }
  const std::map<std::string, Eviction, std::less<>>& by_prefix() const { return by_prefix_; }

  bool operator==(const EvictionRules& other) const { return by_prefix_ == other.by_prefix_; }

 private:
  std::map<std::string, Eviction, std::less<>> by_prefix_;
  bool on_ = false;
  bool needs_use_ = false;
};

// Returns the first key behind all keys with this prefix, or nullopt if no key is behind them.
std::optional<std::string> EndOfPrefix(std::string_view prefix);

}  // namespace cell

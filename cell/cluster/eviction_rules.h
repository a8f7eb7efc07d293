// EvictionRules says which pairs may be deleted when a worker has no room left (docs/guarantees.md).
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

// Rules for the keys of the tree with a prefix, and for whole Pilaf tables. For a key of the tree, the rule with its
// longest prefix counts; with none, nothing is evicted.
class EvictionRules {
 public:
  // Servers look through all rules for each pair that they consider, and each member of a cluster has them.
  static constexpr size_t kRulesMax = 64;
  static constexpr size_t kPrefixBytesMax = 64;

  // Sets the rule of a prefix. Nullopt removes it: the rule of a shorter prefix counts then. Returns InvalidArgument if
  // the prefix is too long, and ResourceExhausted if there are as many rules as there may be.
  absl::Status Set(std::string_view prefix, std::optional<Eviction> eviction);

  // Sets the rule of a table. Nullopt removes it: nothing is evicted there.
  void SetTable(std::string_view table, std::optional<Eviction> eviction);

  // Returns the rule for a key of the tree, or for a table.
  Eviction Of(std::string_view key) const;
  Eviction OfTable(std::string_view table) const;
  // Returns whether some pairs may be evicted at all.
  bool on() const { return on_; }
  // Returns whether some rule needs to know when pairs were used.
  bool needs_use() const { return needs_use_; }
  using Rules = std::map<std::string, Eviction, std::less<>>;
  const Rules& by_prefix() const { return by_prefix_; }
  const Rules& by_table() const { return by_table_; }

  bool operator==(const EvictionRules& other) const = default;

 private:
  void Changed();

  Rules by_prefix_;
  Rules by_table_;
  bool on_ = false;
  bool needs_use_ = false;
};

// Returns the first key behind all keys with this prefix, or nullopt if no key is behind them.
std::optional<std::string> EndOfPrefix(std::string_view prefix);

}  // namespace cell

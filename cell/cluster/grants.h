// Grants say which user may do what with which pairs (docs/operations/security.md). The region table keeps them.
//
// A user is a client, named as in its certificate or its secret (cell/layout/identity.h): client/alice is the user
// alice. `*` stands for every client. Operators and servers need no grants.
//
// Grants count only once they are enforced. Until then every client may do everything.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/identity.h"

namespace cell {

// A right includes others: who may scan may read, and who administers may do everything.
enum class Right : uint8_t {
  kRead,   // Get a pair, and ask whether it is there and for how long.
  kScan,   // Also list and count the keys of a range with their values.
  kWrite,  // Put and delete.
  kAdmin,  // All of it; also change grants and rules of eviction, and drop the table.
};
inline constexpr size_t kRights = 4;

std::string_view ToString(Right right);

// A set of rights, as they were given.
class Rights {
 public:
  constexpr Rights() = default;

  // Returns nullopt unless the text is a list such as read,write.
  static std::optional<Rights> Parse(std::string_view text);

  void Add(Rights rights) { bits_ |= rights.bits_; }
  // Removes all rights that are one of these or include one. Afterwards it has none of them.
  void Remove(Rights rights);

  // Returns whether it has this right, or one that includes it.
  bool Has(Right right) const;
  constexpr bool empty() const { return bits_ == 0; }
  std::string ToText() const;  // For example "read,write".

  constexpr auto operator<=>(const Rights&) const = default;

 private:
  uint8_t bits_ = 0;
};

// The pairs that a grant is for.
struct GrantScope {
  enum class Kind : uint8_t {
    kEverything,  // The tree and all tables.
    kPrefix,      // Keys of the tree that begin with `name`.
    kTable,       // The Pilaf table `name`.
  };
  Kind kind = Kind::kEverything;
  std::string name = {};

  auto operator<=>(const GrantScope&) const = default;
};

// Returns, for messages, "the table users", "keys that begin with a/", and so on.
std::string ToString(const GrantScope& scope);

class Grants {
 public:
  // Each member of a cluster has all grants, and they share a znode with the region table.
  static constexpr size_t kGrantsMax = 500;
  static constexpr size_t kPrefixBytesMax = 64;
  static constexpr std::string_view kEveryUser = "*";

  using OfUser = std::map<GrantScope, Rights>;
  using ByUser = std::map<std::string, OfUser, std::less<>>;

  // Returns InvalidArgument if the user cannot have this name, the prefix is too long, or there are no rights to give,
  // and ResourceExhausted if there are as many grants as there may be.
  absl::Status Give(std::string_view user, const GrantScope& scope, Rights rights);
  // Takes rights, and those that include one of them. Returns NotFound if the user has none of these rights there. What
  // a wider scope gives stays.
  absl::Status Take(std::string_view user, const GrantScope& scope, Rights rights);
  // Takes all grants that are for a table, which is dropped: another one of this name is another table.
  void DropTable(std::string_view table);

  bool enforced() const { return enforced_; }
  void Enforce(bool enforced);

  const ByUser& by_user() const { return by_user_; }
  // Counts changes.
  uint64_t version() const { return version_; }
  // For reading a region table.
  void SetVersion(uint64_t version) { version_ = version; }

  bool operator==(const Grants&) const = default;

 private:
  bool enforced_ = false;
  uint64_t version_ = 0;
  ByUser by_user_;
};

// The keys from `from` to `to`, exclusive.
struct KeySpan {
  std::string from;
  std::optional<std::string> to;  // Nullopt: there is no end.
};

// What one user may do, in a form that is quick to ask.
class UserRights {
 public:
  // Nothing.
  UserRights() = default;
  // What a client of this name may do by grants that are enforced.
  UserRights(const Grants& grants, std::string_view user);

  bool OfKey(Right right, std::string_view key) const { return SpanOf(right, key) != nullptr; }
  bool OfTable(Right right, std::string_view table) const;
  // Returns whether the user has the right for all keys of the tree from `from` to `to`, exclusive; without `to`, to
  // the last.
  bool OfRange(Right right, std::string_view from, std::optional<std::string_view> to) const;
  // Returns the longest span that has `key`, for all of whose keys the user has the right. Returns null if there is
  // none.
  const KeySpan* SpanOf(Right right, std::string_view key) const;
  bool OfScope(Right right, const GrantScope& scope) const;
  // Returns whether the user has the right for something.
  bool Somewhere(Right right) const;
  // Returns whether the user may read the memory of regions: it holds pairs of the tree and of tables, one day these
  // and another day those.
  bool OfMemory() const { return everything_.Has(Right::kScan); }

 private:
  std::vector<KeySpan>& spans(Right right) { return spans_[static_cast<size_t>(right)]; }
  const std::vector<KeySpan>& spans(Right right) const { return spans_[static_cast<size_t>(right)]; }

  Rights everything_;
  std::array<std::vector<KeySpan>, kRights> spans_;  // In order; no two of them touch.
  std::map<std::string, Rights, std::less<>> tables_;
};

// Returns the clients that may read the memory of regions. REQUIRES: the grants are enforced. The set may have
// Grants::kEveryUser.
std::set<std::string, std::less<>> ReadersOfMemory(const Grants& grants);

}  // namespace cell

// RegionTable says which worker holds which region, and where the root of the tree is. Pure: no I/O.
//
// All members of a cluster agree on it. A Membership stores it and changes it atomically. A region's epoch grows with
// each change of its owner, and also if its owner claims it again or takes it back. Ids are used again (RegionIds).
//
// The root is a hint that is always usable: any meganode that was the root is still the first of its tier, and right
// links lead from it to every key.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/mutant.h"
#include "cell/cluster/eviction_rules.h"
#include "cell/cluster/grants.h"
#include "cell/cluster/hash_parts.h"
#include "cell/cluster/region_ids.h"
#include "cell/cluster/region_map.h"
#include "cell/cluster/worker_id.h"
#include "cell/layout/pointer.h"

namespace cell {

struct RegionTable {
  using Entry = RegionEntry;

  // How many regions a table may have: somewhat more than it was measured with (docs/results/region-table.md).
  static constexpr uint32_t kRegionsMax = 131'072;

  // All members have the names of all tables and draining servers.
  static constexpr size_t kTablesMax = 1'000;
  static constexpr size_t kDrainingMax = 2'000;

  uint64_t version = 0;  // Counts changes.
  RegionIds ids;
  uint32_t root = 0;  // The region whose meganode is the root of the tree; 0: none yet.
  RegionMap regions;
  uint32_t regions_max = kRegionsMax;                    // Tests set a lower one.
  std::map<std::string, HashParts, std::less<>> tables;  // Keyed by name.
  std::set<std::string> draining;                        // Servers that should not hold regions.
  EvictionRules evictions;
  Grants grants;
  std::deque<std::string> made;  // The ids of the last changes, for members whose answer was lost.

  const Entry* Find(uint32_t region) const { return regions.Find(region); }
  // Returns whether the region that has had this epoch has been removed. There may be another one with its id.
  bool IsGone(uint32_t region, uint64_t epoch) const {
    const Entry* const entry = Find(region);
    return entry == nullptr || (entry->first_epoch > epoch && !Mutated(Mutant::kGoneById));
  }
  size_t CountOf(const WorkerId& worker) const;
  // Returns Aborted unless the region is in the table with this epoch.
  absl::Status CheckEpoch(uint32_t region, uint64_t epoch) const;
  // Returns Aborted if the table has a region that is being split off from this one.
  absl::Status CheckNotSplit(uint32_t region) const;

  // Changes. An error leaves the table unchanged.

  // Removes all regions and tables, with the rules and grants of these tables. Rules and grants for keys stay.
  void Clear();
  // Adds a region that `owner` holds and returns its id. Returns ResourceExhausted if the table is full, or if all ids
  // are in use.
  absl::StatusOr<uint32_t> Add(const WorkerId& owner, std::optional<uint32_t> split_parent = {});
  // Marks a region as part of the tree.
  void Joined(uint32_t region);
  // Changes the owner of `region`. Returns Aborted if its epoch is not `epoch` any more, or if it is gone. Returns
  // ResourceExhausted if it has used all epochs.
  absl::Status Move(uint32_t region, uint64_t epoch, const WorkerId& to);
  // Works like Move, for a region whose owner is gone: `to` recovers it, together with its unfinished split children.
  absl::Status Claim(uint32_t region, uint64_t epoch, const WorkerId& to);
  // Marks a region as recovered and served. `cuts` lists the split children that were cut off according to its log (for
  // a table, each with its first hash position). Those join, and are recovered on their own. The other split children
  // are removed. This must be one change: the region may be cut at the same key again, and a later owner could not tell
  // the new child from an old one. Returns Aborted like Move.
  absl::Status Recovered(uint32_t region, uint64_t epoch, const std::map<uint32_t, uint32_t>& cuts);
  // Removes `right`, whose keys `left` has from now on. Returns Aborted if the epochs are others by now or one of them
  // is being split, and FailedPrecondition if `right` holds the root, or if one of them is part of a table and `right`
  // is not the part above `left`. Returns OK if `right` is gone already: only this change removes a region that has a
  // left neighbour, or the drop of a table, after which none of its parts is used.
  absl::Status Join(uint32_t left, uint64_t left_epoch, uint32_t right, uint64_t right_epoch);
  // Removes the root, whose only child becomes the root. Returns Aborted if the root's epoch is another by now or it is
  // being split, or if the child is not in the table. Returns OK if the old root is gone already: only this change
  // removes a root.
  absl::Status LowerRoot(uint32_t from, uint64_t epoch, uint32_t child);
  // Makes `to` the root, which leads to the root `from` and to its right neighbour `child`. Returns Aborted if the root
  // is not `from` any more, or if `child` has another epoch by now or was joined. Returns OK if `to` is the root.
  absl::Status RaiseRoot(uint32_t from, uint32_t to, uint32_t child, uint64_t epoch);
  // Changes the root. Returns Aborted if the root is not `from` any more.
  absl::Status SetRoot(uint32_t from, uint32_t to);
  absl::Status Remove(uint32_t region);
  // Removes all regions that meet a condition, whatever they are used for.
  void EraseIf(const std::function<bool(uint32_t region, const Entry& entry)>& condition);

  // Checks a table's name: 1 to kTableNameMax letters, digits, '-', '_', '.'.
  static constexpr size_t kTableNameMax = 64;
  static absl::Status CheckTableName(std::string_view name);
  // Adds a table with one part, in `region`, which joins. Returns AlreadyExists if the name is taken, and
  // ResourceExhausted if there are kTablesMax tables.
  absl::Status CreateTable(const std::string& name, uint32_t bucket_bytes, uint32_t region, uint32_t parts_min = 1);
  // Removes a table with all its regions. Returns NotFound if there is none.
  absl::Status DropTable(const std::string& name);
  // Splits the part of `region`: hash positions from `first` on belong to `to` now, which joins. Returns NotFound if
  // `region` is not part of a table (any more), and Aborted if another part begins there.
  absl::Status SplitPart(uint32_t region, uint32_t first, uint32_t to);
  // Returns the Pilaf table to which `region` belongs, or tables.end() if it belongs to none.
  std::map<std::string, HashParts, std::less<>>::const_iterator TableOf(uint32_t region) const;

  // Sets the rule of a Pilaf table, or of the keys of the tree with a prefix if `of` is empty. Nullopt removes it.
  // Returns NotFound if there is no such table, InvalidArgument if there are a table and a prefix, and errors like
  // EvictionRules::Set.
  absl::Status SetEviction(const std::string& of, const std::string& prefix, std::optional<Eviction> eviction);

  // Marks a server as draining. Returns ResourceExhausted if kDrainingMax others are.
  absl::Status Drain(const std::string& server);

  // Gives a user rights, or takes them. Returns NotFound if the scope is a table that does not exist, and errors like
  // Grants::Give and Take.
  absl::Status ChangeGrant(const std::string& user, const GrantScope& scope, Rights rights, bool give);

  // Made records the id of a change. WasMade returns whether the id is one of the last kMadeMax.
  static constexpr size_t kMadeMax = 64;
  void Made(const std::string& id);
  bool WasMade(const std::string& id) const;

  std::string ToJson() const;
  // Returns InvalidArgument if the text is not a table, or if its values are invalid.
  static absl::StatusOr<RegionTable> Parse(const std::string& json);

  bool operator==(const RegionTable&) const = default;

 private:
  void Erase(uint32_t region);
  // Makes `region`, which joins, the part of a table from hash position `first` on. REQUIRES: both exist.
  void AddPart(const std::string& name, uint32_t first, uint32_t region);
};

}  // namespace cell

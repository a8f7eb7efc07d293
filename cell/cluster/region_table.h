// RegionTable: which worker holds which region, and where the root of the tree is. Pure: no I/O.
//
// It is the one thing that all members of a cluster agree on; a Membership keeps it and changes it atomically. Region
// ids are handed out once and never again. An epoch grows each time a region changes hands.
//
// The root is a hint that never leads astray: any meganode that was the root is still the first of its tier, and right
// links lead from it to every key.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/layout/pointer.h"

namespace cell {

struct WorkerId {
  std::string server;
  uint32_t worker = 0;
  auto operator<=>(const WorkerId&) const = default;
};

inline std::string ToString(const WorkerId& id) { return fmt::format("{}.{}", id.server, id.worker); }

struct RegionTable {
  struct Entry {
    WorkerId owner;
    uint64_t epoch = 1;
    // Not part of the tree yet: the region it is split from, or 0 for a root in the making. It shares that one's fate.
    std::optional<uint32_t> split_parent = {};
    // Its owner has it from a log, and does not serve it yet.
    bool recovering = false;
    bool operator==(const Entry&) const = default;
  };

  // A Pilaf table: each region has the keys of a part of the hash space (KeyHash::place).
  struct HashParts {
    uint32_t bucket_bytes = 0;           // 0: in slots.
    std::map<uint32_t, uint32_t> parts;  // Regions, by the first place of each part; the first begins at 0.
    // That of a place.
    uint32_t RegionOf(uint32_t place) const { return std::prev(parts.upper_bound(place))->second; }
    bool operator==(const HashParts&) const = default;
  };

  uint64_t version = 0;  // Counts changes.
  uint32_t next_region = 1;
  uint32_t root = 0;  // The region whose meganode is the root of the tree; 0: none yet.
  std::map<uint32_t, Entry> regions;
  std::map<std::string, HashParts, std::less<>> tables;  // By name.
  std::set<std::string> draining;                        // Servers that shall hold no regions.
  std::deque<std::string> made;                          // The ids of the last changes, for who lost the answer.

  const Entry* Find(uint32_t region) const {
    const auto it = regions.find(region);
    return it == regions.end() ? nullptr : &it->second;
  }
  size_t CountOf(const WorkerId& worker) const;

  // Changes. An error leaves the table as it was.

  // A new region, held by `owner`. ResourceExhausted when all ids were handed out.
  absl::StatusOr<uint32_t> Add(const WorkerId& owner, std::optional<uint32_t> split_parent = {});
  // It is part of the tree.
  void Joined(uint32_t region);
  // `region` changes hands. Aborted when it has another epoch than `epoch` by now, or is gone. ResourceExhausted when it
  // has had all epochs.
  absl::Status Move(uint32_t region, uint64_t epoch, const WorkerId& to);
  // As Move, of a region whose owner is gone: `to` recovers it, with those that are made for it.
  absl::Status Claim(uint32_t region, uint64_t epoch, const WorkerId& to);
  // And then it serves it. Of those that are made for it, the ones that were cut off it by its log (of a table, each
  // with its first place) join, and are recovered on their own; the others go. In the same change: it may be cut at the
  // same key again, and whoever comes then could not tell the right one from one of before. Aborted: as Move.
  absl::Status Recovered(uint32_t region, uint64_t epoch, const std::map<uint32_t, uint32_t>& cuts);
  // Aborted when the root is not `from` any more.
  absl::Status SetRoot(uint32_t from, uint32_t to);
  absl::Status Remove(uint32_t region);

  // What a table may be called: 1 to kTableNameMax letters, digits, '-', '_', '.'.
  static constexpr size_t kTableNameMax = 64;
  static absl::Status CheckTableName(std::string_view name);
  // A table of one part, in `region`, which joins. AlreadyExists: there is one of this name.
  absl::Status CreateTable(const std::string& name, uint32_t bucket_bytes, uint32_t region);
  // With all its regions. NotFound: there is none.
  absl::Status DropTable(const std::string& name);
  // What part `region` has, from `first` on is in `to` now, which joins. NotFound: it is part of no table (any more).
  absl::Status SplitPart(uint32_t region, uint32_t first, uint32_t to);
  // The table that `region` is part of; tables.end(): of none.
  std::map<std::string, HashParts, std::less<>>::const_iterator TableOf(uint32_t region) const;

  // Notes the id of the change, and whether it was one of the last kMadeMax.
  static constexpr size_t kMadeMax = 64;
  void Made(const std::string& id);
  bool WasMade(const std::string& id) const;

  std::string ToJson() const;
  // InvalidArgument when it is no table, or its values make no sense.
  static absl::StatusOr<RegionTable> Parse(const std::string& json);

  bool operator==(const RegionTable&) const = default;
};

}  // namespace cell

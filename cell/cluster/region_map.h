// RegionMap maps the ids of a cluster's regions to what the region table knows of them, in order of the ids. Pure: no
// I/O.
//
// It consists of shards of up to kShardMax neighbouring ids. A shard is immutable and shared by all copies of the map;
// a change replaces it. So a copy of a map of 100,000 regions takes a few microseconds, and a change of a region leaves
// all other shards as they are: only shards that were replaced are stored and sent again (table_shards.h).
//
// Thread-safety: copies may be used by different threads, because what they share never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cell/cluster/worker_id.h"

namespace cell {

struct RegionEntry {
  WorkerId owner;
  uint64_t epoch = 1;
  // Set if the region is not part of the tree yet: its split parent, or 0 for a future root. It goes wherever its split
  // parent goes.
  std::optional<uint32_t> split_parent = {};
  // The owner is recovering it from a log, and does not serve it yet.
  bool recovering = false;
  uint64_t first_epoch = 1;  // Its epoch when it was added.
  // The Pilaf table that it is a part of, and the first hash position of the part. Empty: it is not part of any.
  std::string table = {};
  uint32_t first_position = 0;
  bool operator==(const RegionEntry&) const = default;
};

class RegionMap {
 public:
  using value_type = std::pair<uint32_t, RegionEntry>;
  using Entries = std::vector<value_type>;

  static constexpr size_t kShardMax = 256;  // Regions.

  // Holds the regions with ids from `first` on, and before the first id of the next shard.
  struct Shard {
    uint32_t first = 0;    // 0 for the first shard.
    uint64_t version = 0;  // Version of the region table in which it was stored as it is. 0: it was changed since.
    uint32_t split_children = 0;  // Number of entries that have a split parent.
    uint32_t parts = 0;           // Number of entries that are parts of Pilaf tables.
    std::shared_ptr<const Entries> entries;
  };

  // Iterates over pairs of an id and its entry. A change of the map invalidates all iterators and references.
  class const_iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = RegionMap::value_type;
    using difference_type = std::ptrdiff_t;
    using pointer = const value_type*;
    using reference = const value_type&;

    const_iterator() = default;
    reference operator*() const { return (*(*shards_)[shard_].entries)[at_]; }
    pointer operator->() const { return &**this; }
    const_iterator& operator++() {
      if (++at_ == (*shards_)[shard_].entries->size()) ++shard_, at_ = 0;
      return *this;
    }
    const_iterator operator++(int) {
      const const_iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const const_iterator& other) const { return shard_ == other.shard_ && at_ == other.at_; }

   private:
    friend class RegionMap;
    const_iterator(const std::vector<Shard>* shards, size_t shard, size_t at)
        : shards_(shards), shard_(shard), at_(at) {}
    const std::vector<Shard>* shards_ = nullptr;
    size_t shard_ = 0;
    size_t at_ = 0;
  };

  RegionMap() = default;
  RegionMap(std::initializer_list<value_type> regions) {
    for (const auto& [region, entry] : regions) Set(region, entry);
  }
  // Makes a map of regions that are in order of their ids, each once.
  static RegionMap Of(Entries regions);
  // Makes a map of shards. Returns InvalidArgument unless they are in order, none is empty or too large, the first one
  // begins at 0, and each has only its own ids, in order.
  static absl::Status Make(std::vector<Shard> shards, RegionMap* made);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const_iterator begin() const { return {&shards_, 0, 0}; }
  const_iterator end() const { return {&shards_, shards_.size(), 0}; }
  // Returns null if there is no such region. A change of the map invalidates the entry.
  const RegionEntry* Find(uint32_t region) const;
  bool contains(uint32_t region) const { return Find(region) != nullptr; }
  // REQUIRES: contains(region).
  const RegionEntry& at(uint32_t region) const;

  // Adds a region, or replaces its entry.
  void Set(uint32_t region, RegionEntry entry);
  // Changes a region's entry. REQUIRES: contains(region).
  void Change(uint32_t region, const std::function<void(RegionEntry*)>& change);
  // Removes a region, if it is there.
  void Erase(uint32_t region);
  void Clear() { *this = RegionMap(); }

  // Call f(id, entry) for each region that has a split parent, or is a part of a Pilaf table. Shards without such
  // regions take one step each.
  template <typename F>
  void ForEachSplitChild(F f) const {
    for (const Shard& shard : shards_) {
      if (shard.split_children == 0) continue;
      for (const auto& [region, entry] : *shard.entries) {
        if (entry.split_parent.has_value()) f(region, entry);
      }
    }
  }
  template <typename F>
  void ForEachPart(F f) const {
    for (const Shard& shard : shards_) {
      if (shard.parts == 0) continue;
      for (const auto& [region, entry] : *shard.entries) {
        if (!entry.table.empty()) f(region, entry);
      }
    }
  }
  // Returns the regions whose split parent is `region`.
  std::vector<uint32_t> SplitChildrenOf(uint32_t region) const;

  const std::vector<Shard>& shards() const { return shards_; }
  // Notes that all shards that were changed are stored in this version of the region table.
  void Stored(uint64_t version);

  // Compares the regions, not how they are spread over shards.
  bool operator==(const RegionMap& other) const;

 private:
  // Returns the index of the shard that has, or would have, this id. REQUIRES: there are shards.
  size_t ShardOf(uint32_t region) const;
  static Shard MakeShard(uint32_t first, Entries entries);
  void Replace(size_t shard, Entries entries) { shards_[shard] = MakeShard(shards_[shard].first, std::move(entries)); }
  // Joins a shard with its right neighbour if the two have few regions.
  void JoinSmall(size_t left);

  std::vector<Shard> shards_;  // In order; none is empty.
  size_t size_ = 0;
};

}  // namespace cell

// HashParts describes a Pilaf table: each region has the keys of a part of the hash space (KeyHash::position). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

namespace cell {

// Maps the first hash position of each part to its region. Copies share the map until one of them is changed.
class HashPartMap {
 public:
  using Map = std::map<uint32_t, uint32_t>;
  using const_iterator = Map::const_iterator;

  HashPartMap() : map_(std::make_shared<const Map>()) {}
  HashPartMap(std::initializer_list<Map::value_type> parts) : map_(std::make_shared<const Map>(parts)) {}
  explicit HashPartMap(Map parts) : map_(std::make_shared<const Map>(std::move(parts))) {}

  size_t size() const { return map_->size(); }
  bool empty() const { return map_->empty(); }
  const_iterator begin() const { return map_->begin(); }
  const_iterator end() const { return map_->end(); }
  const_iterator upper_bound(uint32_t position) const { return map_->upper_bound(position); }
  const_iterator find(uint32_t first) const { return map_->find(first); }

  void Set(uint32_t first, uint32_t region) {
    Map parts = *map_;
    parts[first] = region;
    map_ = std::make_shared<const Map>(std::move(parts));
  }
  void Erase(uint32_t first) {
    Map parts = *map_;
    parts.erase(first);
    map_ = std::make_shared<const Map>(std::move(parts));
  }

  bool operator==(const HashPartMap& other) const { return map_ == other.map_ || *map_ == *other.map_; }

 private:
  std::shared_ptr<const Map> map_;
};

struct HashParts {
  uint32_t bucket_bytes = 0;  // 0: the table has slots.
  HashPartMap parts;          // The first part begins at 0.
  uint32_t parts_min = 1;     // Parts join each other only while there are more than this many.

  // Returns the region of a hash position. REQUIRES: there is a first part.
  uint32_t RegionOf(uint32_t position) const { return std::prev(parts.upper_bound(position))->second; }
  bool operator==(const HashParts&) const = default;
};

}  // namespace cell

#include "cell/cluster/region_map.h"

#include <algorithm>

#include "cell/base/check.h"
#include "fmt/format.h"

namespace cell {
namespace {

RegionMap::Entries::const_iterator LowerBound(const RegionMap::Entries& entries, uint32_t region) {
  return std::lower_bound(entries.begin(), entries.end(), region,
                          [](const RegionMap::value_type& one, uint32_t id) { return one.first < id; });
}

void Count(RegionMap::Shard* shard) {
  shard->split_children = shard->parts = 0;
  for (const auto& [region, entry] : *shard->entries) {
    shard->split_children += entry.split_parent.has_value();
    shard->parts += !entry.table.empty();
  }
}

}  // namespace

absl::Status RegionMap::Make(std::vector<Shard> shards, RegionMap* made) {
  size_t size = 0;
  uint64_t next = 0;  // No id may be lower.
  for (size_t i = 0; i < shards.size(); ++i) {
    Shard& shard = shards[i];
    if (shard.first < next || (i == 0) != (shard.first == 0)) {
      return absl::InvalidArgumentError(fmt::format("shard {} is not where it belongs", shard.first));
    }
    if (shard.entries == nullptr || shard.entries->empty() || shard.entries->size() > kShardMax) {
      return absl::InvalidArgumentError(fmt::format("shard {} is empty or too large", shard.first));
    }
    next = shard.first;
    for (const auto& [region, entry] : *shard.entries) {
      if (region < next) {
        return absl::InvalidArgumentError(fmt::format("region {} is not where it belongs", region));
      }
      next = uint64_t{region} + 1;
    }
    Count(&shard);
    size += shard.entries->size();
  }
  made->shards_ = std::move(shards);
  made->size_ = size;
  return absl::OkStatus();
}

size_t RegionMap::ShardOf(uint32_t region) const {
  const auto above = std::upper_bound(shards_.begin(), shards_.end(), region,
                                      [](uint32_t id, const Shard& shard) { return id < shard.first; });
  return static_cast<size_t>(above - shards_.begin()) - 1;
}

const RegionEntry* RegionMap::Find(uint32_t region) const {
  if (shards_.empty()) return nullptr;
  const Entries& entries = *shards_[ShardOf(region)].entries;
  const auto at = LowerBound(entries, region);
  return at != entries.end() && at->first == region ? &at->second : nullptr;
}

const RegionEntry& RegionMap::at(uint32_t region) const {
  const RegionEntry* const entry = Find(region);
  CELL_CHECK(entry != nullptr);
  return *entry;
}

RegionMap::Shard RegionMap::MakeShard(uint32_t first, Entries entries) {
  Shard shard{.first = first, .entries = std::make_shared<const Entries>(std::move(entries))};
  Count(&shard);
  return shard;
}

RegionMap RegionMap::Of(Entries regions) {
  RegionMap map;
  map.size_ = regions.size();
  for (size_t i = 0; i < regions.size(); i += kShardMax) {
    const auto begin = std::make_move_iterator(regions.begin() + static_cast<ptrdiff_t>(i));
    const auto end = begin + static_cast<ptrdiff_t>(std::min(kShardMax, regions.size() - i));
    map.shards_.push_back(MakeShard(i == 0 ? 0 : regions[i].first, Entries(begin, end)));
  }
  return map;
}

void RegionMap::Set(uint32_t region, RegionEntry entry) {
  if (shards_.empty()) {
    shards_.push_back(MakeShard(0, {{region, std::move(entry)}}));
    size_ = 1;
    return;
  }
  const size_t shard = ShardOf(region);
  Entries entries = *shards_[shard].entries;
  const auto at = entries.begin() + (LowerBound(entries, region) - entries.cbegin());
  if (at != entries.end() && at->first == region) {
    at->second = std::move(entry);
    return Replace(shard, std::move(entries));
  }
  ++size_;
  const bool last = at == entries.end();
  entries.insert(at, {region, std::move(entry)});
  if (entries.size() <= kShardMax) return Replace(shard, std::move(entries));
  // New ids mostly come in order: a shard that grows at its end is left full.
  const auto middle = last ? std::prev(entries.end()) : entries.begin() + kShardMax / 2;
  Entries upper(std::make_move_iterator(middle), std::make_move_iterator(entries.end()));
  entries.erase(middle, entries.end());
  if (!last) Replace(shard, std::move(entries));
  const uint32_t first = upper.front().first;
  shards_.insert(shards_.begin() + static_cast<ptrdiff_t>(shard) + 1, MakeShard(first, std::move(upper)));
}

void RegionMap::Change(uint32_t region, const std::function<void(RegionEntry*)>& change) {
  RegionEntry entry = at(region);
  change(&entry);
  Set(region, std::move(entry));
}

void RegionMap::Erase(uint32_t region) {
  if (!contains(region)) return;
  --size_;
  const size_t shard = ShardOf(region);
  Entries entries = *shards_[shard].entries;
  entries.erase(LowerBound(entries, region));
  if (!entries.empty()) {
    Replace(shard, std::move(entries));
    JoinSmall(shard);
    if (shard > 0) JoinSmall(shard - 1);
    return;
  }
  shards_.erase(shards_.begin() + static_cast<ptrdiff_t>(shard));
  if (shard == 0 && !shards_.empty()) {  // The next shard is the first one now, which is stored as another one.
    shards_[0].first = 0;
    shards_[0].version = 0;
  }
}

void RegionMap::JoinSmall(size_t left) {
  if (left + 1 >= shards_.size()) return;
  const Entries& right = *shards_[left + 1].entries;
  if (shards_[left].entries->size() + right.size() > kShardMax / 2) return;
  Entries both = *shards_[left].entries;
  both.insert(both.end(), right.begin(), right.end());
  shards_.erase(shards_.begin() + static_cast<ptrdiff_t>(left) + 1);
  Replace(left, std::move(both));
}

std::vector<uint32_t> RegionMap::SplitChildrenOf(uint32_t region) const {
  std::vector<uint32_t> children;
  ForEachSplitChild([&](uint32_t child, const RegionEntry& entry) {
    if (entry.split_parent == region) children.push_back(child);
  });
  return children;
}

void RegionMap::Stored(uint64_t version) {
  for (Shard& shard : shards_) {
    if (shard.version == 0) shard.version = version;
  }
}

bool RegionMap::operator==(const RegionMap& other) const {
  return size_ == other.size_ && std::equal(begin(), end(), other.begin());
}

}  // namespace cell

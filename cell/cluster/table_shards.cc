#include "cell/cluster/table_shards.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/region_shard.pb.h"
#include "cell/cluster/region_table_check.h"
#include "cell/cluster/region_table_json.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

// Gives names indexes, in the order in which they are first asked for.
class Names {
 public:
  uint32_t IndexOf(const std::string& name) {
    return indexes_.emplace(name, static_cast<uint32_t>(indexes_.size())).first->second;
  }
  template <typename List>
  void CopyTo(List* list) const {
    for (size_t i = 0; i < indexes_.size(); ++i) list->Add();
    for (const auto& [name, index] : indexes_) *list->Mutable(static_cast<int>(index)) = name;
  }

 private:
  std::map<std::string, uint32_t> indexes_;
};

std::string EncodeShard(const RegionMap::Shard& shard, uint64_t version) {
  stored::RegionShard stored;
  stored.set_version(version);
  Names servers, tables;
  uint32_t next = shard.first;
  uint32_t index = 0;
  for (const auto& [region, entry] : *shard.entries) {
    stored.add_id_steps(region - next);
    stored.add_owner_servers(servers.IndexOf(entry.owner.server));
    stored.add_owner_workers(entry.owner.worker);
    stored.add_epochs(static_cast<uint32_t>(entry.epoch));  // Less than RegionIds::kEpochEnd.
    stored.add_epoch_growths(static_cast<uint32_t>(entry.epoch - entry.first_epoch));
    if (entry.split_parent.has_value() || entry.recovering || !entry.table.empty()) {
      stored::RegionShard::Special* const special = stored.add_specials();
      special->set_index(index);
      if (entry.split_parent.has_value()) special->set_split_parent(*entry.split_parent);
      special->set_recovering(entry.recovering);
      if (!entry.table.empty()) special->set_table(tables.IndexOf(entry.table));
      special->set_first_position(entry.first_position);
    }
    next = region + 1;
    ++index;
  }
  servers.CopyTo(stored.mutable_servers());
  tables.CopyTo(stored.mutable_tables());
  return stored.SerializeAsString();
}

absl::Status TakeSpecials(const stored::RegionShard& stored, RegionMap::Entries* entries) {
  for (const stored::RegionShard::Special& special : stored.specials()) {
    if (special.index() >= entries->size()) return Bad("something special about a region that is not there");
    RegionEntry& entry = (*entries)[special.index()].second;
    if (special.has_split_parent()) entry.split_parent = special.split_parent();
    entry.recovering = special.recovering();
    if (!special.has_table()) continue;
    if (special.table() >= static_cast<uint32_t>(stored.tables_size())) return Bad("a table without a name");
    entry.table = stored.tables(static_cast<int>(special.table()));
    entry.first_position = special.first_position();
  }
  return absl::OkStatus();
}

absl::StatusOr<RegionMap::Entries> EntriesOf(const stored::RegionShard& stored, uint32_t first) {
  const int size = stored.id_steps_size();
  if (size == 0 || size > static_cast<int>(RegionMap::kShardMax) || stored.owner_servers_size() != size ||
      stored.owner_workers_size() != size || stored.epochs_size() != size || stored.epoch_growths_size() != size) {
    return Bad("lists of different lengths, or no regions, or too many");
  }
  RegionMap::Entries entries;
  entries.reserve(static_cast<size_t>(size));
  uint64_t next = first;
  for (int i = 0; i < size; ++i) {
    const uint64_t region = next + stored.id_steps(i);
    if (stored.owner_servers(i) >= static_cast<uint32_t>(stored.servers_size())) return Bad("an owner without a name");
    if (region > Pointer::kRegionMax || stored.epoch_growths(i) >= stored.epochs(i)) {
      return Bad("an id or an epoch is out of range");
    }
    RegionEntry entry;
    entry.owner = {stored.servers(static_cast<int>(stored.owner_servers(i))), stored.owner_workers(i)};
    entry.epoch = stored.epochs(i);
    entry.first_epoch = stored.epochs(i) - stored.epoch_growths(i);
    entries.emplace_back(static_cast<uint32_t>(region), std::move(entry));
    next = region + 1;
  }
  RETURN_IF_ERROR(TakeSpecials(stored, &entries));
  for (const auto& [region, entry] : entries) RETURN_IF_ERROR(CheckEntry(region, entry));
  return entries;
}

}  // namespace

absl::StatusOr<TableRoot> ParseTableRoot(const std::string& text) {
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(text);
  if (!parsed.ok()) return parsed.status();
  const JsonView json(*parsed);
  TableRoot root;
  RETURN_IF_ERROR(ParseWithoutRegions(json, &root.table));
  if (!json["shards"].is_array()) return Bad("it has no list of shards");
  for (const JsonView one : json["shards"].elements()) {
    const std::vector<JsonView> pair = one.elements();
    const std::optional<uint32_t> first = pair.size() == 2 ? pair[0].As<uint32_t>() : std::nullopt;
    const std::optional<uint64_t> version = pair.size() == 2 ? pair[1].As<uint64_t>() : std::nullopt;
    if (!first.has_value() || version.value_or(0) == 0 || *version > root.table.version ||
        (!root.shards.empty() && *first <= root.shards.back().first)) {
      return Bad("\"shards\" lists something that is not a shard, or in a wrong order");
    }
    root.shards.push_back({*first, *version});
  }
  return root;
}

absl::StatusOr<RegionMap::Shard> ParseTableShard(std::string_view bytes, const ShardRef& ref) {
  stored::RegionShard stored;
  const auto bad = [&ref](const std::string& why) {
    return Bad(fmt::format("shard {} is malformed: {}", ref.first, why));
  };
  if (bytes.size() > kTableShardMax || !stored.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return bad("it is damaged");
  }
  if (stored.version() != ref.version) {
    return absl::AbortedError(
        fmt::format("shard {} has version {} instead of {}", ref.first, stored.version(), ref.version));
  }
  absl::StatusOr<RegionMap::Entries> entries = EntriesOf(stored, ref.first);
  if (!entries.ok()) return bad(std::string(entries.status().message()));
  RegionMap::Shard shard{.first = ref.first, .version = ref.version, .entries = {}};
  shard.entries = std::make_shared<const RegionMap::Entries>(*std::move(entries));
  return shard;
}

absl::StatusOr<RegionTable> JoinTable(TableRoot root, std::vector<RegionMap::Shard> shards) {
  RETURN_IF_ERROR(RegionMap::Make(std::move(shards), &root.table.regions));
  RETURN_IF_ERROR(FinishChecked(&root.table));
  return std::move(root.table);
}

std::vector<RegionMap::Shard> KnownShards(const std::vector<ShardRef>& refs,
                                          const std::vector<RegionMap::Shard>& have) {
  std::vector<RegionMap::Shard> shards;
  shards.reserve(refs.size());
  auto known = have.begin();
  for (const ShardRef& ref : refs) {
    while (known != have.end() && known->first < ref.first) ++known;
    const bool same = known != have.end() && known->first == ref.first && known->version == ref.version;
    shards.push_back(same ? *known : RegionMap::Shard{.first = ref.first, .version = ref.version, .entries = {}});
  }
  return shards;
}

std::string StoredRoot(const RegionTable& table) {
  nlohmann::json json = JsonWithoutRegions(table);
  json["shards"] = nlohmann::json::array();
  for (const RegionMap::Shard& shard : table.regions.shards()) json["shards"].push_back({shard.first, shard.version});
  return JsonText(json);
}

std::string StoredShard(const RegionMap::Shard& shard) { return EncodeShard(shard, shard.version); }

size_t TableWrite::bytes() const {
  size_t sum = root.size();
  for (const Shard& shard : created) sum += shard.bytes.size();
  for (const Shard& shard : replaced) sum += shard.bytes.size();
  return sum;
}

TableWrite WriteTable(const RegionTable& before, RegionTable* after) {
  TableWrite write;
  std::set<uint32_t> were;
  for (const RegionMap::Shard& shard : before.regions.shards()) were.insert(shard.first);
  for (const RegionMap::Shard& shard : after->regions.shards()) {
    const bool there = were.erase(shard.first) > 0;
    if (shard.version != 0) continue;
    (there ? write.replaced : write.created).push_back({shard.first, EncodeShard(shard, after->version)});
  }
  write.removed.assign(were.begin(), were.end());
  after->regions.Stored(after->version);
  write.root = StoredRoot(*after);
  return write;
}

}  // namespace cell

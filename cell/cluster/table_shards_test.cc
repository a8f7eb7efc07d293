#include "cell/cluster/table_shards.h"

#include <map>

#include "cell/base/random.h"
#include "cell/cluster/membership.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace cell {
namespace {

// Holds what ZooKeeper would: the root and the shards.
struct Store {
  std::string root;
  std::map<uint32_t, std::string> shards;

  // Applies a write, which must fit what is there.
  void Apply(const TableWrite& write) {
    root = write.root;
    for (const TableWrite::Shard& shard : write.created) {
      ASSERT_TRUE(shards.emplace(shard.first, shard.bytes).second) << shard.first;
    }
    for (const TableWrite::Shard& shard : write.replaced) {
      ASSERT_TRUE(shards.contains(shard.first)) << shard.first;
      shards[shard.first] = shard.bytes;
    }
    for (const uint32_t first : write.removed) ASSERT_EQ(shards.erase(first), 1u) << first;
  }
  // Reads all of it. `have` is what the reader knows; *fetched counts the shards that it did not.
  absl::StatusOr<RegionTable> Read(const RegionTable& have = {}, size_t* fetched = nullptr) const {
    absl::StatusOr<TableRoot> parsed = ParseTableRoot(root);
    if (!parsed.ok()) return parsed.status();
    std::vector<RegionMap::Shard> all = KnownShards(parsed->shards, have.regions.shards());
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].entries != nullptr) continue;
      const ShardRef& ref = parsed->shards[i];
      if (fetched != nullptr) ++*fetched;
      const auto there = shards.find(ref.first);
      if (there == shards.end()) return absl::NotFoundError("no such shard");
      absl::StatusOr<RegionMap::Shard> shard = ParseTableShard(there->second, ref);
      if (!shard.ok()) return shard.status();
      all[i] = *std::move(shard);
    }
    return JoinTable(*std::move(parsed), std::move(all));
  }
};

// Changes a stored table and stores it.
void Change(RegionTable* table, Store* store, const std::function<void(RegionTable*)>& change) {
  const RegionTable before = *table;
  change(table);
  ++table->version;
  store->Apply(WriteTable(before, table));
}

RegionTable TableOf(uint32_t regions, uint32_t servers) {
  RegionTable table;
  for (uint32_t i = 0; i < regions; ++i) {
    EXPECT_TRUE(table.Add({"server-" + std::to_string(i % servers), i / servers % 4}).ok());
  }
  return table;
}

// Changes something at random, as members do.
void ChangeSomething(RegionTable* table, Random* random) {
  const auto any = [&] {
    auto it = table->regions.begin();
    for (uint64_t skip = random->Below(table->regions.size()); skip > 0; --skip) ++it;
    return it->first;
  };
  const WorkerId worker{"server-" + std::to_string(random->Below(5)), static_cast<uint32_t>(random->Below(3))};
  switch (table->regions.empty() ? 0 : random->Below(9)) {
    case 0:
      for (uint64_t more = random->Below(200); more > 0; --more) (void)table->Add(worker);
      return;
    case 1:
      for (uint64_t fewer = random->Below(300); fewer > 0 && !table->regions.empty(); --fewer) {
        (void)table->Remove(any());
      }
      return;
    case 2: {
      const uint32_t region = any();
      return (void)table->Claim(region, table->Find(region)->epoch, worker);
    }
    case 3:
      return (void)table->Add(worker, any());
    case 4: {
      const uint32_t region = any();
      const auto name = "t" + std::to_string(random->Below(4));
      if (region == table->root || table->TableOf(region) != table->tables.end()) return;
      return (void)table->CreateTable(name, random->Below(2) == 0 ? 0 : 512, region, 1);
    }
    case 5: {
      const uint32_t from = any(), to = any();
      if (to == table->root || table->TableOf(to) != table->tables.end()) return;
      return (void)table->SplitPart(from, static_cast<uint32_t>(random->Next()), to);
    }
    case 6:
      return (void)table->DropTable("t" + std::to_string(random->Below(4)));
    case 7: {
      const uint32_t region = any();
      if (table->TableOf(region) == table->tables.end()) (void)table->SetRoot(table->root, region);
      return;
    }
    default:
      table->draining.insert(worker.server);
      table->Made("change");
      return (void)table->SetEviction("", "prefix", Eviction::kTtl);
  }
}

TEST(TableShards, AReaderOfAnyVersionGetsTheTable) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    RegionTable table;
    Store store;
    Change(&table, &store, [](RegionTable*) {});
    RegionTable reader;
    for (int i = 0; i < 200; ++i) {
      Change(&table, &store, [&](RegionTable* changed) { ChangeSomething(changed, &random); });
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
      if (random.Below(4) != 0) continue;
      const absl::StatusOr<RegionTable> read = store.Read(reader);
      ASSERT_TRUE(read.ok()) << "seed " << seed << ": " << read.status();
      ASSERT_EQ(*read, table) << "seed " << seed;
      reader = *read;
    }
    EXPECT_EQ(*store.Read(), table);
    EXPECT_EQ(store.shards.size(), table.regions.shards().size());
  }
}

TEST(TableShards, AHundredThousandRegionsOfAThousandServersTakeLittle) {
  RegionTable table;
  Store store;
  Change(&table, &store, [](RegionTable* made) { *made = TableOf(100'000, 1'000); });
  size_t bytes = store.root.size(), longest = 0;
  for (const auto& [first, shard] : store.shards) {
    bytes += shard.size();
    longest = std::max(longest, shard.size());
  }
  RecordProperty("bytes", static_cast<int>(bytes));
  RecordProperty("root", static_cast<int>(store.root.size()));
  EXPECT_LT(store.root.size(), 16'384u);
  EXPECT_LT(longest, 8'192u);
  EXPECT_LT(bytes, 3'000'000u);

  const RegionTable reader = *store.Read();
  const RegionTable before = table;
  EXPECT_TRUE(table.Claim(5'000, 1, {"server-7", 0}).ok());
  ++table.version;
  const TableWrite claim = WriteTable(before, &table);
  EXPECT_EQ(claim.replaced.size(), 1u);
  EXPECT_TRUE(claim.created.empty() && claim.removed.empty());
  EXPECT_LT(claim.bytes(), 32'768u);
  store.Apply(claim);
  size_t fetched = 0;
  EXPECT_EQ(*store.Read(reader, &fetched), table);
  EXPECT_EQ(fetched, 1u);
}

// No claim can make a shard or the root too long, however long the names of servers are.
TEST(TableShards, ClaimsAlwaysFit) {
  RegionTable table;
  Store store;
  Change(&table, &store, [](RegionTable* made) { *made = TableOf(1'000, 3); });
  Change(&table, &store, [](RegionTable* all) {
    for (uint32_t region = 1; region <= 1'000; ++region) {
      const std::string name = std::to_string(region) + std::string(kServerNameMax - 4, 'n');
      ASSERT_TRUE(all->Claim(region, 1, {name, 1024}).ok());
    }
  });
  for (const auto& [first, shard] : store.shards) EXPECT_LT(shard.size(), 65'536u);
  EXPECT_EQ(*store.Read(), table);
}

// Whatever is limited in number and length has room in the root.
TEST(TableShards, TheRootHasRoomForAllThatThereMayBe) {
  RegionTable table;
  Store store;
  const auto name = [](size_t i) { return fmt::format("{:064}", i); };
  Change(&table, &store, [&](RegionTable* full) {
    const auto regions = static_cast<uint32_t>(RegionTable::kTablesMax + 1);
    *full = TableOf(regions, 1'000);
    for (uint32_t i = 1; i < regions; ++i) ASSERT_TRUE(full->CreateTable(name(i), UINT32_MAX, i, UINT32_MAX).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(full->CreateTable("other", 0, regions)));
    for (size_t i = 0; i < RegionTable::kDrainingMax; ++i) ASSERT_TRUE(full->Drain(name(i)).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(full->Drain("other")));
    EXPECT_TRUE(full->Drain(name(0)).ok());
    for (size_t i = 0; i < EvictionRules::kRulesMax; ++i) {
      ASSERT_TRUE(full->SetEviction("", name(i), Eviction::kLru).ok());
    }
    for (size_t i = 0; i < Grants::kGrantsMax; ++i) {
      const GrantScope scope{GrantScope::Kind::kPrefix, name(i)};
      ASSERT_TRUE(full->ChangeGrant(name(i), scope, *Rights::Parse("read,write,scan,admin"), true).ok());
    }
    for (size_t i = 0; i < RegionTable::kMadeMax; ++i) full->Made(name(i));
  });
  // With as many shards as there may be: two neighbours have more than half of kShardMax.
  const size_t shards = 4 * RegionTable::kRegionsMax / RegionMap::kShardMax + 1;
  EXPECT_LT(store.root.size() + shards * 24, kTableRootMax);
  EXPECT_EQ(*store.Read(), table);
}

TEST(TableShards, AShardOfAnotherVersionIsNotTaken) {
  RegionTable table;
  Store store;
  Change(&table, &store, [](RegionTable* made) { *made = TableOf(10, 1); });
  const std::string old_root = store.root;
  const std::string old_shard = store.shards.at(0);
  Change(&table, &store, [](RegionTable* changed) { ASSERT_TRUE(changed->Move(1, 1, {"b", 0}).ok()); });
  Store torn = store;
  torn.root = old_root;
  EXPECT_EQ(torn.Read().status().code(), absl::StatusCode::kAborted);
  torn = store;
  torn.shards.at(0) = old_shard;
  EXPECT_EQ(torn.Read().status().code(), absl::StatusCode::kAborted);
}

// A stranger who can write to ZooKeeper may have written any bytes.
TEST(TableShards, NonsenseIsRefused) {
  RegionTable table;
  Store store;
  Change(&table, &store, [](RegionTable* changed) {
    *changed = TableOf(700, 3);
    ASSERT_TRUE(changed->CreateTable("t", 0, 5).ok());
    ASSERT_TRUE(changed->SplitPart(5, 1000, 6).ok());
    ASSERT_TRUE(changed->Add({"a", 0}, 7).ok());
    ASSERT_TRUE(changed->Claim(8, 1, {"b", 0}).ok());
  });
  ASSERT_EQ(*store.Read(), table);
  Random random(1);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    Store other = store;
    std::string& bytes = random.Below(2) == 0 ? other.root : std::next(other.shards.begin(), 1)->second;
    const size_t at = random.Below(bytes.size());
    switch (random.Below(3)) {
      case 0:
        bytes[at] = static_cast<char>(random.Next());
        break;
      case 1:
        bytes.resize(at);
        break;
      default:
        bytes.erase(at, 1 + random.Below(4));
    }
    const absl::StatusOr<RegionTable> read = other.Read();
    refused += !read.ok();
    if (!read.ok()) continue;
    for (const auto& [region, entry] : read->regions) {
      ASSERT_TRUE(IsServerName(entry.owner.server));
      ASSERT_LE(region, Pointer::kRegionMax);
    }
  }
  EXPECT_GT(refused, 10'000);
  for (const char* root : {"", "[]", "{}", "{\"version\": 1}", "\xff"}) EXPECT_FALSE(ParseTableRoot(root).ok()) << root;
  const ShardRef ref{0, table.version};
  EXPECT_FALSE(ParseTableShard("", ref).ok());
  EXPECT_FALSE(ParseTableShard(std::string(kTableShardMax + 1, '\0'), ref).ok());
}

}  // namespace
}  // namespace cell

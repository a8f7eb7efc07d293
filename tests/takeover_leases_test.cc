// A region is taken over while its former owner is stopped, and the old memory can still be read. Nobody may trust what
// is there.
#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "nlohmann/json.hpp"
#include "tests/clusters.h"

namespace cell {
namespace {

std::string Key(int i) { return fmt::format("k{:05}", i); }

// Returns the options of a cluster whose regions are taken over, and of a client that reads them.
TestClusterOptions Durable(int servers) {
  TestClusterOptions options;
  options.servers = servers;
  options.logs.durability = Durability::kSync;
  options.table_lease_ns = 2'000'000;
  options.lease_wait_ns = 2'200'000;
  options.learns = false;  // Clients that a test cuts off from the coordinator learn nothing.
  return options;
}
ClientOptions Reader() {
  ClientOptions options;
  options.report = false;
  options.reconnect_us = 20;
  options.timeout_us = 50'000;
  return options;
}

struct Takeover {
  Mutant mutant = Mutant::kNone;
  Path path = Path::kClient;
  bool in_table = false;  // The region belongs to a Pilaf table.
  uint64_t seed = 1;
  bool amid_refresh = false;  // The client requests the region table, and reads until it has it.
  bool leaderless = false;    // The owner does not stop: the part of the coordinator that it uses loses its leader, and
                              // confirms no lease.
  bool learns = false;        // The client gets the region table from a server.
  bool contains = false;      // The client asks whether the key is there, and the write is a delete.
};

// Stops the owner of the only region. Another server takes the region over and acknowledges a write. Returns what a
// client reads then that has not read the region table since: from the stopped owner's memory, or from the owner
// itself, which continues at that moment. That is "old", "new" or "error".
std::string ReadAfterTakeover(const Takeover& takeover) {
  const bool in_table = takeover.in_table;
  TestClusterOptions options = Durable(2);
  options.mutant = takeover.mutant;
  options.learns = takeover.learns;
  options.membership_polls_max = 50;  // A server that continues sees the newest table only gradually.
  SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
  ClientOptions client = Reader();
  client.seed = takeover.seed;
  if (in_table) CELL_CHECK(cluster.CreateTable("t", 0, 1).ok());
  const uint32_t region = in_table ? cluster.table().tables.at("t").RegionOf(0) : cluster.table().root;
  CallOptions by;
  by.path = takeover.path;
  const auto put = [in_table](Client* to, const std::string& value) {
    return in_table ? to->OpenTable("t")->Put("key", value).ok() : to->Put("key", value).ok();
  };
  const auto erase = [in_table](Client* from) {
    return in_table ? from->OpenTable("t")->Delete("key").ok() : from->Delete("key").ok();
  };
  auto reader = cluster.NewClient(client);
  std::optional<Table> table;
  if (in_table) table = *reader->OpenTable("t");
  const auto get = [&]() -> std::string {
    if (takeover.contains) {
      const auto there = in_table ? table->Contains("key", by) : reader->Contains("key", by);
      return !there.ok() ? "error" : *there ? "old" : "new";
    }
    const auto value = in_table ? table->Get("key", by) : reader->Get("key", by);
    return value.ok() ? value->value_or("absent") : "error";
  };
  CELL_CHECK(put(reader.get(), "old"));
  for (uint64_t i = 0; i < takeover.seed; ++i) CELL_CHECK(get() == "old");
  const RegionTable::Entry before = *cluster.table().Find(region);
  const auto owner = static_cast<size_t>(std::stoi(before.owner.server.substr(7)));
  if (takeover.leaderless) {
    cluster.CutLeader(owner, true);
  } else {
    cluster.Stop(owner);
  }
  const auto taken = [&] {
    for (const auto& [id, entry] : cluster.table().regions) {
      if (entry.owner == before.owner || entry.recovering) return false;
    }
    return true;
  };
  while (!taken()) cluster.network()->Step();
  const auto writer = cluster.NewClient(client);
  CELL_CHECK(takeover.contains ? erase(writer.get()) : put(writer.get(), "new"));
  if (takeover.path == Path::kServer && !takeover.leaderless) cluster.Continue(owner);
  if (!takeover.amid_refresh) return get();
  const auto begin = [&](Path way) {
    CallOptions call;
    call.path = way;
    auto task = in_table ? table->AsyncGet("key", call) : reader->AsyncGet("key", call);
    task.Start();
    return task;
  };
  auto refreshes = begin(Path::kClient);
  constexpr size_t kReadsMax = 200;
  std::vector<Task<absl::StatusOr<std::optional<std::string>>>> reads;
  while (!refreshes.done()) {
    if (reads.size() < kReadsMax) reads.push_back(begin(takeover.path));
    reader->Poll(INT64_MAX);
  }
  std::string answer = "error";
  for (auto& read : reads) {
    while (!read.done()) reader->Poll(INT64_MAX);
    const auto value = read.Take();
    if (value.ok() && answer != "old") answer = value->value_or("absent");
  }
  return answer;
}

TEST(TakeoverLeases, AClientReadsNoMemoryThatIsNotTheOwnersAnyMore) {
  for (const bool in_table : {false, true}) {
    EXPECT_EQ(ReadAfterTakeover({.in_table = in_table}), "new");
    EXPECT_EQ(ReadAfterTakeover({.in_table = in_table, .learns = true}), "new");
    EXPECT_EQ(ReadAfterTakeover({.mutant = Mutant::kNoLeaseWait, .in_table = in_table}), "old");
  }
}

// A follower that is cut off from its leader still answers, and knows nothing of the takeover. Its answer is no lease.
TEST(TakeoverLeases, NoServerServesByTheWordOfAFollowerWithoutALeader) {
  for (const bool in_table : {false, true}) {
    const auto read = [in_table](Mutant mutant) {
      return ReadAfterTakeover({.mutant = mutant, .path = Path::kServer, .in_table = in_table, .leaderless = true});
    };
    EXPECT_NE(read(Mutant::kNone), "old");
    EXPECT_EQ(read(Mutant::kLeaseByFollower), "old");
  }
}

// The same holds if the selector chooses, without checking a lease before. If it asks the stopped owner, no answer
// comes.
TEST(TakeoverLeases, NorWhenTheSelectorChooses) {
  for (const bool in_table : {false, true}) {
    int read = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const std::string value = ReadAfterTakeover({.path = Path::kHybrid, .in_table = in_table, .seed = seed});
      EXPECT_NE(value, "old") << in_table << " " << seed;
      read += value == "new";
    }
    EXPECT_GT(read, 0);
  }
}

TEST(TakeoverLeases, NorForWhetherAKeyIsThere) {
  for (const bool in_table : {false, true}) {
    EXPECT_EQ(ReadAfterTakeover({.in_table = in_table, .contains = true}), "new");
    EXPECT_EQ(ReadAfterTakeover({.mutant = Mutant::kNoLeaseWait, .in_table = in_table, .contains = true}), "old");
    int read = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const std::string there =
          ReadAfterTakeover({.path = Path::kHybrid, .in_table = in_table, .seed = seed, .contains = true});
      EXPECT_NE(there, "old") << in_table << " " << seed;
      read += there == "new";
    }
    EXPECT_GT(read, 0);
  }
}

// The same holds if the client requests the table while it reads: what was read by an old table is not trusted under
// the lease of the new one.
TEST(TakeoverLeases, NorByTheLeaseOfATableThatComesMeanwhile) {
  for (const bool in_table : {false, true}) {
    for (const bool learns : {false, true}) {
      int read = 0;
      for (uint64_t seed = 1; seed <= 20; ++seed) {
        const std::string value = ReadAfterTakeover(
            {.path = Path::kHybrid, .in_table = in_table, .seed = seed, .amid_refresh = true, .learns = learns});
        EXPECT_NE(value, "old") << in_table << " " << learns << " " << seed;
        read += value == "new";
      }
      EXPECT_GT(read, 0);
    }
  }
}

// A table counts from when it was requested, however long the answer takes. The region is taken over meanwhile.
TEST(TakeoverLeases, NorByATableThatTookLongToCome) {
  const TestClusterOptions options = Durable(2);
  SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
  ClientOptions client = Reader();
  client.path = Path::kClient;
  const SimCluster::DrivenClient reader = cluster.NewDrivenClient(client);
  ASSERT_TRUE(reader.client->Put("key", "old").ok());
  ASSERT_EQ(reader.client->Get("key")->value_or("absent"), "old");
  const uint32_t region = cluster.table().root;
  const RegionTable::Entry before = *cluster.table().Find(region);
  const auto owner = static_cast<size_t>(std::stoi(before.owner.server.substr(7)));
  const int64_t lapsed_ns = cluster.network()->now_ns() + options.table_lease_ns;
  while (cluster.network()->now_ns() <= lapsed_ns) cluster.network()->Step();
  auto get = reader.client->AsyncGet("key");
  get.Start();
  while (!reader.membership->pending()) reader.client->Poll(reader.client->NowNs() + 1'000);
  ASSERT_EQ(cluster.table().Find(region)->owner, before.owner);
  cluster.Stop(owner);
  while (cluster.table().Find(region)->owner == before.owner || cluster.table().Find(region)->recovering) {
    cluster.network()->Step();
  }
  ASSERT_TRUE(cluster.NewClient(client)->Put("key", "new").ok());
  ASSERT_TRUE(reader.membership->pending());
  while (!get.done()) reader.client->Poll(INT64_MAX);
  EXPECT_EQ(get.Take()->value_or("absent"), "new");
}

// The same holds for a scan whose server is lost in the middle of a batch: what it had read before is not trusted
// either.
TEST(TakeoverLeases, NorByAScanThatLosesItsServer) {
  int lost = 0;
  for (int64_t after_ns = 0; after_ns < 30'000; after_ns += 500) {
    TestClusterOptions options;
    options.servers = 2;
    options.logs.durability = Durability::kSync;
    options.learns = false;
    SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
    ClientOptions client;
    client.report = false;
    client.reconnect_us = 20;
    client.timeout_us = 5'000;
    const auto write = [&](const std::string& value) {
      const auto writer = cluster.NewClient(client);
      for (int i = 0; i < 100; ++i) CELL_CHECK(writer->Put(Key(i), value).ok());
    };
    write("old");
    const SimCluster::DrivenClient reader = cluster.NewDrivenClient(client);
    ScanOptions scan_options;
    scan_options.call.path = Path::kClient;
    scan_options.batch = 100;
    const auto scanned = [&]() -> std::string {
      Scan scan = reader.client->NewScan(scan_options);
      const absl::StatusOr<bool> more = scan.Next();
      return more.ok() ? std::string(scan.value()) : std::string(more.status().message());
    };
    ASSERT_EQ(scanned(), "old");
    const uint32_t region = cluster.table().root;
    const RegionTable::Entry before = *cluster.table().Find(region);
    const auto owner = static_cast<size_t>(std::stoi(before.owner.server.substr(7)));
    cluster.Stop(owner);
    while (cluster.table().Find(region)->owner == before.owner || cluster.table().Find(region)->recovering) {
      cluster.network()->Step();
    }
    write("new");
    reader.membership->set_unreachable(true);
    cluster.network()->At(cluster.network()->now_ns() + after_ns,
                          [&] { cluster.network()->Break(cluster.host(owner), reader.host); });
    const std::string answer = scanned();
    EXPECT_NE(answer, "old") << after_ns;
    EXPECT_NE(answer, "new") << after_ns;  // It does not know the new owner.
    lost += answer.find("table is too old") == std::string::npos;
  }
  EXPECT_GT(lost, 3);
}

// Returns how many questions of clients for the region table a server has answered.
int Questions(SimCluster* cluster, size_t server) {
  return nlohmann::json::parse(
      cluster->worker(server)->service()->reports().StatusJson(0, 1))["served"]["table_version"];
}

// A server that is cut off from the coordinator goes on answering clients. It knows nothing of the takeover, and says
// how old its knowledge is.
TEST(TakeoverLeases, NorByTheWordOfAServerThatKnowsAnOldTable) {
  int misled = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SimCluster cluster({512, 32 << 10, 64 << 10}, {}, Durable(3));
    ClientOptions client = Reader();
    client.path = Path::kClient;
    client.seed = seed;
    const SimCluster::DrivenClient reader = cluster.NewDrivenClient(client);
    ASSERT_TRUE(reader.client->Put("key", "old").ok());
    const uint32_t region = cluster.table().root;
    const WorkerId before = cluster.table().Find(region)->owner;
    const auto owner = static_cast<size_t>(std::stoi(before.server.substr(7)));
    const size_t behind = (owner + 1) % 3;
    // The client has its leases from servers.
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(reader.client->Get("key")->value_or("absent"), "old");
      reader.client->Poll(reader.client->NowNs() + 100'000);
    }
    ASSERT_GE(reader.client->metrics().table_questions, 5u);
    cluster.Stop(owner);
    cluster.CutCoordinator(behind, true);
    reader.membership->set_unreachable(true);
    while (cluster.table().Find(region)->owner == before || cluster.table().Find(region)->recovering) {
      cluster.network()->Step();
    }
    ASSERT_TRUE(cluster.NewClient(client)->Put("key", "new").ok());
    const int questions = Questions(&cluster, behind);
    // It reads the memory of the former owner meanwhile.
    const auto read = reader.client->Get("key", {.timeout_us = 2'000});
    misled += Questions(&cluster, behind) > questions;
    EXPECT_NE(read.value_or(std::nullopt).value_or("error"), "old") << seed;
    reader.membership->set_unreachable(false);
    EXPECT_EQ(reader.client->Get("key")->value_or("absent"), "new") << seed;
  }
  EXPECT_GE(misled, 2);
}

TEST(TakeoverLeases, AFormerOwnerServesNothing) {
  for (const bool in_table : {false, true}) {
    EXPECT_EQ(ReadAfterTakeover({.path = Path::kServer, .in_table = in_table}), "new");
    EXPECT_EQ(ReadAfterTakeover({.mutant = Mutant::kNoServerLease, .path = Path::kServer, .in_table = in_table}),
              "old");
  }
}

// A region leaves its server and comes back to it, into other memory, between two reads of one get. What the get reads
// at the old location is not trusted under a table that names the same server again.
TEST(Leases, AreOfOneEpochOfARegionThatLeftAndCameBack) {
  TestClusterOptions options;
  options.inline_max = {0};  // So that a get takes two reads.
  options.servers = 2;
  options.balance.enabled = false;
  SimOptions sim;
  sim.break_after_ns = INT64_MAX / 4;
  SimCluster cluster({512, 32 << 10, 64 << 10}, sim, options);
  ClientOptions client;
  client.report = false;
  client.path = Path::kClient;
  SimCluster::DrivenClient reader = cluster.NewDrivenClient(client);
  ASSERT_TRUE(reader.client->Put("key", "old").ok());
  ASSERT_EQ(reader.client->Get("key")->value(), "old");
  const uint32_t region = cluster.table().root;
  const auto owner = static_cast<size_t>(std::stoi(cluster.table().Find(region)->owner.server.substr(7)));
  const auto move = [&](size_t from, size_t to) {
    std::optional<absl::Status> moved;
    const auto give = [&]() -> Task<bool> {
      WorkerId target{fmt::format("server-{}", to), 0};
      moved = co_await cluster.worker(from)->migrator()->Migrate(region, std::move(target));
      co_return true;
    };
    cluster.worker(from)->scheduler()->Spawn(give());
    while (!moved.has_value()) cluster.network()->Step();
    CELL_CHECK(moved->ok());
  };
  // The get has read the leaf. Its read of the extent is in progress until the region has come back.
  const uint64_t reads = reader.client->metrics().node_reads;
  const uint64_t extents = reader.client->metrics().extent_reads;
  auto get = reader.client->AsyncGet("key");
  get.Start();
  ASSERT_EQ(reader.client->metrics().node_reads, reads + 1);
  for (const int64_t until = cluster.network()->now_ns() + 100'000; cluster.network()->now_ns() < until;) {
    cluster.network()->Step();
  }
  cluster.network()->SetCut(reader.host, cluster.host(owner), true);
  while (reader.client->metrics().extent_reads == extents) reader.client->Poll(reader.client->NowNs() + 1'000);
  ASSERT_FALSE(get.done());
  // The region will come back into this memory, and nobody uses its former memory.
  const uint64_t bytes = cluster.worker(owner)->regions()->Find(region)->memory->bytes();
  ASSERT_TRUE(cluster.server(owner)->PrepareRegion(bytes, 0).ok());
  move(owner, 1 - owner);
  ASSERT_TRUE(cluster.NewClient(client)->Put("key", "new").ok());
  move(1 - owner, owner);
  (void)reader.client->Tables();  // The client sees that.
  ASSERT_FALSE(get.done());
  cluster.network()->SetCut(reader.host, cluster.host(owner), false);
  while (!get.done()) reader.client->Poll(INT64_MAX);
  EXPECT_EQ(get.Take()->value(), "new");
}

// A server that cannot renew its lease refuses a write. Meanwhile another takes its regions over, and the write finds
// it.
TEST(TakeoverLeases, AWriteDoesNotWaitAtAServerWhoseLeaseHasLapsed) {
  for (const bool in_table : {false, true}) {
    TestClusterOptions options;
    options.servers = 2;
    options.logs.durability = Durability::kSync;
    SimCluster cluster({512, 32 << 10, 64 << 10}, {}, options);
    if (in_table) CELL_CHECK(cluster.CreateTable("t", 0, 1).ok());
    ClientOptions client_options;
    client_options.report = false;
    client_options.path = Path::kServer;
    client_options.timeout_us = 5'000'000;
    auto client = cluster.NewClient(client_options);
    std::optional<Table> table;
    if (in_table) table = *client->OpenTable("t");
    const auto put = [&] { return in_table ? table->Put("key", "value") : client->Put("key", "value"); };
    ASSERT_TRUE(put().ok());
    const uint32_t region = in_table ? cluster.table().tables.at("t").RegionOf(0) : cluster.table().root;
    const WorkerId before = cluster.table().Find(region)->owner;
    const auto owner = static_cast<size_t>(std::stoi(before.server.substr(7)));
    cluster.CutCoordinator(owner, true);
    while (cluster.worker(owner)->fabric()->NowNs() <= cluster.membership(owner)->LeaseUntilNs()) {
      cluster.network()->Step();
    }
    const int64_t began_ns = client->NowNs();
    const absl::Status status = put().status();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_NE(cluster.table().Find(region)->owner, before);
    EXPECT_LT(client->NowNs() - began_ns, 100'000'000);
  }
}

}  // namespace
}  // namespace cell

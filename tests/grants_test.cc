// Tests that a client gets what its grants allow and nothing else: every operation, by every path, on a tree that is
// spread over several servers and on Pilaf tables.
#include "cell/cluster/grants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/client/client_testing.h"
#include "cell/client/functions.h"
#include "cell/client/transaction.h"
#include "cell/cluster/memory_membership.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/layout/wire.h"
#include "cell/server/worker.h"
#include "tests/sim_cluster.h"

namespace cell {
namespace {

using Kind = GrantScope::Kind;

constexpr int kKeys = 400;  // Of each prefix.

std::string Key(const std::string& prefix, int i) { return fmt::format("{}/{:05}", prefix, i); }
// Every seventh value is stored outside of its leaf, and some of those are fetched in pieces. A scan's batch ends at
// one of these, so there are none at the borders of prefixes.
std::string Value(int i) {
  const size_t bytes = i % 77 == 5 ? 100'000 : i % 7 == 0 ? 3'000 : 20;
  return fmt::format("value {} ", i).append(bytes, 'v');
}

ClientOptions Quiet() {
  ClientOptions options;
  options.report = false;
  return options;
}

const GrantScope kEverything{};
GrantScope Prefix(std::string prefix) { return {Kind::kPrefix, std::move(prefix)}; }
GrantScope InTable(std::string table) { return {Kind::kTable, std::move(table)}; }

class GrantsOfClients : public ::testing::Test {
 protected:
  GrantsOfClients() : cluster_(MakeCluster()), root_(cluster_.NewClient(Quiet())) {
    for (const char* prefix : {"a", "b", "c"}) {
      for (int i = 0; i < kKeys; ++i) CELL_CHECK(root_->Put(Key(prefix, i * 171 % kKeys), Value(i * 171 % kKeys)).ok());
    }
    CELL_CHECK(cluster_.table().CountOf({"server-1", 0}) > 0);
    for (const char* name : {"t", "u"}) {
      CELL_CHECK(cluster_.CreateTable(name, name[0] == 't' ? 0 : 1024, 3).ok());
      Table table = *root_->OpenTable(name);
      for (int i = 0; i < 50; ++i) CELL_CHECK(table.Put(Key(name, i), Value(i)).ok());
    }
    Enforce(true);
  }

  static SimCluster MakeCluster() {
    TestClusterOptions options = SpreadingOptions();
    options.refresh_every_ns = 100'000;
    return SimCluster({512, 32 << 10, 4 << 20}, {}, options);
  }
  std::unique_ptr<Client> ClientOf(const std::string& user) {
    return cluster_.NewClientOf({Role::kClient, user}, Quiet());
  }
  void Grant(const std::string& user, const GrantScope& scope, const std::string& rights, bool give = true) {
    CELL_CHECK(cluster_
                   .ChangeTable([&](RegionTable* table) {
                     return table->ChangeGrant(user, scope, Rights::Parse(rights).value(), give);
                   })
                   .ok());
    Settle();
  }
  void Enforce(bool enforce) {
    const auto set = [enforce](RegionTable* table) {
      table->grants.Enforce(enforce);
      return absl::OkStatus();
    };
    CELL_CHECK(cluster_.ChangeTable(set).ok());
    Settle();
  }
  // Lets all servers see the table.
  void Settle() { root_->Run(root_->AsyncSleepUntil(root_->NowNs() + 10'000'000)); }

  SimCluster cluster_;
  std::unique_ptr<Client> root_;
};

::testing::AssertionResult Denied(const absl::Status& status) {
  return absl::IsPermissionDenied(status) ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << status;
}

// Scans a range to its end or to an error, and returns the keys.
std::vector<std::string> KeysOf(Client* client, ScanOptions options, absl::Status* end) {
  std::vector<std::string> keys;
  Scan scan = client->NewScan(std::move(options));
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) {
    keys.emplace_back(scan.key());
    EXPECT_EQ(scan.value(), Value(std::stoi(keys.back().substr(2)))) << keys.back();
  }
  *end = more.status();
  return keys;
}

// The state of a leaf has a checksum of pairs that the user may not read.
TEST_F(GrantsOfClients, ATransactionIsSentTheStateOfLeavesOnlyIfItsUserMayReadMemory) {
  Grant("alice", Prefix("a/"), "read");
  Grant("bob", kEverything, "scan");
  for (const char* user : {"alice", "bob"}) {
    const std::unique_ptr<Client> client = ClientOf(user);
    Transaction transaction = client->Begin();
    for (const int i : {1, 300}) EXPECT_TRUE(transaction.Get(Key("a", i), {.path = Path::kServer}).ok());
    EXPECT_TRUE(transaction.Commit().ok());
    EXPECT_EQ(client->metrics().node_reads, user == std::string("bob") ? 2u : 0u) << user;
    EXPECT_EQ(client->metrics().reads_denied, 0u) << user;
  }
}

TEST_F(GrantsOfClients, NothingWithoutAGrant) {
  const auto client = ClientOf("bob");
  for (const Path path : {Path::kServer, Path::kClient, Path::kHybrid}) {
    const CallOptions options{.path = path};
    EXPECT_TRUE(Denied(client->Get(Key("a", 1), options).status()));
    EXPECT_TRUE(Denied(client->Contains(Key("a", 1), options).status()));
    EXPECT_TRUE(Denied(client->Put(Key("a", 1), "mine", options).status()));
    EXPECT_TRUE(Denied(client->Put(Key("a", 1), std::string(200'000, 'x'), options).status()));
    EXPECT_TRUE(Denied(client->Delete(Key("a", 1), options).status()));
    absl::Status end;
    EXPECT_TRUE(KeysOf(client.get(), {.call = options}, &end).empty());
    EXPECT_TRUE(Denied(end)) << end;
    for (const char* name : {"t", "u"}) {
      Table table = *client->OpenTable(name);
      EXPECT_TRUE(Denied(table.Get(Key(name, 1), options).status()));
      EXPECT_TRUE(Denied(table.Contains(Key(name, 1), options).status()));
      EXPECT_TRUE(Denied(table.Put(Key(name, 1), "mine", options).status()));
      EXPECT_TRUE(Denied(table.Delete(Key(name, 1), options).status()));
    }
  }
  EXPECT_TRUE(Denied(client->TimeLeftNs(Key("a", 1)).status()));
  EXPECT_TRUE(Denied(client->Count("", std::nullopt).status()));
  EXPECT_TRUE(Denied(client->DeleteRange("", std::nullopt).status()));
  EXPECT_EQ(*root_->Count("", std::nullopt), static_cast<uint64_t>(3 * kKeys));
  EXPECT_EQ(**root_->Get(Key("a", 1)), Value(1));
}

TEST_F(GrantsOfClients, APrefix) {
  Grant("alice", Prefix("b/"), "scan,write");
  const auto client = ClientOf("alice");
  for (const Path path : {Path::kServer, Path::kHybrid}) {
    const CallOptions options{.path = path};
    for (int i = 0; i < kKeys; ++i) {
      const auto got = client->Get(Key("b", i), options);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(*got, Value(i)) << i;
    }
    EXPECT_TRUE(*client->Contains(Key("b", 1), options));
    EXPECT_FALSE(*client->Contains("b/none", options));
    EXPECT_TRUE(client->Put("b/new", std::string(200'000, 'n'), options).ok());
    EXPECT_EQ(**client->Get("b/new", options), std::string(200'000, 'n'));
    EXPECT_TRUE(*client->Delete("b/new", options));
    for (const char* prefix : {"a", "c", "b"}) {
      const std::string key = prefix[0] == 'b' ? "b0" : Key(prefix, 1);
      EXPECT_TRUE(Denied(client->Get(key, options).status())) << key;
      EXPECT_TRUE(Denied(client->Put(key, "mine", options).status())) << key;
      EXPECT_TRUE(Denied(client->Delete(key, options).status())) << key;
    }
  }
  EXPECT_TRUE(client->TimeLeftNs(Key("b", 1)).ok());
  // Reads of memory are refused, whoever insists on them is told, and the hybrid path does without.
  EXPECT_TRUE(Denied(client->Get(Key("b", 1), {.path = Path::kClient}).status()));
  EXPECT_GT(client->metrics().reads_denied, 0u);
  EXPECT_LT(client->metrics().reads_denied, 50u);
  EXPECT_TRUE(client->Put(Key("b", 1), Value(1), {.path = Path::kHybrid}).ok());
}

// The outcome of a condition tells what a key has, so a client that may not read it must not ask.
TEST_F(GrantsOfClients, AConditionalWriteNeedsTheRightToRead) {
  const std::string a = Key("a", 1);
  for (const char* rights : {"read", "write"}) {
    Grant(rights, Prefix("a/"), rights);
    Grant(rights, InTable("t"), rights);
    const auto client = ClientOf(rights);
    EXPECT_TRUE(Denied(client->PutIf(a, "mine", Condition::Absent()).status()));
    EXPECT_TRUE(Denied(client->PutIf(a, std::string(200'000, 'x'), Condition::ValueIs(Value(1))).status()));
    EXPECT_TRUE(Denied(client->DeleteIf(a, Condition::Present()).status()));
    Table table = *client->OpenTable("t");
    EXPECT_TRUE(Denied(table.PutIf(Key("t", 1), "mine", Condition::Present()).status()));
    EXPECT_TRUE(Denied(table.DeleteIf(Key("t", 1), Condition::Present()).status()));
  }
  EXPECT_EQ(**root_->Get(a), Value(1));
  Grant("both", Prefix("a/"), "read,write");
  Grant("both", InTable("t"), "read,write");
  const auto client = ClientOf("both");
  EXPECT_TRUE(client->PutIf(a, Value(1), Condition::StampIs((*client->GetWithStamp(a))->stamp))->applied);
  EXPECT_FALSE(client->DeleteIf(a, Condition::ValueIs("other"))->applied);
  EXPECT_TRUE(Denied(client->DeleteIf(Key("b", 1), Condition::Present()).status()));
  Table table = *client->OpenTable("t");
  EXPECT_FALSE(table.PutIf(Key("t", 1), "mine", Condition::Absent())->applied);
}

// The result of a function tells what a key has, so a client that may not read the key must not apply one.
TEST_F(GrantsOfClients, AFunctionNeedsTheRightToRead) {
  const std::string a = Key("a", 1);
  const FunctionCall append = functions::Append("more"), count = functions::Sum<uint8_t>();
  for (const char* rights : {"read", "write"}) {
    Grant(rights, Prefix("a/"), rights);
    Grant(rights, InTable("t"), rights);
    const auto client = ClientOf(rights);
    Table table = *client->OpenTable("t");
    EXPECT_TRUE(Denied(client->Apply(a, append).status()));
    EXPECT_TRUE(Denied(client->Apply(a, functions::Append(std::string(200'000, 'x'))).status()));
    EXPECT_TRUE(Denied(table.Apply(Key("t", 1), append).status()));
    const bool reads = std::string(rights) == "read";
    EXPECT_EQ(client->Evaluate(a, count).ok(), reads);
    EXPECT_EQ(table.Evaluate(Key("t", 1), count).ok(), reads);
    EXPECT_TRUE(Denied(client->Evaluate(Key("b", 1), count).status()));
  }
  EXPECT_EQ(**root_->Get(a), Value(1));
  Grant("both", Prefix("a/"), "read,write");
  const auto client = ClientOf("both");
  EXPECT_TRUE(client->Apply(a, append)->changed);
  EXPECT_TRUE(Denied(client->Apply(Key("b", 1), append).status()));
  EXPECT_EQ(**root_->Get(a), Value(1) + "more");
}

TEST_F(GrantsOfClients, ScansEndWhereTheGrantEnds) {
  Grant("alice", Prefix("b/"), "scan");
  const auto client = ClientOf("alice");
  std::vector<std::string> expected(kKeys);
  for (int i = 0; i < kKeys; ++i) expected[i] = Key("b", i);
  const std::vector<std::string> reversed(expected.rbegin(), expected.rend());
  absl::Status end;
  for (const Path path : {Path::kServer, Path::kHybrid}) {
    const CallOptions call{.path = path};
    EXPECT_EQ(KeysOf(client.get(), {.from = "b/", .to = "b0", .call = call}, &end), expected);
    EXPECT_TRUE(end.ok()) << end;
    EXPECT_EQ(KeysOf(client.get(), {.from = "b/", .to = "b0", .reverse = true, .call = call}, &end), reversed);
    EXPECT_TRUE(end.ok()) << end;
    // What follows is not seen, and the scan does not seem to have ended.
    EXPECT_EQ(KeysOf(client.get(), {.from = "b/", .call = call}, &end), expected);
    EXPECT_TRUE(Denied(end)) << end;
    EXPECT_EQ(KeysOf(client.get(), {.from = "b/", .to = "c/00001", .call = call}, &end), expected);
    EXPECT_TRUE(Denied(end)) << end;
    EXPECT_EQ(KeysOf(client.get(), {.from = "a/00390", .to = "b0", .reverse = true, .call = call}, &end), reversed);
    EXPECT_TRUE(Denied(end)) << end;
    EXPECT_TRUE(KeysOf(client.get(), {.from = "a/00390", .to = "b0", .call = call}, &end).empty());
    EXPECT_TRUE(Denied(end)) << end;
    EXPECT_TRUE(KeysOf(client.get(), {.from = "b/", .to = "c0", .reverse = true, .call = call}, &end).empty());
    EXPECT_TRUE(Denied(end)) << end;
    // A scan that has enough does not come to the border.
    EXPECT_EQ(KeysOf(client.get(), {.from = "b/00390", .limit = 10, .call = call}, &end).size(), 10u);
    EXPECT_TRUE(end.ok()) << end;
  }
  EXPECT_EQ(*client->Count("b/", "b0"), static_cast<uint64_t>(kKeys));
  EXPECT_EQ(*client->Count("b/00010", "b/00020"), 10u);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::optional<std::string>>>{
           {"b/", std::nullopt}, {"", std::nullopt}, {"a/", "b0"}, {"b/", "c"}}) {
    EXPECT_TRUE(Denied(client->Count(from, to).status())) << from;
  }
}

TEST_F(GrantsOfClients, ARangeIsDeletedOnlyIfAllOfItMayBe) {
  Grant("alice", Prefix("b/"), "write");
  const auto client = ClientOf("alice");
  EXPECT_TRUE(Denied(client->DeleteRange("b/", std::nullopt).status()));
  EXPECT_TRUE(Denied(client->DeleteRange("b/", "c").status()));
  EXPECT_TRUE(Denied(client->DeleteRange("a/", "b0").status()));
  EXPECT_EQ(*root_->Count("", std::nullopt), static_cast<uint64_t>(3 * kKeys));
  EXPECT_EQ(*client->DeleteRange("b/", "b0"), static_cast<uint64_t>(kKeys));
  EXPECT_EQ(*root_->Count("", std::nullopt), static_cast<uint64_t>(2 * kKeys));
  EXPECT_TRUE(Denied(client->Get("b/", {}).status()));  // Who may write may not read.
}

TEST_F(GrantsOfClients, ATable) {
  Grant("alice", InTable("t"), "read");
  Grant("alice", InTable("u"), "write");
  const auto client = ClientOf("alice");
  Table t = *client->OpenTable("t"), u = *client->OpenTable("u");
  for (int i = 0; i < 50; ++i) {
    const auto got = t.Get(Key("t", i));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, Value(i));
  }
  EXPECT_FALSE(*t.Contains("none"));
  EXPECT_TRUE(Denied(t.Put(Key("t", 1), "mine").status()));
  EXPECT_TRUE(u.Put(Key("u", 1), "mine").ok());
  EXPECT_TRUE(Denied(u.Get(Key("u", 1)).status()));
  EXPECT_EQ(**root_->OpenTable("u")->Get(Key("u", 1)), "mine");
  EXPECT_TRUE(Denied(client->Get(Key("a", 1)).status()));
  EXPECT_TRUE(Denied(client->Get(Key("t", 1)).status()));  // A key of the tree.
  // A table that was not there when the servers looked last.
  CELL_CHECK(cluster_.CreateTable("w", 0, 2).ok());
  Grant("alice", InTable("w"), "read,write");
  Table w = *client->OpenTable("w");
  EXPECT_TRUE(w.Put("key", "value").ok());
  EXPECT_EQ(**w.Get("key"), "value");
}

// Clients that have seen an earlier table are led on, also those that know only grants.
TEST_F(GrantsOfClients, PartsThatJoinAndTablesThatAreDropped) {
  CELL_CHECK(cluster_.CreateTable("p", 0, 1).ok());
  Table own = *root_->OpenTable("p");
  for (int i = 0; i < 50; ++i) CELL_CHECK(own.Put(Key("p", i), Value(1)).ok());
  const auto parts = [this] { return cluster_.table().tables.at("p").parts; };
  const uint32_t first = parts().begin()->second;
  const auto holder = static_cast<size_t>(cluster_.table().Find(first)->owner.server.back() - '0');
  ASSERT_EQ(cluster_.Split(first, holder), absl::OkStatus());
  ASSERT_EQ(parts().size(), 2u);
  const uint32_t second = cluster_.table().tables.at("p").RegionOf(UINT32_MAX);

  Grant("alice", InTable("p"), "read,write");
  Grant("bob", {}, "scan");
  const auto alice = ClientOf("alice"), bob = ClientOf("bob");
  Table of_alice = *alice->OpenTable("p"), of_bob = *bob->OpenTable("p");
  const auto look = [&](Path path) {
    for (int i = 0; i < 50; ++i) {
      const auto got = of_alice.Get(Key("p", i), {.path = path});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(*got, Value(1));
      ASSERT_TRUE(of_bob.Get(Key("p", i), {.path = path}).ok());
    }
  };
  look(Path::kServer);
  ASSERT_EQ(cluster_.Join(second, holder), absl::OkStatus());
  ASSERT_EQ(parts().size(), 1u);
  Settle();
  look(Path::kServer);
  look(Path::kHybrid);
  EXPECT_TRUE(of_alice.Put(Key("p", 50), Value(1)).ok());
  CELL_CHECK(cluster_.DropTable("p").ok());
  Settle();
  EXPECT_TRUE(absl::IsNotFound(of_alice.Get(Key("p", 1), {.path = Path::kServer}).status()));
  EXPECT_TRUE(absl::IsNotFound(of_alice.Put(Key("p", 1), "value").status()));
  EXPECT_TRUE(absl::IsNotFound(of_bob.Get(Key("p", 1)).status()));
}

// Who may read single keys is not told which keys there are.
TEST_F(GrantsOfClients, ReadingIsNotScanning) {
  Grant("alice", Prefix("b/"), "read");
  Grant("bob", {}, "read");
  for (const char* user : {"alice", "bob"}) {
    const auto client = ClientOf(user);
    EXPECT_EQ(**client->Get(Key("b", 1)), Value(1));
    for (const Path path : {Path::kServer, Path::kHybrid}) {
      absl::Status end;
      EXPECT_TRUE(KeysOf(client.get(), {.from = "b/", .to = "b0", .call = {.path = path}}, &end).empty());
      EXPECT_TRUE(Denied(end)) << end;
    }
    EXPECT_TRUE(Denied(client->Count("b/", "b0").status()));
    EXPECT_TRUE(Denied(client->Get(Key("b", 1), {.path = Path::kClient}).status()));
  }
}

TEST_F(GrantsOfClients, GivenAndTakenWhileItRuns) {
  const auto client = ClientOf("alice");
  EXPECT_TRUE(Denied(client->Get(Key("a", 1)).status()));
  Grant("alice", kEverything, "read");
  EXPECT_EQ(**client->Get(Key("a", 1)), Value(1));
  EXPECT_EQ(client->metrics().client_path, client->metrics().reads_denied);
  // Who may scan everything reads memory.
  Grant("alice", kEverything, "scan");
  EXPECT_EQ(**client->Get(Key("a", 2), {.path = Path::kClient}), Value(2));
  EXPECT_EQ(**client->OpenTable("t")->Get(Key("t", 2), {.path = Path::kClient}), Value(2));
  Grant("alice", kEverything, "scan", /*give=*/false);  // What was given before stays.
  EXPECT_TRUE(Denied(client->Get(Key("a", 3), {.path = Path::kClient}).status()));
  EXPECT_EQ(**client->Get(Key("a", 3)), Value(3));
  Grant("alice", kEverything, "read", /*give=*/false);
  EXPECT_TRUE(Denied(client->Get(Key("a", 3)).status()));
  Enforce(false);
  EXPECT_EQ(**client->Get(Key("a", 3), {.path = Path::kClient}), Value(3));
}

TEST_F(GrantsOfClients, EveryUserAndNoOther) {
  Grant("*", Prefix("a/"), "read");
  const auto bob = ClientOf("bob");
  EXPECT_EQ(**bob->Get(Key("a", 3)), Value(3));
  EXPECT_TRUE(Denied(bob->Get(Key("b", 3)).status()));
  Grant("*", kEverything, "admin");
  EXPECT_EQ(**bob->Get(Key("b", 3), {.path = Path::kClient}), Value(3));
  Grant("*", kEverything, "admin,scan,read,write", /*give=*/false);
  EXPECT_TRUE(Denied(bob->Get(Key("b", 3)).status()));
  EXPECT_EQ(**bob->Get(Key("a", 3)), Value(3));
}

// The first request may come before the worker's first turn.
TEST(GrantsAtTheStart, CountForTheFirstRequest) {
  ClusterState state;
  state.shape = {512, 32 << 10, 64 << 10};
  state.table.grants.Enforce(true);
  Worker::Options options;
  options.self = {"server-0", 0};
  SimNetwork network{SimOptions{}};
  Worker worker(network.NewEndpoint(), std::make_unique<MemoryMembership>(std::make_shared<MemoryCluster>(state)),
                options);
  ASSERT_TRUE(worker.Start("server").ok());
  const auto client = network.NewEndpoint();
  client->SetSelf({Role::kClient, "alice"});
  const auto await = [&](Waiter* waiter) {
    while (!waiter->done()) {
      if (client->Poll() == 0) network.Step();  // And no turn of the worker.
    }
  };
  Waiter connected, called, read;
  const ConnectionId connection = client->Connect("server", INT64_MAX, &connected);
  await(&connected);
  ASSERT_TRUE(connected.status().ok());
  const std::string request =
      MakeKeyRequest(MessageKind::kGet, RootOf(worker.membership()->state().table.root), {}, "key");
  client->Call(connection, AsBytes(request), {}, kMessageBytesMax, INT64_MAX, &called);
  await(&called);
  ASSERT_TRUE(called.status().ok()) << called.status();
  EXPECT_TRUE(Denied(ParseGetReply(AsBytes(called.reply())).status()));
  std::byte to[8];
  const ReadPart part{RootOf(worker.membership()->state().table.root), to, 8};
  client->Read(connection, {&part, 1}, INT64_MAX, &read);
  await(&read);
  EXPECT_TRUE(Denied(read.status()));
  client->Disconnect(connection);
  EXPECT_TRUE(worker.Stop().ok());
}

}  // namespace
}  // namespace cell

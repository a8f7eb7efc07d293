// Transactions over the tree and tables: what they see, when they are aborted, and what is left of them when their
// client or a server ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cell/client/transaction.h"
#include "cell/layout/wire_transaction.h"
#include "fmt/format.h"
#include "pilaf/key_hash.h"
#include "tests/two_servers.h"

namespace cell {
namespace {

class TableTransactionsTest : public TwoServersTest {
 protected:
  static constexpr const char* kTables[] = {"slots", "buckets"};

  void SetUp() override {
    TwoServersTest::SetUp();
    ASSERT_TRUE(cluster_.CreateTable("slots", 0, 2).ok());
    ASSERT_TRUE(cluster_.CreateTable("buckets", 512, 2).ok());
    Settle();
    for (const char* name : kTables) {
      tables_.emplace(name, *client_->OpenTable(name));
      for (int i = 0; i < 40; ++i) ASSERT_TRUE(tables_.at(name).Put(Key(i), "0").ok());
    }
  }

  uint32_t PartOf(const std::string& table, const std::string& key) {
    return cluster_.table().tables.at(table).RegionOf(HashKey(key).position);
  }
  // Returns a key of the table that is in another part than Key(0).
  std::string OtherKey(const std::string& table) {
    int i = 1;
    while (PartOf(table, Key(i)) == PartOf(table, Key(0))) ++i;
    return Key(i);
  }
  std::string In(const std::string& table, const std::string& key, Path path = Path::kServer) {
    const auto value = tables_.at(table).Get(key, {.path = path});
    return value.ok() ? value->value_or("absent") : std::string(value.status().message());
  }
  TransactOutcome PrepareIn(const std::string& table, const RequestId& id, const std::string& key,
                            const std::string& value, uint32_t primary, const std::vector<uint32_t>& others = {}) {
    std::string part;
    AppendOperation({PartOperationKind::kPut, key, value, PairDigest(key, value)}, &part);
    return PrepareAt(HashRootOf(PartOf(table, key)), id, key, part, primary, others);
  }

  void SurvivesATakeover(const std::string& name) {
    const uint32_t low = RegionOf(low_);
    std::string key = Key(0);  // At the other server than `low_`.
    if (OwnerOf(PartOf(name, key)) == OwnerOf(low)) key = OtherKey(name);
    ASSERT_NE(OwnerOf(PartOf(name, key)), OwnerOf(low)) << "all parts are at one server";
    const uint32_t part = PartOf(name, key);
    const RequestId committed = Id(1);
    ASSERT_EQ(Prepare(committed, low_, name, low, {part}), TransactOutcome::kPrepared);
    ASSERT_EQ(PrepareIn(name, committed, key, "new", low), TransactOutcome::kPrepared);
    std::string absent = "absent";
    for (int i = 0; PartOf(name, absent) != part; ++i) absent = fmt::format("absent {}", i);
    RequestId aborted = committed;
    aborted.slot = 1;
    ASSERT_EQ(PrepareIn(name, aborted, absent, "never", part), TransactOutcome::kPrepared);
    EXPECT_EQ(Decide(committed, low, Decision::kCommit, stamp_ + 10), TransactOutcome::kCommitted);
    const uint64_t stamps_before = HeldOf(part)->memory->header().last_stamp;
    Kill(OwnerOf(part));
    EXPECT_EQ(In(name, key), "new");
    EXPECT_EQ(In(name, key, Path::kClient), "new");
    EXPECT_EQ(In(name, absent), "absent");
    EXPECT_GE(HeldOf(part)->memory->header().last_stamp, stamps_before);
    EXPECT_EQ(Value(low_), name);
    Pass(3'000'000'000);
    EXPECT_EQ(Held(), 0u);
    EXPECT_EQ(Decide(committed, low, Decision::kRecall), TransactOutcome::kCommitted);
  }

  std::map<std::string, Table> tables_;
};

TEST_P(TableTransactionsTest, WriteTheTreeAndTablesAtOnce) {
  const Table &slots = tables_.at("slots"), &buckets = tables_.at("buckets");
  Transaction transaction = client_->Begin();
  EXPECT_EQ(**transaction.Get(low_), "0");
  EXPECT_EQ(**transaction.Get(slots, Key(0)), "0");
  EXPECT_EQ(*transaction.Get(buckets, "new"), std::nullopt);
  const std::string other = OtherKey("slots");
  const std::string first = Key(0);
  const std::vector<std::string_view> keys = {first, other};
  EXPECT_EQ((*transaction.MultiGet(slots, keys))[1], "0");
  ASSERT_TRUE(transaction.Put(high_, "tree").ok());
  ASSERT_TRUE(transaction.Put(slots, Key(0), "slots").ok());
  ASSERT_TRUE(transaction.Put(slots, other, "other part").ok());
  ASSERT_TRUE(transaction.Put(buckets, "new", "buckets").ok());
  ASSERT_TRUE(transaction.Delete(buckets, Key(0)).ok());
  EXPECT_EQ(**transaction.Get(slots, Key(0)), "slots");
  EXPECT_EQ(*transaction.Get(buckets, Key(0)), std::nullopt);
  EXPECT_EQ(In("slots", Key(0)), "0");
  const absl::StatusOr<Committed> committed = transaction.Commit();
  ASSERT_TRUE(committed.ok()) << committed.status();
  for (const Path path : {Path::kServer, Path::kClient}) {
    EXPECT_EQ(In("slots", Key(0), path), "slots");
    EXPECT_EQ(In("slots", other, path), "other part");
    EXPECT_EQ(In("buckets", "new", path), "buckets");
    EXPECT_EQ(In("buckets", Key(0), path), "absent");
  }
  EXPECT_EQ(Value(high_), "tree");
  EXPECT_EQ(Value("new"), "absent") << "the same key in the tree is another one";
  Pass(2'000'000'000);
  EXPECT_EQ(Held(), 0u);
  EXPECT_TRUE(cluster_.Check().errors.empty());
}

TEST_P(TableTransactionsTest, OfOnePartAreOneMessage) {
  for (const char* name : kTables) {
    const Table& table = tables_.at(name);
    Transaction first = client_->Begin();  // It learns how far the server's stamps are.
    ASSERT_TRUE(first.Put(table, Key(0), "0").ok());
    ASSERT_TRUE(first.Commit().ok());
    Transaction transaction = client_->Begin();
    EXPECT_EQ(**transaction.Get(table, Key(0)), "0");
    ASSERT_TRUE(transaction.Put(table, Key(0), "1").ok());
    const uint64_t calls = client_->metrics().calls;
    const absl::StatusOr<Committed> committed = transaction.Commit();
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_EQ(client_->metrics().calls, calls + 1);
    EXPECT_GT(committed->stamp, 0u);
    EXPECT_EQ(In(name, Key(0)), "1");
    EXPECT_EQ(Held(), 0u);
  }
}

TEST_P(TableTransactionsTest, AreAbortedIfWhatTheyReadHasChanged) {
  for (const char* name : kTables) {
    Table& table = tables_.at(name);
    Table others = *other_->OpenTable(name);
    for (const std::string& key : {Key(0), std::string("appears")}) {
      SCOPED_TRACE(std::string(name) + " " + key);
      for (const bool writes : {false, true}) {
        Transaction transaction = client_->Begin();
        ASSERT_TRUE(transaction.Get(table, key).ok());
        ASSERT_TRUE(transaction.Get(low_).ok());
        if (writes) {
          ASSERT_TRUE(transaction.Put(low_, "lost").ok());
        }
        ASSERT_TRUE(others.Put(key, writes ? "changed again" : "changed").ok());
        EXPECT_EQ(transaction.Commit().status().code(), absl::StatusCode::kAborted);
        Transaction unchanged = client_->Begin();
        ASSERT_TRUE(unchanged.Get(table, key).ok());
        ASSERT_TRUE(unchanged.Get(low_).ok());
        if (writes) {
          ASSERT_TRUE(unchanged.Put(Key(1), "kept").ok());
        }
        EXPECT_TRUE(unchanged.Commit().ok());
      }
      ASSERT_TRUE(others.Delete(key).ok());
      ASSERT_TRUE(others.Put(Key(0), "0").ok());
    }
    EXPECT_EQ(Value(low_), "0");
  }
  Pass(2'000'000'000);
  EXPECT_EQ(Held(), 0u);
}

TEST_P(TableTransactionsTest, HideTheKeysThatTheyWriteUntilTheyEnd) {
  for (const char* name : kTables) {
    SCOPED_TRACE(name);
    const Table& table = tables_.at(name);
    Table others = *other_->OpenTable(name);
    const RequestId id = Id(name == kTables[0] ? 1 : 2);
    const uint32_t low = RegionOf(low_);
    ASSERT_EQ(Prepare(id, low_, "never", low, {PartOf(name, Key(0)), PartOf(name, "new")}), TransactOutcome::kPrepared);
    ASSERT_EQ(PrepareIn(name, id, Key(0), "never", low), TransactOutcome::kPrepared);
    for (const Path path : {Path::kServer, Path::kClient}) {
      EXPECT_EQ(others.Get(Key(0), {.path = path, .timeout_us = 10'000}).status().code(),
                absl::StatusCode::kDeadlineExceeded);
      EXPECT_TRUE(others.Get(OtherKey(name), {.path = path, .timeout_us = 10'000}).ok());
    }
    EXPECT_EQ(others.Put(Key(0), "mine", {.timeout_us = 10'000}).status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(others.Delete(Key(0), {.timeout_us = 10'000}).status().code(), absl::StatusCode::kDeadlineExceeded);
    Transaction transaction = client_->Begin();
    ASSERT_TRUE(transaction.Put(table, Key(0), "mine").ok());
    EXPECT_EQ(transaction.Commit().status().code(), absl::StatusCode::kAborted);
    EXPECT_TRUE(others.Put(Key(0), "mine").ok()) << "its client is gone";
    EXPECT_EQ(In(name, Key(0), Path::kClient), "mine");
    EXPECT_EQ(Decide(id, low, Decision::kRecall), TransactOutcome::kAborted);
    EXPECT_EQ(Held(), 0u);
  }
}

TEST_P(TableTransactionsTest, ThatHaveCommittedAreFinishedWithoutTheirClient) {
  for (const char* name : kTables) {
    SCOPED_TRACE(name);
    const uint32_t part = PartOf(name, Key(0)), high = RegionOf(high_);
    const RequestId id = Id(name == kTables[0] ? 1 : 2);
    ASSERT_EQ(Prepare(id, high_, name, part), TransactOutcome::kPrepared);
    ASSERT_EQ(PrepareIn(name, id, Key(0), "new", part, {high}), TransactOutcome::kPrepared);
    EXPECT_EQ(Decide(id, part, Decision::kCommit, stamp_ + 10), TransactOutcome::kCommitted);
    EXPECT_EQ(In(name, Key(0), Path::kClient), "new");
    EXPECT_EQ(Value(high_), name);
    Pass(2'000'000'000);
    EXPECT_EQ(Held(), 0u);
    const auto outcome = other_->Outcome({id.client, id.number, id.until, id.slot, Key(0), name});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ((*outcome)->stamp, stamp_ + 10);
  }
}

TEST_P(TableTransactionsTest, SurviveATakeoverOfSlots) {
  if (GetParam() == Durability::kNone) GTEST_SKIP() << "regions without logs end with their server";
  SurvivesATakeover("slots");
}

TEST_P(TableTransactionsTest, SurviveATakeoverOfBuckets) {
  if (GetParam() == Durability::kNone) GTEST_SKIP() << "regions without logs end with their server";
  SurvivesATakeover("buckets");
}

// A slot that is reserved for a put is not moved. The next owner must find a slot for each put, although those that it
// prepares first may reserve the slots that another one needs.
TEST_P(TableTransactionsTest, SurviveATakeoverWhateverTheirPlaces) {
  if (GetParam() == Durability::kNone) GTEST_SKIP() << "regions without logs end with their server";
  ASSERT_TRUE(cluster_.CreateTable("crafted", 0, 1).ok());
  Settle();
  const uint32_t part = PartOf("crafted", "any");
  const uint32_t units = HeldOf(part)->hash->geometry().units;
  const KeyHash last = HashKey("last");
  std::vector<uint32_t> slots;
  for (const uint32_t probe : last.probes) slots.push_back(SlotOf(probe, units));
  ASSERT_EQ(std::set<uint32_t>(slots.begin(), slots.end()).size(), 3u);
  // Keys whose first slot is one of those, and whose other ones are not.
  int tried = 0;
  const auto key_first_in = [&](uint32_t slot) {
    for (;;) {
      std::string key = fmt::format("c{}", tried++);
      const KeyHash hash = HashKey(key);
      const bool others = std::any_of(std::begin(hash.probes) + 1, std::end(hash.probes), [&](uint32_t probe) {
        return std::find(slots.begin(), slots.end(), SlotOf(probe, units)) != slots.end();
      });
      if (SlotOf(hash.probes[0], units) == slot && !others) return key;
    }
  };
  Table table = *client_->OpenTable("crafted");
  std::vector<std::string> stored, prepared;
  for (const uint32_t slot : slots) {
    stored.push_back(key_first_in(slot));
    prepared.push_back(key_first_in(slot));
    ASSERT_TRUE(table.Put(stored.back(), "here").ok());
  }
  RequestId id = Id(1);
  for (const std::string& key : prepared) {
    ASSERT_EQ(PrepareIn("crafted", id, key, "new", part), TransactOutcome::kPrepared);
    ++id.slot;
  }
  for (const std::string& key : stored) ASSERT_TRUE(*table.Delete(key));
  ASSERT_EQ(PrepareIn("crafted", id, "last", "new", part), TransactOutcome::kPrepared);
  Kill(OwnerOf(part));
  EXPECT_TRUE(table.Put("last", "mine").ok());
}

// A client whose region table is old must not ask a region that has the key no more, and knows nothing.
TEST_P(TableTransactionsTest, AnOutcomeIsThatOfTheKeysPartWhateverWasCached) {
  const uint32_t part = PartOf("slots", Key(0));
  const size_t owner = OwnerOf(part);
  ASSERT_TRUE(other_->OpenTable("slots")->Get(Key(0)).ok());  // It knows the table of before the split.
  std::set<uint32_t> before;
  for (const auto& [first, region] : cluster_.table().tables.at("slots").parts) before.insert(region);
  ASSERT_TRUE(cluster_.Split(part, owner).ok());
  Settle();
  std::string upper;  // A key of the new part.
  for (int i = 0; upper.empty(); ++i) {
    if (!before.contains(PartOf("slots", Key(i)))) upper = Key(i);
  }
  const RequestId id = Id(1);
  ASSERT_EQ(PrepareIn("slots", id, upper, "new", PartOf("slots", upper)), TransactOutcome::kPrepared);
  EXPECT_EQ(Decide(id, PartOf("slots", upper), Decision::kCommit, stamp_), TransactOutcome::kCommitted);
  const auto outcome = other_->Outcome({id.client, id.number, id.until, id.slot, upper, "slots"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->has_value());
}

// A part that is split or joined hands over what it knows of transactions, and how far its stamps were.
TEST_P(TableTransactionsTest, OutcomesFollowTheirKeysThroughSplitsAndJoins) {
  for (const char* name : kTables) {
    SCOPED_TRACE(name);
    const uint32_t part = PartOf(name, Key(0));
    const RequestId id = Id(name == kTables[0] ? 1 : 2);
    ASSERT_EQ(PrepareIn(name, id, Key(0), "new", part), TransactOutcome::kPrepared);
    const size_t owner = OwnerOf(part);
    EXPECT_EQ(cluster_.Split(part, owner).code(), absl::StatusCode::kUnavailable) << "it has not ended";
    EXPECT_EQ(Decide(id, part, Decision::kCommit, stamp_ + 5'000), TransactOutcome::kCommitted);
    const uint64_t stamp = stamp_ + 5'000;
    Pass(2'000'000'000);
    const absl::Status split = cluster_.Split(part, owner);
    ASSERT_TRUE(split.ok()) << split;
    Settle();
    std::string upper_key;  // One in the upper part of what was split.
    for (int i = 0; upper_key.empty(); ++i) {
      const uint32_t its = PartOf(name, Key(i));
      if (OwnerOf(its) == owner && its != part && HeldOf(its)->outcomes.Find(id) != nullptr) upper_key = Key(i);
    }
    EXPECT_GE(HeldOf(PartOf(name, upper_key))->memory->header().last_stamp, stamp);
    for (const std::string& key : {Key(0), upper_key}) {
      const auto outcome = other_->Outcome({id.client, id.number, id.until, id.slot, key, name});
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ((*outcome)->stamp, stamp);
    }
    const absl::Status join = cluster_.Join(PartOf(name, upper_key), owner);
    ASSERT_TRUE(join.ok()) << join;
    Settle();
    EXPECT_EQ(In(name, Key(0)), "new");
    const auto outcome = other_->Outcome({id.client, id.number, id.until, id.slot, upper_key, name});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ((*outcome)->stamp, stamp);
  }
}

TEST_P(TableTransactionsTest, OverATableThatWasDroppedAreNotFound) {
  Table& table = tables_.at("slots");
  Transaction transaction = client_->Begin();
  ASSERT_TRUE(transaction.Put(table, Key(0), "late").ok());
  ASSERT_TRUE(transaction.Put(low_, "late").ok());
  ASSERT_TRUE(cluster_.DropTable("slots").ok());
  EXPECT_EQ(transaction.Commit().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Value(low_), "0");
  EXPECT_EQ(client_->Begin().Get(table, Key(0)).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(TableTransactionsTest, RefuseWhatTablesCannotDo) {
  Transaction transaction = client_->Begin();
  const Table& table = tables_.at("slots");
  EXPECT_EQ(transaction.Put(table, "", "value").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(transaction.Put(table, std::string(4097, 'k'), "value").code(), absl::StatusCode::kInvalidArgument);
  Transaction longest = client_->Begin();
  EXPECT_TRUE(longest.Put(table, std::string(4096, 'k'), "value").ok());
  EXPECT_TRUE(longest.Commit().ok());
  // A range, sent by hand: a table has no order.
  std::string part;
  AppendOperation({PartOperationKind::kReadRange, Key(0), Key(1)}, &part);
  const uint32_t region = PartOf("slots", Key(0));
  const std::string key = Key(0);
  const TransactionPart message{{kClient, 9, 0, 0}, TransactStep::kPrepare, key, static_cast<uint32_t>(part.size())};
  const std::string reply = Send(region, MakeTransactRequest(HashRootOf(region), message), part);
  EXPECT_EQ(ParseTransactReply(AsBytes(reply), MessageKind::kTransact).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Held(), 0u);
}

// Pairs of tables have no stamps, whatever has put them.
TEST_P(TableTransactionsTest, GiveThePairsOfTablesNoStamps) {
  Table& table = tables_.at("buckets");
  Transaction transaction = client_->Begin();
  ASSERT_TRUE(transaction.Put(table, Key(0), "new").ok());
  ASSERT_TRUE(transaction.Commit().ok());
  EXPECT_EQ(table.PutIf(Key(0), "newer", Condition::StampIs(1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(table.PutIf(Key(0), "newer", Condition::ValueIs("new"))->applied);
}

INSTANTIATE_TEST_SUITE_P(Durabilities, TableTransactionsTest,
                         ::testing::Values(Durability::kNone, Durability::kAsync, Durability::kSync),
                         [](const auto& test) { return std::string(ToString(test.param)); });

}  // namespace
}  // namespace cell

// Snapshots over a cluster of several servers and regions: what they have, what ends them, and what writers notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "cell/client/functions.h"
#include "cell/client/snapshot.h"
#include "cell/layout/wire_snapshot.h"
#include "fmt/format.h"
#include "tests/two_servers.h"

namespace cell {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

class SnapshotReads : public TwoServersTest {
 protected:
  Snapshot Take(const SnapshotOptions& options = {}) {
    absl::StatusOr<Snapshot> snapshot = client_->TakeSnapshot(options);
    CELL_CHECK(snapshot.ok());
    return *std::move(snapshot);
  }
  static std::string ValueIn(Snapshot* snapshot, const std::string& key) {
    const absl::StatusOr<std::optional<std::string>> value = snapshot->Get(key);
    if (IsSnapshotTooOld(value.status())) return "too old";
    return value.ok() ? value->value_or("absent") : std::string(value.status().message());
  }
  static Pairs PairsOf(Scan scan) {
    Pairs pairs;
    absl::StatusOr<bool> more = scan.Next();
    for (; more.ok() && *more; more = scan.Next()) pairs.emplace_back(scan.key(), scan.value());
    EXPECT_TRUE(more.ok()) << more.status();
    return pairs;
  }
  // Sends a step of a snapshot by hand, and returns the answer's state.
  SnapshotState Step(SnapshotStep step, const std::string& key, uint64_t number = 1) {
    const uint32_t region = RegionOf(key);
    const std::string reply =
        Send(region, MakeSnapshotRequest(RootOf(region), step, {kClient, number}, key, "", 60'000), "");
    const absl::StatusOr<Parsed<SnapshotReply>> parsed = ParseSnapshotReply(AsBytes(reply));
    CELL_CHECK(parsed.ok());
    return parsed->fixed.state;
  }
};

TEST_P(SnapshotReads, HaveWhatWasThereWhenTheyWereTaken) {
  Snapshot snapshot = Take();
  for (const std::string& key : {low_, high_}) {
    ASSERT_TRUE(other_->Put(key, "later").ok());
    ASSERT_TRUE(other_->Put(key + "new", "later").ok());
  }
  ASSERT_TRUE(other_->Delete(Key(1)).ok());
  for (const std::string& key : {low_, high_, Key(1), Key(2)}) EXPECT_EQ(ValueIn(&snapshot, key), "0") << key;
  for (const std::string& key : {low_, high_}) EXPECT_EQ(ValueIn(&snapshot, key + "new"), "absent") << key;
  const std::vector<std::string_view> keys = {low_, "nothing", high_};
  EXPECT_EQ(*snapshot.MultiGet(keys), (std::vector<std::optional<std::string>>{"0", std::nullopt, "0"}));
  const Pairs all = PairsOf(snapshot.NewScan({}));
  ASSERT_EQ(all.size(), size_t{kKeys});
  for (int i = 0; i < kKeys; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], std::pair(Key(i), std::string("0")));
  EXPECT_EQ(Value(low_), "later");
}

TEST_P(SnapshotReads, HaveTheKeysOfTheirRange) {
  Snapshot snapshot = Take({.from = Key(10), .to = Key(1400)});
  EXPECT_EQ(ValueIn(&snapshot, Key(10)), "0");
  EXPECT_EQ(snapshot.Get(Key(9)).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(snapshot.Get(Key(1400)).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(snapshot.Get("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PairsOf(snapshot.NewScan({})).size(), 1390u);
  EXPECT_EQ(PairsOf(snapshot.NewScan({.reverse = true})).front().first, Key(1399));
  EXPECT_EQ(PairsOf(snapshot.NewScan({.from = Key(1390), .to = Key(1450)})).size(), 10u);
  EXPECT_TRUE(PairsOf(snapshot.NewScan({.from = Key(1420)})).empty());
}

// Many changes of all kinds, several snapshots, and scans in both directions.
TEST_P(SnapshotReads, EqualAModel) {
  constexpr int kSnapshots = 4;
  constexpr int kChanges = 300;
  std::map<std::string, std::string> now;
  for (int i = 0; i < kKeys; ++i) now[Key(i)] = "0";
  Random random(7);
  std::vector<std::pair<Snapshot, std::map<std::string, std::string>>> taken;
  for (int round = 0; round < kSnapshots; ++round) {
    taken.emplace_back(Take(), now);
    for (int i = 0; i < kChanges; ++i) {
      const std::string key = Key(static_cast<int>(random.Below(kKeys))) + (random.Below(3) == 0 ? "x" : "");
      const std::string value = fmt::format("{}.{}{}", round, i, std::string(random.Below(30) == 0 ? 6000 : 3, 'v'));
      switch (random.Below(6)) {
        case 0:
          ASSERT_TRUE(other_->Delete(key).ok());
          now.erase(key);
          break;
        case 1: {
          const std::string to = key + "~";
          ASSERT_TRUE(other_->DeleteRange(key, to).ok());
          now.erase(now.lower_bound(key), now.lower_bound(to));
          break;
        }
        case 2: {
          const absl::StatusOr<Committed> committed = other_->RunTransaction([&](Transaction* transaction) {
            return transaction->Put(key, value).ok() ? transaction->Put(low_, value) : absl::InternalError("");
          });
          ASSERT_TRUE(committed.ok()) << committed.status();
          now[key] = now[low_] = value;
          break;
        }
        case 3:
          ASSERT_TRUE(other_->Apply(key, functions::Append("+")).ok());
          now[key] += "+";
          break;
        default:
          ASSERT_TRUE(other_->Put(key, value).ok());
          now[key] = value;
      }
    }
  }
  taken.emplace_back(Take(), now);
  for (auto& [snapshot, model] : taken) {
    const Pairs expected(model.begin(), model.end());
    for (const uint32_t batch : {7u, 500u}) {
      EXPECT_EQ(PairsOf(snapshot.NewScan({.batch = batch})), expected);
      Pairs down = PairsOf(snapshot.NewScan({.reverse = true, .batch = batch}));
      std::reverse(down.begin(), down.end());
      EXPECT_EQ(down, expected);
    }
    for (int i = 0; i < 50; ++i) {
      const std::string key = Key(static_cast<int>(random.Below(kKeys))) + (random.Below(3) == 0 ? "x" : "");
      EXPECT_EQ(ValueIn(&snapshot, key), model.contains(key) ? model[key] : "absent");
      const std::string to = Key(static_cast<int>(random.Below(kKeys)));
      const Pairs some(model.lower_bound(key),
                       std::max(key, to) == to ? model.lower_bound(to) : model.lower_bound(key));
      const uint64_t limit = 1 + random.Below(40);
      const size_t count = std::min<size_t>(limit, some.size());
      EXPECT_EQ(PairsOf(snapshot.NewScan({.from = key, .to = to, .limit = limit})),
                Pairs(some.begin(), some.begin() + static_cast<ptrdiff_t>(count)));
    }
  }
}

TEST_P(SnapshotReads, HaveWhatWasDeletedWithAllOthers) {
  Snapshot snapshot = Take();
  ASSERT_TRUE(other_->DeleteRange("", std::nullopt).ok());
  EXPECT_EQ(Value(high_), "absent");
  EXPECT_EQ(PairsOf(snapshot.NewScan({})).size(), size_t{kKeys});
}

TEST_P(SnapshotReads, HaveLargeValues) {
  const std::string large(300'000, 'l'), other(200'000, 'o');
  ASSERT_TRUE(other_->Put("large1", large).ok());
  ASSERT_TRUE(other_->Put("large2", large).ok());
  Snapshot snapshot = Take();
  ASSERT_TRUE(other_->Put("large1", other).ok());
  EXPECT_TRUE(ValueIn(&snapshot, "large1") == large);
  EXPECT_TRUE(ValueIn(&snapshot, "large2") == large);
  const ScanOptions both{.from = "large", .to = "largf"};
  EXPECT_TRUE(PairsOf(snapshot.NewScan(both)) == (Pairs{{"large1", large}, {"large2", large}}));
  EXPECT_EQ(PairsOf(snapshot.NewScan({.from = "large", .to = "largf", .keys_only = true})),
            (Pairs{{"large1", ""}, {"large2", ""}}));
}

TEST_P(SnapshotReads, HavePairsThatExpireLater) {
  ASSERT_TRUE(other_->Put("soon", "1", Expires::AfterUs(1'000)).ok());
  Pass(10'000'000);
  ASSERT_TRUE(other_->Put("later", "1", Expires::AfterUs(500'000)).ok());
  ASSERT_TRUE(other_->Put("replaced", "1", Expires::AfterUs(500'000)).ok());
  Snapshot snapshot = Take();
  ASSERT_TRUE(other_->Put("replaced", "2").ok());
  Pass(1'000'000'000);
  EXPECT_EQ(Value("later"), "absent");
  EXPECT_EQ(ValueIn(&snapshot, "soon"), "absent");
  EXPECT_EQ(ValueIn(&snapshot, "later"), "1");
  EXPECT_EQ(ValueIn(&snapshot, "replaced"), "1");
  EXPECT_EQ(PairsOf(snapshot.NewScan({.from = "l"})), (Pairs{{"later", "1"}, {"replaced", "1"}}));
}

// A transaction that has committed at its primary, and not yet at the other region, is in a snapshot as a whole.
TEST_P(SnapshotReads, HaveTransactionsAsAWhole) {
  const uint32_t low = RegionOf(low_), high = RegionOf(high_);
  for (const bool commits : {true, false}) {
    SCOPED_TRACE(commits);
    const std::string value = commits ? "committed" : "aborted", before = Value(low_);
    const RequestId id = Id(commits ? 1 : 2);
    ASSERT_EQ(Prepare(id, low_, value, low, {high}), TransactOutcome::kPrepared);
    const uint64_t stamp = stamp_;
    ASSERT_EQ(Prepare(id, high_, value, low), TransactOutcome::kPrepared);
    if (commits) {
      ASSERT_EQ(Decide(id, low, Decision::kCommit, std::max(stamp, stamp_)), TransactOutcome::kCommitted);
    }
    EXPECT_EQ(client_->TakeSnapshot({.call = {.timeout_us = 20'000}}).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    Snapshot snapshot = Take();  // The servers end the transaction meanwhile.
    EXPECT_EQ(ValueIn(&snapshot, low_), commits ? value : before);
    EXPECT_EQ(ValueIn(&snapshot, high_), commits ? value : before);
  }
}

TEST_P(SnapshotReads, AreTakenBesideTransactions) {
  const SimCluster::DrivenClient writer = cluster_.NewDrivenClient({.report = false});
  bool stop = false;
  int committed = 0;
  const auto write = [&]() -> Task<bool> {
    int tries = 0;
    while (!stop) {
      Transaction transaction = writer.client->Begin();
      const std::string value = fmt::format("{:06}", ++tries);
      CELL_CHECK(transaction.Put(low_, value).ok() && transaction.Put(high_, value).ok());
      committed += (co_await transaction.AsyncCommit()).ok();
    }
    co_return true;
  };
  Task<bool> writing = write();
  writing.Start();
  writer.fabric->Drive([client = writer.client.get()] { client->Poll(INT64_MAX); });
  std::string last;
  for (int i = 0; i < 20; ++i) {
    Pass(1'000'000);
    const std::string before = Value(low_);
    Snapshot snapshot = Take();
    const std::string low = ValueIn(&snapshot, low_);
    EXPECT_EQ(low, ValueIn(&snapshot, high_));
    EXPECT_GE(low, before);
    last = low;
  }
  stop = true;
  while (!writing.done()) cluster_.network()->Step();
  EXPECT_GT(last, "000001");
  EXPECT_GT(committed, 20);
}

TEST_P(SnapshotReads, MakeWritesWaitWhileARegionIsStill) {
  const RequestId id = Id(1);
  ASSERT_EQ(Step(SnapshotStep::kStill, low_), SnapshotState::kStill);
  EXPECT_EQ(Prepare(id, low_, "x", RegionOf(low_)), TransactOutcome::kAborted);
  auto put = other_->AsyncPut(low_, "waits");
  put.Start();
  const int64_t until_ns = cluster_.network()->now_ns() + 50'000'000;
  while (cluster_.network()->now_ns() < until_ns) other_->Poll(until_ns);
  EXPECT_FALSE(put.done());
  EXPECT_EQ(Value(low_), "0");
  EXPECT_EQ(Step(SnapshotStep::kGoOn, low_), SnapshotState::kTaken);
  while (!put.done()) other_->Poll(INT64_MAX);
  EXPECT_TRUE(put.Take().ok());
  EXPECT_EQ(Value(low_), "waits");
  EXPECT_EQ(Step(SnapshotStep::kGoOn, low_), SnapshotState::kTaken);
}

TEST_P(SnapshotReads, DoNotStopWritersThatHaveWaitedTooLong) {
  ASSERT_EQ(Step(SnapshotStep::kStill, low_), SnapshotState::kStill);
  const int64_t begun_ns = cluster_.network()->now_ns();
  EXPECT_TRUE(other_->Put(low_, "waits").ok());
  EXPECT_LT(cluster_.network()->now_ns() - begun_ns, 250'000'000);
  EXPECT_EQ(Step(SnapshotStep::kGoOn, low_), SnapshotState::kGone);
}

TEST_P(SnapshotReads, LiveThroughSplits) {
  Snapshot snapshot = Take();
  std::vector<std::string> changed;
  for (int i = 0; i < kKeys; i += 50) changed.push_back(Key(i));
  for (const std::string& key : changed) ASSERT_TRUE(other_->Put(key, "before the split").ok());
  const uint32_t region = RegionOf(low_);
  ASSERT_TRUE(cluster_.Split(region, OwnerOf(region)).ok());
  Settle();
  for (const std::string& key : changed) ASSERT_TRUE(other_->Put(key + "a", "after the split").ok());
  for (int i = 25; i < kKeys; i += 50) ASSERT_TRUE(other_->Delete(Key(i)).ok());
  const Pairs all = PairsOf(snapshot.NewScan({}));
  ASSERT_EQ(all.size(), size_t{kKeys});
  for (const auto& [key, value] : all) EXPECT_EQ(value, "0") << key;
  for (const std::string& key : changed) EXPECT_EQ(ValueIn(&snapshot, key), "0");
}

TEST_P(SnapshotReads, LiveThroughJoins) {
  const uint32_t left = RegionOf(low_);
  const std::string border = HeldOf(left)->tree->range().high.value();
  const uint32_t right = RegionOf(border);
  ASSERT_EQ(OwnerOf(right), 0u);
  const std::string end = HeldOf(right)->tree->range().high.value();
  Snapshot snapshot = Take();
  ASSERT_TRUE(other_->DeleteRange(low_, end).ok());
  ASSERT_TRUE(other_->Put(border, "between").ok());
  const absl::Status joined = cluster_.Join(right, 0);
  ASSERT_TRUE(joined.ok()) << joined;
  Settle();
  ASSERT_EQ(RegionOf(border), left);
  ASSERT_TRUE(other_->Put(border + "a", "afterwards").ok());
  EXPECT_EQ(PairsOf(snapshot.NewScan({})).size(), size_t{kKeys});
  EXPECT_EQ(ValueIn(&snapshot, border + "a"), "absent");
  EXPECT_EQ(ValueIn(&snapshot, Key(1)), "0");
}

// A region that moves leaves its part of a snapshot behind. Reads of that part fail, and other reads go on.
TEST_P(SnapshotReads, EndWhereARegionMoves) {
  Snapshot snapshot = Take();
  ASSERT_TRUE(other_->Put(high_, "1").ok());
  const uint32_t high = RegionOf(high_);
  ASSERT_TRUE(cluster_.Migrate(high, 1, 0).ok());
  Settle();
  EXPECT_EQ(ValueIn(&snapshot, high_), "too old");
  EXPECT_EQ(ValueIn(&snapshot, low_), "0");
  ASSERT_TRUE(cluster_.Migrate(high, 0, 1).ok());
  Settle();
  EXPECT_EQ(ValueIn(&snapshot, high_), "too old");
  Scan scan = snapshot.NewScan({});
  absl::StatusOr<bool> more = true;
  while (more.ok() && *more) more = scan.Next();
  EXPECT_TRUE(IsSnapshotTooOld(more.status())) << more.status();
}

TEST_P(SnapshotReads, EndWithTheirServer) {
  if (GetParam() == Durability::kNone) GTEST_SKIP() << "nobody takes the regions over without logs";
  Snapshot snapshot = Take();
  Kill(1);
  EXPECT_EQ(ValueIn(&snapshot, high_), "too old");
  EXPECT_EQ(ValueIn(&snapshot, low_), "0");
  Snapshot next = Take();
  EXPECT_EQ(ValueIn(&next, high_), "0");
}

TEST_P(SnapshotReads, EndWithTheirAgeOrWhenTheyAreForgotten) {
  const auto kept = [this] {
    size_t count = 0;
    for (size_t i = 0; i < 2; ++i) {
      cluster_.worker(i)->regions()->ForEach([&](const HeldRegion* region) { count += region->snapshots.size(); });
    }
    return count;
  };
  Snapshot snapshot = Take({.keep_us = 300'000});
  EXPECT_GT(kept(), 2u);
  Pass(400'000'000);
  EXPECT_EQ(ValueIn(&snapshot, low_), "too old");
  EXPECT_EQ(kept(), 0u);
  { Snapshot other = Take(); }
  for (int i = 0; i < 1'000 && kept() > 0; ++i) client_->Poll(cluster_.network()->now_ns() + 1'000'000);
  EXPECT_EQ(kept(), 0u);
}

TEST_P(SnapshotReads, EndWhenTheyKeepTooMuch) {
  Snapshot snapshot = Take();
  for (size_t i = 0; i < 2; ++i) cluster_.worker(i)->regions()->snapshots()->set_bytes_max(2'000);
  ASSERT_TRUE(other_->Put(high_, "1").ok());
  EXPECT_EQ(ValueIn(&snapshot, high_), "0");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(other_->Put(Key(kKeys - 1 - i), "1").ok());
  EXPECT_EQ(ValueIn(&snapshot, high_), "too old");
  EXPECT_EQ(ValueIn(&snapshot, low_), "0");
  EXPECT_EQ(cluster_.worker(OwnerOf(RegionOf(high_)))->regions()->snapshots()->ended(), 1u);
}

// The next write makes a new leaf of the damaged one, whose check is right: nobody could tell any more.
TEST_P(SnapshotReads, EndWhenALeafIsDamagedBeforeItChanges) {
  Snapshot snapshot = Take();
  const HeldRegion* const held = HeldOf(RegionOf(low_));
  const absl::StatusOr<Meganode::Location> found = held->tree->Find(Key(1));
  ASSERT_TRUE(found.ok() && found->pair.has_value() && found->pair->is_inline);
  auto* const value = const_cast<char*>(found->pair->value.data());
  value[0] = static_cast<char>(value[0] ^ 1);
  EXPECT_TRUE(absl::IsDataLoss(snapshot.Get(low_).status()));
  ASSERT_TRUE(other_->Put(low_, "1").ok());
  EXPECT_EQ(ValueIn(&snapshot, low_), "too old");
  EXPECT_EQ(ValueIn(&snapshot, Key(1)), "too old");
  EXPECT_EQ(ValueIn(&snapshot, high_), "0");
}

// A value that was damaged before it was kept is an error for its key alone, and no empty value.
TEST_P(SnapshotReads, SayThatAValueWasDamaged) {
  ASSERT_TRUE(other_->Put("large", std::string(3'000, 'v')).ok());
  Snapshot snapshot = Take();
  const HeldRegion* const held = HeldOf(RegionOf("large"));
  const absl::StatusOr<Meganode::Location> found = held->tree->Find("large");
  ASSERT_TRUE(found.ok() && found->pair.has_value() && !found->pair->is_inline);
  auto* const value = const_cast<char*>(held->tree->ValueOf(*found->pair).data());
  value[1'000] = static_cast<char>(value[1'000] ^ 1);
  ASSERT_TRUE(other_->Put("large", "new").ok());
  EXPECT_TRUE(absl::IsDataLoss(snapshot.Get("large").status()));
  Scan scan = snapshot.NewScan({.from = "large"});
  EXPECT_TRUE(absl::IsDataLoss(scan.Next().status()));
  EXPECT_EQ(ValueIn(&snapshot, high_), "0");
}

TEST_P(SnapshotReads, AreLimited) {
  std::vector<Snapshot> all;
  absl::Status status;
  while (status.ok() && all.size() < 100) {
    absl::StatusOr<Snapshot> snapshot = client_->TakeSnapshot({.from = low_, .to = Key(1)});
    status = snapshot.status();
    if (snapshot.ok()) all.push_back(*std::move(snapshot));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(all.size(), SnapshotLimits().max / 2);
  EXPECT_TRUE(client_->Put(low_, "1").ok());
  for (Snapshot& snapshot : all) EXPECT_EQ(ValueIn(&snapshot, low_), "0");
}

TEST_P(SnapshotReads, AreOneUsersAlone) {
  ASSERT_EQ(Step(SnapshotStep::kStill, low_), SnapshotState::kStill);
  ASSERT_EQ(Step(SnapshotStep::kGoOn, low_), SnapshotState::kTaken);
  fabric_->SetSelf({Role::kClient, "somebody"});
  const uint32_t region = RegionOf(low_);
  const std::string reply = Send(region, MakeGetSnapshotRequest(RootOf(region), {kClient, 1}, low_, 0), "");
  EXPECT_EQ(ParseGetReply(AsBytes(reply), MessageKind::kGetSnapshot).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Step(SnapshotStep::kForget, low_), SnapshotState::kGone);
  EXPECT_EQ(HeldOf(region)->snapshots.size(), 1u);
}

TEST_P(SnapshotReads, RefuseWhatTheyCannotBe) {
  const std::string longest(client_->key_bytes_max() + 1, 'k');
  for (const SnapshotOptions& options :
       {SnapshotOptions{.from = longest}, SnapshotOptions{.to = longest}, SnapshotOptions{.from = "b", .to = "a"},
        SnapshotOptions{.keep_us = 0}, SnapshotOptions{.keep_us = INT64_MAX}}) {
    EXPECT_EQ(client_->TakeSnapshot(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(client_->TakeSnapshot({.from = "x"}).ok());
  // A scan's reply has room for the longest key, where it goes on.
  const uint32_t region = RegionOf(high_);
  const std::string request =
      MakeSnapshotRequest(RootOf(region), SnapshotStep::kStill, {kClient, 1}, high_, std::string(60'000, 'z'), 1);
  EXPECT_EQ(ParseSnapshotReply(AsBytes(Send(region, request, ""))).status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(All, SnapshotReads,
                         ::testing::Values(Durability::kNone, Durability::kAsync, Durability::kSync),
                         [](const auto& test) { return std::string(ToString(test.param)); });

}  // namespace
}  // namespace cell

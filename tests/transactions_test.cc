// Transactions over a cluster of several servers and regions: what they see, when they are aborted, and what is left of
// them when their client or a server ends.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/client/transaction.h"
#include "cell/layout/wire_transaction.h"
#include "fmt/format.h"
#include "tests/two_servers.h"

namespace cell {
namespace {

class TransactionsTest : public TwoServersTest {};

TEST_P(TransactionsTest, WriteInOneRegionAndInSeveral) {
  for (const std::string& second : {Key(1), high_}) {
    SCOPED_TRACE(second);
    Transaction transaction = client_->Begin();
    EXPECT_EQ(**transaction.Get(low_), Value(low_));
    ASSERT_TRUE(transaction.Put(low_, "a").ok());
    ASSERT_TRUE(transaction.Put(second, "b").ok());
    EXPECT_EQ(**transaction.Get(second), "b");
    EXPECT_NE(Value(second), "b");
    const absl::StatusOr<Committed> committed = transaction.Commit();
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_EQ(Value(low_), "a");
    EXPECT_EQ(Value(second), "b");
    EXPECT_EQ((*other_->GetWithStamp(second))->stamp, committed->stamp);
    EXPECT_EQ((*other_->GetWithStamp(low_))->stamp, committed->stamp);
    EXPECT_EQ(transaction.Commit().status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(client_->Put(low_, "0").ok());
    Settle();
    EXPECT_EQ(Held(), 0u);
  }
}

TEST_P(TransactionsTest, AreFinishedBeforeAProgramEnds) {
  Transaction transaction = client_->Begin();
  for (const std::string& key : {low_, high_}) ASSERT_TRUE(transaction.Put(key, "a").ok());
  ASSERT_TRUE(transaction.Commit().ok());
  EXPECT_GT(Held(), 0u);
  EXPECT_TRUE(client_->FinishTransactions());
  EXPECT_EQ(Held(), 0u);
}

// It is to change, and the parts that it had did not end in time.
TEST_P(TransactionsTest, WaitForARegionThatTakesNoPartsForAWhile) {
  HeldRegion* const low = HeldOf(RegionOf(low_));
  low->EndParts(cluster_.network()->now_ns());
  Transaction transaction = client_->Begin();
  for (const std::string& key : {low_, high_}) ASSERT_TRUE(transaction.Put(key, "a").ok());
  const absl::StatusOr<Committed> committed = transaction.Commit();
  EXPECT_TRUE(committed.ok()) << committed.status();
  EXPECT_GE(cluster_.network()->now_ns(), low->no_parts_before_ns);
}

TEST_P(TransactionsTest, AreAbortedIfWhatTheyReadHasChanged) {
  for (const std::string& written : {Key(1), high_}) {
    SCOPED_TRACE(written);
    Transaction transaction = client_->Begin();
    ASSERT_TRUE(transaction.Get(low_).ok());
    ASSERT_TRUE(transaction.Put(written, "lost").ok());
    ASSERT_TRUE(other_->Put(low_, "changed for " + written).ok());
    EXPECT_EQ(transaction.Commit().status().code(), absl::StatusCode::kAborted);
    EXPECT_NE(Value(written), "lost");
    Settle();
    EXPECT_EQ(Held(), 0u);
  }
}

TEST_P(TransactionsTest, SeeNoPhantoms) {
  for (const std::string& appears : {std::string("key0000a"), Key(kKeys - 1) + "a"}) {
    SCOPED_TRACE(appears);
    Transaction transaction = client_->Begin();
    const absl::StatusOr<Transaction::Pairs> all = transaction.Scan({.from = "key", .to = "kez"});
    ASSERT_TRUE(all.ok()) << all.status();
    ASSERT_TRUE(transaction.Put("count", std::to_string(all->size())).ok());
    Transaction same = client_->Begin();
    ASSERT_TRUE(same.Scan({.from = "key", .to = "kez"}).ok());
    ASSERT_TRUE(same.Put("same", "1").ok());
    const absl::StatusOr<Committed> committed = same.Commit();
    EXPECT_TRUE(committed.ok()) << committed.status();
    ASSERT_TRUE(other_->Put(appears, "new").ok());
    EXPECT_EQ(transaction.Commit().status().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(Value("count"), "absent");
  }
}

TEST_P(TransactionsTest, ScanWhatTheyHaveWritten) {
  Transaction transaction = client_->Begin();
  ASSERT_TRUE(transaction.Delete(Key(1)).ok());
  ASSERT_TRUE(transaction.Put(Key(2), "mine").ok());
  ASSERT_TRUE(transaction.Put("key0002a", "new").ok());
  const Transaction::Pairs up = *transaction.Scan({.from = Key(0), .limit = 4});
  EXPECT_EQ(up, (Transaction::Pairs{{Key(0), "0"}, {Key(2), "mine"}, {"key0002a", "new"}, {Key(3), "0"}}));
  const Transaction::Pairs down = *transaction.Scan({.from = Key(0), .to = Key(4), .reverse = true, .limit = 3});
  EXPECT_EQ(down, (Transaction::Pairs{{Key(3), "0"}, {"key0002a", "new"}, {Key(2), "mine"}}));
  EXPECT_TRUE(transaction.Commit().ok());
  EXPECT_EQ(Value(Key(1)), "absent");
  EXPECT_EQ(Value("key0002a"), "new");
}

// Though their first reads are all by calls.
TEST_P(TransactionsTest, ReadValuesOfAnySizeOnEveryPath) {
  for (const size_t bytes : {10, 2'000, 300'000}) {
    const std::string value(bytes, 'v');
    ASSERT_TRUE(other_->Put(low_, value).ok());
    for (const Path path : {Path::kClient, Path::kServer}) {
      SCOPED_TRACE(fmt::format("{} bytes {}", bytes, ToString(path)));
      Transaction transaction = client_->Begin();
      const absl::StatusOr<std::optional<std::string>> read = transaction.Get(low_, {.path = path});
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, value);
      ASSERT_TRUE(transaction.Put(high_, "because of it").ok());
      const absl::StatusOr<Committed> committed = transaction.Commit();
      EXPECT_TRUE(committed.ok()) << committed.status();
    }
  }
}

// The state of a leaf that is locked already does not change when one more key of it is held.
TEST_P(TransactionsTest, CannotCommitOnceWhatTheyHaveReadHasExpired) {
  const uint32_t low = RegionOf(low_), high = RegionOf(high_);
  for (const std::string& expiring : {low_, high_}) {
    for (const bool expires : {true, false}) {
      SCOPED_TRACE(expiring + (expires ? ", expires" : ""));
      ASSERT_TRUE(client_->Put(low_, "0").ok());
      ASSERT_TRUE(client_->Put(high_, "0").ok());
      ASSERT_TRUE(client_->Put(expiring, "0", Expires::AfterUs(expires ? 100'000 : 100'000'000)).ok());
      const RequestId id = Id(stamp_ + 1);
      ASSERT_EQ(Prepare(id, low_, "new", low, {high}, "0"), TransactOutcome::kPrepared);
      Expiry first = expires_;
      ASSERT_EQ(Prepare(id, high_, "new", low, {}, "0"), TransactOutcome::kPrepared);
      if (first == kNeverExpires) first = expires_;
      EXPECT_NE(first, kNeverExpires);
      Pass(200'000'000);
      EXPECT_EQ(Decide(id, low, Decision::kCommit, stamp_ + 10, first),
                expires ? TransactOutcome::kAborted : TransactOutcome::kCommitted);
      EXPECT_EQ(Value(low_), expires ? (expiring == low_ ? "absent" : "0") : "new");
      EXPECT_EQ(Value(high_), expires ? (expiring == high_ ? "absent" : "0") : "new");
    }
  }
}

TEST_P(TransactionsTest, AScanGoesAsFarAsTheFirstKeyThatIsHeld) {
  const uint32_t low = RegionOf(low_);
  ASSERT_EQ(Prepare(Id(1), Key(5), "never", low), TransactOutcome::kPrepared);
  for (const Path path : {Path::kServer, Path::kClient}) {
    const auto scan = [&](ScanOptions options) -> std::string {
      options.call.path = path;
      options.call.timeout_us = 20'000;
      Scan one = other_->NewScan(options);
      std::string keys;
      for (;;) {
        const auto batch = other_->Run(one.AsyncNextBatch());
        if (!batch.ok()) return keys + "waits";
        if (batch->empty()) return keys;
        for (const Scan::Entry& entry : *batch) keys += std::string(entry.key) + " ";
      }
    };
    EXPECT_EQ(scan({.from = Key(2), .to = Key(5)}), Key(2) + " " + Key(3) + " " + Key(4) + " ");
    EXPECT_EQ(scan({.from = Key(2), .to = Key(5), .reverse = true}), Key(4) + " " + Key(3) + " " + Key(2) + " ");
    EXPECT_EQ(scan({.from = Key(6), .to = Key(8)}), Key(6) + " " + Key(7) + " ");
    EXPECT_EQ(scan({.from = Key(6), .to = Key(8), .reverse = true}), Key(7) + " " + Key(6) + " ");
    EXPECT_EQ(scan({.from = Key(4), .limit = 1}), Key(4) + " ");
    EXPECT_EQ(scan({.from = Key(5), .limit = 1}), "waits");
    EXPECT_EQ(scan({.from = Key(5), .to = Key(7), .reverse = true}), Key(6) + " waits");
    EXPECT_EQ(scan({.from = Key(4), .to = Key(7)}), Key(4) + " waits");
  }
  EXPECT_EQ(*other_->Count(Key(2), Key(5)), 3u);
  EXPECT_EQ(*other_->Count(Key(6), Key(9)), 3u);
}

TEST_P(TransactionsTest, ScansWithLimitsClaimOnlyWhatTheyHaveRead) {
  const std::string longest(KeyBytesMax(512), 'z');
  ASSERT_TRUE(client_->Put(longest, "last").ok());
  Transaction transaction = client_->Begin();
  EXPECT_TRUE(transaction.Scan({.from = low_, .limit = 0})->empty());
  EXPECT_TRUE(transaction.Scan({.from = low_, .reverse = true, .limit = 0})->empty());
  EXPECT_EQ(transaction.Scan({.from = "zz", .limit = 1})->size(), 1u);
  ASSERT_TRUE(transaction.Put("new", "1").ok());
  EXPECT_EQ(transaction.Scan({.from = Key(kKeys - 1), .limit = UINT64_MAX - 1})->size(), 3u);
  const absl::StatusOr<Committed> committed = transaction.Commit();
  EXPECT_TRUE(committed.ok()) << committed.status();
}

TEST_P(TransactionsTest, AnOutcomeIsThatOfTheKeysRegionWhateverWasCached) {
  // The other client knows a region for all keys, which has been split since.
  const uint32_t low = RegionOf(low_), high = RegionOf(high_);
  const RequestId id = Id(1);
  ASSERT_EQ(Prepare(id, high_, "new", high, {low}), TransactOutcome::kPrepared);
  ASSERT_EQ(Prepare(id, low_, "new", high), TransactOutcome::kPrepared);
  EXPECT_EQ(Decide(id, high, Decision::kCommit, stamp_ + 10), TransactOutcome::kCommitted);
  for (Client* const one : {client_.get(), other_.get()}) {
    const auto outcome = one->Outcome({id.client, id.number, id.until, id.slot, high_});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->has_value());
  }
}

TEST_P(TransactionsTest, OnlyServersAskAndNoStampIsFarAhead) {
  const uint32_t low = RegionOf(low_);
  const RequestId id = Id(1);
  ASSERT_EQ(Prepare(id, low_, "new", low), TransactOutcome::kPrepared);
  const auto answer = [&](Decision decision, uint64_t stamp) {
    const std::string reply = Send(low, MakeDecideRequest(RootOf(low), id, decision, stamp), "");
    return ParseTransactReply(AsBytes(reply), MessageKind::kDecide).status().code();
  };
  EXPECT_EQ(answer(Decision::kAsk, 0), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(answer(Decision::kCommit, stamp_ + 2 * kRequestAheadNsMax), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(answer(Decision::kCommit, stamp_), absl::StatusCode::kOk);
  EXPECT_EQ(Value(low_), "new");
}

TEST_P(TransactionsTest, HoldWhatTheyReadAndWriteAgainstOthers) {
  const RequestId first = Id(1);
  RequestId second = first;
  second.slot = 1;
  const uint32_t low = RegionOf(low_), high = RegionOf(high_);
  ASSERT_EQ(Prepare(first, low_, "first", low), TransactOutcome::kPrepared);
  EXPECT_EQ(Prepare(second, low_, "second", low), TransactOutcome::kAborted) << "it is written";
  Transaction reader = client_->Begin();
  ASSERT_TRUE(reader.Get(high_).ok());
  ASSERT_TRUE(reader.Put(low_, "third").ok());
  EXPECT_EQ(reader.Commit().status().code(), absl::StatusCode::kAborted) << "the same";
  Settle();
  // What a transaction has only read may be read by others, and not be written.
  std::string part;
  AppendOperation({PartOperationKind::kReadPair, high_, {}, PairDigest(high_, "0")}, &part);
  const auto read = [&](const RequestId& id) {
    const TransactionPart message{id, TransactStep::kPrepare, high_, static_cast<uint32_t>(part.size()), low};
    const std::string reply = Send(high, MakeTransactRequest(RootOf(high), message), part);
    return ParseTransactReply(AsBytes(reply), MessageKind::kTransact)->fixed.outcome;
  };
  RequestId third = first;
  third.slot = 2;
  EXPECT_EQ(read(first), TransactOutcome::kPrepared);
  EXPECT_EQ(read(second), TransactOutcome::kPrepared);
  EXPECT_EQ(Prepare(third, high_, "third", high), TransactOutcome::kAborted);
}

TEST_P(TransactionsTest, ArePreparedOnceThatIsOnDisk) {
  const RequestId id = Id(1);
  const uint32_t region = RegionOf(low_);
  ASSERT_EQ(Prepare(id, low_, "new", region), TransactOutcome::kPrepared);
  const HeldRegion* const held = HeldOf(region);
  EXPECT_LE(held->transactions.Find(id)->sequence, held->log == nullptr ? 0 : held->log->durable());
}

// What was read is not held any more when the last of the writes is prepared.
TEST_P(TransactionsTest, AreAbortedIfWhatTheyHaveReadWasNotHeldUntilAllWasPrepared) {
  Transaction transaction = client_->Begin();
  ASSERT_TRUE(transaction.Get(low_).ok());
  ASSERT_TRUE(transaction.Put(high_, "skewed").ok());
  HeldRegion* const high = HeldOf(RegionOf(high_));
  high->ChangeState(RegionState::kFrozen);
  Task<absl::StatusOr<Committed>> commit = transaction.AsyncCommit();
  commit.Start();
  const auto poll = [&](int64_t ns) {
    const int64_t until_ns = client_->NowNs() + ns;
    while (!commit.done() && client_->NowNs() < until_ns) client_->Poll(until_ns);
  };
  poll(500'000'000);
  ASSERT_FALSE(commit.done());
  EXPECT_TRUE(other_->Put(low_, "changed").ok());
  high->Unfreeze();
  poll(5'000'000'000);
  ASSERT_TRUE(commit.done());
  EXPECT_EQ(commit.Take().status().code(), absl::StatusCode::kAborted);
  EXPECT_NE(Value(high_), "skewed");
}

// A client that does not know whether the primary has committed aborts nothing.
TEST_P(TransactionsTest, WhoseAnswerIsLostAreCommittedAsAWhole) {
  if (GetParam() == Durability::kNone) GTEST_SKIP() << "without a log the answer is on its way with the decision";
  SimCluster::DrivenClient client = cluster_.NewDrivenClient({.report = false});
  client.Drive();
  Transaction transaction = client.client->Begin();
  ASSERT_TRUE(transaction.Put(low_, "new").ok());
  ASSERT_TRUE(transaction.Put(high_, "new").ok());
  Task<absl::StatusOr<Committed>> commit = transaction.AsyncCommit({.timeout_us = 50'000});
  commit.Start();
  const auto committed = [&] {
    return HeldOf(RegionOf(low_))->outcomes.open() + HeldOf(RegionOf(high_))->outcomes.open() > 0;
  };
  for (int i = 0; i < 100'000 && !committed() && !commit.done(); ++i) cluster_.network()->Step();
  ASSERT_TRUE(committed() && !commit.done());
  for (size_t i = 0; i < 2; ++i) cluster_.network()->SetCut(cluster_.host(i), client.host, true);
  while (!commit.done()) cluster_.network()->Step();
  const absl::Status status = commit.Take().status();
  EXPECT_TRUE(IsMaybeApplied(status)) << status;
  for (size_t i = 0; i < 2; ++i) cluster_.network()->SetCut(cluster_.host(i), client.host, false);
  Pass(3'000'000'000);
  EXPECT_EQ(Value(low_), "new");
  EXPECT_EQ(Value(high_), "new");
  EXPECT_EQ(Held(), 0u);
}

TEST_P(TransactionsTest, AreRunAgainUntilTheyCommit) {
  int tries = 0;
  const absl::StatusOr<Committed> committed = client_->RunTransaction([&](Transaction* transaction) -> absl::Status {
    const auto value = transaction->Get(high_);
    if (!value.ok()) return value.status();
    if (++tries < 3) {
      EXPECT_TRUE(other_->Put(high_, std::to_string(tries)).ok());
    }
    return transaction->Put(low_, **value);
  });
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(tries, 3);
  EXPECT_EQ(Value(low_), "2");
  const absl::StatusOr<Committed> given_up =
      client_->RunTransaction([](Transaction*) -> absl::Status { return absl::OutOfRangeError("mine"); });
  EXPECT_EQ(given_up.status().message(), "mine");
}

TEST_P(TransactionsTest, OfAClientThatIsGoneAreAborted) {
  const uint32_t low = RegionOf(low_), high = RegionOf(high_);
  const RequestId id = Id(1);
  ASSERT_EQ(Prepare(id, low_, "never", low, {high}), TransactOutcome::kPrepared);
  ASSERT_EQ(Prepare(id, high_, "never", low), TransactOutcome::kPrepared);
  EXPECT_GT(Held(), 0u);
  // A write waits for it, and so does a read, on either path.
  for (const Path path : {Path::kServer, Path::kClient}) {
    EXPECT_EQ(other_->Get(high_, {.path = path, .timeout_us = 10'000}).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(other_->Get(Key(kKeys - 2), {.path = path, .timeout_us = 10'000}).ok());
  }
  EXPECT_EQ(other_->Put(high_, "mine", {.timeout_us = 10'000}).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(other_->Put(high_, "mine").ok());
  EXPECT_EQ(Value(low_), "0");
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(Decide(id, low, Decision::kCommit, stamp_), TransactOutcome::kAborted);
  EXPECT_EQ(Decide(id, low, Decision::kRecall), TransactOutcome::kAborted);
}

TEST_P(TransactionsTest, ThatHaveCommittedAreFinishedWithoutTheirClient) {
  const uint32_t low = RegionOf(low_), high = RegionOf(high_);
  const RequestId id = Id(1);
  ASSERT_EQ(Prepare(id, low_, "new", low, {high}), TransactOutcome::kPrepared);
  ASSERT_EQ(Prepare(id, high_, "new", low), TransactOutcome::kPrepared);
  EXPECT_EQ(Decide(id, low, Decision::kCommit, stamp_ + 10), TransactOutcome::kCommitted);
  EXPECT_EQ(Value(low_), "new");
  EXPECT_EQ(Value(high_), "new");
  Pass(2'000'000'000);
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(Decide(id, low, Decision::kCommit, stamp_ + 10), TransactOutcome::kCommitted);
  EXPECT_EQ(Decide(id, low, Decision::kRecall), TransactOutcome::kCommitted);
  // Another client learns it, too, wherever the key is by then.
  const auto outcome = other_->Outcome({id.client, id.number, id.until, id.slot, low_});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ((*outcome)->stamp, stamp_ + 10);
}

TEST_P(TransactionsTest, SurviveTakeovers) {
  if (GetParam() == Durability::kNone) GTEST_SKIP() << "regions without logs end with their server";
  const uint32_t low = RegionOf(low_), high = RegionOf(high_);
  const RequestId committed = Id(1);
  ASSERT_EQ(Prepare(committed, low_, "new", low, {high}), TransactOutcome::kPrepared);
  ASSERT_EQ(Prepare(committed, high_, "new", low), TransactOutcome::kPrepared);
  RequestId aborted = committed;
  aborted.slot = 1;
  ASSERT_EQ(Prepare(aborted, Key(kKeys - 2), "never", high, {}), TransactOutcome::kPrepared);
  EXPECT_EQ(Decide(committed, low, Decision::kCommit, stamp_ + 10), TransactOutcome::kCommitted);
  Kill(OwnerOf(high));
  EXPECT_EQ(Value(high_), "new");
  EXPECT_EQ(Value(Key(kKeys - 2)), "0");
  EXPECT_TRUE(other_->Put(Key(kKeys - 2), "mine").ok());
  Pass(3'000'000'000);
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(Decide(committed, low, Decision::kRecall), TransactOutcome::kCommitted);
}

TEST_P(TransactionsTest, ALateRequestToPrepareOneThatWasAbortedIsRefused) {
  const uint32_t low = RegionOf(low_);
  const RequestId id = Id(1);
  EXPECT_EQ(Decide(id, low, Decision::kRecall), TransactOutcome::kAborted);
  EXPECT_EQ(Prepare(id, low_, "late", low), TransactOutcome::kAborted);
  EXPECT_EQ(Decide(id, low, Decision::kCommit, stamp_), TransactOutcome::kAborted);
  EXPECT_EQ(Value(low_), "0");
}

// Its client could not reach all regions to abort it, and has begun others since.
// Otherwise it would be prepared again for whoever reads the log.
TEST_P(TransactionsTest, ThatAreBeingAbortedAreNotLoggedAgain) {
  const RequestId id = Id(1);
  const uint32_t region = RegionOf(low_);
  ASSERT_EQ(Prepare(id, low_, "lost", region), TransactOutcome::kPrepared);
  Worker* const worker = cluster_.worker(OwnerOf(region));
  HeldRegion* const held = worker->regions()->Find(region);
  TransactionRequests* const requests = worker->service()->writes()->transactions();
  const auto step = requests->Decide({0, true, id, Decision::kAbort, 0}, held);
  ASSERT_TRUE(step.ok());
  if (step->aborts == nullptr) return;  // There is no log.
  EXPECT_FALSE(held->transactions.locks.MayRead(low_)) << "a crash may still take the decision";
  const uint64_t before = held->log->appended();
  held->LogOutcomes();
  EXPECT_EQ(held->log->appended() - before, held->outcomes.size());
  Pass(1'500'000'000);
  EXPECT_FALSE(held->transactions.locks.MayRead(low_)) << "its client has not gone: it has told that it aborts";
}

// It is a put with an outcome, and counts once however often it comes.
TEST_P(TransactionsTest, OfASinglePutTakeEffectOnce) {
  const std::string key = high_;
  const uint32_t region = RegionOf(key);
  const RequestId id = Id(1);
  const auto send = [&] {
    std::string part;
    AppendOperation({PartOperationKind::kPut, key, "new", PairDigest(key, "new")}, &part);
    const TransactionPart message{id, TransactStep::kCommit, key, static_cast<uint32_t>(part.size()), region};
    const std::string reply = Send(region, MakeTransactRequest(RootOf(region), message), part);
    const auto parsed = ParseTransactReply(AsBytes(reply), MessageKind::kTransact);
    EXPECT_TRUE(parsed.ok() && parsed->fixed.outcome == TransactOutcome::kCommitted) << parsed.status();
    return parsed.ok() ? parsed->fixed.stamp : 0;
  };
  const uint64_t stamp = send();
  EXPECT_EQ((*other_->GetWithStamp(key))->stamp, stamp);
  EXPECT_TRUE(other_->Put(key, "later").ok());
  EXPECT_EQ(send(), stamp);
  EXPECT_EQ(Value(key), "later");
  EXPECT_TRUE(cluster_.Checkpoint(region, OwnerOf(region)).ok() || GetParam() == Durability::kNone);
  EXPECT_EQ(send(), stamp);
  if (GetParam() != Durability::kNone) Kill(OwnerOf(region));
  EXPECT_EQ(send(), stamp);
  EXPECT_EQ(Value(key), "later");
  const auto outcome = other_->Outcome({id.client, id.number, id.until, id.slot, key});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ((*outcome)->stamp, stamp);
  EXPECT_EQ(Held(), 0u);
}

// Regions that nobody asked would have to hear of it, and its outcome would stay for ever.
TEST_P(TransactionsTest, APartThatIsTheWholeTransactionNamesNoOthers) {
  const uint32_t low = RegionOf(low_), high = RegionOf(high_);
  std::string part;
  AppendOperation({PartOperationKind::kPut, low_, "new", PairDigest(low_, "new")}, &part);
  const std::string others(reinterpret_cast<const char*>(&high), sizeof(high));
  const TransactionPart message{Id(1), TransactStep::kCommit, low_, static_cast<uint32_t>(part.size()), low, others};
  const std::string reply = Send(low, MakeTransactRequest(RootOf(low), message), part);
  EXPECT_EQ(ParseTransactReply(AsBytes(reply), MessageKind::kTransact).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Value(low_), "0");
  EXPECT_EQ(Held(), 0u);
}

TEST_P(TransactionsTest, AnotherPartWithTheirIdIsRefused) {
  const uint32_t low = RegionOf(low_);
  const RequestId id = Id(1);
  const auto send = [&](const std::string& value) {
    std::string part;
    AppendOperation({PartOperationKind::kPut, low_, value, PairDigest(low_, value)}, &part);
    const TransactionPart message{id, TransactStep::kPrepare, low_, static_cast<uint32_t>(part.size()), low};
    const std::string reply = Send(low, MakeTransactRequest(RootOf(low), message), part);
    return ParseTransactReply(AsBytes(reply), MessageKind::kTransact).status().code();
  };
  ASSERT_EQ(send("new"), absl::StatusCode::kOk);
  EXPECT_EQ(send("new"), absl::StatusCode::kOk) << "it is the same once more";
  EXPECT_EQ(send("other"), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(Decide(id, low, Decision::kCommit, HeldOf(low)->memory->header().last_stamp), TransactOutcome::kCommitted);
  EXPECT_EQ(send("new"), absl::StatusCode::kOk);
  EXPECT_EQ(send("other"), absl::StatusCode::kInvalidArgument) << "it is not what has committed";
  EXPECT_EQ(Value(low_), "new");
}

TEST_P(TransactionsTest, WhoseClientHasUsedTheirSlotAgainAreAborted) {
  const uint32_t low = RegionOf(low_);
  const RequestId id = Id(1);
  ASSERT_EQ(Prepare(id, high_, "never", low), TransactOutcome::kPrepared);
  RequestId later = id;
  later.number = 2;
  ASSERT_EQ(Prepare(later, low_, "later", low), TransactOutcome::kPrepared);
  ASSERT_EQ(Decide(later, low, Decision::kCommit, stamp_), TransactOutcome::kCommitted);
  EXPECT_TRUE(other_->Put(high_, "mine").ok());
  Pass(3'000'000'000);
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(Value(low_), "later");
  EXPECT_EQ(Decide(id, low, Decision::kCommit, stamp_), TransactOutcome::kAborted);
}

TEST_P(TransactionsTest, HaveLimits) {
  Transaction transaction = client_->Begin();
  EXPECT_EQ(transaction.Put("", "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(transaction.Put(std::string(1'000, 'k'), "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(transaction.Put("k", std::string(kValueBytesMax + 1, 'v')).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(transaction.Put("k", std::string(kValueBytesMax, 'v')).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(transaction.Put("other", "value").ok());
  EXPECT_EQ(transaction.Commit().status().code(), absl::StatusCode::kInvalidArgument) << "all of it, or nothing";
  EXPECT_EQ(Value("other"), "absent");
  Transaction large = client_->Begin();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(large.Put("k", std::string(600'000, 'v')).ok()) << "the last write counts";
  ASSERT_TRUE(large.Put("k", std::string(200'000, 'v')).ok());
  ASSERT_TRUE(large.Put(high_, std::string(200'000, 'w')).ok());
  const absl::StatusOr<Committed> committed = large.Commit();
  EXPECT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(Value("k"), std::string(200'000, 'v'));
}

// A key that is held many times takes long to be released, so it is held once.
TEST_P(TransactionsTest, HoldAKeyOnce) {
  std::string part;
  for (int i = 0; i < 2; ++i) AppendOperation({PartOperationKind::kReadNothing, "nothing", {}, 0}, &part);
  EXPECT_EQ(PrepareReads(1, "nothing", part).code(), absl::StatusCode::kInvalidArgument);
  part.clear();
  for (int i = 0; i < 2; ++i) AppendOperation({PartOperationKind::kDelete, low_, {}, 0}, &part);
  EXPECT_EQ(PrepareReads(2, low_, part).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Held(), 0u);
}

// All ranges of one user do not keep another one's transactions out.
TEST_P(TransactionsTest, OfAUserHoldHalfOfTheRanges) {
  std::string part;
  for (size_t i = 0; i < cell::Transactions::kRangesMax / 4; ++i) {
    AppendOperation({PartOperationKind::kReadRange, "nothing", "nothinh", 0}, &part);
  }
  EXPECT_TRUE(PrepareReads(1, "nothing", part).ok());
  EXPECT_TRUE(PrepareReads(2, "nothing", part).ok());
  EXPECT_EQ(PrepareReads(3, "nothing", part).code(), absl::StatusCode::kUnavailable);
  fabric_->SetSelf({Role::kClient, "somebody"});
  EXPECT_TRUE(PrepareReads(4, "nothing", part).ok());
  Transaction reads = client_->Begin();
  EXPECT_TRUE(reads.Scan({.from = low_, .to = Key(3)}).ok());
  EXPECT_TRUE(reads.Commit().ok());
  Pass(1'000'000'000);
  EXPECT_EQ(Held(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, TransactionsTest,
                         ::testing::Values(Durability::kNone, Durability::kAsync, Durability::kSync),
                         [](const auto& test) { return std::string(ToString(test.param)); });

}  // namespace
}  // namespace cell

// Transactions that only read: of which moment they are, and when they commit without a call.
#include <gtest/gtest.h>

#include <string>

#include "cell/client/transaction.h"
#include "fmt/format.h"
#include "tests/two_servers.h"

namespace cell {
namespace {

class ReadOnlyTransactionsTest : public TwoServersTest {};

TEST_P(ReadOnlyTransactionsTest, AreOfOneMoment) {
  Transaction transaction = client_->Begin();
  EXPECT_TRUE(transaction.Get(low_).ok());
  EXPECT_TRUE(transaction.Get(high_).ok());
  EXPECT_TRUE(transaction.Commit().ok());
  Transaction changed = client_->Begin();
  EXPECT_TRUE(changed.Get(low_).ok());
  EXPECT_TRUE(other_->Put(low_, "changed").ok());
  EXPECT_TRUE(changed.Get(high_).ok());
  EXPECT_EQ(changed.Commit().status().code(), absl::StatusCode::kAborted);
  Settle();
  EXPECT_EQ(Held(), 0u);
}

TEST_P(ReadOnlyTransactionsTest, OfOneKeyAreThatRead) {
  Transaction transaction = client_->Begin();
  EXPECT_TRUE(transaction.Get(low_).ok());
  EXPECT_TRUE(other_->Put(low_, "changed").ok());
  EXPECT_TRUE(transaction.Commit().ok());
}

TEST_P(ReadOnlyTransactionsTest, CommitWithoutACall) {
  const std::string absent = Key(1) + "absent";
  for (const Path path : {Path::kClient, Path::kServer}) {
    for (const std::string& key : {low_, high_}) ASSERT_TRUE(client_->Get(key, {.path = path}).ok());
    for (const std::string& changed : {std::string(), low_, high_, absent}) {
      SCOPED_TRACE(changed + (path == Path::kClient ? " by reads" : " by calls"));
      Transaction transaction = client_->Begin();
      for (const std::string& key : {low_, high_, absent}) EXPECT_TRUE(transaction.Get(key, {.path = path}).ok());
      if (!changed.empty()) {
        ASSERT_TRUE(other_->Put(changed, fmt::format("changed on path {}", ToString(path))).ok());
      }
      const uint64_t calls = client_->metrics().calls;
      EXPECT_EQ(transaction.Commit().ok(), changed.empty());
      EXPECT_EQ(client_->metrics().calls == calls, changed.empty());
      ASSERT_TRUE(other_->Delete(absent).ok());
    }
  }
}

TEST_P(ReadOnlyTransactionsTest, KeepTheLeaseThatTheyNeed) {
  const int64_t pause_ns = cluster_.shared()->state.table_lease_ns / 4;
  for (int i = 0; i < 20; ++i) {
    Transaction transaction = client_->Begin();
    for (const std::string& key : {low_, high_}) EXPECT_TRUE(transaction.Get(key, {.path = Path::kServer}).ok());
    const uint64_t calls = client_->metrics().calls;
    EXPECT_TRUE(transaction.Commit().ok());
    if (i > 0) {
      EXPECT_EQ(client_->metrics().calls, calls) << i;
    }
    client_->Run(client_->AsyncSleepUntil(client_->NowNs() + pause_ns));
  }
}

TEST_P(ReadOnlyTransactionsTest, AskAboutALeafInWhichAnotherOneMayWrite) {
  const uint32_t low = RegionOf(low_);
  ASSERT_EQ(Prepare(Id(1), low_ + "a", "new", low), TransactOutcome::kPrepared);
  for (const Path path : {Path::kClient, Path::kServer}) {
    Transaction transaction = client_->Begin();
    for (const std::string& key : {low_, high_}) EXPECT_TRUE(transaction.Get(key, {.path = path}).ok());
    const uint64_t calls = client_->metrics().calls;
    EXPECT_TRUE(transaction.Commit().ok());
    EXPECT_GT(client_->metrics().calls, calls);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReadOnlyTransactionsTest,
                         ::testing::Values(Durability::kNone, Durability::kAsync, Durability::kSync),
                         [](const auto& test) { return std::string(ToString(test.param)); });

}  // namespace
}  // namespace cell

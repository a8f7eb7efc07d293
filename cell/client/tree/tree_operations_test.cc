#include "cell/client/tree/tree_operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "cell/client/session/leaf_tokens.h"
#include "cell/client/tree/tree_test.h"

namespace cell {
namespace {

class TreeOperationsTest : public TreeTest {
 protected:
  explicit TreeOperationsTest(const ClientOptions& options = Cacheless(), int inline_every = 0)
      : TreeTest(options, inline_every) {}
  static CallOptions Over(Path path) {
    CallOptions options;
    options.path = path;
    return options;
  }
  absl::StatusOr<Value> Get(const std::string& key) {
    return session_.Run(GetFromTree(&session_, key, Over(Path::kClient)));
  }
  LeafToken TokenOf(const std::string& key, Path path = Path::kClient) {
    LeafToken token;
    CELL_CHECK(session_.Run(GetFromTree(&session_, key, Over(path), &token)).ok());
    return token;
  }
  bool Unchanged(const std::vector<LeafToken>& tokens) {
    return session_.Run(LeavesUnchanged(&session_, tokens, session_.NowNs() + kTimeoutNs));
  }
  // Answers gets with `value`.
  void Answer(const std::string& key, const std::string& value) {
    service_a_.answer = [key, value](const IncomingCall& call, MutableBytes to) {
      CELL_CHECK(ParseKeyRequest(call.request).value().key == key);
      auto reply = ReplyOf<GetReply>(MessageKind::kGet, sizeof(GetReply) + value.size());
      reply.found = 1;
      reply.follows = kFollowsValue;
      reply.crc = Crc64(value, Crc64(key));
      reply.value_bytes = static_cast<uint32_t>(value.size());
      Store(to.data(), reply);
      std::memcpy(to.data() + sizeof(reply), value.data(), value.size());
      return sizeof(reply) + value.size();
    };
  }
  // Puts a key, and returns the hint that came with it.
  Pointer HintOfPut(const std::string& key, Path path) {
    Pointer hint;
    service_a_.answer = [&hint](const IncomingCall& call, MutableBytes to) {
      hint = ParsePutRequest(call.request).value().fixed.hint;
      Store(to.data(), ReplyOf<WriteReply>(MessageKind::kPut));
      return sizeof(WriteReply);
    };
    const absl::StatusOr<bool> existed = session_.Run(WriteToTree<bool>(&session_, {key, "new"}, Over(path)));
    CELL_CHECK(existed.ok());
    return hint;
  }
  double ReadsPer(OperationKind kind) {
    return session_.connections()->To({"a", 0}, "address-a")->selector(kind)->ReadsPerSearch();
  }
};

TEST_F(TreeOperationsTest, LeavesAreUnchangedUntilOneIsWritten) {
  const std::vector<LeafToken> tokens = {TokenOf(KeyOf(5)), TokenOf(KeyOf(95))};
  EXPECT_TRUE(Unchanged(tokens));
  EXPECT_FALSE(Unchanged({tokens[0], LeafToken()}));
  Put(&tree_, KeyOf(94));  // Of the same leaf.
  EXPECT_FALSE(Unchanged(tokens));
  EXPECT_TRUE(Unchanged({tokens[0], TokenOf(KeyOf(95))}));
}

// Its former owner's memory can still be read, and does not change.
TEST_F(TreeOperationsTest, LeavesOfARegionThatHasMovedAreNotUnchanged) {
  const std::vector<LeafToken> tokens = {TokenOf(KeyOf(5))};
  Move(kRoot, "b");
  Refresh();
  EXPECT_FALSE(Unchanged(tokens));
}

TEST_F(TreeOperationsTest, ATokenThatAServerSendsIsOneOfTheRegionThatWasAsked) {
  NodeState leaf = LeafOf(KeyOf(5)).state();
  service_a_.answer = [&leaf](const IncomingCall& call, MutableBytes to) {
    CELL_CHECK(ParseKeyRequest(call.request)->fixed.wants_leaf == 1);
    auto reply = ReplyOf<GetReply>(MessageKind::kGet, sizeof(GetReply) + sizeof(leaf));
    reply.follows = kFollowsLeaf;
    Store(to.data(), reply);
    Store(to.data() + sizeof(reply), leaf);
    return sizeof(reply) + sizeof(leaf);
  };
  EXPECT_TRUE(Unchanged({TokenOf(KeyOf(5), Path::kServer)}));
  leaf.head_version += 2;
  EXPECT_FALSE(Unchanged({TokenOf(KeyOf(5), Path::kServer)}));
  leaf.self = Pointer(kOther, leaf.self.offset());
  EXPECT_EQ(TokenOf(KeyOf(5), Path::kServer).holder.worker, nullptr);
}

TEST_F(TreeOperationsTest, AGetByReadsCostsTheNodesAndAnExtentAndNoCall) {
  EXPECT_EQ(*Get(KeyOf(5)), ValueOf(KeyOf(5)));
  EXPECT_EQ(metrics().calls, 0u);
  EXPECT_EQ(metrics().client_path, 1u);
  EXPECT_EQ(metrics().operations, 1u);
  EXPECT_EQ(metrics().reads(), static_cast<uint64_t>(levels() + 1));
  EXPECT_EQ(metrics().round_trips(), static_cast<uint64_t>(levels() + 1));
  EXPECT_EQ(ReadsPer(OperationKind::kGet), levels() + 1);
}

// All pairs are inline.
class InlineTreeOperationsTest : public TreeOperationsTest {
 protected:
  InlineTreeOperationsTest() : TreeOperationsTest(Cacheless(), 1) {}
};

TEST_F(InlineTreeOperationsTest, AGetByReadsCostsTheNodesAlone) {
  EXPECT_EQ(*Get(KeyOf(5)), ValueOf(KeyOf(5)));
  EXPECT_EQ(metrics().calls, 0u);
  EXPECT_EQ(metrics().extent_reads, 0u);
  EXPECT_EQ(metrics().node_reads, static_cast<uint64_t>(levels()));
  EXPECT_EQ(ReadsPer(OperationKind::kGet), levels());
  EXPECT_EQ(*Get("key0055"), std::nullopt);
}

TEST_F(InlineTreeOperationsTest, APairThatGoesOutsideAndComesBackIsFound) {
  const std::string key = KeyOf(5);
  for (int i = 0; i < 4; ++i) {
    tree_.set_inline_max(i % 2 == 0 ? 0 : InlineBytesMax(kShape.node_bytes));
    const uint64_t extents = metrics().extent_reads;
    Put(&tree_, key);
    EXPECT_EQ(*Get(key), ValueOf(key));
    EXPECT_EQ(metrics().extent_reads - extents, i % 2 == 0 ? 1u : 0u);
  }
}

TEST_F(InlineTreeOperationsTest, ADamagedPairInALeafWithARightCrcIsAnError) {
  DamageInline(KeyOf(5));
  const absl::StatusOr<Value> got = Get(KeyOf(5));
  EXPECT_EQ(got.status().code(), absl::StatusCode::kDataLoss) << got.status();
  EXPECT_THAT(got.status().message(), ::testing::HasSubstr(KeyOf(5)));
}

TEST_F(InlineTreeOperationsTest, ATokenTellsWhetherALeafHasChanged) {
  const std::string first = KeyOf(5), last = KeyOf(95), absent = "key0955";
  ASSERT_NE(LeafOf(first).self(), LeafOf(last).self());
  std::vector<LeafToken> tokens(3);
  const auto read = [&] {
    EXPECT_EQ(*session_.Run(GetFromTree(&session_, first, Over(Path::kClient), &tokens[0])), ValueOf(first));
    EXPECT_EQ(*session_.Run(GetFromTree(&session_, last, Over(Path::kClient), &tokens[1])), ValueOf(last));
    EXPECT_EQ(*session_.Run(GetFromTree(&session_, absent, Over(Path::kClient), &tokens[2])), std::nullopt);
  };
  const auto unchanged = [&] { return session_.Run(LeavesUnchanged(&session_, tokens, INT64_MAX)); };
  read();
  EXPECT_TRUE(unchanged());
  EXPECT_EQ(metrics().calls, 0u);
  Put(&tree_, last);  // The same value.
  EXPECT_FALSE(unchanged());
  read();
  EXPECT_TRUE(unchanged());
  // A key appears in the leaf in which it was looked for, and goes again.
  Put(&tree_, absent);
  ASSERT_TRUE(tree_.Delete(absent).ok());
  EXPECT_FALSE(unchanged());
  // A leaf that is being written.
  read();
  const NodeView leaf = LeafOf(first);
  memory_->StoreWord(leaf.self().offset(), leaf.head_version() + 1);
  EXPECT_FALSE(unchanged());
}

TEST_F(InlineTreeOperationsTest, ThereIsNoTokenOfAKeyThatTheServerHasRead) {
  LeafToken token;
  EXPECT_TRUE(session_.Run(GetFromTree(&session_, KeyOf(5), Over(Path::kClient), &token)).ok());
  EXPECT_NE(token.holder.worker, nullptr);
  Answer(KeyOf(5), "the worker's");
  EXPECT_EQ(*session_.Run(GetFromTree(&session_, KeyOf(5), Over(Path::kServer), &token)), "the worker's");
  EXPECT_EQ(token.holder.worker, nullptr);
  EXPECT_FALSE(session_.Run(LeavesUnchanged(&session_, {&token, 1}, INT64_MAX)));
}

// Otherwise another server may have written there since the token's leaf was read.
TEST_F(InlineTreeOperationsTest, ATokenOfARegionThatHasMovedTellsNothing) {
  LeafToken token;
  EXPECT_TRUE(session_.Run(GetFromTree(&session_, KeyOf(5), Over(Path::kClient), &token)).ok());
  EXPECT_TRUE(session_.Run(LeavesUnchanged(&session_, {&token, 1}, INT64_MAX)));
  ++token.holder.epoch;
  --token.holder.revision;
  EXPECT_FALSE(session_.Run(LeavesUnchanged(&session_, {&token, 1}, INT64_MAX)));
}

TEST_F(TreeOperationsTest, AKeyThatIsNotThereCostsNoExtent) {
  EXPECT_EQ(*Get("key0055"), std::nullopt);
  EXPECT_EQ(metrics().extent_reads, 0u);
}

TEST_F(TreeOperationsTest, ContainsReadsNoExtent) {
  for (const auto& [key, there] : {std::pair(KeyOf(5), true), std::pair(std::string("key0055"), false)}) {
    EXPECT_EQ(*session_.Run(ContainsInTree(&session_, key, Over(Path::kClient))), there);
  }
  EXPECT_EQ(metrics().extent_reads, 0u);
  EXPECT_EQ(metrics().calls, 0u);
  EXPECT_EQ(ReadsPer(OperationKind::kContains), levels());
}

TEST_F(TreeOperationsTest, AGetWhoseExtentWasReplacedSearchesAgain) {
  const std::string key = KeyOf(5);
  Flip(key);
  Task<absl::StatusOr<Value>> get = GetFromTree(&session_, key, Over(Path::kClient));
  get.Start();
  while (metrics().extent_retries == 0 && !get.done()) session_.Poll(INT64_MAX);
  ASSERT_FALSE(get.done());
  Flip(key);
  while (!get.done()) session_.Poll(INT64_MAX);
  EXPECT_EQ(*get.Take(), ValueOf(key));
  EXPECT_EQ(metrics().extent_retries, 1u);
  EXPECT_EQ(metrics().calls, 0u);
}

TEST_F(TreeOperationsTest, AGetWhoseExtentKeepsChangingGoesByACall) {
  const std::string key = KeyOf(5);
  Flip(key);
  Answer(key, "the worker's");
  EXPECT_EQ(*Get(key), "the worker's");
  EXPECT_EQ(metrics().extent_retries, static_cast<uint64_t>(kReadAttemptsMax));
  EXPECT_EQ(metrics().calls, 1u);
  EXPECT_EQ(metrics().errors, 0u);
}

class ReconnectingTest : public TreeOperationsTest {
 protected:
  ReconnectingTest() : TreeOperationsTest(Reconnecting()) {}
  // A server is tried again soon after a connection to it was lost.
  static ClientOptions Reconnecting() {
    ClientOptions options = Cacheless();
    options.reconnect_us = 20;
    return options;
  }
};

TEST_F(ReconnectingTest, AGetThatLosesItsConnectionBeforeItsExtentBeginsAgain) {
  const std::string key = KeyOf(5);
  Task<absl::StatusOr<Value>> get = GetFromTree(&session_, key, Over(Path::kClient));
  get.Start();
  while (metrics().extent_reads == 0) session_.Poll(INT64_MAX);
  network_.Break(client_host_, a_->host());
  while (!get.done()) session_.Poll(INT64_MAX);
  const absl::StatusOr<Value> got = get.Take();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, ValueOf(key));
  EXPECT_GT(metrics().restarts, 0u);
}

TEST_F(TreeOperationsTest, ContainsInALeafThatStaysTornGoesByACall) {
  const NodeView leaf = LeafOf(KeyOf(5));
  memory_->StoreWord(leaf.self().offset(), leaf.head_version() + 1);
  service_a_.answer = [](const IncomingCall& call, MutableBytes to) {
    CELL_CHECK(ParseKeyRequest(call.request).value().key == "key0055");
    auto reply = ReplyOf<SearchReply>(MessageKind::kSearch);
    reply.found = 1;  // The leaf says otherwise.
    Store(to.data(), reply);
    return sizeof(reply);
  };
  const absl::StatusOr<bool> there = session_.Run(ContainsInTree(&session_, "key0055", Over(Path::kClient)));
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_TRUE(*there);
  EXPECT_EQ(metrics().calls, 1u);
  EXPECT_EQ(metrics().errors, 0u);
}

TEST_F(TreeOperationsTest, APutOverTheClientPathNamesTheLeafThatItFound) {
  EXPECT_EQ(HintOfPut(KeyOf(50), Path::kClient), LeafOf(KeyOf(50)).self());
  EXPECT_EQ(HintOfPut(KeyOf(50), Path::kServer), Pointer());
}

// The time of the call that follows a walk counts for the client path.
TEST_F(TreeOperationsTest, AHybridPutCountsTheCallAfterItsWalk) {
  EXPECT_EQ(HintOfPut(KeyOf(50), Path::kHybrid), Pointer());  // Nothing is known yet.
  EXPECT_EQ(HintOfPut(KeyOf(50), Path::kHybrid), LeafOf(KeyOf(50)).self());
  Selector* const writes = session_.connections()->To({"a", 0}, "address-a")->selector(OperationKind::kWrite);
  int walked = 0;
  for (int i = 0; i < 200; ++i) {
    writes->ObserveServer(1'000'000);
    walked += !HintOfPut(KeyOf(50), Path::kHybrid).null();
  }
  EXPECT_GT(walked, 150);  // A call without a hint is slow.
  for (int i = 0; i < 200; ++i) writes->ObserveRest(1'000'000);
  walked = 0;
  for (int i = 0; i < 200; ++i) {
    writes->ObserveRest(10'000'000);
    writes->ObserveServer(1'000'000);
    walked += i >= 100 && !HintOfPut(KeyOf(50), Path::kHybrid).null();
  }
  EXPECT_LT(walked, 20);
}

}  // namespace
}  // namespace cell

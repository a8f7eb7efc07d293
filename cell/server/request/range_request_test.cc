// Tests requests about ranges: what a slice is, that damage is never counted, and when a deletion is applied and
// answered.
#include "cell/server/request/range_request.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/server/region/region_claim.h"
#include "cell/server/request/test_request_service.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int kKeys = 5'000;

std::string Key(int i) { return fmt::format("key{:05}", i); }

class RangeRequestTest : public RequestServiceTest {
 protected:
  RangeRequestTest() {
    for (int i = 0; i < kKeys; ++i) CELL_CHECK(Store(Key(i)).ok());
  }

  HeldRegion* region() { return regions_.Find(1); }
  Meganode& tree() { return *region()->tree; }
  absl::Status Store(const std::string& key) {
    return region()->store->Put(key, "value", Crc64("value", Crc64(key))).status();
  }
  std::string Ask(MessageKind kind, const std::string& from, const std::string& to) {
    return Call(MakeRangeRequest(kind, root_, from, to));
  }
  // Sends a request, and runs the server until it has seen it.
  void Send(const std::string& head, const std::string& body, Completion* reply) {
    const uint64_t before = service_.batches();
    client_->Call(connection_, AsBytes(head), AsBytes(body), kMessageBytesMax, INT64_MAX, reply);
    for (int i = 0; i < 1000 && service_.batches() == before; ++i) Turn();
  }
  // Returns what all slices of a range have together, and sets *slices.
  uint64_t All(MessageKind kind, std::string from, const std::string& to, int* slices) {
    uint64_t pairs = 0;
    for (*slices = 1;; ++*slices) {
      const std::string reply = Ask(kind, from, to);
      const absl::StatusOr<RangeResult> result = ParseRangeReply(AsBytes(reply), kind);
      CELL_CHECK(result.ok());
      pairs += result->pairs;
      if (result->done) return pairs;
      CELL_CHECK(result->next_key > from);
      from = result->next_key;
    }
  }
  void Damage(const std::string& key) {
    const NodeView leaf = *tree().LeafOf(key);
    const_cast<std::byte*>(leaf.bytes())[leaf.node_bytes() / 2] ^= std::byte{1};
  }
};

TEST_F(RangeRequestTest, ASliceHasALimitedNumberOfLeaves) {
  int slices = 0;
  EXPECT_EQ(All(MessageKind::kCount, "", "", &slices), static_cast<uint64_t>(kKeys));
  EXPECT_GT(slices, 1);
  const std::string first = Ask(MessageKind::kCount, "", "");
  const absl::StatusOr<RangeResult> slice = ParseRangeReply(AsBytes(first), MessageKind::kCount);
  ASSERT_TRUE(slice.ok());
  EXPECT_GT(slice->pairs, static_cast<uint64_t>(10 * kLeavesPerCount));
  const uint64_t merges = tree().merges();
  EXPECT_EQ(All(MessageKind::kDeleteRange, Key(0), "", &slices), static_cast<uint64_t>(kKeys));
  EXPECT_GT(slices, kKeys / (100 * kLeavesPerDelete));
  EXPECT_EQ(service_.writes()->cleared(), 0u);
  EXPECT_EQ(region()->store->keys(), 0u);
  EXPECT_GT(tree().merges(), merges);
  EXPECT_EQ(tree().header().nodes_used, 1u);
}

TEST_F(RangeRequestTest, ARangeEndsBeforeItsEnd) {
  int slices = 0;
  EXPECT_EQ(All(MessageKind::kCount, Key(7), Key(4'007), &slices), 4'000u);
  EXPECT_EQ(All(MessageKind::kDeleteRange, Key(7), Key(4'007), &slices), 4'000u);
  EXPECT_EQ(All(MessageKind::kCount, "", "", &slices), 1'000u);
  EXPECT_EQ(All(MessageKind::kDeleteRange, Key(6), Key(6), &slices), 0u);
  EXPECT_EQ(All(MessageKind::kDeleteRange, Key(6), Key(2), &slices), 0u);
  EXPECT_TRUE(tree().Find(Key(6))->pair.has_value());
  EXPECT_FALSE(tree().Find(Key(7))->pair.has_value());
  EXPECT_FALSE(tree().Find(Key(4'006))->pair.has_value());
  EXPECT_TRUE(tree().Find(Key(4'007))->pair.has_value());
  // A range that ends where a leaf does needs no slice of nothing.
  const std::string border = tree().LeafOf(Key(10))->high_key();
  EXPECT_GT(All(MessageKind::kCount, Key(0), border, &slices), 0u);
  EXPECT_EQ(slices, 1);
}

TEST_F(RangeRequestTest, DamagedLeavesAreNeitherCountedNorDeleted) {
  Damage(Key(2'000));
  const std::string low(tree().LeafOf(Key(2'000))->low_key());
  for (const MessageKind kind : {MessageKind::kCount, MessageKind::kDeleteRange}) {
    // A slice ends before the damage.
    std::string from = Key(0);
    std::string reply;
    for (int slices = 0; slices < kKeys; ++slices) {
      reply = Ask(kind, from, "");
      const absl::StatusOr<RangeResult> result = ParseRangeReply(AsBytes(reply), kind);
      if (!result.ok()) break;
      from = result->next_key;
    }
    EXPECT_EQ(CodeOf(reply), absl::StatusCode::kDataLoss);
    EXPECT_EQ(from, low);
  }
  EXPECT_TRUE(tree().Find(low).ok());
  EXPECT_GT(region()->store->keys(), static_cast<uint64_t>(kKeys - 2'001));
}

TEST_F(RangeRequestTest, AllThatARegionHasIsDeletedAtOnce) {
  int slices = 0;
  EXPECT_EQ(All(MessageKind::kDeleteRange, "", "", &slices), static_cast<uint64_t>(kKeys));
  EXPECT_EQ(slices, 1);
  EXPECT_EQ(service_.writes()->cleared(), 1u);
  EXPECT_EQ(region()->store->keys(), 0u);
  EXPECT_TRUE(region()->claimed());
  EXPECT_TRUE(Store(Key(1)).ok());
  for (int i = 0; i < 1000 && region()->claimed(); ++i) Turn();
  EXPECT_FALSE(region()->claimed());
  EXPECT_EQ(tree().header().nodes_used, 1u);
  EXPECT_TRUE(tree().Find(Key(1))->pair.has_value());
}

// Nodes that are still to be freed are not reported as damage.
TEST_F(RangeRequestTest, AClearedRegionIsCheckedWhileItsNodesAreFreed) {
  int slices = 0;
  All(MessageKind::kDeleteRange, "", "", &slices);
  EXPECT_GT(tree().header().nodes_used, 1u);
  const std::string report = Call(MakeTextRequest(MessageKind::kCheck, "1"));
  EXPECT_NE(report.find("\"error_count\":0"), std::string::npos) << report;
  EXPECT_NE(report.find("\"whole\":false"), std::string::npos) << report;
  EXPECT_TRUE(region()->claimed());
}

TEST_F(RangeRequestTest, ARegionThatIsBeingChangedIsDeletedFromSliceBySlice) {
  int slices = 0;
  RegionClaim claim(region(), ClaimPurpose::kSplit);
  EXPECT_EQ(All(MessageKind::kDeleteRange, "", Key(3'000), &slices), 3'000u);
  EXPECT_EQ(All(MessageKind::kDeleteRange, "", "", &slices), static_cast<uint64_t>(kKeys - 3'000));
  EXPECT_GT(slices, 1);
  EXPECT_EQ(service_.writes()->cleared(), 0u);
}

TEST_F(RangeRequestTest, AReplyWithoutRoomForAKeyIsRefusedBeforeAnythingIsDeleted) {
  for (const MessageKind kind : {MessageKind::kCount, MessageKind::kDeleteRange}) {
    const std::string reply = Call(MakeRangeRequest(kind, root_, "", ""), "", RangeReplyBytes(KeyBytesMax(1024)) - 1);
    EXPECT_EQ(CodeOf(reply), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(region()->store->keys(), static_cast<uint64_t>(kKeys));
}

TEST_F(RangeRequestTest, ADeletionWaitsForItsRegionInTheOrderOfWrites) {
  region()->ChangeState(RegionState::kFrozen);
  Reply put, erase;
  Send(MakePutRequest(root_, {}, Crc64("new", Crc64(Key(0))), Key(0), 3, 0), "new", &put);
  Send(MakeRangeRequest(MessageKind::kDeleteRange, root_, Key(0), Key(2)), "", &erase);
  EXPECT_EQ(service_.writes()->held().size(1), 2u);
  region()->Unfreeze();
  EXPECT_EQ(service_.writes()->RetryHeld(), 2u);
  for (int i = 0; i < 1000 && !(put.done && erase.done); ++i) Turn();
  EXPECT_EQ(ParseRangeReply(AsBytes(erase.bytes), MessageKind::kDeleteRange)->pairs, 2u);
  EXPECT_FALSE(tree().Find(Key(0))->pair.has_value());
}

// A region whose writes are logged before they are applied. Its disk writes nothing before EndFlush is called.
class LoggedRangeTest : public RangeRequestTest {
 protected:
  LoggedRangeTest() {
    region()->SetLog(std::make_shared<RegionLog>(1, 1, 1, nullptr), /*first=*/true);
    EndFlush();
  }
  void EndFlush(const absl::Status& status = {}) { region()->log->EndFlush(region()->log->BeginFlush(), status); }
  void SendDeletion(const std::string& from, const std::string& to, Completion* reply) {
    Send(MakeRangeRequest(MessageKind::kDeleteRange, root_, from, to), "", reply);
  }
  // Waits for the answer.
  absl::StatusOr<RangeResult> Answer(const Reply& reply) {
    for (int i = 0; i < 1000 && !reply.done; ++i) Turn();
    return ParseRangeReply(AsBytes(reply.bytes), MessageKind::kDeleteRange);
  }
};

TEST_F(LoggedRangeTest, ASliceIsSeenAndAnsweredWhenItIsOnDisk) {
  const uint64_t appended = region()->log->appended();
  Reply erase;
  SendDeletion(Key(0), Key(100), &erase);
  EXPECT_EQ(region()->log->appended(), appended + 100);
  EXPECT_GT(region()->pending.size(), 2u);  // One for each leaf.
  EXPECT_EQ(service_.writes()->ApplyDurable(), 0u);
  EXPECT_EQ(region()->store->keys(), static_cast<uint64_t>(kKeys));
  EXPECT_FALSE(erase.done);
  EndFlush();
  EXPECT_GT(service_.writes()->ApplyDurable(), 2u);
  const absl::StatusOr<RangeResult> result = Answer(erase);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->pairs, 100u);
  EXPECT_TRUE(result->done);
  EXPECT_EQ(region()->store->keys(), static_cast<uint64_t>(kKeys - 100));
  // There is nothing left to log.
  Reply again;
  SendDeletion(Key(0), Key(100), &again);
  EXPECT_EQ(Answer(again)->pairs, 0u);
  EXPECT_EQ(region()->log->appended(), appended + 100);
}

// The put was logged before, and so it is applied before.
TEST_F(LoggedRangeTest, KeysAreDeletedInTheOrderOfTheLog) {
  Reply put, erase, after;
  Send(MakePutRequest(root_, {}, Crc64("new", Crc64(Key(1))), Key(1), 3, 0), "new", &put);
  SendDeletion(Key(0), Key(3), &erase);
  Send(MakePutRequest(root_, {}, Crc64("last", Crc64(Key(2))), Key(2), 4, 0), "last", &after);
  EndFlush();
  EXPECT_EQ(service_.writes()->ApplyDurable(), 3u);
  EXPECT_EQ(Answer(erase)->pairs, 3u);
  for (int i = 0; i < 1000 && !(put.done && after.done); ++i) Turn();
  EXPECT_FALSE(tree().Find(Key(1))->pair.has_value());
  EXPECT_TRUE(tree().Find(Key(2))->pair.has_value());
}

// A key whose deletion is logged is not stored any more when the put is applied, which then needs a node.
TEST_F(LoggedRangeTest, AFullRegionDoesNotReplaceAKeyThatIsBeingDeleted) {
  absl::Status full;
  for (int i = 0; full.ok(); ++i) full = Store(fmt::format("{:05}", i) + std::string(200, 'k'));
  EndFlush();
  const std::string key = "00000" + std::string(200, 'k');
  Reply erase, put;
  SendDeletion(key, key + "x", &erase);
  ASSERT_EQ(region()->pending.size(), 1u);
  Send(MakePutRequest(root_, {}, Crc64("value", Crc64(key)), key, 5, 0), "value", &put);
  EXPECT_EQ(region()->pending.size(), 1u);
  EXPECT_EQ(service_.writes()->held().size(1), 1u);
  EndFlush();
  EXPECT_EQ(service_.writes()->ApplyDurable(), 1u);
  EXPECT_EQ(Answer(erase)->pairs, 1u);
  EXPECT_EQ(service_.writes()->RetryHeld(), 1u);
  EndFlush();
  service_.writes()->ApplyDurable();
  for (int i = 0; i < 1000 && !put.done; ++i) Turn();
}

TEST_F(LoggedRangeTest, ASliceWhoseLogFailsHasAnUnknownOutcome) {
  Reply erase;
  SendDeletion(Key(0), Key(100), &erase);
  EndFlush(absl::DataLossError("the disk failed"));
  EXPECT_GT(service_.writes()->ApplyDurable(), 2u);
  EXPECT_EQ(Answer(erase).status().code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(region()->store->keys(), static_cast<uint64_t>(kKeys));
  Reply refused;
  SendDeletion(Key(0), Key(100), &refused);
  EXPECT_EQ(Answer(refused).status().code(), absl::StatusCode::kUnavailable);
}

// A leaf was damaged after its keys were logged, so that it is not found.
TEST_F(LoggedRangeTest, ASliceThatCannotBeAppliedWholeHasAnUnknownOutcome) {
  Reply erase;
  SendDeletion(Key(0), Key(100), &erase);
  EndFlush();
  tree().Invalidate();
  EXPECT_GT(service_.writes()->ApplyDurable(), 2u);
  EXPECT_EQ(Answer(erase).status().code(), absl::StatusCode::kUnknown);
}

TEST_F(LoggedRangeTest, ASliceOfAClientThatIsGoneIsAppliedAndNotAnswered) {
  Waiter erase;
  SendDeletion(Key(0), Key(100), &erase);
  client_->Disconnect(connection_);
  for (int i = 0; i < 100; ++i) Turn();
  EndFlush();
  EXPECT_GT(service_.writes()->ApplyDurable(), 2u);
  EXPECT_EQ(region()->store->keys(), static_cast<uint64_t>(kKeys - 100));
}

// All that a region has takes one record.
TEST_F(LoggedRangeTest, AClearIsAppliedInTheOrderOfTheLog) {
  const uint64_t appended = region()->log->appended();
  Reply before, erase, after;
  Send(MakePutRequest(root_, {}, Crc64("new", Crc64("a")), "a", 3, 0), "new", &before);
  SendDeletion("", "", &erase);
  Send(MakePutRequest(root_, {}, Crc64("last", Crc64(Key(2))), Key(2), 4, 0), "last", &after);
  EXPECT_EQ(region()->log->appended(), appended + 3);
  EXPECT_EQ(service_.writes()->ApplyDurable(), 0u);
  EXPECT_EQ(region()->store->keys(), static_cast<uint64_t>(kKeys));
  EXPECT_TRUE(region()->claimed());  // It must not be split now.
  EndFlush();
  EXPECT_EQ(service_.writes()->ApplyDurable(), 3u);
  EXPECT_EQ(Answer(erase)->pairs, static_cast<uint64_t>(kKeys + 1));
  for (int i = 0; i < 1000 && (!after.done || region()->claimed()); ++i) Turn();
  EXPECT_EQ(region()->store->keys(), 1u);
  EXPECT_TRUE(tree().Find(Key(2))->pair.has_value());
  EXPECT_FALSE(region()->claimed());
  EXPECT_EQ(tree().header().nodes_used, 1u);
}

TEST_F(LoggedRangeTest, AClearWhoseLogFailsHasAnUnknownOutcome) {
  Reply erase;
  SendDeletion("", "", &erase);
  EndFlush(absl::DataLossError("the disk failed"));
  EXPECT_EQ(service_.writes()->ApplyDurable(), 1u);
  EXPECT_EQ(Answer(erase).status().code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(region()->store->keys(), static_cast<uint64_t>(kKeys));
  EXPECT_FALSE(region()->claimed());
}

TEST_F(LoggedRangeTest, AClearOfARegionThatIsLostHasAnUnknownOutcome) {
  Reply erase;
  SendDeletion("", "", &erase);
  service_.writes()->Lose(region());
  EXPECT_EQ(Answer(erase).status().code(), absl::StatusCode::kUnknown);
  EXPECT_FALSE(region()->claimed());
}

// The region is dropped before all is freed, because another worker has taken it over.
TEST_F(RangeRequestTest, WhatIsStillToBeFreedGoesWithTheRegion) {
  int slices = 0;
  All(MessageKind::kDeleteRange, "", "", &slices);
  Turn();
  regions_.Drop(1);
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_TRUE(scheduler_.idle());
}

// A key that is not stored any more when the put is applied, which then needs a node.
TEST_F(LoggedRangeTest, AFullRegionDoesNotReplaceAKeyThatIsBeingCleared) {
  absl::Status full;
  for (int i = 0; full.ok(); ++i) full = Store(fmt::format("{:05}", i) + std::string(200, 'k'));
  EndFlush();
  Reply erase, put;
  SendDeletion("", "", &erase);
  const std::string key = "00000" + std::string(200, 'k');
  Send(MakePutRequest(root_, {}, Crc64("value", Crc64(key)), key, 5, 0), "value", &put);
  EXPECT_EQ(service_.writes()->held().size(1), 1u);
  EndFlush();
  EXPECT_EQ(service_.writes()->ApplyDurable(), 1u);
  EXPECT_EQ(service_.writes()->RetryHeld(), 1u);
  EndFlush();
  service_.writes()->ApplyDurable();
  for (int i = 0; i < 1000 && !put.done; ++i) Turn();
  EXPECT_EQ(region()->store->keys(), 1u);
}

}  // namespace
}  // namespace cell

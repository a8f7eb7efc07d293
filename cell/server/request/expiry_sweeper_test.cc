// Tests what requests find of pairs that expire, and how those are removed.
#include "cell/server/request/expiry_sweeper.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/server/request/test_request_service.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kBegin = 1'000'000'000;

class ExpirySweeperTest : public RequestServiceTest {
 protected:
  ExpirySweeperTest() { cluster_time_ns_ = kBegin; }

  HeldRegion* region() { return regions_.Find(1); }
  Meganode& tree() { return *region()->tree; }
  absl::Status Put(const std::string& key, const std::string& value, uint64_t expires) {
    const std::string head =
        MakePutRequest(root_, {}, Crc64(value, Crc64(key)), key, static_cast<uint32_t>(value.size()), 0, expires);
    const std::string reply = Call(head, value);
    return ParseWriteReply(AsBytes(reply), MessageKind::kPut).status();
  }
  bool Found(const std::string& key) {
    const std::string got = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, key));
    const std::string searched = Call(MakeKeyRequest(MessageKind::kSearch, root_, {}, key));
    const bool found = ParseGetReply(AsBytes(got))->fixed.found != 0;
    EXPECT_EQ(ParseSearchReply(AsBytes(searched))->found, found);
    return found;
  }
  std::vector<std::string> Scanned(bool down = false) {
    const std::string from = down ? "\xff" : "";
    const std::string reply =
        Call(MakeScanRequest(root_, from, std::nullopt,
                             {.limit = 1000, .reply_bytes_max = kMessageBytesMax, .keys_only = true, .down = down}));
    std::vector<ScanItem> items;
    EXPECT_TRUE(ParseScanReply(AsBytes(reply), &items)->done);
    std::vector<std::string> keys;
    keys.reserve(items.size());
    for (const ScanItem& item : items) keys.emplace_back(item.key);
    return keys;
  }
  uint64_t Counted() {
    const std::string reply = Call(MakeRangeRequest(MessageKind::kCount, root_, "", ""));
    return ParseRangeReply(AsBytes(reply), MessageKind::kCount)->pairs;
  }
  // Lets the sweeper do what it can within a second.
  void Sweep() {
    for (int i = 0; i < 2000; ++i) {
      const int64_t until_ns = server_->NowNs() + 500'000;
      while (server_->NowNs() < until_ns) server_->Wait(until_ns);
      service_.Step();
      Turn();
    }
  }
};

TEST_F(ExpirySweeperTest, RequestsFindAPairUntilItExpires) {
  ASSERT_TRUE(Put("a", "1", kNeverExpires).ok());
  ASSERT_TRUE(Put("b", "2", kExpiresAfter | 10).ok());
  ASSERT_TRUE(Put("c", std::string(3000, '3'), kBegin + 10).ok());
  using Keys = std::vector<std::string>;
  for (const bool down : {false, true}) EXPECT_EQ(Scanned(down), (down ? Keys{"c", "b", "a"} : Keys{"a", "b", "c"}));
  EXPECT_EQ(Counted(), 3u);
  cluster_time_ns_ = kBegin + 9;
  EXPECT_TRUE(Found("a") && Found("b") && Found("c"));
  const std::string searched = Call(MakeKeyRequest(MessageKind::kSearch, root_, {}, "b"));
  EXPECT_EQ(ParseSearchReply(AsBytes(searched))->life.expiry, kBegin + 10u);
  EXPECT_EQ(ParseSearchReply(AsBytes(searched))->life.time_ns, kBegin + 9u);
  const std::string got = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "c"));
  EXPECT_EQ(ParseGetReply(AsBytes(got))->expiry, kBegin + 10u);
  const std::string time = Call(MakeTextRequest(MessageKind::kTime));
  EXPECT_EQ(ParseTimeReply(AsBytes(time))->time_ns, kBegin + 9u);
  cluster_time_ns_ = kBegin + 10;
  EXPECT_TRUE(Found("a"));
  EXPECT_FALSE(Found("b") || Found("c"));
  EXPECT_EQ(tree().keys(), 3u) << "they are not removed yet";
  for (const bool down : {false, true}) EXPECT_EQ(Scanned(down), Keys{"a"});
  EXPECT_EQ(Counted(), 1u);
}

TEST_F(ExpirySweeperTest, ATimeThatIsNoneIsRefused) {
  for (const uint64_t expires : {uint64_t{kBegin}, uint64_t{1}, kExpiresAfter, UINT64_MAX}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Put("key", "value", expires))) << expires;
  }
  EXPECT_FALSE(Found("key"));
  ASSERT_TRUE(Put("key", "value", kBegin + 1).ok());
  cluster_time_ns_ = kBegin - 1'000'000;  // It has gone back.
  EXPECT_TRUE(Found("key"));
}

TEST_F(ExpirySweeperTest, WhatHasExpiredIsRemoved) {
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(Put(fmt::format("key{:04}", i), "value", i % 4 == 0 ? kNeverExpires : kBegin + 1 + i).ok());
  }
  cluster_time_ns_ = kBegin + 1000;
  Sweep();
  EXPECT_EQ(service_.writes()->expired(), 750u);
  EXPECT_EQ(tree().keys(), 1250u);
  EXPECT_EQ(tree().first_expiry(), kBegin + 1002u);
  cluster_time_ns_ = kBegin + 2000;
  Sweep();
  EXPECT_EQ(tree().keys(), 500u);
  EXPECT_EQ(tree().expiring(), 0u);
}

TEST_F(ExpirySweeperTest, NothingIsRemovedWithoutALease) {
  ASSERT_TRUE(Put("key", "value", kBegin + 1).ok());
  cluster_time_ns_ = kBegin + 1;
  membership_.set_lease_until_ns(server_->NowNs() - 1);
  Sweep();
  EXPECT_EQ(tree().keys(), 1u);
  membership_.set_lease_until_ns(INT64_MAX);
  region()->ChangeState(RegionState::kFrozen);
  Sweep();
  EXPECT_EQ(tree().keys(), 1u);
  region()->Unfreeze();
  Sweep();
  EXPECT_EQ(tree().keys(), 0u);
}

// Its source sweeps it.
TEST_F(ExpirySweeperTest, ARegionThatIsBeingFilledIsLeftAlone) {
  HeldRegion* const filled = *regions_.Create(2, {}, RegionState::kFilling);
  ASSERT_TRUE(filled->tree->Put("key", "value", Crc64("value", Crc64("key")), {}, kBegin + 1).ok());
  cluster_time_ns_ = kBegin + 1;
  Sweep();
  EXPECT_EQ(filled->tree->keys(), 1u);
  filled->ChangeState(RegionState::kServing);
  Sweep();
  EXPECT_EQ(filled->tree->keys(), 0u);
}

// The deletion must not come behind a put of the same key in the log whose pair it would delete.
TEST_F(ExpirySweeperTest, APutThatIsLoggedAndNotAppliedStays) {
  ASSERT_TRUE(Put("gone", "value", kBegin + 1).ok());
  ASSERT_TRUE(Put("key", "value", kBegin + 1).ok());
  region()->SetLog(std::make_shared<RegionLog>(1, 1, 1, nullptr), /*first=*/true);
  const auto flush = [this] {
    region()->log->EndFlush(region()->log->BeginFlush(), absl::OkStatus());
    service_.writes()->ApplyDurable();
  };
  flush();
  cluster_time_ns_ = kBegin + 1;
  Reply reply;
  SendPut("key", "again", &reply);
  ASSERT_EQ(region()->pending.size(), 1u);
  Sweep();
  EXPECT_EQ(tree().keys(), 2u) << "the deletions are not on disk";
  EXPECT_EQ(service_.writes()->expired(), 1u);
  flush();
  while (!reply.done) Turn();
  EXPECT_EQ(tree().keys(), 1u);
  EXPECT_TRUE(Found("key"));
  Sweep();
  flush();
  EXPECT_TRUE(Found("key"));
  EXPECT_EQ(service_.writes()->expired(), 1u);
}

TEST_F(ExpirySweeperTest, PairsOfTablesAreRemovedLikeThoseOfTheTree) {
  RegionContent content;
  content.hash_range = HashRange{0, UINT32_MAX};
  for (const uint32_t bucket_bytes : {0u, 1024u}) {
    content.bucket_bytes = bucket_bytes;
    const uint32_t id = bucket_bytes == 0 ? 2 : 3;
    HeldRegion* const table = *regions_.Create(id, content);
    const auto put = [&](const std::string& key, uint64_t expires) {
      return MakePutRequest(HashRootOf(id), {}, Crc64("value", Crc64(key)), key, 5, 0, expires);
    };
    cluster_time_ns_ = kBegin;
    for (const std::string key : {"gone", "again", "stays"}) {
      const std::string reply = Call(put(key, key == "stays" ? kNeverExpires : kBegin + 1), "value");
      ASSERT_TRUE(ParseWriteReply(AsBytes(reply), MessageKind::kPut).ok());
    }
    const std::string searched = Call(MakeKeyRequest(MessageKind::kSearch, HashRootOf(id), {}, "gone"));
    EXPECT_EQ(ParseSearchReply(AsBytes(searched))->life.expiry, kBegin + 1u);
    EXPECT_EQ(ParseSearchReply(AsBytes(searched))->life.time_ns, uint64_t{kBegin});
    const std::string got = Call(MakeKeyRequest(MessageKind::kGet, HashRootOf(id), {}, "gone"));
    EXPECT_EQ(ParseGetReply(AsBytes(got))->value, "value");
    EXPECT_EQ(ParseGetReply(AsBytes(got))->expiry, kBegin + 1u);
    table->SetLog(std::make_shared<RegionLog>(id, 1, 1, nullptr), /*first=*/true);
    cluster_time_ns_ = kBegin + 1;
    EXPECT_EQ(ParseGetReply(AsBytes(Call(MakeKeyRequest(MessageKind::kGet, HashRootOf(id), {}, "gone"))))->fixed.found,
              0u);
    Reply reply;
    const std::string again = put("again", kNeverExpires);
    client_->Call(connection_, AsBytes(again), AsBytes("value"), kMessageBytesMax, INT64_MAX, &reply);
    while (table->pending.empty()) Turn();
    const uint64_t before = service_.writes()->expired();
    Sweep();
    EXPECT_EQ(service_.writes()->expired(), before + 1) << "the other key has a put that is logged";
    EXPECT_EQ(table->hash->keys(), 3u) << "the deletion is not on disk";
    table->log->EndFlush(table->log->BeginFlush(), absl::OkStatus());
    service_.writes()->ApplyDurable();
    while (!reply.done) Turn();
    EXPECT_EQ(table->hash->keys(), 2u);
    EXPECT_EQ(table->hash->expiring(), 0u);
    EXPECT_TRUE(table->hash->Get("again")->has_value());
    EXPECT_TRUE(table->hash->Check().ok()) << table->hash->Check();
  }
}

TEST_F(ExpirySweeperTest, AFullRegionWaitsForWhatHasExpired) {
  absl::Status full;
  for (int i = 0; full.ok(); ++i) full = Put(fmt::format("{:05}", i), std::string(4000, 'v'), kBegin + 1);
  ASSERT_TRUE(absl::IsResourceExhausted(full)) << full;
  cluster_time_ns_ = kBegin + 1;
  Reply reply;
  SendPut("z", std::string(4000, 'v'), &reply);
  ASSERT_EQ(service_.writes()->held().size(1), 1u);
  while (!reply.done) {
    Sweep();
    service_.writes()->RetryHeld();
  }
  EXPECT_EQ(CodeOf(reply.bytes), absl::StatusCode::kOk);
  Sweep();
  EXPECT_FALSE(region()->sweeping);  // Else a put would wait in vain from now on.
}

}  // namespace
}  // namespace cell

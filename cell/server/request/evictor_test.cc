// Tests what is evicted when a region that cannot be split is full.
#include "cell/server/request/evictor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/server/request/test_request_service.h"
#include "fmt/format.h"

namespace cell {
namespace {

std::string KeyOf(int i) { return fmt::format("key{:06}", i); }

class EvictorTest : public RequestServiceTest {
 protected:
  EvictorTest() {
    // As many regions as there may be.
    for (uint32_t id = 2; id <= regions_.regions_max(); ++id) CELL_CHECK(regions_.Create(id, {}).ok());
  }
  Meganode* tree(uint32_t region = 1) { return regions_.Find(region)->tree; }
  void Change(Membership::TableChange change) {
    bool done = false;
    membership_.Change(std::move(change), [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      done = true;
    });
    while (!done) membership_.Poll();
  }
  void SetRule(const std::string& prefix, Eviction eviction) {
    Change([&](RegionTable* table) { return table->SetEviction("", prefix, eviction); });
  }
  // Lets time pass, in units of UseTimes.
  void Pass() {
    const int64_t end_ns = server_->NowNs() + (int64_t{2} << Evictor::Options().use_unit_shift);
    while (server_->NowNs() < end_ns) server_->Wait(end_ns);
  }
  // Puts keys from `first` on until one is refused. Returns the key that was.
  int Fill(int first) {
    for (int i = first;; ++i) {
      const std::string key = KeyOf(i);
      if (!tree()->Put(key, value_, Crc64(value_, Crc64(key))).ok()) return i;
    }
  }
  // Puts 500 pairs into region 5 and fills region 1 from key 1000 on. All pairs of region 1 are used later than those
  // of region 5. Returns the first key that region 1 has no room for.
  int FillTwo() {
    SetRule("", Eviction::kLru);
    for (int i = 0; i < 500; ++i) {
      const std::string key = KeyOf(i);
      EXPECT_TRUE(tree(5)->Put(key, value_, Crc64(value_, Crc64(key))).ok());
    }
    const int end = Fill(1'000);
    (void)Call(MakeKeyRequest(MessageKind::kGet, root_, {}, KeyOf(1'000)));  // Uses are noted from the first one on.
    for (int i = 0; i < 4; ++i) Pass();
    for (int i = 1'000; i < end; ++i) (void)Call(MakeKeyRequest(MessageKind::kGet, root_, {}, KeyOf(i)));
    return end;
  }
  // Sends a put, and waits for its reply.
  absl::StatusCode PutNow(const std::string& key, const std::string& value) {
    Reply reply;
    SendPut(key, value, &reply);
    for (int i = 0; i < 10'000 && !reply.done; ++i) {
      service_.writes()->RetryHeld();
      Turn();
    }
    return reply.done ? CodeOf(reply.bytes) : absl::StatusCode::kDeadlineExceeded;
  }
  bool Has(int i) { return (*tree()->Find(KeyOf(i))).pair.has_value(); }
  int CountOf(int first, int end) {
    int there = 0;
    for (int i = first; i < end; ++i) there += Has(i);
    return there;
  }

  const std::string value_ = std::string(60, 'v');
};

TEST_F(EvictorTest, WithoutARuleAFullRegionRefuses) {
  const int end = Fill(0);
  EXPECT_EQ(PutNow(KeyOf(end), value_), absl::StatusCode::kResourceExhausted);
  SetRule("other", Eviction::kLru);
  EXPECT_EQ(PutNow(KeyOf(end), value_), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CountOf(0, end), end);
  EXPECT_EQ(service_.writes()->evicted(), 0u);
}

TEST_F(EvictorTest, NothingIsEvictedWhereTheRegionCanBeSplit) {
  SetRule("", Eviction::kLru);
  const int end = Fill(0);
  regions_.Drop(8);
  room_.will_have = true;
  Reply reply;
  SendPut(KeyOf(end), value_, &reply);
  service_.writes()->RetryHeld();
  EXPECT_FALSE(reply.done);
  EXPECT_EQ(CountOf(0, end), end);
  room_.will_have = false;  // The split has failed.
  for (int i = 0; i < 1'000 && !reply.done; ++i) {
    service_.writes()->RetryHeld();
    Turn();
  }
  ASSERT_TRUE(reply.done);
  EXPECT_EQ(CodeOf(reply.bytes), absl::StatusCode::kOk);
  EXPECT_LT(CountOf(0, end), end);
}

// A stream of keys in order: what was put long ago goes, in whole leaves, and the newest stay.
TEST_F(EvictorTest, OldKeysGoForNewOnes) {
  SetRule("", Eviction::kLru);
  const int half = Fill(0) / 2;
  for (int i = 0; i < half; ++i) ASSERT_TRUE(tree()->Delete(KeyOf(i)).ok());
  for (int i = 0; i < half; ++i) ASSERT_EQ(PutNow(KeyOf(i), value_), absl::StatusCode::kOk);
  int end = 2 * half;
  for (int more = 0; more < 8; ++more) {
    Pass();
    for (int i = 0; i < half / 4; ++i) ASSERT_EQ(PutNow(KeyOf(end++), value_), absl::StatusCode::kOk) << i;
  }
  EXPECT_GT(service_.writes()->evicted(), 0u);
  // The last eighth was put within the last Pass but one, and is there as a whole.
  EXPECT_EQ(CountOf(end - half / 4, end), half / 4);
  EXPECT_GT(CountOf(end - half, end), half * 8 / 10);
  EXPECT_LT(CountOf(0, half), half / 2);
}

// Keys that are read again and again are kept, the others of their leaves go.
TEST_F(EvictorTest, WhatIsUsedStays) {
  SetRule("", Eviction::kLru);
  const int end = Fill(0);
  const auto hot = [](int i) { return i % 10 == 3; };
  (void)Call(MakeKeyRequest(MessageKind::kGet, root_, {}, KeyOf(3)));  // From now on uses are noted.
  Pass();
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < end; ++i) {
      if (!hot(i)) continue;
      (void)Call(MakeKeyRequest(MessageKind::kGet, root_, {}, KeyOf(i)));
    }
    Pass();
    // New keys between the old ones.
    for (int i = 0; i < end; i += 20) {
      ASSERT_EQ(PutNow(fmt::format("{}-{}", KeyOf(i), round), value_), absl::StatusCode::kOk);
    }
  }
  int kept_hot = 0, kept_cold = 0, all_hot = 0;
  for (int i = 0; i < end; ++i) {
    all_hot += hot(i);
    (hot(i) ? kept_hot : kept_cold) += Has(i);
  }
  EXPECT_GT(kept_hot, all_hot * 95 / 100);
  EXPECT_LT(kept_cold, (end - all_hot) * 95 / 100);
}

TEST_F(EvictorTest, PairsThatExpireSoonGoFirst) {
  cluster_time_ns_ = 1'000;
  SetRule("", Eviction::kTtl);
  int end = 0;
  for (bool full = false; !full; ++end) {
    const std::string key = KeyOf(end);
    // Each third has none, each third a long one.
    const Expiry expiry = end % 3 == 0 ? kNeverExpires : end % 3 == 1 ? 1'000'000'000 : 1'000'000;
    full = !tree()->Put(key, value_, Crc64(value_, Crc64(key)), {}, expiry).ok();
  }
  for (int i = 0; i < end; i += 30) {
    ASSERT_EQ(PutNow(KeyOf(i) + "-more", value_), absl::StatusCode::kOk);
  }
  std::vector<int> gone(3);
  for (int i = 0; i < end - 1; ++i) gone[i % 3] += !Has(i);
  EXPECT_EQ(gone[0], 0);
  EXPECT_GT(gone[2], 10 * gone[1]);
}

// A rule for a prefix never touches other keys, also if these have the same leaves.
TEST_F(EvictorTest, OnlyWhatTheRulesAllowGoes) {
  SetRule("key", Eviction::kLru);
  SetRule("key0001", Eviction::kNone);
  const int end = Fill(0);
  for (int i = 0; i < end; i += 7) {
    ASSERT_EQ(PutNow(KeyOf(i) + "-more", value_), absl::StatusCode::kOk) << i;
  }
  EXPECT_EQ(CountOf(100, 200), 100);
  EXPECT_LT(CountOf(0, end), end);
}

// A region whose pairs were not used for longer is emptied meanwhile, so that it can be joined.
TEST_F(EvictorTest, ColdRegionsAreEmptied) {
  const int end = FillTwo();
  Pass();
  for (int i = 0; i < 2'000; ++i) ASSERT_EQ(PutNow(KeyOf(end + i), value_), absl::StatusCode::kOk);
  EXPECT_EQ(tree(5)->keys(), 0u);
}

// Regions that nobody uses are emptied one at a time. If each lost some pairs, none could be joined.
TEST_F(EvictorTest, OneColdRegionIsEmptiedAfterTheOther) {
  const int end = FillTwo();
  for (const uint32_t region : {3, 4, 6, 7}) {
    for (int i = 0; i < 500; ++i) {
      ASSERT_TRUE(tree(region)->Put(KeyOf(i), value_, Crc64(value_, Crc64(KeyOf(i)))).ok());
    }
  }
  Pass();
  const auto begun = [this] {
    int regions = 0;
    for (const uint32_t region : {3, 4, 5, 6, 7}) regions += tree(region)->keys() < 500 && tree(region)->keys() > 0;
    return regions;
  };
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(PutNow(KeyOf(end + i), value_), absl::StatusCode::kOk);
    ASSERT_LE(begun(), 1);
  }
}

// Other regions keep their pairs while these are used no less than those of the full region.
TEST_F(EvictorTest, OtherRegionsStay) {
  const int end = FillTwo();
  for (int i = 0; i < 500; ++i) (void)Call(MakeKeyRequest(MessageKind::kGet, RootOf(5), {}, KeyOf(i)));
  Pass();
  for (int i = 0; i < 2'000; ++i) ASSERT_EQ(PutNow(KeyOf(end + i), value_), absl::StatusCode::kOk);
  EXPECT_EQ(tree(5)->keys(), 500u);
}

// A leaf in which some pairs must stay gives no node back. Where all are such, the leaf of the key gives room.
TEST_F(EvictorTest, LittleGoesWhereAllLeavesHavePairsThatStay) {
  cluster_time_ns_ = 1'000;
  SetRule("", Eviction::kTtl);
  int end = 0;
  for (bool full = false; !full; ++end) {
    const std::string key = KeyOf(end);
    const Expiry expiry = end % 5 == 0 ? kNeverExpires : 1'000'000'000 + static_cast<Expiry>(end);
    full = !tree()->Put(key, value_, Crc64(value_, Crc64(key)), {}, expiry).ok();
  }
  // These keys are beside those that would expire last.
  for (int i = end - 400; i < end - 100; i += 3) ASSERT_EQ(PutNow(KeyOf(i) + "-more", value_), absl::StatusCode::kOk);
  EXPECT_LT(service_.writes()->evicted(), 400u);
  // Also a leaf without any finds room in the end.
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(PutNow(fmt::format("{}-{}", KeyOf(end - 50), i), value_), absl::StatusCode::kOk);
  }
}

// Values that are larger than any hole: pairs go until there is one.
TEST_F(EvictorTest, ALargeValueFindsRoom) {
  SetRule("", Eviction::kLru);
  const std::string value(20'000, 'v');
  int end = 0;
  while (tree()->Put(KeyOf(end), value, Crc64(value, Crc64(KeyOf(end)))).ok()) ++end;
  EXPECT_EQ(PutNow("large", std::string(60'000, 'x')), absl::StatusCode::kOk);
  EXPECT_LT(CountOf(0, end), end - 2);
}

// Holes of the size of small pairs are made one piece. Without that most of the region would go.
TEST_F(EvictorTest, AMuchLargerValueCostsLittleMoreThanItsSize) {
  SetRule("", Eviction::kLru);
  Random random(1);
  absl::Status full;
  for (int i = 0; full.ok(); ++i) {
    const std::string key = fmt::format("{:08}", random.Below(100'000'000)), value(200 + random.Below(700), 'v');
    full = tree()->Put(key, value, Crc64(value, Crc64(key))).status();
  }
  const uint64_t stored = tree()->data_bytes();
  constexpr uint64_t kLarge = 15'000;
  ASSERT_EQ(PutNow("large", std::string(kLarge, 'x')), absl::StatusCode::kOk);
  EXPECT_GT(tree()->data_bytes() + 4 * kLarge, stored);
  EXPECT_GT(service_.compactor().counters().moved, 0u);
}

// Pairs without extents would make no room for a value that needs one.
TEST_F(EvictorTest, SmallPairsDoNotGoForLargeValues) {
  SetRule("", Eviction::kLru);
  for (int i = 0; i < 2'000; ++i) {
    const std::string key = KeyOf(10 * i);
    ASSERT_TRUE(tree()->Put(key, value_, Crc64(value_, Crc64(key))).ok());
  }
  const std::string value(5'000, 'v');
  int end = 1;
  for (; tree()->Put(KeyOf(end), value, Crc64(value, Crc64(KeyOf(end)))).ok(); end += 10) {
  }
  for (int i = 2; i < end; i += 50) ASSERT_EQ(PutNow(KeyOf(i), std::string(20'000, 'x')), absl::StatusCode::kOk);
  int small = 0;
  for (int i = 0; i < 2'000; ++i) small += Has(10 * i);
  EXPECT_EQ(small, 2'000);
}

// While a region is being split, what is evicted gives no nodes back, and the split gives more.
TEST_F(EvictorTest, ASplitInProgressIsWaitedFor) {
  SetRule("", Eviction::kLru);
  const int end = Fill(0);
  room_.will_have = true;
  const RegionClaim claim(regions_.Find(1), ClaimPurpose::kSplit);
  Reply reply;
  SendPut(KeyOf(end), value_, &reply);
  for (int i = 0; i < 100; ++i) service_.writes()->RetryHeld();
  EXPECT_FALSE(reply.done);
  EXPECT_EQ(CountOf(0, end), end);
  regions_.Find(1)->ChangeState(RegionState::kLost);
  service_.writes()->RetryHeld();
  for (int i = 0; i < 1'000 && !reply.done; ++i) {
    service_.writes()->RetryHeld();
    Turn();
  }
}

// A part of a table, in slots (0) or buckets, as the only region that is full.
class TableEvictorTest : public EvictorTest, public testing::WithParamInterface<uint32_t> {
 protected:
  TableEvictorTest() {
    regions_.Drop(8);
    RegionContent content;
    content.hash_range = HashRange{0, UINT32_MAX};
    content.bucket_bytes = GetParam();
    CELL_CHECK(regions_.Create(8, content).ok());
    Change([](RegionTable* table) {
      table->regions.Set(8, {});
      return table->CreateTable("t", GetParam(), 8);
    });
  }
  HashTable* table() { return regions_.Find(8)->hash; }
  void SetTableRule(Eviction eviction) {
    Change([eviction](RegionTable* its) { return its->SetEviction("t", "", eviction); });
  }
  absl::StatusCode PutInTable(int i, const std::string& value, Expiry expiry = kNeverExpires) {
    const std::string key = KeyOf(i);
    const std::string head = MakePutRequest(HashRootOf(8), {}, Crc64(value, Crc64(key)), key,
                                            static_cast<uint32_t>(value.size()), 0, expiry);
    Reply reply;
    client_->Call(connection_, AsBytes(head), AsBytes(value), kMessageBytesMax, INT64_MAX, &reply);
    for (int turns = 0; turns < 100'000 && !reply.done; ++turns) {
      service_.writes()->RetryHeld();
      if (turns % 100 == 99) server_->Wait(server_->NowNs() + 1'000'000);  // A pass over the region pauses.
      Turn();
    }
    return reply.done ? CodeOf(reply.bytes) : absl::StatusCode::kDeadlineExceeded;
  }
  // Puts keys until one is refused, and returns it.
  int FillTable(const std::string& value) {
    int i = 0;
    while (PutInTable(i, value) == absl::StatusCode::kOk) ++i;
    return i;
  }
  int TableCount(int first, int end) {
    int there = 0;
    for (int i = first; i < end; ++i) there += table()->Get(KeyOf(i))->has_value();
    return there;
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, TableEvictorTest, testing::Values(0, 1024));

TEST_P(TableEvictorTest, OnlyARuleOfTheTableCounts) {
  SetRule("", Eviction::kLru);
  const int end = FillTable("value");
  EXPECT_EQ(TableCount(0, end), end);
  EXPECT_EQ(service_.writes()->evicted(), 0u);
  SetTableRule(Eviction::kTtl);
  EXPECT_EQ(PutInTable(end, "value"), absl::StatusCode::kResourceExhausted) << "none of them expires";
  SetTableRule(Eviction::kLru);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(PutInTable(end + i, "value"), absl::StatusCode::kOk);
  EXPECT_EQ(TableCount(end, end + 200), 200) << "the newest stay";
  EXPECT_LT(TableCount(0, end), end);
  EXPECT_TRUE(table()->Check().ok()) << table()->Check();
}

TEST_P(TableEvictorTest, WhatIsUsedStays) {
  SetTableRule(Eviction::kNone);
  const int end = FillTable("value");
  SetTableRule(Eviction::kLru);
  const auto hot = [](int i) { return i % 10 == 3; };
  (void)Call(MakeKeyRequest(MessageKind::kGet, HashRootOf(8), {}, KeyOf(3)));  // From now on uses are noted.
  Pass();
  for (int i = 0; i < end; ++i) {
    if (hot(i)) (void)Call(MakeKeyRequest(MessageKind::kGet, HashRootOf(8), {}, KeyOf(i)));
  }
  Pass();
  for (int i = 0; i < end / 4; ++i) ASSERT_EQ(PutInTable(end + i, "value"), absl::StatusCode::kOk);
  int kept_hot = 0, kept_cold = 0, all_hot = 0;
  for (int i = 0; i < end; ++i) {
    all_hot += hot(i);
    (hot(i) ? kept_hot : kept_cold) += table()->Get(KeyOf(i))->has_value();
  }
  EXPECT_GT(kept_hot, all_hot * 95 / 100);
  EXPECT_LT(kept_cold, (end - all_hot) * 85 / 100);
}

TEST_P(TableEvictorTest, PairsThatExpireSoonGoFirst) {
  cluster_time_ns_ = 1'000;
  int end = 0;
  const auto expiry = [](int i) { return i % 3 == 0 ? kNeverExpires : i % 3 == 1 ? 1'000'000'000 : 1'000'000; };
  while (PutInTable(end, "value", expiry(end)) == absl::StatusCode::kOk) ++end;
  SetTableRule(Eviction::kTtl);
  for (int i = 0; i < end / 50; ++i) (void)PutInTable(end + i, "value");
  std::vector<int> gone(3);
  for (int i = 0; i < end; ++i) gone[i % 3] += !table()->Get(KeyOf(i))->has_value();
  EXPECT_EQ(gone[0], 0);
  EXPECT_GT(gone[2], 2 * gone[1]);
}

// Pairs without extents would make no room for a value that needs one.
TEST_P(TableEvictorTest, ALargeValueFindsRoom) {
  for (int i = 1'000'000; i < 1'001'000; ++i) ASSERT_EQ(PutInTable(i, "v"), absl::StatusCode::kOk);
  const int end = FillTable(std::string(20'000, 'v'));
  SetTableRule(Eviction::kLru);
  EXPECT_EQ(PutInTable(end, std::string(40'000, 'x')), absl::StatusCode::kOk);
  EXPECT_LT(TableCount(0, end), end);
  if (GetParam() != 0) {
    EXPECT_EQ(TableCount(1'000'000, 1'001'000), 1'000) << "they are in buckets";
  }
  EXPECT_TRUE(table()->Check().ok()) << table()->Check();
}

TEST_P(TableEvictorTest, ValuesOfAllSizesFindRoom) {
  SetTableRule(Eviction::kLru);
  Random random(1);
  int i = 0;
  for (; i < 20'000; ++i) ASSERT_EQ(PutInTable(i, std::string(random.Below(60), 'v')), absl::StatusCode::kOk) << i;
  for (; i < 32'000; ++i) ASSERT_EQ(PutInTable(i, std::string(random.Below(2'000), 'v')), absl::StatusCode::kOk) << i;
  const uint64_t stored = table()->data_bytes();
  for (; i < 32'020; ++i) ASSERT_EQ(PutInTable(i, std::string(60'000, 'x')), absl::StatusCode::kOk) << i;
  EXPECT_GT(table()->data_bytes() + 2'000'000, stored);
  EXPECT_TRUE(table()->Check().ok()) << table()->Check();
}

}  // namespace
}  // namespace cell

// A function is applied once, though its request comes twice: to the same server, or to the one that has the region by
// then. And a client whose answers are lost tries again until it knows.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/client/functions.h"
#include "cell/io/fabric/waiter.h"
#include "cell/layout/wire_function.h"
#include "tests/clusters.h"

namespace cell {
namespace {

constexpr uint64_t kClient = 1'000'000;

// Two servers, and requests that are made by hand.
class ApplyOnce : public ::testing::TestWithParam<Durability> {
 protected:
  static TestClusterOptions Options() {
    TestClusterOptions options;
    options.servers = 2;
    options.balance.enabled = false;
    options.join.enabled = false;
    options.logs.durability = GetParam();
    options.logs.bound_ns = 40'000;
    return options;
  }

  // Sends a request to the owner of the key's region, and returns its answer, or an error.
  absl::StatusOr<Parsed<FunctionReply>> Send(const std::string& key, const FunctionCall& call, const RequestId& id,
                                             bool again = false) {
    const uint32_t region = RegionOf(key);
    const RegionTable::Entry* const entry = cluster_.table().Find(region);
    const size_t owner = entry->owner.server == "server-0" ? 0 : 1;
    FunctionOnKey function{key, call.name, static_cast<uint32_t>(call.argument.size()), 0, 0, id, again};
    const std::string head = MakeFunctionRequest(MessageKind::kApply, RootOf(region), function);
    const absl::StatusOr<ConnectionId> connection =
        ConnectTo(fabric_.get(), cluster_.shared()->state.servers[owner].workers[0].address);
    CELL_CHECK(connection.ok());
    Waiter waiter;
    fabric_->Call(*connection, AsBytes(head), AsBytes(call.argument), kMessageBytesMax, INT64_MAX, &waiter);
    CELL_CHECK(waiter.Await(fabric_.get()).ok());
    reply_ = waiter.reply();
    fabric_->Disconnect(*connection);
    return ParseFunctionReply(AsBytes(reply_), MessageKind::kApply);
  }
  // Applies, and returns the result, "unchanged", "untimely", or the code of an error.
  std::string Apply(const std::string& key, const FunctionCall& call, const RequestId& id, bool again = false) {
    const auto reply = Send(key, call, id, again);
    if (!reply.ok()) return absl::StatusCodeToString(reply.status().code());
    stamp_ = reply->fixed.stamp;
    if ((reply->fixed.flags & kUntimely) != 0) return "untimely";
    return (reply->fixed.flags & kValueChanged) != 0 ? std::string(reply->value) : "unchanged";
  }
  // The id of a request that may be tried for a minute from now on.
  RequestId Id(uint64_t number, uint16_t slot = 0, uint64_t client = kClient) {
    EXPECT_EQ(Apply("timing", functions::AddDecimal(1), {client, number, 0, slot}), "untimely");
    return {client, number, stamp_ + kRequestTriedNs, slot};
  }
  // Two regions at most: the key of the second is known.
  uint32_t RegionOf(const std::string& key) {
    for (size_t i = 0; i < 2; ++i) {
      if (cluster_.Dead(i)) continue;
      uint32_t found = 0;
      cluster_.worker(i)->regions()->ForEach([&](const HeldRegion* region) {
        if (region->tree != nullptr && region->tree->tier() == 0 && region->tree->Covers(key)) found = region->region();
      });
      if (found != 0) return found;
    }
    return cluster_.table().root;
  }
  // Ends the owner, and lets the other server recover all regions.
  void Kill(size_t victim) {
    for (int i = 0; i < 2'000; ++i) cluster_.network()->Step();  // All is on disk by then.
    cluster_.Kill(victim, true);
    const auto all_served = [&] {
      for (const auto& [region, entry] : cluster_.table().regions) {
        if (entry.recovering || entry.owner.server == fmt::format("server-{}", victim)) return false;
      }
      return true;
    };
    for (int i = 0; i < 1'000'000 && !all_served(); ++i) cluster_.network()->Step();
    ASSERT_TRUE(all_served());
    for (int i = 0; i < 2'000; ++i) cluster_.network()->Step();
  }
  bool logs() const { return GetParam() != Durability::kNone; }
  std::string Value(const std::string& key) {
    const auto value = client_->Get(key);
    return value.ok() ? value->value_or("absent") : std::string(value.status().message());
  }

  SimCluster cluster_{{512, 32 << 10, 2 << 20}, {}, Options()};
  std::unique_ptr<Client> client_ = cluster_.NewClient({.report = false});
  std::unique_ptr<SimFabric> fabric_ = cluster_.network()->NewEndpoint();
  const FunctionCall add_ = functions::AddDecimal(1);
  std::string reply_;
  uint64_t stamp_ = 0;
};

TEST_P(ApplyOnce, ByOneOwner) {
  const RequestId first = Id(1);
  EXPECT_EQ(Apply("key", add_, first), "1");
  const uint64_t stamp = stamp_;
  EXPECT_EQ(Apply("key", add_, first), "1");
  EXPECT_EQ(stamp_, stamp);
  EXPECT_EQ(Apply("key", add_, first, /*again=*/true), "1");
  EXPECT_EQ(Value("key"), "1");
  // A slot's next request is another one, and ends the memory of the one before.
  EXPECT_EQ(Apply("key", add_, Id(2)), "2");
  EXPECT_EQ(Apply("key", add_, first), "FAILED_PRECONDITION");
  // Other slots and clients have nothing to do with it.
  EXPECT_EQ(Apply("key", add_, Id(1, 1)), "3");
  EXPECT_EQ(Apply("key", add_, Id(1, 0, kClient + 1)), "4");
  EXPECT_EQ(Value("key"), "4");
}

TEST_P(ApplyOnce, AnIdIsNotForAnotherRequest) {
  const RequestId id = Id(1);
  EXPECT_EQ(Apply("key", add_, id), "1");
  EXPECT_EQ(Apply("other", add_, id), "INVALID_ARGUMENT");
  EXPECT_EQ(Apply("key", functions::Append("1"), id), "INVALID_ARGUMENT");
  EXPECT_EQ(Apply("key", functions::AddDecimal(10), id), "INVALID_ARGUMENT");
  RequestId longer = id;
  ++longer.until;
  EXPECT_EQ(Apply("key", add_, longer), "INVALID_ARGUMENT");
  EXPECT_EQ(Value("key"), "1");
  EXPECT_EQ(Value("other"), "absent");
}

TEST_P(ApplyOnce, OnlyAsLongAsItIsRemembered) {
  RequestId id = Id(1);
  id.until = stamp_ + 1'000'000;  // A millisecond.
  EXPECT_EQ(Apply("key", add_, id), "1");
  const int64_t later_ns = cluster_.network()->now_ns() + 2'000'000;
  while (cluster_.network()->now_ns() < later_ns) cluster_.network()->Step();
  ASSERT_TRUE(client_->Put("any", "value").ok());  // The region gives a later stamp.
  EXPECT_EQ(Apply("key", add_, id), "untimely");
  EXPECT_EQ(Value("key"), "1");
  id = Id(2);
  id.until += 2 * kRequestAheadNsMax;
  EXPECT_EQ(Apply("key", add_, id), "untimely");
  EXPECT_EQ(Value("key"), "1");
}

// If what came again is refused, what was sent before and comes later must not be applied.
TEST_P(ApplyOnce, WhatWasRefusedIsNotAppliedLater) {
  const FunctionCall swap = functions::CompareAndSwap("a", "b");
  const RequestId id = Id(1);
  EXPECT_EQ(Apply("key", swap, id, /*again=*/true), "unchanged");
  ASSERT_TRUE(client_->Put("key", "a").ok());
  EXPECT_EQ(Apply("key", swap, id), "unchanged");
  EXPECT_EQ(Value("key"), "a");
  if (logs()) Kill(0);
  EXPECT_EQ(Apply("key", swap, id), "unchanged");
  EXPECT_EQ(Value("key"), "a");
  EXPECT_EQ(Apply("key", swap, Id(2)), std::string(1, '\1'));
}

TEST_P(ApplyOnce, WhenTheRegionHasMigrated) {
  const RequestId id = Id(1);
  EXPECT_EQ(Apply("key", add_, id), "1");
  std::vector<RequestId> many;
  for (uint16_t slot = 1; slot < 300; ++slot) {  // More than fit into one message.
    many.push_back(Id(1, slot, kClient + slot % 7));
    ASSERT_EQ(Apply(fmt::format("key {}", slot), add_, many.back()), "1");
  }
  ASSERT_TRUE(cluster_.Migrate(cluster_.table().root, 0, 1).ok());
  EXPECT_EQ(Apply("key", add_, id), "1");
  for (const RequestId& one : many) EXPECT_EQ(Apply(fmt::format("key {}", one.slot), add_, one), "1");
  ASSERT_TRUE(cluster_.Migrate(cluster_.table().root, 1, 0).ok());
  EXPECT_EQ(Apply("key", add_, id), "1");
  EXPECT_EQ(Value("key"), "1");
}

TEST_P(ApplyOnce, WhenTheRegionWasRecovered) {
  if (!logs()) GTEST_SKIP() << "without logs nothing is recovered";
  const RequestId id = Id(1), later = Id(1, 1);
  EXPECT_EQ(Apply("key", add_, id), "1");
  EXPECT_EQ(Apply("key", functions::Append("x"), later).size(), 8u);
  Kill(0);
  EXPECT_EQ(Apply("key", add_, id), "1");
  EXPECT_EQ(Apply("key", functions::Append("x"), later).size(), 8u);
  EXPECT_EQ(Value("key"), "1x");
}

TEST_P(ApplyOnce, WhenACheckpointHasTrimmedTheLog) {
  if (!logs()) GTEST_SKIP() << "without logs there are no checkpoints";
  const RequestId id = Id(1);
  EXPECT_EQ(Apply("key", add_, id), "1");
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(cluster_.Checkpoint(cluster_.table().root, 0).ok());
  Kill(0);
  EXPECT_EQ(Apply("key", add_, id), "1");
  EXPECT_EQ(Value("key"), "1");
}

TEST_P(ApplyOnce, WhenTheRegionWasSplitAndJoined) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(client_->Put(fmt::format("{:03}", i), std::string(100, 'v')).ok());
  const std::vector<std::string> keys = {"000", "050", "099x"};
  std::vector<RequestId> ids;
  for (const std::string& key : keys) {
    ids.push_back(Id(1, static_cast<uint16_t>(ids.size())));
    ASSERT_EQ(Apply(key + "counter", add_, ids.back()), "1");
  }
  const uint32_t lower = RegionOf("000");
  ASSERT_TRUE(cluster_.Split(lower, 0).ok());
  const uint32_t upper = RegionOf("099");
  ASSERT_NE(lower, upper);
  const auto all_known = [&](const char* when) {
    for (size_t i = 0; i < keys.size(); ++i)
      EXPECT_EQ(Apply(keys[i] + "counter", add_, ids[i]), "1") << keys[i] << when;
  };
  all_known(" after the split");
  ids.push_back(Id(1, 9));
  ASSERT_EQ(Apply("099y", add_, ids.back()), "1");
  if (logs()) Kill(0);
  all_known(" after a recovery");
  const size_t owner = logs() ? 1 : 0;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(client_->Delete(fmt::format("{:03}", i)).ok());
  ASSERT_TRUE(cluster_.Join(upper, owner).ok());
  ASSERT_EQ(RegionOf("099"), lower);
  all_known(" after the join");
  EXPECT_EQ(Apply("099y", add_, ids.back()), "1");
}

INSTANTIATE_TEST_SUITE_P(Durabilities, ApplyOnce,
                         ::testing::Values(Durability::kNone, Durability::kAsync, Durability::kSync),
                         [](const auto& info) { return std::string(ToString(info.param)); });

Task<bool> AddUntil(Client* client, const bool* stop, int64_t* done, int* left) {
  const FunctionCall add = functions::Add<int64_t>(1);
  while (!*stop) {
    const absl::StatusOr<ApplyResult> applied = co_await client->AsyncApply("counter", add, {});
    EXPECT_TRUE(applied.ok()) << applied.status();
    if (!applied.ok()) break;
    ++*done;
  }
  --*left;
  co_return true;
}

// Servers die at many moments while clients count. None of them is left without an answer, and each addition is there
// once.
TEST(ApplyOnceByClients, WhileServersDie) {
  TestClusterOptions options = SpreadingOptions();
  options.logs.durability = Durability::kSync;
  options.logs.bound_ns = 40'000;
  options.checkpoints.log_bytes_min = 8 << 10;
  SimCluster cluster(kSpreadingShape, {}, options);
  ClientOptions quiet;
  quiet.report = false;
  // Each takeover uses up the stamps of 10 s, so a request that is tried for longer than six of them takes has had its
  // minute.
  quiet.refused_pause_us = quiet.reconnect_us = 100;
  const std::unique_ptr<Client> client = cluster.NewClient(quiet);
  bool stop = false;
  int64_t done = 0;
  constexpr int kAtOnce = 6;
  int left = kAtOnce;
  std::vector<Task<bool>> tasks;
  for (int i = 0; i < kAtOnce; ++i) {
    tasks.push_back(AddUntil(client.get(), &stop, &done, &left));
    tasks.back().Start();
  }
  int kills = 0;
  for (int round = 0; round < 60; ++round) {
    const int64_t until_ns = client->NowNs() + 150'000 + 7'001 * round;
    while (client->NowNs() < until_ns) client->Poll(until_ns);
    const std::string owner = cluster.table().Find(cluster.table().root)->owner.server;
    const auto victim = static_cast<size_t>(owner.back() - '0');
    if (cluster.Dead(victim)) continue;
    cluster.Kill(victim, round % 2 == 0);
    ++kills;
    const int64_t then_ns = client->NowNs() + 1'000'000;
    while (client->NowNs() < then_ns) client->Poll(then_ns);
    cluster.Restart(victim);
  }
  stop = true;
  while (left > 0) client->Poll(INT64_MAX);
  const auto counter = client->Get("counter");
  ASSERT_TRUE(counter.ok() && counter->has_value());
  EXPECT_EQ((*functions::ElementsOf<int64_t>(**counter))[0], done);
  EXPECT_GT(kills, 30);
  EXPECT_GT(done, 500);
}

}  // namespace
}  // namespace cell

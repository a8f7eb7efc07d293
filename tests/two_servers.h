// TwoServersTest is the fixture of tests of what concerns several regions at once: a tree of some regions, at two
// servers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cell/base/check.h"
#include "cell/client/transaction.h"
#include "cell/io/fabric/waiter.h"
#include "cell/layout/wire_transaction.h"
#include "fmt/format.h"
#include "tests/sim_cluster.h"

namespace cell {

class TwoServersTest : public ::testing::TestWithParam<Durability> {
 protected:
  static constexpr uint64_t kClient = 1'000'000;
  static constexpr int kKeys = 1500;

  static std::string Key(int i) { return fmt::format("key{:04}", i); }

  static TestClusterOptions Options() {
    TestClusterOptions options;
    options.servers = 2;
    options.balance.enabled = false;
    options.join.enabled = false;
    options.logs.durability = GetParam();
    options.logs.bound_ns = 40'000;
    options.transactions = {200'000'000, 20'000'000};
    return options;
  }

  void SetUp() override {
    for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(client_->Put(Key(i), "0").ok());
    Settle();
    // The upper half is at the other server.
    uint32_t last = 0;
    cluster_.worker(0)->regions()->ForEach([&](const HeldRegion* region) {
      if (region->tree != nullptr && region->tree->Covers(Key(kKeys - 1))) last = region->region();
    });
    ASSERT_NE(last, 0u);
    ASSERT_NE(RegionOf(Key(0)), last);
    ASSERT_TRUE(cluster_.Migrate(last, 0, 1).ok());
    Settle();
    ASSERT_EQ(OwnerOf(last), 1u);
  }

  void Settle() {
    for (int i = 0; i < 20'000; ++i) cluster_.network()->Step();
  }
  void Pass(int64_t ns) {
    const int64_t until_ns = cluster_.network()->now_ns() + ns;
    while (cluster_.network()->now_ns() < until_ns) cluster_.network()->Step();
  }
  size_t OwnerOf(uint32_t region) { return cluster_.table().Find(region)->owner.server == "server-0" ? 0 : 1; }
  uint32_t RegionOf(const std::string& key) {
    uint32_t found = 0;
    for (size_t i = 0; i < 2; ++i) {
      if (cluster_.Dead(i)) continue;
      cluster_.worker(i)->regions()->ForEach([&](const HeldRegion* region) {
        if (region->tree != nullptr && region->tree->tier() == 0 && region->tree->Covers(key)) found = region->region();
      });
    }
    return found;
  }
  HeldRegion* HeldOf(uint32_t region) { return cluster_.worker(OwnerOf(region))->regions()->Find(region); }
  // Returns how many transactions the servers know, and keys they hold.
  size_t Held() {
    size_t held = 0;
    for (size_t i = 0; i < 2; ++i) {
      if (cluster_.Dead(i)) continue;
      cluster_.worker(i)->regions()->ForEach([&](const HeldRegion* region) {
        held += region->transactions.size() + region->outcomes.open() + !region->transactions.locks.empty();
      });
    }
    return held;
  }
  std::string Value(const std::string& key) {
    const auto value = client_->Get(key);
    return value.ok() ? value->value_or("absent") : std::string(value.status().message());
  }
  std::string Send(uint32_t region, const std::string& head, const std::string& body) {
    const auto& server = cluster_.shared()->state.servers[OwnerOf(region)];
    const absl::StatusOr<ConnectionId> connection = ConnectTo(fabric_.get(), server.workers[0].address);
    CELL_CHECK(connection.ok());
    Waiter waiter;
    fabric_->Call(*connection, AsBytes(head), AsBytes(body), kMessageBytesMax, INT64_MAX, &waiter);
    CELL_CHECK(waiter.Await(fabric_.get()).ok());
    fabric_->Disconnect(*connection);
    return waiter.reply();
  }
  // Sends a part by hand. Returns its outcome.
  TransactOutcome Prepare(const RequestId& id, const std::string& key, const std::string& value, uint32_t primary,
                          std::vector<uint32_t> others = {}, const std::optional<std::string>& read = std::nullopt) {
    std::string part;
    if (read.has_value()) AppendOperation({PartOperationKind::kReadPair, key, {}, PairDigest(key, *read)}, &part);
    AppendOperation({PartOperationKind::kPut, key, value, PairDigest(key, value)}, &part);
    return PrepareAt(RootOf(RegionOf(key)), id, key, part, primary, others);
  }
  // Sends a part to the region that requests to `root` are for.
  TransactOutcome PrepareAt(Pointer root, const RequestId& id, const std::string& key, const std::string& part,
                            uint32_t primary, const std::vector<uint32_t>& others) {
    const std::string_view ids(reinterpret_cast<const char*>(others.data()), others.size() * sizeof(uint32_t));
    const TransactionPart message{id, TransactStep::kPrepare, key, static_cast<uint32_t>(part.size()), primary, ids};
    const std::string reply = Send(root.region(), MakeTransactRequest(root, message), part);
    const auto parsed = ParseTransactReply(AsBytes(reply), MessageKind::kTransact);
    CELL_CHECK(parsed.ok());
    stamp_ = parsed->fixed.stamp;
    expires_ = parsed->fixed.expires;
    return parsed->fixed.outcome;
  }
  // Sends a part of a transaction that has no primary by hand. Returns the answer's error.
  absl::Status PrepareReads(uint64_t number, const std::string& key, const std::string& part) {
    const uint32_t region = RegionOf(key);
    TransactionPart message{{kClient, number, 0, 0}, TransactStep::kPrepare, key, static_cast<uint32_t>(part.size())};
    const std::string reply = Send(region, MakeTransactRequest(RootOf(region), message), part);
    return ParseTransactReply(AsBytes(reply), MessageKind::kTransact).status();
  }
  TransactOutcome Decide(const RequestId& id, uint32_t region, Decision decision, uint64_t stamp = 0,
                         Expiry expires = kNeverExpires) {
    const std::string reply = Send(region, MakeDecideRequest(RootOf(region), id, decision, stamp, expires), "");
    const auto parsed = ParseTransactReply(AsBytes(reply), MessageKind::kDecide);
    CELL_CHECK(parsed.ok());
    return parsed->fixed.outcome;
  }
  // The id of a request that may be tried for a minute from now on.
  RequestId Id(uint64_t number) {
    EXPECT_EQ(Prepare({kClient, number, 0, 0}, Key(1), "", 1), TransactOutcome::kUntimely);
    return {kClient, number, stamp_ + kRequestTriedNs, 0};
  }
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

  SimCluster cluster_{{512, 32 << 10, 2 << 20}, {}, Options()};
  std::unique_ptr<Client> client_ = cluster_.NewClient({.report = false});
  std::unique_ptr<Client> other_ = cluster_.NewClient({.report = false});
  std::unique_ptr<SimFabric> fabric_ = cluster_.network()->NewEndpoint();
  const std::string low_ = Key(0), high_ = Key(kKeys - 1);
  uint64_t stamp_ = 0;
  Expiry expires_ = kNeverExpires;
};

}  // namespace cell

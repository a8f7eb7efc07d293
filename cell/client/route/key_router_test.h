// Provides a session with servers that answer as a test wants, for tests of what finds a region and sends requests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cell/base/check.h"
#include "cell/client/route/key_router.h"
#include "cell/client/session/session_test.h"
#include "cell/cluster/memory_membership.h"
#include "cell/tree/meganode.h"
#include "cell/tree/test_region.h"

namespace cell {

class KeyRouterTest : public ::testing::Test {
 protected:
  static constexpr int64_t kTimeoutNs = 10'000'000'000;
  static constexpr uint32_t kRoot = 1, kOther = 2, kThird = 3, kLowerPart = 4, kUpperPart = 5, kNew = 6;
  static constexpr RegionShape kShape{512, 32 << 10, 64 << 10};

  // Two servers, and a third one, which never answers. Regions 1 and 2 are on the first server, 3 is on the second. The
  // table "users" has a part on each.
  static ClusterState State() {
    ClusterState state;
    state.shape = kShape;
    state.servers = {{"a", {{"address-a", 8}}, ""}, {"b", {{"address-b", 8}}, ""}, {"silent", {{"nowhere", 8}}, ""}};
    state.table.ids.next = kNew;
    state.table.root = kRoot;
    for (const uint32_t region : {kRoot, kOther, kLowerPart}) state.table.regions.Set(region, {{"a", 0}, 1});
    for (const uint32_t region : {kThird, kUpperPart}) state.table.regions.Set(region, {{"b", 0}, 1});
    CELL_CHECK(state.table.CreateTable("users", 0, kLowerPart).ok());
    CELL_CHECK(state.table.SplitPart(kLowerPart, 1u << 31, kUpperPart).ok());
    return state;
  }

  static ClientOptions Options() {
    ClientOptions options;
    options.report = false;
    return options;
  }

  explicit KeyRouterTest(ClusterState state = State(), const ClientOptions& options = Options())
      : cluster_(std::make_shared<MemoryCluster>(std::move(state))),
        membership_(new MemoryMembership(cluster_)),
        session_(options, network_.NewEndpoint(client_host_), std::unique_ptr<Membership>(membership_)) {
    CELL_CHECK(a_->Listen("address-a", &service_a_).ok());
    CELL_CHECK(b_->Listen("address-b", &service_b_).ok());
    service_a_.refuses = service_b_.refuses = MessageKind::kTableVersion;
  }

  KeyRouter Router(std::string_view key, int64_t timeout_ns = kTimeoutNs, const std::string* table = nullptr) {
    const int64_t now_ns = session_.NowNs();
    const OperationKind kind = table == nullptr ? OperationKind::kGet : OperationKind::kLookup;
    return KeyRouter(&session_, key, {Path::kServer, now_ns, now_ns + timeout_ns, kind}, table);
  }
  absl::Status FindConnection(KeyRouter* router) { return session_.Run(router->FindConnection()); }
  // Changes the table as another member does.
  void ChangeTable(const std::function<void(RegionTable*)>& change) {
    const std::lock_guard lock(cluster_->mutex);
    change(&cluster_->state.table);
    ++cluster_->state.table.version;
  }
  void Move(uint32_t region, const std::string& server) {
    ChangeTable([&](RegionTable* table) {
      table->regions.Change(region, [&](RegionEntry* entry) {
        entry->owner = {server, 0};
        ++entry->epoch;
      });
    });
  }
  void Refresh() { ASSERT_TRUE(session_.Run(session_.view()->Refresh(INT64_MAX))); }
  void PassTime(int64_t ns) { session_.Run(Sleep(ns)); }
  Task<bool> Sleep(int64_t ns) {
    co_await session_.loop()->SleepUntil(session_.NowNs() + ns);
    co_return true;
  }
  Task<absl::Status> Read(WorkerConnection* worker, ReadPart part) {
    co_return co_await session_.connections()->Read(worker, {&part, 1}, session_.NowNs() + kTimeoutNs);
  }
  // Returns the root of a meganode of routes, which is in the region of the tree's root.
  NodeView routes_node() { return NodeView::Trusted(region_.memory()->at(kRegionHeaderBytes), kShape.node_bytes); }
  // Returns this client's own search of that meganode, which led to `child`.
  Walk WalkToChild(std::string_view key, Pointer child) {
    CELL_CHECK(Meganode(region_.memory()).InsertRoute("", child).ok());
    Walk walk(key, RootOf(kRoot));
    CELL_CHECK(walk.Visit(routes_node()) == Walk::Step::kElsewhere);
    CELL_CHECK(walk.wants() == child);
    return walk;
  }
  RouteCache* routes() { return session_.tree()->routes(); }
  const ClientMetrics& metrics() { return *session_.metrics(); }

  static RouteView Route(RouteKind kind, Pointer next = {}) { return {kind, next, {}, {}, false, false}; }
  static RouteView ChildRoute(Pointer next, std::string_view low, std::string_view high) {
    return {RouteKind::kChild, next, low, high, true, true};
  }

  SimNetwork network_{SimOptions{}};
  std::unique_ptr<SimFabric> a_ = network_.NewEndpoint();
  std::unique_ptr<SimFabric> b_ = network_.NewEndpoint();
  SimHost* const client_host_ = network_.NewHost();
  AnsweringService service_a_{a_.get()}, service_b_{b_.get()};
  TestRegion region_{kShape, kRoot, {1, "", std::nullopt, {}}};
  std::shared_ptr<MemoryCluster> cluster_;
  MemoryMembership* const membership_;  // The session's.
  Session session_;
};

}  // namespace cell

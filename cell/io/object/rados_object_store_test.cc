// Tests RadosObjectStore, and ObjectLogStore on it, in the pool CELL_TEST_CEPH_POOL of the Ceph cluster whose
// configuration CELL_TEST_CEPH_CONF names. The pool must be empty. Without one its tests are skipped;
// //tests:rados_test starts a cluster and runs them.
#include "cell/io/object/rados_object_store.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "cell/base/check.h"
#include "cell/io/object/object_store_conformance.h"
#include "cell/log/log_store_conformance.h"
#include "cell/log/object_log_store.h"

namespace cell {
namespace {

std::string Given(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::unique_ptr<ObjectStore> Connect() {
  if (Given("CELL_TEST_CEPH_CONF").empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<RadosObjectStore>> store =
      RadosObjectStore::Connect({Given("CELL_TEST_CEPH_POOL"), Given("CELL_TEST_CEPH_CONF")});
  EXPECT_TRUE(store.ok()) << store.status();
  CELL_CHECK(store.ok());
  return *std::move(store);
}

INSTANTIATE_TEST_SUITE_P(Rados, ObjectStoreConformance, ::testing::Values(Connect));

class RadosHarness : public LogStoreHarness {
 public:
  std::unique_ptr<LogStore> NewStore() override {
    clients_.push_back(Connect());
    return std::make_unique<ObjectLogStore>(
        clients_.back().get(), ObjectLogStore::Options{10'000, 3'000, [] { return std::random_device()(); }});
  }
  ~RadosHarness() override { (void)NewStore()->RemoveAll(); }

 private:
  std::vector<std::unique_ptr<ObjectStore>> clients_;
};

std::unique_ptr<LogStoreHarness> MakeHarness() {
  return Given("CELL_TEST_CEPH_CONF").empty() ? nullptr : std::make_unique<RadosHarness>();
}

INSTANTIATE_TEST_SUITE_P(Rados, LogStoreConformance, ::testing::Values(MakeHarness));

TEST(RadosObjectStore, WhatCannotBeConnectedIsSaidInSeconds) {
  const absl::Status no_file = RadosObjectStore::Connect({"cell", "/nowhere/ceph.conf"}).status();
  EXPECT_TRUE(absl::IsNotFound(no_file)) << no_file;
  EXPECT_NE(no_file.message().find("/nowhere/ceph.conf"), std::string::npos);
  const std::string conf = Given("CELL_TEST_CEPH_CONF");
  if (conf.empty()) GTEST_SKIP() << "there is no Ceph cluster; //tests:rados_test has one";
  const absl::Status no_pool = RadosObjectStore::Connect({"no-such-pool", conf}).status();
  EXPECT_TRUE(absl::IsNotFound(no_pool)) << no_pool;
  EXPECT_NE(no_pool.message().find("ceph osd pool create no-such-pool"), std::string::npos) << no_pool;
}

}  // namespace
}  // namespace cell

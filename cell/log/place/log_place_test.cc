#include "cell/log/place/log_place.h"

#include <gtest/gtest.h>

#include "cell/io/sim/sim_object_store.h"
#include "cell/log/place/log_pool.h"

namespace cell {
namespace {

TEST(LogPlace, IsReadFromText) {
  for (const char* text : {"dir:/var/lib/cell/log", "dir:log", "rados:cell", "rados:cell@/etc/other.conf",
                           "rados:cell?user=me", "rados:cell@/etc/other.conf?user=me"}) {
    const absl::StatusOr<LogPlace> place = LogPlace::Parse(text);
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_EQ(place->ToText(), text);
  }
  EXPECT_FALSE(LogPlace::Parse("dir:/a@b")->in_rados());
  EXPECT_EQ(LogPlace::Parse("rados:cell@/etc/a@b.conf")->ceph_conf, "/etc/a@b.conf");
  EXPECT_EQ(LogPlace::Parse("rados:cell@/etc/a@b.conf")->pool, "cell");
  EXPECT_EQ(LogPlace::Parse("rados:cell?user=me")->pool, "cell");
  for (const char* text : {"", "dir:", "rados:cell?user=", "rados:?user=me", "rados:", "rados:@/etc/ceph.conf",
                           "rados:cell@", "/var/log", "ceph:cell", "Dir:x"}) {
    const absl::Status status = LogPlace::Parse(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_NE(status.message().find("rados:POOL"), std::string::npos) << status;
  }
}

class LogPoolTest : public ::testing::Test {
 protected:
  absl::Status Claim(const std::string& uuid) { return ClaimLogPool(store_.get(), "pool", uuid); }
  absl::Status Check(const std::string& uuid) { return CheckLogPool(store_.get(), "pool", uuid); }

  SimObjects objects_{1};
  const std::unique_ptr<SimObjectStore> store_ = objects_.NewHost();
};

TEST_F(LogPoolTest, BelongsToTheFirstClusterThatComes) {
  EXPECT_TRUE(Check("one").ok());
  EXPECT_TRUE(objects_.names().empty());
  ASSERT_TRUE(Claim("one").ok());
  ASSERT_TRUE(Claim("one").ok());  // Its other servers.
  EXPECT_TRUE(Check("one").ok());
  for (const absl::Status& other : {Claim("two"), Check("two")}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
    EXPECT_NE(other.message().find("cluster one"), std::string::npos) << other;
  }
  ASSERT_TRUE(ReleaseLogPool(store_.get()).ok());
  ASSERT_TRUE(ReleaseLogPool(store_.get()).ok());
  EXPECT_TRUE(Claim("two").ok());
}

TEST_F(LogPoolTest, WithLogsOfANamelessClusterIsNotTaken) {
  ASSERT_TRUE(store_->Update("something else", {.create = true}).ok());
  ASSERT_TRUE(store_->Update("region-7", {.create = true}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Claim("one")));
  ASSERT_TRUE(store_->Update("region-7", {.remove_object = true}).ok());
  EXPECT_TRUE(Claim("one").ok());
}

TEST_F(LogPoolTest, OfALaterFormatIsNotTouched) {
  ASSERT_TRUE(store_->Update("cluster", {.create = true, .set = {{"uuid", "one"}, {"format", "2"}}}).ok());
  const absl::Status status = Claim("one");
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("format 2"), std::string::npos) << status;
}

}  // namespace
}  // namespace cell

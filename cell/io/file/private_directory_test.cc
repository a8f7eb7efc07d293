#include "cell/io/file/private_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace cell {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kRoot = 0, kSelf = 1000, kStranger = 1001, kNobody = 65534;
constexpr mode_t kDirectory = S_IFDIR, kSticky = S_ISVTX;

// Which owners and modes of a directory are accepted, for root, for another user, and where root appears as nobody.
TEST(PrivateDirectory, ItselfIsOursOrRootsAndNobodyElseWritesToIt) {
  struct {
    uid_t owner;
    mode_t mode;
    bool for_self, for_root, in_namespace;
  } const cases[] = {{kSelf, 0700, true, false, true},       {kSelf, 0755, true, false, true},
                     {kRoot, 0755, true, true, true},        {kSelf, 0775, false, false, false},
                     {kSelf, 0757, false, false, false},     {kRoot, 0777 | kSticky, false, false, false},
                     {kStranger, 0700, false, false, false}, {kNobody, 0700, false, false, true}};
  for (const auto& c : cases) {
    const PathFacts facts{c.owner, kDirectory | c.mode};
    SCOPED_TRACE(testing::Message() << "owner " << c.owner << ", mode " << std::oct << c.mode);
    EXPECT_EQ(CheckOwnDirectory("/d", facts, {kSelf, 0}).ok(), c.for_self);
    EXPECT_EQ(CheckOwnDirectory("/d", facts, {kRoot, 0}).ok(), c.for_root);
    EXPECT_EQ(CheckOwnDirectory("/d", facts, {kSelf, kNobody}).ok(), c.in_namespace);
  }
  EXPECT_FALSE(CheckOwnDirectory("/d", {kSelf, S_IFREG | 0600}, {kSelf, 0}).ok());
}

TEST(PrivateDirectory, NobodyElseCanReplaceADirectoryAboveIt) {
  struct {
    uid_t owner;
    mode_t mode;
    bool ok;
  } const cases[] = {{kRoot, 0777 | kSticky, true}, {kRoot, 0777, false}, {kSelf, 0775, true},
                     {kSelf, 0777, false},          {kRoot, 0755, true},  {kStranger, 0755, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << "owner " << c.owner << ", mode " << std::oct << c.mode);
    EXPECT_EQ(CheckDirectoryAbove("/d", {c.owner, kDirectory | c.mode}, {kSelf, 0}).ok(), c.ok);
  }
}

TEST(PrivateDirectory, ALinkIsFollowedIfItIsOursOrRoots) {
  EXPECT_TRUE(CheckLink("/l", {kSelf, S_IFLNK | 0777}, {kSelf, 0}).ok());
  EXPECT_TRUE(CheckLink("/l", {kRoot, S_IFLNK | 0777}, {kSelf, 0}).ok());
  EXPECT_FALSE(CheckLink("/l", {kStranger, S_IFLNK | 0777}, {kSelf, 0}).ok());
}

TEST(PrivateDirectory, MessagesSayWhatToDo) {
  EXPECT_THAT(std::string(CheckOwnDirectory("/d d", {kSelf, kDirectory | 0777}, {kSelf, 0}).message()),
              testing::HasSubstr("chmod 700 '/d d'"));
  EXPECT_THAT(std::string(CheckOwnDirectory("/d", {kStranger, kDirectory | 0700}, {kSelf, 0}).message()),
              testing::HasSubstr("/d belongs to user 1001"));
}

class PrivateDirectoryOnDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cell-test-XXXXXX";
    top_ = ::mkdtemp(name);
    fs::create_directory(top_ / "above");
    fs::create_directory(top_ / "above" / "own");
    fs::permissions(top_ / "above" / "own", fs::perms::owner_all);
  }
  void TearDown() override { fs::remove_all(top_); }

  absl::Status Check(const std::string& name) { return CheckPrivateDirectory((top_ / name).string()); }
  void Mode(const std::string& name, mode_t mode) { ASSERT_EQ(::chmod((top_ / name).c_str(), mode), 0); }

  fs::path top_;
};

TEST_F(PrivateDirectoryOnDisk, EachStepCounts) {
  EXPECT_TRUE(Check("above/own").ok()) << Check("above/own");
  EXPECT_TRUE(Check("above/own/").ok());
  EXPECT_TRUE(Check("above/own/../own/.").ok());
  EXPECT_EQ(Check("above/none").code(), absl::StatusCode::kNotFound);
  Mode("above/own", 0770);
  EXPECT_EQ(Check("above/own").code(), absl::StatusCode::kFailedPrecondition);
  Mode("above/own", 0700);
  Mode("above", 0777);
  EXPECT_EQ(Check("above/own").code(), absl::StatusCode::kFailedPrecondition);
  Mode("above", 01777);
  EXPECT_TRUE(Check("above/own").ok());
}

TEST_F(PrivateDirectoryOnDisk, WhatALinkLeadsToIsChecked) {
  fs::create_symlink("above", top_ / "link");
  fs::create_symlink(top_ / "link" / "own", top_ / "second");
  fs::create_symlink("round", top_ / "round");
  EXPECT_TRUE(Check("link/own").ok()) << Check("link/own");
  EXPECT_TRUE(Check("second").ok()) << Check("second");
  EXPECT_EQ(Check("round").code(), absl::StatusCode::kUnavailable);
  Mode("above", 0777);
  EXPECT_EQ(Check("link/own").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Check("second").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PrivateDirectoryOnDisk, ALinkOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files to another user";
  fs::create_symlink("above", top_ / "link");
  if (::lchown((top_ / "link").c_str(), 12345, 12345) != 0) GTEST_SKIP() << "there is no other user here";
  EXPECT_THAT(std::string(Check("link/own").message()), testing::HasSubstr("a symbolic link of user 12345"));
  ASSERT_EQ(::chown((top_ / "above" / "own").c_str(), 12345, 12345), 0);
  EXPECT_THAT(std::string(Check("above/own").message()), testing::HasSubstr("belongs to user 12345"));
}

TEST_F(PrivateDirectoryOnDisk, IsClosedToOthersOnce) {
  Mode("above", 0755);
  EXPECT_TRUE(OthersCanRead((top_ / "above").string()));
  EXPECT_TRUE(CloseToOthers((top_ / "above").string()));
  EXPECT_FALSE(OthersCanRead((top_ / "above").string()));
  EXPECT_FALSE(CloseToOthers((top_ / "above").string()));
  EXPECT_TRUE(fs::exists(top_ / "above" / "own"));
}

}  // namespace
}  // namespace cell

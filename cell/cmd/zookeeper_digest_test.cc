#include "cell/cmd/zookeeper_digest.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <vector>

namespace cell {
namespace {

class ZooKeeperDigestTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/digest";
    ::unsetenv("CELL_ZOOKEEPER_DIGEST");
    ::unsetenv("CELL_ZOOKEEPER_DIGEST_FILE");
  }
  void Write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_, std::ios::trunc | std::ios::binary) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  // Returns the credentials of a command line, or the error.
  static std::string Parse(std::vector<std::string> arguments, std::string* warnings = nullptr) {
    CLI::App app;
    std::string digest;
    AddZooKeeperDigest(&app, &digest);
    std::reverse(arguments.begin(), arguments.end());
    testing::internal::CaptureStderr();
    std::string error;
    try {
      app.parse(arguments);
    } catch (const CLI::ParseError& thrown) {
      error = thrown.what();
    }
    const std::string written = testing::internal::GetCapturedStderr();
    if (warnings != nullptr) *warnings = written;
    return error.empty() ? digest : error;
  }

  std::string path_;
};

TEST_F(ZooKeeperDigestTest, APasswordOnTheCommandLineIsWarnedOf) {
  std::string warnings;
  EXPECT_EQ(Parse({}, &warnings), "");
  EXPECT_EQ(Parse({"--zookeeper-digest", "cell:secret"}, &warnings), "cell:secret");
  EXPECT_NE(warnings.find("use --zookeeper-digest-file"), std::string::npos) << warnings;
  EXPECT_EQ(warnings.find("secret:"), std::string::npos);
  ::setenv("CELL_ZOOKEEPER_DIGEST", "cell:other", 1);
  EXPECT_EQ(Parse({}, &warnings), "cell:other");
  EXPECT_EQ(warnings, "");
}

TEST_F(ZooKeeperDigestTest, AFileIsTakenFromTheFlagAndTheEnvironment) {
  Write("cell:secret\n");
  std::string warnings;
  EXPECT_EQ(Parse({"--zookeeper-digest-file", path_}, &warnings), "cell:secret");
  EXPECT_EQ(warnings, "");
  EXPECT_NE(Parse({"--zookeeper-digest-file", path_ + "-none"}).find("no such file"), std::string::npos);
  ::setenv("CELL_ZOOKEEPER_DIGEST_FILE", path_.c_str(), 1);
  EXPECT_EQ(Parse({}), "cell:secret");
  EXPECT_NE(Parse({"--zookeeper-digest", "cell:other"}).find("give only one of them"), std::string::npos);
  ::setenv("CELL_ZOOKEEPER_DIGEST_FILE", "", 1);
  EXPECT_EQ(Parse({}), "");
}

TEST(ZooKeeperDigest, WhatOnlyReadsIsNotForServers) {
  EXPECT_TRUE(CheckMayChange("").ok());
  EXPECT_TRUE(CheckMayChange("cell:a-reader").ok());
  const absl::Status refused = CheckMayChange("cell-reader:0123");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("cell-reader"), std::string::npos);
  EXPECT_EQ(refused.message().find("0123"), std::string::npos);
}

}  // namespace
}  // namespace cell

#include "cell/cluster/zookeeper/digest_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace cell {
namespace {

class DigestFile : public testing::Test {
 protected:
  void Write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_, std::ios::trunc | std::ios::binary) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }

  const std::string path_ = testing::TempDir() + "/digest";
};

TEST_F(DigestFile, HasOneLine) {
  for (const char* const text : {"cell:secret", "cell:secret\n", "cell:secret\r\n"}) {
    Write(text);
    const auto read = ReadZooKeeperDigest(path_);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, "cell:secret");
  }
  for (const char* const text : {"", "\n", "cell", ":secret", "cell:", "cell:secret\nmore:secrets"}) {
    Write(text);
    EXPECT_EQ(ReadZooKeeperDigest(path_).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST_F(DigestFile, ReadersHaveOneOfTheirOwn) {
  const std::string reader = ReaderOf("cell:password");
  EXPECT_EQ(reader.find("cell-reader:"), 0u);
  EXPECT_EQ(reader.size(), std::string("cell-reader:").size() + 64);
  EXPECT_EQ(reader, ReaderOf("cell:password"));
  EXPECT_NE(reader, ReaderOf("cell:Password"));
  EXPECT_EQ(reader.find("password"), std::string::npos);
  // As ZooKeeper's DigestAuthenticationProvider computes it.
  EXPECT_EQ(AclIdOf("super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
}

TEST_F(DigestFile, IsRefusedIfOthersCanReadIt) {
  for (const mode_t mode : {0640, 0604}) {
    Write("cell:secret", mode);
    const absl::Status status = ReadZooKeeperDigest(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("chmod 600"), std::string::npos) << status;
  }
  EXPECT_EQ(ReadZooKeeperDigest(path_ + "-none").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cell

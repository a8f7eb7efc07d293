#include "cell/control/audit_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "cell/io/file/text_file.h"
#include "fmt/format.h"

namespace cell {
namespace {

class AuditLogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string directory = testing::TempDir() + "/audit-XXXXXX";
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    path_ = directory + "/server-0.audit";
  }

  std::unique_ptr<AuditLog> Open(const AuditLog::Limits& limits = {}) {
    auto log = AuditLog::Open(path_, limits);
    EXPECT_TRUE(log.ok()) << log.status();
    return log.ok() ? *std::move(log) : nullptr;
  }
  std::string Text(const std::string& suffix = "") {
    const auto text = ReadTextFile(path_ + suffix);
    return text.ok() ? text->value_or("(no file)") : std::string(text.status().message());
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  }

  std::string path_;
};

TEST_F(AuditLogTest, AppendsLinesThatOnlyItsUserCanRead) {
  const mode_t before = ::umask(0);
  EXPECT_TRUE(Open()->Append("one\n", true).ok());
  ::umask(before);
  EXPECT_EQ(ModeOf(path_), 0600u);
  EXPECT_TRUE(Open()->Append("two\n", false).ok());
  EXPECT_EQ(Text(), "one\ntwo\n");
}

TEST_F(AuditLogTest, ProtectsAFileThatOthersCouldRead) {
  std::ofstream(path_) << "one\n";
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  ASSERT_NE(Open(), nullptr);
  EXPECT_EQ(ModeOf(path_), 0600u);
}

TEST_F(AuditLogTest, FollowsNoSymbolicLink) {
  ASSERT_EQ(::symlink((path_ + ".elsewhere").c_str(), path_.c_str()), 0);
  const absl::Status status = AuditLog::Open(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("give --audit-log a file"), std::string::npos) << status;
  EXPECT_EQ(Text(".elsewhere"), "(no file)");
}

TEST_F(AuditLogTest, RefusesAFifoAndAFileOfAnotherUser) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(AuditLog::Open(path_).status().code(), absl::StatusCode::kInvalidArgument);
  if (::geteuid() != 0) return;  // Only root can give a file away.
  ::unlink(path_.c_str());
  std::ofstream(path_) << "one\n";
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(AuditLog::Open(path_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Text(), "one\n");
}

TEST_F(AuditLogTest, KeepsTheLastFiles) {
  const auto log = Open({.file_bytes_max = 20, .kept = 2});
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(log->Append(fmt::format("line {:03}\n", i), true).ok());
  EXPECT_EQ(Text(), "line 006\nline 007\n");
  EXPECT_EQ(Text(".1"), "line 004\nline 005\n");
  EXPECT_EQ(Text(".2"), "line 002\nline 003\n");
  EXPECT_EQ(Text(".3"), "(no file)");
  EXPECT_EQ(ModeOf(path_), 0600u);
}

TEST_F(AuditLogTest, ALineThatIsLongerThanAFileHasOneOfItsOwn) {
  const auto log = Open({.file_bytes_max = 4, .kept = 2});
  EXPECT_TRUE(log->Append("the first\n", true).ok());
  EXPECT_TRUE(log->Append("the second\n", true).ok());
  EXPECT_EQ(Text(), "the second\n");
  EXPECT_EQ(Text(".1"), "the first\n");
}

TEST_F(AuditLogTest, EndsALineThatACrashHasCut) {
  std::ofstream(path_) << "one\ntw";
  EXPECT_TRUE(Open()->Append("three\n", true).ok());
  EXPECT_EQ(Text(), "one\ntw\nthree\n");
}

TEST_F(AuditLogTest, SaysThatTheDiskIsFull) {
  const auto log = AuditLog::Open("/dev/full");
  ASSERT_TRUE(log.ok()) << log.status();
  const absl::Status status = (*log)->Append("one\n", true);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("/dev/full: No space left on device"), std::string::npos) << status;
}

}  // namespace
}  // namespace cell

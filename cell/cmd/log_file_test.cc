#include "cell/cmd/log_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cell/cmd/log_lines.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

namespace fs = std::filesystem;

class LogFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cell-test-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Path(const std::string& name = "s.log") const { return (directory_ / name).string(); }
  static std::string Text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static mode_t Mode(const std::string& path) {
    struct stat info {};
    return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  }
  size_t Files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  fs::path directory_;
};

TEST_F(LogFileTest, AFloodTakesALimitedNumberOfFilesOfLimitedSize) {
  auto file = LogFile::Open(Path(), {.bytes_max = 10'000, .files = 3});
  ASSERT_TRUE(file.ok()) << file.status();
  spdlog::logger logger("", *file);
  logger.set_formatter(LogLines());
  for (int i = 0; i < 5000; ++i) logger.warn("flood {}", i);
  EXPECT_EQ(Files(), 3u);
  for (const std::string& path : {Path(), Path("s.log.1"), Path("s.log.2")}) {
    EXPECT_LT(fs::file_size(path), 10'100u) << path;
    EXPECT_EQ(Mode(path), 0600u) << path;
  }
  // The newest lines are there, in their order.
  const std::string all = Text(Path("s.log.2")) + Text(Path("s.log.1")) + Text(Path());
  EXPECT_THAT(all, testing::EndsWith("flood 4999\n"));
  EXPECT_LT(all.find("flood 4700\n"), all.find("flood 4900\n"));
}

TEST_F(LogFileTest, OneFileIsEnough) {
  auto file = LogFile::Open(Path(), {.bytes_max = 1000, .files = 1});
  ASSERT_TRUE(file.ok());
  spdlog::logger logger("", *file);
  for (int i = 0; i < 1000; ++i) logger.warn("flood {}", i);
  EXPECT_EQ(Files(), 1u);
  EXPECT_LT(fs::file_size(Path()), 1100u);
}

TEST_F(LogFileTest, AppendsToWhatIsThereAndClosesItToOthers) {
  std::ofstream(Path()) << "before\n";
  ASSERT_EQ(::chmod(Path().c_str(), 0644), 0);
  auto file = LogFile::Open(Path(), {});
  ASSERT_TRUE(file.ok()) << file.status();
  spdlog::logger("", *file).warn("after");
  EXPECT_THAT(Text(Path()), testing::AllOf(testing::StartsWith("before\n"), testing::HasSubstr("after\n")));
  EXPECT_EQ(Mode(Path()), 0600u);
}

TEST_F(LogFileTest, FollowsNoLinkAndWritesToNothingElseThanAFileOfItsOwn) {
  std::ofstream(Path("victim")) << "whole";
  std::ofstream(Path("other-victim")) << "whole";
  fs::create_symlink("victim", Path("link.log"));
  fs::create_hard_link(Path("other-victim"), Path("second-name.log"));
  ASSERT_EQ(::mkfifo(Path("fifo.log").c_str(), 0600), 0);
  for (const char* const name : {"link.log", "second-name.log", "fifo.log"}) {
    EXPECT_EQ(LogFile::Open(Path(name), {}).status().code(), absl::StatusCode::kFailedPrecondition) << name;
  }
  EXPECT_EQ(LogFile::Open(Path("none/s.log"), {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Text(Path("victim")), "whole");
}

TEST_F(LogFileTest, ARotationFollowsNoLink) {
  std::ofstream(Path("victim")) << "whole";
  fs::create_symlink("victim", Path("s.log.new"));
  fs::create_symlink("victim", Path("s.log.1"));
  auto file = LogFile::Open(Path(), {.bytes_max = 100, .files = 2});
  ASSERT_TRUE(file.ok());
  spdlog::logger logger("", *file);
  for (int i = 0; i < 10; ++i) logger.warn("line {} of a log with little room", i);
  EXPECT_EQ(Text(Path("victim")), "whole");
  EXPECT_FALSE(fs::is_symlink(Path("s.log.1")));
}

// A death test, because it takes the test's own streams.
TEST_F(LogFileTest, TakesTheStandardStreamsAlongWhenItRotates) {
  const auto child = [this] {
    auto file = LogFile::Open(Path(), {.bytes_max = 100, .files = 2});
    (*file)->TakeStandardStreams();
    spdlog::logger("", *file).warn("{}", std::string(200, 'x'));
    (void)!::write(STDERR_FILENO, "told by a library\n", 18);
    std::_Exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
  EXPECT_EQ(Text(Path()), "told by a library\n");
  EXPECT_THAT(Text(Path("s.log.1")), testing::HasSubstr("xxx\n"));
}

}  // namespace
}  // namespace cell

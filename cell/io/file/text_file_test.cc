#include "cell/io/file/text_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace cell {
namespace {

class TextFileTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }
  std::string Path(const std::string& name) { return ::testing::TempDir() + "/text_file_test." + name; }
};

TEST_F(TextFileTest, ReturnsTheWholeContent) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{16384}, size_t{100'000}}) {
    const std::string text = std::string(bytes, 'x') + std::string("\0\n", 2);
    const auto read = ReadTextFile(Write("whole", text));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
    EXPECT_EQ(*ReadNamedFile(Path("whole")), text);
  }
}

TEST_F(TextFileTest, AFileThatIsNotThereIsNoErrorButForAFileThatTheUserNamed) {
  const auto read = ReadTextFile(Path("absent"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->has_value());
  const absl::Status named = ReadNamedFile(Path("absent")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(named));
  EXPECT_NE(named.message().find("absent"), std::string::npos) << named;
  EXPECT_FALSE(FirstLineOf(Path("absent")).has_value());
}

TEST_F(TextFileTest, WithoutDescriptorsNoFileIsTakenForAbsent) {
  const std::string there = Write("there", "text");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status statuses[] = {ReadTextFile(there).status(), ReadTextFile(Path("absent")).status(),
                                   ReadNamedFile(there).status()};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(absl::IsUnavailable(statuses[0]));
  for (const absl::Status& status : statuses) {
    EXPECT_NE(status.message().find("Too many open files"), std::string_view::npos) << status;
  }
}

TEST_F(TextFileTest, RefusesWhatIsNotARegularFileAndDoesNotBlock) {
  EXPECT_TRUE(absl::IsUnavailable(ReadTextFile(::testing::TempDir()).status()));
  const std::string fifo = Path("fifo");
  ::unlink(fifo.c_str());
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsUnavailable(ReadTextFile(fifo).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadNamedFile(fifo).status()));
  ::unlink(fifo.c_str());
}

TEST_F(TextFileTest, RefusesAFileThatIsTooLarge) {
  const std::string path = Write("large", "");
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(kTextFileBytesMax) + 1), 0);
  EXPECT_TRUE(absl::IsUnavailable(ReadTextFile(path).status()));
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(kTextFileBytesMax)), 0);
  EXPECT_TRUE(ReadTextFile(path).ok());
  ::unlink(path.c_str());
}

TEST_F(TextFileTest, ReturnsTheFirstLineWithoutItsEnd) {
  EXPECT_EQ(FirstLineOf(Write("line", "one\ntwo\n")), "one");
  EXPECT_EQ(FirstLineOf(Write("line", "one")), "one");
  EXPECT_EQ(FirstLineOf(Write("line", "\ntwo")), "");
  EXPECT_EQ(FirstLineOf(Write("line", "")), "");
}

}  // namespace
}  // namespace cell

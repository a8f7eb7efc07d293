#include "cell/log/data_keys.h"

#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <set>

#include "cell/log/test_keys.h"
#include "gtest/gtest.h"

namespace cell {
namespace {

void Write(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path) << text;
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

TEST(DataKeys, AreWrittenAndRead) {
  const DataKeys keys({TestKey(1), TestKey(2)});
  const absl::StatusOr<DataKeys> parsed = DataKeys::Parse("# ours\n\n" + keys.ToText());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->all(), keys.all());
  EXPECT_EQ(parsed->newest(), TestKey(1));
  EXPECT_EQ(*parsed->Find(TestKey(2).id()), TestKey(2));
  EXPECT_EQ(parsed->Find(TestKey(3).id()), nullptr);
  EXPECT_NE(TestKey(1).id(), TestKey(2).id());
}

TEST(DataKeys, RefuseWhatTheyAreNot) {
  const std::string line = DataKeys({TestKey(1)}).ToText();
  const auto refused = [](const std::string& text, const std::string& why) {
    const absl::Status status = DataKeys::Parse(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_NE(status.message().find(why), std::string::npos) << status;
  };
  refused("", "it has no key");
  refused("# nothing\n", "it has no key");
  refused("secret\n", "line 1 does not begin with cell-key-1");
  refused(line + "cell-key-1 00 11\n", "line 2 is not cell-key-1 ID KEY");
  refused(line.substr(0, line.size() - 2) + "\n", "line 1 is not");
  std::string other = line;
  other[20] = other[20] == '0' ? '1' : '0';
  refused(other, "line 1 has an id of another key");
  std::string many;
  for (int i = 0; i < 65; ++i) many += DataKeys({TestKey(i)}).ToText();
  refused(many, "more than 64 keys");
}

TEST(KeyFile, IsReadAgainWhenItChanges) {
  const std::string path = testing::TempDir() + "/keys";
  Write(path, DataKeys({TestKey(1)}).ToText());
  const absl::StatusOr<std::shared_ptr<KeyFile>> file = KeyFile::Open(path, "not so");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE((*file)->takes_plain());
  EXPECT_EQ((*file)->Current()->newest(), TestKey(1));
  Write(path, DataKeys({TestKey(2), TestKey(1)}).ToText());
  EXPECT_EQ((*file)->Current()->newest(), TestKey(2));
  Write(path, "nonsense that is no key");
  EXPECT_EQ((*file)->Current()->newest(), TestKey(2));
  ::unlink(path.c_str());
  EXPECT_EQ((*file)->Current()->newest(), TestKey(2));
}

TEST(KeyFile, ChangesAreSeenByMoreThanTheSize) {
  const std::string path = testing::TempDir() + "/equal-keys";
  Write(path, DataKeys({TestKey(1)}).ToText());
  const absl::StatusOr<std::shared_ptr<KeyFile>> file = KeyFile::Open(path, "not so");
  ASSERT_TRUE(file.ok()) << file.status();
  Write(path + ".new", DataKeys({TestKey(2)}).ToText());
  ASSERT_EQ(::rename((path + ".new").c_str(), path.c_str()), 0);
  EXPECT_EQ((*file)->Current()->newest(), TestKey(2));
}

// With the same key and salt two files would use the same nonces.
TEST(KeyFile, EachSaltIsNew) {
  const std::string path = testing::TempDir() + "/salted-keys";
  Write(path, DataKeys({TestKey(1)}).ToText());
  const absl::StatusOr<std::shared_ptr<KeyFile>> file = KeyFile::Open(path, "not so");
  ASSERT_TRUE(file.ok()) << file.status();
  std::set<std::array<std::byte, 32>> salts;
  for (int i = 0; i < 100; ++i) salts.insert((*file)->NewSalt());
  EXPECT_EQ(salts.size(), 100u);
}

TEST(KeyFile, IsForItsOwnerAlone) {
  const std::string path = testing::TempDir() + "/open-keys";
  for (const mode_t mode : {0644, 0660, 0602}) {
    Write(path, DataKeys({TestKey(1)}).ToText(), mode);
    const absl::Status status = ReadKeyFile(path).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_NE(status.message().find("chmod 600"), std::string::npos) << status;
  }
  const absl::Status none = ReadKeyFile(path + "-none").status();
  EXPECT_TRUE(absl::IsInvalidArgument(none));
  EXPECT_NE(none.message().find("cellctl data-key new " + path + "-none"), std::string::npos) << none;
}

}  // namespace
}  // namespace cell

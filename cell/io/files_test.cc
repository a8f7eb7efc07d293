// What logs rely on, of both file systems; and what the simulated one loses.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cell/io/posix_files.h"
#include "cell/io/sim_files.h"

namespace cell {
namespace {

void Conform(Files* files, const std::string& root) {
  const std::string dir = root + "/a/b";
  ASSERT_TRUE(files->MakeDirectory(dir).ok());
  ASSERT_TRUE(files->MakeDirectory(dir).ok());
  EXPECT_EQ(files->List(root + "/none").status().code(), absl::StatusCode::kNotFound);
  auto file = files->Create(dir + "/x");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(files->Create(dir + "/x").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(files->Create(root + "/none/x").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE((*file)->Append("hello ").ok());
  ASSERT_TRUE((*file)->Append("world").ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE(files->SyncFile(dir + "/x").ok());
  EXPECT_EQ(*files->Read(dir + "/x", 0, UINT64_MAX), "hello world");
  EXPECT_EQ(*files->Read(dir + "/x", 6, 3), "wor");
  EXPECT_EQ(*files->Read(dir + "/x", 100, 3), "");
  EXPECT_EQ(*files->Size(dir + "/x"), 11u);
  EXPECT_EQ(files->Read(dir + "/y", 0, 1).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(files->Create(dir + "/y").ok());
  EXPECT_EQ(*files->List(dir), (std::vector<std::string>{"x", "y"}));
  ASSERT_TRUE(files->Rename(dir + "/x", dir + "/y").ok());
  EXPECT_EQ(files->Rename(dir + "/x", dir + "/y").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(*files->Read(dir + "/y", 0, 5), "hello");
  ASSERT_TRUE(files->SyncDirectory(dir).ok());
  EXPECT_EQ(*files->List(root + "/a"), std::vector<std::string>{"b"});
  ASSERT_TRUE(files->Remove(dir + "/y").ok());
  EXPECT_EQ(files->Remove(dir + "/y").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(files->Remove(dir).ok());
}

TEST(FilesTest, Posix) {
  PosixFiles files;
  const std::string root = std::filesystem::path(::testing::TempDir()) / std::to_string(::getpid());
  Conform(&files, root);
  std::filesystem::remove_all(root);
}

TEST(FilesTest, Sim) {
  SimDisk disk(1);
  Conform(disk.NewHost().get(), "r");
}

TEST(FilesTest, ACrashKeepsWhatWasSyncedAndTearsTheRest) {
  uint64_t kept_whole = 0, torn = 0, holes = 0, names = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SimDisk disk(seed);
    const auto host = disk.NewHost();
    const auto other = disk.NewHost();
    ASSERT_TRUE(host->MakeDirectory("d").ok());
    auto file = *host->Create("d/x");
    auto theirs = *other->Create("d/theirs");
    ASSERT_TRUE(host->SyncDirectory("d").ok());
    ASSERT_TRUE(theirs->Append("not synced").ok());
    ASSERT_TRUE(file->Append(std::string(1000, 'a')).ok());
    ASSERT_TRUE(file->Sync().ok());
    ASSERT_TRUE(file->Append(std::string(5000, 'b')).ok());
    ASSERT_TRUE(host->Create("d/unsynced").ok());
    host->Crash();
    EXPECT_FALSE(file->Append("c").ok());
    EXPECT_EQ(*other->Read("d/theirs", 0, 100), "not synced");
    const std::string left = *other->Read("d/x", 0, UINT64_MAX);
    ASSERT_EQ(left.substr(0, 1000), std::string(1000, 'a'));
    kept_whole += left.size() == 6000;
    torn += left.size() < 6000;
    holes += left.find(std::string(100, 0)) != std::string::npos && left.back() == 'b';
    names += other->Read("d/unsynced", 0, 1).ok();
  }
  EXPECT_GT(torn, 100u);
  EXPECT_GT(holes, 20u);
  EXPECT_GT(names, 50u);
  EXPECT_LT(names, 150u);
}

TEST(FilesTest, AFailedSyncLosesWhatASecondOneDoesNotBringBack) {
  uint64_t lost = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SimDisk disk(seed);
    const auto host = disk.NewHost();
    ASSERT_TRUE(host->MakeDirectory("d").ok());
    auto file = *host->Create("d/x");
    ASSERT_TRUE(host->SyncDirectory("d").ok());
    ASSERT_TRUE(file->Append(std::string(2000, 'a')).ok());
    host->FailAt(0, absl::UnavailableError("EIO"));
    EXPECT_FALSE(file->Sync().ok());
    EXPECT_TRUE(file->Sync().ok());
    host->Crash();
    lost += *host->Read("d/x", 0, UINT64_MAX) != std::string(2000, 'a');
  }
  EXPECT_GT(lost, 25u);
}

}  // namespace
}  // namespace cell

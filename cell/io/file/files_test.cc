// Checks the guarantees on which logs rely, for both file systems, and what the simulated one loses.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cell/base/bytes.h"
#include "cell/base/random.h"
#include "cell/io/file/posix_files.h"
#include "cell/io/sim/sim_files.h"

namespace cell {
namespace {

absl::StatusOr<std::string> ReadAll(Files* files, const std::string& path) {
  const absl::StatusOr<uint64_t> size = files->Size(path);
  if (!size.ok()) return size.status();
  BlockBuffer buffer(*size + 1);
  const absl::StatusOr<size_t> read = files->Read(path, 0, {buffer.data(), buffer.size()});
  if (!read.ok()) return read.status();
  return std::string(AsText({buffer.data(), *read}));
}

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
  EXPECT_EQ(*ReadAll(files, dir + "/x"), "hello world");
  BlockBuffer buffer(3 * kBlockBytes);
  EXPECT_EQ(*files->Read(dir + "/x", kBlockBytes, {buffer.data(), buffer.size()}), 0u);
  EXPECT_EQ(*files->Size(dir + "/x"), 11u);
  EXPECT_EQ(ReadAll(files, dir + "/y").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(**files->ReadText(dir + "/x"), "hello world");
  EXPECT_FALSE(files->ReadText(dir + "/y")->has_value());
  EXPECT_EQ(files->Stamp(dir + "/y").status().code(), absl::StatusCode::kNotFound);
  const FileStamp stamp = *files->Stamp(dir + "/x");
  EXPECT_EQ(*files->Stamp(dir + "/x"), stamp);
  ASSERT_TRUE(files->Create(dir + "/y").ok());
  EXPECT_EQ(*files->List(dir), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(files->Open(root + "/none").status().code(), absl::StatusCode::kNotFound);
  auto opened = files->Open(dir);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(*(*opened)->List(), (std::vector<std::string>{"x", "y"}));
  ASSERT_TRUE(files->Create(dir + "/z").ok());
  EXPECT_EQ(*(*opened)->List(), (std::vector<std::string>{"x", "y", "z"}));  // The current content.
  ASSERT_TRUE(files->Remove(dir + "/z").ok());
  EXPECT_EQ(*(*opened)->List(), (std::vector<std::string>{"x", "y"}));
  ASSERT_TRUE(files->Rename(dir + "/x", dir + "/y").ok());
  EXPECT_EQ(files->Rename(dir + "/x", dir + "/y").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(*ReadAll(files, dir + "/y"), "hello world");
  EXPECT_EQ(*files->Stamp(dir + "/y"), stamp);
  ASSERT_TRUE(files->Create(dir + "/x").ok());
  EXPECT_FALSE(*files->Stamp(dir + "/x") == stamp);
  ASSERT_TRUE(files->Remove(dir + "/x").ok());
  ASSERT_TRUE(files->SyncDirectory(dir).ok());
  EXPECT_EQ(*files->List(root + "/a"), std::vector<std::string>{"b"});
  ASSERT_TRUE(files->Remove(dir + "/y").ok());
  EXPECT_EQ(files->Remove(dir + "/y").code(), absl::StatusCode::kNotFound);

  // A log has the appended bytes, and zeros up to a whole block, in whatever sizes they were appended.
  auto log = files->CreateLog(dir + "/log");
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(files->CreateLog(dir + "/log").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*files->Size(dir + "/log"), 0u);
  std::string appended;
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    const size_t limits[] = {10, 4097, 20'000, 800'000};
    std::string more(random.Below(limits[i % 4]), static_cast<char>('a' + i % 26));
    if (i % 7 == 0) more.resize(RoundUp(appended.size() + more.size(), kBlockBytes) - appended.size(), 'x');
    appended += more;
    ASSERT_TRUE((*log)->Append(more).ok());
    ASSERT_TRUE((*log)->Sync().ok());
    ASSERT_EQ(*files->Size(dir + "/log"), RoundUp(appended.size(), kBlockBytes));
    if (i % 20 != 0) continue;
    std::string expected = appended;
    expected.resize(RoundUp(expected.size(), kBlockBytes));
    ASSERT_TRUE(*ReadAll(files, dir + "/log") == expected) << i;
    const uint64_t at = random.Below(expected.size() / kBlockBytes + 1) * kBlockBytes;
    const size_t read = *files->Read(dir + "/log", at, {buffer.data(), buffer.size()});
    ASSERT_TRUE(AsText({buffer.data(), read}) == expected.substr(at, buffer.size())) << i;
  }
  EXPECT_FALSE(files->Remove(dir).ok());  // It is not empty.
  ASSERT_TRUE(files->Remove(dir + "/log").ok());
  ASSERT_TRUE(files->Remove(dir).ok());
  EXPECT_EQ(files->List(dir).status().code(), absl::StatusCode::kNotFound);
}

TEST(FilesTest, Posix) {
  PosixFiles files;
  const std::string root = std::filesystem::path(::testing::TempDir()) / std::to_string(::getpid());
  Conform(&files, root);
  std::filesystem::remove_all(root);
}

// All descriptors are taken. Some files can still be made, and open directories can be listed.
TEST(FilesTest, PosixMakesFilesForTheirUserAlone) {
  const std::string dir = testing::TempDir() + "/files_test.modes/below";
  const mode_t before = ::umask(0);
  PosixFiles files;
  const bool made = files.MakeDirectory(dir).ok() && files.Create(dir + "/a").ok() && files.CreateLog(dir + "/b").ok();
  ::umask(before);
  ASSERT_TRUE(made);
  const auto mode = [](const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  };
  EXPECT_EQ(mode(testing::TempDir() + "/files_test.modes"), 0700u);
  EXPECT_EQ(mode(dir), 0700u);
  EXPECT_EQ(mode(dir + "/a"), 0600u);
  EXPECT_EQ(mode(dir + "/b"), 0600u);
  std::filesystem::remove_all(testing::TempDir() + "/files_test.modes");
}

TEST(FilesTest, PosixHasDescriptorsInReserve) {
  const std::string root = std::filesystem::path(::testing::TempDir()) / fmt::format("reserve-{}", ::getpid());
  std::filesystem::create_directories(root);
  PosixFiles files;
  const auto opened = files.Open(root);
  ASSERT_TRUE(opened.ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<Fd> taken;
  const rlimit few{static_cast<rlim_t>(::dup(0)) + 5, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int fd; (fd = ::dup(0)) >= 0;) taken.emplace_back(fd);
  std::vector<std::unique_ptr<File>> made;
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    absl::StatusOr<std::unique_ptr<File>> file = files.CreateLog(fmt::format("{}/{}", root, i));
    status = file.status();
    if (file.ok()) made.push_back(*std::move(file));
  }
  EXPECT_GE(made.size(), 8u);
  EXPECT_TRUE(IsOutOfDescriptors(status)) << status;
  EXPECT_EQ((*opened)->List()->size(), made.size());
  EXPECT_FALSE(files.Open(root).ok());
  for (const char* name : {"/0", "/none"}) {
    const absl::Status read = files.ReadText(root + name).status();  // Nobody knows whether there is such a file.
    EXPECT_TRUE(IsOutOfDescriptors(read)) << read;
  }
  made.clear();
  EXPECT_TRUE(files.Create(root + "/more").ok());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(IsOutOfDescriptors(files.Create(root + "/more").status()));  // The file exists, which is another error.
  std::filesystem::remove_all(root);
}

// All these contents are equally long.
TEST(FilesTest, AStampTellsContentsApartByTheFileAndByWhenItWasWritten) {
  PosixFiles files;
  const std::string root = std::filesystem::path(::testing::TempDir()) / fmt::format("stamp-{}", ::getpid());
  const std::string path = root + "/x";
  std::filesystem::create_directories(root);
  const auto write = [](const std::string& to, const char* text, timespec when) {
    std::ofstream(to) << text;
    const timespec times[] = {when, when};
    ASSERT_EQ(::utimensat(AT_FDCWD, to.c_str(), times, 0), 0);
  };
  write(path, "one", {7, 7});
  const FileStamp stamp = *files.Stamp(path);
  for (const timespec later : {timespec{8, 7}, timespec{7, 8}}) {
    write(path, "two", later);
    EXPECT_FALSE(*files.Stamp(path) == stamp);
  }
  write(path, "one", {7, 7});
  EXPECT_EQ(*files.Stamp(path), stamp);
  write(root + "/other", "two", {7, 7});
  ASSERT_TRUE(files.Rename(root + "/other", path).ok());
  EXPECT_FALSE(*files.Stamp(path) == stamp);
  std::filesystem::remove_all(root);
}

TEST(Descriptors, AListenerLeavesAQuarterOfTheLimit) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit some{200, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &some), 0);
  EXPECT_TRUE(LeavesEnough(Fd(::fcntl(0, F_DUPFD, 149))));
  EXPECT_FALSE(LeavesEnough(Fd(::fcntl(0, F_DUPFD, 150))));
  EXPECT_EQ(RaiseDescriptorLimit(), before.rlim_max);
  EXPECT_EQ(DescriptorLimit(), before.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(FilesTest, ADirectoryThatCannotBeMadeIsAnError) {
  PosixFiles files;
  const std::string root = ::testing::TempDir() + "/cell-no-directory";
  ASSERT_TRUE(files.MakeDirectory(root + "/there/").ok());
  EXPECT_TRUE(files.MakeDirectory(root + "/there/").ok());
  ASSERT_EQ(::symlink("leads/nowhere", (root + "/link").c_str()), 0);
  ASSERT_EQ(::symlink("there", (root + "/good").c_str()), 0);
  ASSERT_TRUE(files.Create(root + "/file").ok());
  for (const std::string& no : {root + "/link", root + "/link/a/b", root + "/file", root + "/file/a",
                                std::string("/proc/x"), std::string("/proc/x/a"), std::string()}) {
    const absl::Status status = files.MakeDirectory(no);
    EXPECT_FALSE(status.ok()) << no;
    EXPECT_NE(status.message().find("cannot make directory"), std::string::npos) << status;
  }
  EXPECT_TRUE(files.MakeDirectory(root + "/good").ok());
  EXPECT_TRUE(files.MakeDirectory(root + "/good/a/b").ok());
  std::filesystem::remove_all(root);
}

TEST(FilesTest, Sim) {
  SimDisk disk(1);
  Conform(disk.NewHost().get(), "r");
}

TEST(FilesTest, ACrashKeepsWhatWasSyncedAndTearsTheRest) {
  uint64_t torn = 0, holes = 0, names = 0;
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
    EXPECT_EQ(*ReadAll(other.get(), "d/theirs"), "not synced");
    const std::string left = *ReadAll(other.get(), "d/x");
    ASSERT_EQ(left.substr(0, 1000), std::string(1000, 'a'));
    torn += left.size() < 6000;
    holes += left.find(std::string(100, 0)) != std::string::npos && left.back() == 'b';
    names += ReadAll(other.get(), "d/unsynced").ok();
  }
  EXPECT_GT(torn, 100u);
  EXPECT_GT(holes, 20u);
  EXPECT_GT(names, 50u);
  EXPECT_LT(names, 150u);
}

TEST(FilesTest, AFileThatACrashBringsBackIsInItsDirectory) {
  uint64_t back = 0, gone = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SimDisk disk(seed);
    const auto host = disk.NewHost();
    ASSERT_TRUE(host->MakeDirectory("d/e").ok());
    ASSERT_TRUE(host->Create("d/e/x").ok());
    ASSERT_TRUE(host->SyncDirectory("d/e").ok());
    ASSERT_TRUE(host->Remove("d/e/x").ok());
    ASSERT_TRUE(host->Remove("d/e").ok());
    const bool synced = seed % 2 == 0;
    ASSERT_TRUE(!synced || host->SyncDirectory("d").ok());
    host->Crash();
    const bool there = host->List("d/e").ok();
    EXPECT_TRUE(there || !ReadAll(host.get(), "d/e/x").ok()) << "seed " << seed;
    EXPECT_FALSE(there && synced) << "seed " << seed;
    back += there;
    gone += !there;
  }
  EXPECT_GT(back, 10u);
  EXPECT_GT(gone, 60u);
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
    lost += *ReadAll(host.get(), "d/x") != std::string(2000, 'a');
  }
  EXPECT_GT(lost, 25u);
}

}  // namespace
}  // namespace cell

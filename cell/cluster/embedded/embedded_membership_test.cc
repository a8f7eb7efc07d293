#include "cell/cluster/embedded/embedded_membership.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

namespace {

// Records the syncs and renames that were called, in order, with the name of each file. The functions below are linked
// in instead of those of the C library.
std::mutex disk_calls_mutex;
std::vector<std::string> disk_calls;

void Note(const std::string& call, const std::filesystem::path& path) {
  const std::lock_guard lock(disk_calls_mutex);
  disk_calls.push_back(fmt::format("{} {}", call, path.filename().string()));
}
int NoteSync(long number, int fd) {
  Note("sync", std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd)));
  return static_cast<int>(::syscall(number, fd));
}

}  // namespace

extern "C" int fdatasync(int fd) { return NoteSync(SYS_fdatasync, fd); }
extern "C" int fsync(int fd) { return NoteSync(SYS_fsync, fd); }
extern "C" int rename(const char* from, const char* to) noexcept {
  Note("rename to", to);
  return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}

namespace cell {
namespace {

constexpr char kGood[] = R"({"format": 2, "node_bytes": 1024, "meganode_bytes": 67108864, "extents_bytes": 4096,
  "servers": [{"name": "server-0", "workers": [{"socket": "a.sock", "regions_max": 4}, {"socket": "b.sock", "regions_max": 5}]}]})";

// The same cluster with another server before the first.
constexpr char kServer1[] =
    R"("servers": [{"name": "server-1", "workers": [{"socket": "c.sock", "regions_max": 7}]}, )";

std::string With(const std::string& from, const std::string& to) {
  std::string text = kGood;
  return text.replace(text.find(from), from.size(), to);
}

TEST(ClusterConfig, SaysWhoIsInTheCluster) {
  const auto state = EmbeddedMembership::ParseConfig(kGood, "/d");
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->FindWorker({"server-0", 1})->address, "shm:///d/b.sock");
  EXPECT_EQ(state->FindWorker({"server-0", 1})->regions_max, 5u);
  EXPECT_EQ(state->FindWorker({"server-0", 2}), nullptr);
  EXPECT_EQ(state->FindWorker({"server-1", 0}), nullptr);
  EXPECT_EQ(state->OwnerOf(1).status().code(), absl::StatusCode::kNotFound);
}

TEST(ClusterConfig, RefusesWhatItCannotTrust) {
  const auto code = [](const std::string& text) { return EmbeddedMembership::ParseConfig(text, "/d").status().code(); };
  EXPECT_EQ(code(""), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("[1]"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(kGood).substr(0, 100)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("\"format\": 2", "\"format\": 1")), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(With("1024", "\"many\"")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("1024", "1000")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("\"server-0\"", "7")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("67108864", "-1")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("67108864", "1e300")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("67108864", "18446744073709550592")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("67108864", "1000")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("\"regions_max\": 4", "\"regions_max\": 4294967296")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("\"a.sock\"", "[]")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("\"format\": 2", "\"format\": \"2\"")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EmbeddedMembership::Open("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

class EmbeddedMembershipTest : public ::testing::Test {
 protected:
  EmbeddedMembershipTest() {
    char name[] = "/tmp/cell-test-XXXXXX";
    directory_ = ::mkdtemp(name);
    std::ofstream(directory_ + "/cluster.json") << kGood;
  }
  ~EmbeddedMembershipTest() override {
    for (const char* file :
         {"cluster.json", "regions.json", "regions.json.new", "regions.lock", "server-0.control", "server-0.lock"}) {
      ::unlink((directory_ + "/" + file).c_str());
    }
    ::rmdir(directory_.c_str());
  }
  void Replace(const char* from, const char* to) {
    std::ofstream(directory_ + "/cluster.json.new") << With(from, to);
    ::rename((directory_ + "/cluster.json.new").c_str(), (directory_ + "/cluster.json").c_str());
  }
  static absl::Status Refresh(EmbeddedMembership* membership) {
    absl::Status result = absl::UnknownError("not told");
    membership->Refresh([&](const absl::Status& status) { result = status; });
    membership->Poll();
    return result;
  }
  static absl::Status Add(EmbeddedMembership* membership) {
    absl::Status result = absl::UnknownError("not told");
    membership->Change(
        [](RegionTable* table) {
          return table->Add({"server-0", 0}).status();
        },
        [&result](const absl::Status& status) { result = status; });
    EXPECT_TRUE(membership->pending());
    EXPECT_EQ(PollAll(membership), 1u);
    return result;
  }
  // Polls until nothing is pending. Returns the number of callbacks.
  static size_t PollAll(EmbeddedMembership* membership) {
    size_t told = 0;
    while (membership->pending()) told += membership->Poll();
    return told;
  }
  static absl::Status Refreshed(EmbeddedMembership* membership) {
    absl::Status result = absl::UnknownError("not told");
    membership->Refresh([&result](const absl::Status& status) { result = status; });
    PollAll(membership);
    return result;
  }
  std::string Path(const char* name) const { return directory_ + "/" + name; }

  std::string directory_;
};

TEST_F(EmbeddedMembershipTest, ChangesAreSeenByOthersOnceTheyAsk) {
  const auto a = *EmbeddedMembership::Open(directory_);
  const auto b = *EmbeddedMembership::Open(directory_);
  EXPECT_EQ(a->state().table, RegionTable());
  ASSERT_TRUE(Add(a.get()).ok());
  EXPECT_EQ(a->state().table.regions.size(), 1u);
  EXPECT_EQ(b->state().table.regions.size(), 0u);
  bool told = false;
  b->Refresh([&told](const absl::Status& status) { told = status.ok(); });
  EXPECT_EQ(b->state().table.regions.size(), 0u);
  b->Poll();
  EXPECT_TRUE(told);
  EXPECT_EQ(b->state().table, a->state().table);
  EXPECT_EQ((*EmbeddedMembership::Open(directory_))->state().table, a->state().table);
}

TEST_F(EmbeddedMembershipTest, AChangeThatIsRefusedChangesNothing) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(Add(membership.get()).ok());
  const RegionTable before = membership->state().table;
  absl::Status result;
  membership->Change(
      [](RegionTable* table) {
        table->regions.Clear();
        return absl::AbortedError("no");
      },
      [&result](const absl::Status& status) { result = status; });
  PollAll(membership.get());
  EXPECT_EQ(result.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(membership->state().table, before);
  EXPECT_EQ((*EmbeddedMembership::Open(directory_))->state().table, before);
}

// With durability, a table must be there after a power loss: all of it, and under its name.
TEST_F(EmbeddedMembershipTest, AChangeIsOnDiskBeforeItIsTold) {
  for (const bool durable : {false, true}) {
    if (durable) Replace("\"format\": 2,", "\"format\": 2, \"durability\": \"sync\",");
    const auto membership = *EmbeddedMembership::Open(directory_);
    disk_calls.clear();
    ASSERT_TRUE(Add(membership.get()).ok());
    std::vector<std::string> expected = {"rename to regions.json"};
    if (durable) {
      const std::string directory = std::filesystem::path(directory_).filename();
      expected = {"sync regions.json.new", "rename to regions.json", "sync " + directory};
    }
    EXPECT_EQ(disk_calls, expected);
  }
}

TEST_F(EmbeddedMembershipTest, ManyAtOnceLoseNothing) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      // The lock is not fair, and each change waits for the disk.
      const auto membership = *EmbeddedMembership::Open(directory_, {.lock_wait = std::chrono::minutes(1)});
      for (int j = 0; j < 50; ++j) EXPECT_TRUE(Add(membership.get()).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RegionTable table = (*EmbeddedMembership::Open(directory_))->state().table;
  EXPECT_EQ(table.regions.size(), 200u);
  EXPECT_EQ(table.ids.next, 201u);
  EXPECT_EQ(table.version, 200u);
}

TEST_F(EmbeddedMembershipTest, ADamagedTableIsSaidSo) {
  std::ofstream(directory_ + "/regions.json") << "{\"version\":";
  const auto membership = EmbeddedMembership::Open(directory_);
  EXPECT_EQ(membership.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(membership.status().message()).find("regions.json"), std::string::npos);
  std::ofstream(directory_ + "/regions.json", std::ios::trunc) << "";
  EXPECT_EQ(EmbeddedMembership::Open(directory_).status().code(), absl::StatusCode::kInvalidArgument);
}

// A server that is stopped within a change holds the lock. The others do not wait for it, and see the current state.
TEST_F(EmbeddedMembershipTest, AStoppedServersLockHoldsUpNobodysThread) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(Add(membership.get()).ok());
  absl::Status result = absl::UnknownError("not told");
  {
    const Fd lock(::open(Path("regions.lock").c_str(), O_RDWR));
    ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
    membership->Change(
        [](RegionTable* table) {
          return table->Add({"server-0", 1}).status();
        },
        [&result](const absl::Status& status) { result = status; });
    EXPECT_EQ(membership->Poll(), 0u);
    bool refreshed = false;
    membership->Refresh([&refreshed](const absl::Status& status) { refreshed = status.ok(); });
    EXPECT_EQ(membership->Poll(), 1u);
    EXPECT_TRUE(refreshed);
    EXPECT_EQ(result.code(), absl::StatusCode::kUnknown);
  }
  PollAll(membership.get());
  EXPECT_TRUE(result.ok()) << result;
  EXPECT_EQ(membership->state().table.regions.size(), 2u);
}

TEST_F(EmbeddedMembershipTest, ALockThatIsHeldForTooLongIsAnError) {
  ASSERT_TRUE(Add(EmbeddedMembership::Open(directory_)->get()).ok());
  const auto membership = *EmbeddedMembership::Open(directory_, {.lock_wait = std::chrono::milliseconds(5)});
  const Fd lock(::open(Path("regions.lock").c_str(), O_RDWR));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  const absl::Status status = Add(membership.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(fmt::format("process {}", ::getpid())), std::string::npos) << status;
  EXPECT_EQ((*EmbeddedMembership::Open(directory_))->state().table.version, 1u);
  // A membership that ends does not wait for the lock either.
  const auto ends = *EmbeddedMembership::Open(directory_, {.lock_wait = std::chrono::hours(1)});
  ends->Change([](RegionTable*) { return absl::OkStatus(); }, [](const absl::Status&) {});
}

// Otherwise its owner would sleep while an answer waits for it.
TEST_F(EmbeddedMembershipTest, AnAnswerWakesItsOwner) {
  std::atomic<int> wakes = 0;
  const auto membership = *EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(membership->SetWake([&wakes] {
    ++wakes;
    wakes.notify_all();
  }));
  int answers = 0;
  const auto answered = [&answers](const absl::Status& status) { answers += status.ok(); };
  membership->Change([](RegionTable*) { return absl::OkStatus(); }, answered);
  wakes.wait(0);  // It is called by the thread that makes changes.
  EXPECT_EQ(membership->Poll(), 1u);
  membership->Refresh(answered);
  EXPECT_EQ(wakes, 2);
  EXPECT_EQ(membership->Poll(), 1u);
  EXPECT_EQ(answers, 2);
  membership->SetWake(nullptr);
  membership->Refresh(answered);
  EXPECT_EQ(membership->Poll(), 1u);
  EXPECT_EQ(wakes, 2);
}

// Only a missing table counts as never written. A table that cannot be read is not overwritten.
TEST_F(EmbeddedMembershipTest, ATableThatCannotBeReadIsNoEmptyOne) {
  const auto before = *EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(Add(before.get()).ok());
  ASSERT_EQ(::rename(Path("regions.json").c_str(), Path("kept").c_str()), 0);
  // The link points to itself, so it cannot be opened.
  ASSERT_EQ(::symlink("regions.json", Path("regions.json").c_str()), 0);
  const auto after = EmbeddedMembership::Open(directory_);
  EXPECT_EQ(after.status().code(), absl::StatusCode::kUnavailable) << after.status();
  EXPECT_EQ(Refreshed(before.get()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Add(before.get()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(before->state().table.regions.size(), 1u);
  ASSERT_EQ(::rename(Path("kept").c_str(), Path("regions.json").c_str()), 0);
  EXPECT_TRUE(Add(before.get()).ok());
  EXPECT_EQ(before->state().table.regions.size(), 2u);
}

TEST_F(EmbeddedMembershipTest, ATableThatIsGoneIsNoEmptyOne) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  EXPECT_TRUE(Refreshed(membership.get()).ok());  // There was no table yet.
  ASSERT_TRUE(Add(membership.get()).ok());
  ASSERT_EQ(::unlink(Path("regions.json").c_str()), 0);
  EXPECT_EQ(Refreshed(membership.get()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Add(membership.get()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(membership->state().table.regions.size(), 1u);
}

// A system error during a change is not the change's own error. It must not look as if the region belonged to another
// server.
TEST_F(EmbeddedMembershipTest, AChangeThatCannotBeWrittenIsUnavailable) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(Add(membership.get()).ok());
  ASSERT_EQ(::mkdir(Path("regions.json.new").c_str(), 0755), 0);
  std::ofstream(Path("regions.json.new") + "/file") << "";
  EXPECT_EQ(Add(membership.get()).code(), absl::StatusCode::kUnavailable);
  ::unlink((Path("regions.json.new") + "/file").c_str());
  EXPECT_TRUE(Add(membership.get()).ok());
}

// An invalid table is not the change's own error either: nothing is known about the table.
TEST_F(EmbeddedMembershipTest, AChangeOfATableThatMakesNoSenseIsUnavailable) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(Add(membership.get()).ok());
  std::string text;
  std::getline(std::ifstream(Path("regions.json")), text, '\0');
  std::ofstream(Path("regions.json")) << text.substr(0, text.size() / 2);
  EXPECT_EQ(Add(membership.get()).code(), absl::StatusCode::kUnavailable);
  std::ofstream(Path("regions.json")) << text;
  EXPECT_TRUE(Add(membership.get()).ok());
  EXPECT_EQ(membership->state().table.regions.size(), 2u);
}

// Runs `run` in a thread without root's right to open any file.
template <typename Run>
void AsNobodySpecial(const Run& run) {
  std::thread([&run] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    ASSERT_EQ(::syscall(SYS_capget, &header, data), 0);
    data[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
    ASSERT_EQ(::syscall(SYS_capset, &header, data), 0);
    run();
  }).join();
}

TEST_F(EmbeddedMembershipTest, AChangeOfFilesThatMayNotBeOpenedIsUnavailable) {
  AsNobodySpecial([this] {
    const auto membership = *EmbeddedMembership::Open(directory_);
    ASSERT_TRUE(Add(membership.get()).ok());
    for (const char* file : {"regions.json", "regions.lock"}) {
      ASSERT_EQ(::chmod(Path(file).c_str(), 0), 0);
      const absl::Status status = Add(membership.get());
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_NE(status.message().find(file), std::string::npos) << status;
      ASSERT_EQ(::chmod(Path(file).c_str(), 0644), 0);
    }
    EXPECT_TRUE(Add(membership.get()).ok());
  });
}

TEST_F(EmbeddedMembershipTest, ADiskThatIsFullIsUnavailableUntilThereIsRoom) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(Add(membership.get()).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_NE(::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  const rlimit full{16, before.rlim_max};  // No file grows beyond 16 bytes, which is enough for the text in the lock
                                           // file.
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const absl::Status status = Add(membership.get());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ((*EmbeddedMembership::Open(directory_))->state().table.regions.size(), 1u);
  EXPECT_TRUE(Add(membership.get()).ok());
  EXPECT_EQ(membership->state().table.regions.size(), 2u);
}

TEST_F(EmbeddedMembershipTest, AServerIsGoneOnlyIfTheSystemSaysSo) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  EXPECT_TRUE(membership->IsGone({"server-0", 0}));
  {
    const Fd lock(::open(Path("server-0.lock").c_str(), O_CREAT | O_RDWR, 0644));
    EXPECT_TRUE(membership->IsGone({"server-0", 0}));
    {
      // Any process that may read the file can lock it like this.
      const Fd reader(::open(Path("server-0.lock").c_str(), O_RDONLY));
      struct flock shared {};
      shared.l_type = F_RDLCK;
      shared.l_whence = SEEK_SET;
      ASSERT_EQ(::fcntl(reader.get(), F_OFD_SETLK, &shared), 0);
      EXPECT_TRUE(membership->IsGone({"server-0", 0}));
    }
    ASSERT_TRUE(TryLock(lock));
    EXPECT_FALSE(membership->IsGone({"server-0", 0}));
    rlimit limit;
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none{0, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_FALSE(membership->IsGone({"server-0", 0}));  // There is no descriptor to check the lock with.
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  EXPECT_TRUE(membership->IsGone({"server-0", 0}));
  EXPECT_TRUE(membership->IsGone({"stranger", 0}));
}

TEST_F(EmbeddedMembershipTest, DoesNotWaitForAFileThatIsNoRegularOne) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  ASSERT_EQ(::mkfifo(Path("regions.json").c_str(), 0600), 0);
  EXPECT_EQ(Refresh(membership.get()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(EmbeddedMembership::Open(directory_).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(EmbeddedMembershipTest, OnlyItsUserMayReadWhatOthersCouldLock) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(Add(membership.get()).ok());
  struct stat status;
  ASSERT_EQ(::stat(Path("regions.lock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(EmbeddedMembershipTest, SeesServersThatComeAndControlPlanesThatMove) {
  auto membership = EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(membership.ok()) << membership.status();
  EXPECT_EQ((*membership)->state().FindServer("server-1"), nullptr);
  EXPECT_EQ((*membership)->state().FindServer("server-0")->control, "");
  const uint64_t revision = (*membership)->state().revision;
  ASSERT_TRUE(Refresh(membership->get()).ok());
  EXPECT_EQ((*membership)->state().revision, revision);

  Replace("\"servers\": [", kServer1);
  EXPECT_EQ((*membership)->state().FindServer("server-1"), nullptr);  // Not before a refresh.
  ASSERT_TRUE(Refresh(membership->get()).ok());
  ASSERT_NE((*membership)->state().FindWorker({"server-1", 0}), nullptr);
  EXPECT_EQ((*membership)->state().FindWorker({"server-1", 0})->regions_max, 7u);
  EXPECT_NE((*membership)->state().FindServer("server-0"), nullptr);
  EXPECT_GT((*membership)->state().revision, revision);

  std::ofstream(directory_ + "/server-0.control") << "127.0.0.1:7";
  ASSERT_TRUE(Refresh(membership->get()).ok());
  EXPECT_EQ((*membership)->state().FindServer("server-0")->control, "127.0.0.1:7");
}

// Another process writes the file in place, or replaces it. All addresses are equally long.
TEST_F(EmbeddedMembershipTest, SeesAControlPlaneWhoseNewAddressIsAsLong) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  const auto write = [this](const char* file, const char* address, int64_t when_ns) {
    std::ofstream(Path(file)) << address;
    const timespec when{0, when_ns};
    const timespec times[] = {when, when};
    ASSERT_EQ(::utimensat(AT_FDCWD, Path(file).c_str(), times, 0), 0);
  };
  const auto seen = [&membership] {
    EXPECT_TRUE(Refresh(membership.get()).ok());
    return membership->state().FindServer("server-0")->control;
  };
  write("server-0.control", "127.0.0.1:7", 1);
  EXPECT_EQ(seen(), "127.0.0.1:7");
  write("server-0.control", "127.0.0.1:8", 2);
  EXPECT_EQ(seen(), "127.0.0.1:8");
  write("server-0.control.new", "127.0.0.1:9", 2);
  ASSERT_EQ(::rename(Path("server-0.control.new").c_str(), Path("server-0.control").c_str()), 0);
  EXPECT_EQ(seen(), "127.0.0.1:9");
}

// A change reads the table again. If that names servers that have joined since the last refresh, these are read, too.
TEST_F(EmbeddedMembershipTest, ListsTheOwnersInATableThatItHasChanged) {
  const auto membership = *EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(Add(membership.get()).ok());
  Replace("\"servers\": [", kServer1);
  const auto other = *EmbeddedMembership::Open(directory_);
  absl::Status moved = absl::UnknownError("not told");
  other->Change(
      [](RegionTable* table) {
        return table->Move(1, 1, {"server-1", 0});
      },
      [&moved](const absl::Status& status) { moved = status; });
  PollAll(other.get());
  ASSERT_TRUE(moved.ok()) << moved;
  ASSERT_TRUE(Add(membership.get()).ok());
  EXPECT_EQ(membership->state().table.Find(1)->owner.server, "server-1");
  EXPECT_NE(membership->state().FindWorker({"server-1", 0}), nullptr);
}

TEST_F(EmbeddedMembershipTest, IsUnavailableOnceAnotherClusterIsThere) {
  auto membership = EmbeddedMembership::Open(directory_);
  ASSERT_TRUE(membership.ok());
  Replace("\"servers\": [", "\"uuid\": \"another\", \"servers\": [");
  EXPECT_TRUE(absl::IsUnavailable(Refresh(membership->get())));
  Replace("\"servers\": [", "\"servers\": 7, \"x\": [");
  EXPECT_FALSE(Refresh(membership->get()).ok());
  EXPECT_NE((*membership)->state().FindServer("server-0"), nullptr);
}

}  // namespace
}  // namespace cell

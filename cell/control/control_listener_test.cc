#include "cell/control/control_listener.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>

#include "cell/io/net/tcp_socket.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uid_t kNobody = 65534;
constexpr int kPatienceMs = 10'000;

TEST(PeerText, IsAsPeopleWriteIt) {
  EXPECT_EQ(PeerText("ipv4:10.0.0.1:7"), "10.0.0.1:7");
  EXPECT_EQ(PeerText("ipv6:%5B::1%5D:7"), "[::1]:7");
  EXPECT_EQ(PeerText("ipv6:[::1]:7"), "[::1]:7");
  EXPECT_EQ(PeerText("fd:7"), "fd:7");
}

// Keeps what it is handed, as gRPC would.
class ListenerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string directory = "/tmp/cell-listener-XXXXXX";
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    ASSERT_EQ(::chmod(directory.c_str(), 0755), 0);
    path_ = directory + "/control.sock";
  }
  void TearDown() override {
    listener_.reset();
    ::unlink(path_.c_str());
    ::rmdir(path_.substr(0, path_.rfind('/')).c_str());
  }

  void Start(size_t connections_max, mode_t mode = 0600) {
    auto socket = ListenControlSocket(path_, mode);
    ASSERT_TRUE(socket.ok()) << socket.status();
    ControlListener::Options options;
    options.connections_max = connections_max;
    options.admits = [](uid_t user) { return user == ::geteuid(); };
    options.kept_out = [this](uid_t user) {
      const std::lock_guard lock(mutex_);
      kept_out_.push_back(user);
      changed_.notify_all();
    };
    listener_ = std::make_unique<ControlListener>(*std::move(socket), std::move(options));
    listener_->Start([this](int fd) {
      const std::lock_guard lock(mutex_);
      handed_.emplace_back(fd);
      changed_.notify_all();
    });
  }

  Fd Connect() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return Fd();
    return fd;
  }
  // Connects, and returns when the connection was handed over.
  Fd ConnectAndWait() {
    std::unique_lock lock(mutex_);
    const size_t before = handed_.size();
    Fd fd = Connect();
    changed_.wait(lock, [&] { return handed_.size() > before; });
    return fd;
  }
  // Returns gRPC's name of the connection that was handed over as number `i`.
  std::string PeerOf(size_t i) {
    const std::lock_guard lock(mutex_);
    return fmt::format("fd:{}", handed_[i].get());
  }
  static bool WasClosed(const Fd& fd) {
    pollfd polled{fd.get(), POLLIN, 0};
    char byte;
    return ::poll(&polled, 1, kPatienceMs) == 1 && ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  static bool IsOpen(const Fd& fd) {
    char byte;
    return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

  std::string path_;
  std::unique_ptr<ControlListener> listener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Fd> handed_;       // Guarded by mutex_.
  std::vector<uid_t> kept_out_;  // Guarded by mutex_.
};

TEST_F(ListenerTest, TheSocketIsItsUsersAloneWhateverTheUmask) {
  const mode_t before = ::umask(0);
  Start(4);
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

// The socket's mode lets everyone in here, so only the look at the peer's user keeps it out.
TEST_F(ListenerTest, AnotherUserIsKeptOut) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const mode_t before = ::umask(0);
  Start(4, 0666);
  ::umask(before);
  const Fd own = ConnectAndWait();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool nobody = ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
    const Fd fd = Connect();
    ::_exit(!nobody ? 3 : !fd.valid() ? 2 : WasClosed(fd) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !kept_out_.empty(); });
  EXPECT_EQ(kept_out_, std::vector<uid_t>{kNobody});
  EXPECT_EQ(handed_.size(), 1u);
}

TEST_F(ListenerTest, KnowsTheUserOfAConnection) {
  Start(4);
  const Fd fd = ConnectAndWait();
  const auto use = listener_->Begin(PeerOf(0));
  ASSERT_TRUE(use.has_value());
  EXPECT_EQ(use->uid(), ::geteuid());
  EXPECT_FALSE(listener_->Begin("fd:9999").has_value());
}

TEST_F(ListenerTest, ANewConnectionTakesThePlaceOfTheOldestIdleOne) {
  Start(3);
  const Fd first = ConnectAndWait();
  listener_->Begin(PeerOf(0)).reset();  // It has made a call, and is older than those that have not.
  const Fd second = ConnectAndWait(), third = ConnectAndWait();
  const Fd fourth = ConnectAndWait();
  EXPECT_TRUE(WasClosed(second));
  EXPECT_TRUE(IsOpen(first) && IsOpen(third) && IsOpen(fourth));
  EXPECT_EQ(listener_->connections(), 3u);
}

TEST_F(ListenerTest, AConnectionWithACallKeepsItsPlace) {
  Start(2);
  const Fd first = ConnectAndWait(), second = ConnectAndWait();
  auto one = listener_->Begin(PeerOf(0));
  auto two = listener_->Begin(PeerOf(1));
  const Fd third = Connect();
  EXPECT_TRUE(WasClosed(third));
  EXPECT_TRUE(IsOpen(first) && IsOpen(second));
  one.reset();
  const Fd fourth = ConnectAndWait();
  EXPECT_TRUE(WasClosed(first));
  EXPECT_TRUE(IsOpen(second) && IsOpen(fourth));
}

TEST_F(ListenerTest, IdleConnectionsKeepNobodyOut) {
  Start(8);
  std::vector<Fd> idle;
  for (int i = 0; i < 500; ++i) {
    idle.push_back(ConnectAndWait());
    const std::lock_guard lock(mutex_);
    handed_.back() = Fd(::dup(handed_.back().get()));  // Another number, as if gRPC had closed the former.
  }
  EXPECT_LE(listener_->connections(), 8u);
  EXPECT_TRUE(IsOpen(idle.back()));
}

TEST_F(ListenerTest, AConnectionThatEndedIsForgotten) {
  Start(1);
  Fd first = ConnectAndWait();
  auto use = listener_->Begin(PeerOf(0));  // Otherwise the next one would take its place.
  first = Fd();
  for (int i = 0; i < kPatienceMs && listener_->connections() > 0; ++i) ::usleep(1000);
  EXPECT_EQ(listener_->connections(), 0u);
  {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(WasClosed(handed_[0]));  // gRPC is told.
  }
  EXPECT_TRUE(IsOpen(ConnectAndWait()));
}

TEST_F(ListenerTest, AcceptsNoMoreOnceStopped) {
  Start(4);
  const Fd first = ConnectAndWait();
  listener_->Stop();
  const Fd second = Connect();
  EXPECT_TRUE(IsOpen(first));
  EXPECT_EQ(listener_->connections(), 1u);
}

TEST(ControlSocket, ALongPathIsNamed) {
  const absl::Status status = ListenControlSocket("/tmp/" + std::string(110, 'x')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("use a directory with a shorter name"), std::string::npos) << status;
}

}  // namespace
}  // namespace cell

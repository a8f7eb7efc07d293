#include "cell/io/net/unix_peer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cell/io/net/fd.h"

namespace cell {
namespace {

TEST(UnixPeer, ThisUserAndRootAreWhoTheySay) {
  const Identity server{Role::kServer, "server-0"};
  EXPECT_EQ(Admit({1000, {1000}}, {1000, std::nullopt}, server), server);
  EXPECT_EQ(Admit({0, {0}}, {1000, std::nullopt}, server), server);
}

TEST(UnixPeer, OtherUsersAreRefused) {
  const Identity client{Role::kClient, "alice"};
  EXPECT_EQ(Admit({1001, {1001}}, {1000, std::nullopt}, client), std::nullopt);
  EXPECT_EQ(Admit({1001, {1000}}, {1000, std::nullopt}, client), std::nullopt);  // The same group does not count.
  EXPECT_EQ(Admit({1001, {1001, 7}}, {1000, 50}, client), std::nullopt);
  EXPECT_EQ(Admit({1001, {1001}}, {0, std::nullopt}, client), std::nullopt);  // A server of root.
}

TEST(UnixPeer, MembersOfTheGroupAreClientsWhateverTheySay) {
  const Identity expected{Role::kClient, "uid-1001"};
  EXPECT_EQ(Admit({1001, {1001, 50}}, {1000, 50}, {Role::kServer, "server-0"}), expected);
  EXPECT_EQ(Admit({1001, {50}}, {1000, 50}, {Role::kClient, "alice"}), expected);
}

TEST(UnixPeer, TheSystemSaysWhoConnected) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const Fd one(ends[0]), other(ends[1]);
  const absl::StatusOr<UnixPeer> peer = PeerOf(one.get());
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->uid, ::geteuid());
  EXPECT_EQ(peer->groups.back(), ::getegid());
  EXPECT_EQ(peer->groups.size(), static_cast<size_t>(::getgroups(0, nullptr)) + 1);
  EXPECT_FALSE(PeerOf(-1).ok());
}

}  // namespace
}  // namespace cell

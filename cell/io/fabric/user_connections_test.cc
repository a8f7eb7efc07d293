#include "cell/io/fabric/user_connections.h"

#include "gtest/gtest.h"

namespace cell {
namespace {

const Identity kAlice{Role::kClient, "alice"}, kBob{Role::kClient, "bob"};

TEST(UserConnections, NoUserTakesAll) {
  UserConnections connections(100);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(connections.Add(kAlice));
  EXPECT_FALSE(connections.Add(kAlice));
  EXPECT_TRUE(connections.Add(kBob));
  connections.Remove(kAlice);
  EXPECT_TRUE(connections.Add(kAlice));
  EXPECT_FALSE(connections.Add(kAlice));
}

TEST(UserConnections, OthersThanClientsAreNotCounted) {
  UserConnections connections(16);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(connections.Add({Role::kServer, "alice"}));
    EXPECT_TRUE(connections.Add({Role::kOperator, "alice"}));
  }
  EXPECT_TRUE(connections.Add(kAlice));
  connections.Remove({Role::kServer, "alice"});
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(connections.Add(kAlice));
  EXPECT_FALSE(connections.Add(kAlice));
}

TEST(UserConnections, FewAreForWhoeverComes) {
  UserConnections connections(2);
  EXPECT_TRUE(connections.Add(kAlice));
  EXPECT_TRUE(connections.Add(kAlice));
  EXPECT_FALSE(connections.Add(kAlice));
}

}  // namespace
}  // namespace cell

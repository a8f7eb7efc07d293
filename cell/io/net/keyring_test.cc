#include "cell/io/net/keyring.h"

#include <gtest/gtest.h>

#include <string>

#include "cell/base/random.h"
#include "cell/io/net/test_credentials.h"

namespace cell {
namespace {

const Identity kAlice{Role::kClient, "alice"};

TEST(Identity, IsReadAsItIsWritten) {
  for (const Identity& identity :
       {kAlice, Identity{Role::kOperator, "bob@example.org"}, Identity{Role::kServer, "server-0"}}) {
    EXPECT_EQ(ParseIdentity(ToString(identity)), identity);
  }
  for (const char* bad : {"", "alice", "client", "client/", "/alice", "client/al ice", "client/a/b", "root/alice",
                          "Client/alice", "client/a\n"}) {
    EXPECT_EQ(ParseIdentity(bad), std::nullopt) << bad;
  }
  EXPECT_TRUE(ParseIdentity("client/" + std::string(64, 'a')).has_value());
  EXPECT_FALSE(ParseIdentity("client/" + std::string(65, 'a')).has_value());
}

TEST(Identity, OfAnyNameIsValid) {
  EXPECT_EQ(IdentityOf(Role::kServer, "server-0"), (Identity{Role::kServer, "server-0"}));
  for (const std::string& name :
       {std::string(), std::string("a b/c\n"), std::string(200, 'x'), std::string("\xff\0", 2)}) {
    EXPECT_TRUE(IsIdentityName(IdentityOf(Role::kClient, name).name)) << name;
  }
}

TEST(Keyring, ReadsWhatToLineWrites) {
  const Secret cluster = SecretOfText("a"), older = SecretOfText("b"), alices = SecretOf(cluster, kAlice);
  const absl::StatusOr<Keyring> servers = Keyring::Parse("# new\n" + ToLine(cluster) + "\n" + ToLine(older) + "  \r\n");
  ASSERT_TRUE(servers.ok()) << servers.status();
  EXPECT_EQ(servers->Cluster(), cluster);
  EXPECT_EQ(servers->Own({Role::kServer, "s"}), SecretOf(cluster, {Role::kServer, "s"}));
  EXPECT_EQ(servers->KeyOf(kAlice, cluster.id), alices.key);
  EXPECT_EQ(servers->KeyOf(kAlice, older.id), SecretOf(older, kAlice).key);
  EXPECT_EQ(servers->KeyOf(kAlice, {}), std::nullopt);
  const absl::StatusOr<Keyring> one = Keyring::Parse(ToLine(alices));
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->Cluster(), std::nullopt);
  EXPECT_EQ(one->Own({Role::kServer, "s"}), alices);
  EXPECT_EQ(one->KeyOf(kAlice, alices.id), alices.key);
  EXPECT_EQ(one->KeyOf({Role::kServer, "s"}, alices.id), std::nullopt);
}

TEST(Keyring, IdentitiesHaveDifferentSecrets) {
  const Secret cluster = SecretOfText("a");
  EXPECT_NE(SecretOf(cluster, kAlice).key, SecretOf(cluster, {Role::kOperator, "alice"}).key);
  EXPECT_NE(SecretOf(cluster, kAlice).key, SecretOf(cluster, {Role::kClient, "alic"}).key);
  EXPECT_NE(SecretOf(cluster, kAlice).key, cluster.key);
}

TEST(Keyring, SaysWhichLineIsWrongAndShowsNoSecret) {
  const Secret cluster = SecretOfText("a");
  const std::string good = ToLine(cluster), key = good.substr(good.size() - 65, 64);
  const auto why = [](const std::string& text) {
    const absl::StatusOr<Keyring> keys = Keyring::Parse(text);
    EXPECT_EQ(keys.status().code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(keys.status().message());
  };
  EXPECT_NE(why("").find("cellctl secret new"), std::string::npos);
  EXPECT_NE(why("# nothing\n\n").find("cellctl secret new"), std::string::npos);
  EXPECT_NE(why("a secret of an earlier release").find("line 1"), std::string::npos);
  std::string flipped = good;
  flipped[good.size() - 2] = flipped[good.size() - 2] == '0' ? '1' : '0';
  for (const std::string& bad :
       {good.substr(0, good.size() - 2), good.substr(0, good.size() - 1) + "x", flipped,
        "cell-secret-1 cluster " + key + "\n", "cell-secret-1 client/ 0123456789abcdef " + key,
        "cell-secret-2" + good.substr(13), "cell-secret-1 client/alice 0123456789abcdeg " + key,
        "cell-secret-1 client/alice 0123456789abcdef " + key + "00"}) {
    const std::string message = why(good + bad);
    EXPECT_NE(message.find("line 2"), std::string::npos) << message;
    EXPECT_EQ(message.find(key.substr(0, 32)), std::string::npos) << message;
  }
  std::string many;
  for (size_t i = 0; i <= Keyring::kSecretsMax; ++i) many += good;
  EXPECT_NE(why(many).find("1024"), std::string::npos);
}

TEST(Keyring, TakesAnyBytes) {
  Random random(7);
  const std::string good = ToLine(SecretOfText("a"));
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (uint64_t left = random.Below(4); left > 0; --left)
      text[random.Below(text.size())] = static_cast<char>(random.Next());
    (void)Keyring::Parse(text.substr(0, random.Below(text.size() + 1)));
  }
}

}  // namespace
}  // namespace cell

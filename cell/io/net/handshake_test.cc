#include "cell/io/net/handshake.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "cell/base/random.h"
#include "cell/io/net/test_credentials.h"

namespace cell {
namespace {

constexpr const char* kSecret = "a secret that nobody else has";

Nonce NonceOf(int seed) {
  Nonce nonce;
  nonce.fill(static_cast<std::byte>(seed));
  return nonce;
}

const Identity kAlice{Role::kClient, "alice"};

// Passes one message to `to` and returns the answer.
template <typename Side>
absl::Status Give(Side* to, const std::string& message, std::string* answer) {
  EXPECT_EQ(message.size(), to->wants());
  return to->Take(AsBytes(message), answer);
}

// Passes a greeting to the server, in the two parts that it asks for.
absl::Status Greet(ServerHandshake* server, const std::string& hello, std::string* answer) {
  EXPECT_EQ(hello.size(), sizeof(HelloMessage));
  absl::Status begun = Give(server, hello.substr(0, sizeof(HelloPrefix)), answer);
  if (!begun.ok()) return begun;
  EXPECT_TRUE(answer->empty());
  return Give(server, hello.substr(sizeof(HelloPrefix)), answer);
}

TEST(Handshake, BothSidesAreSureOfEachOther) {
  for (const Purpose purpose : {Purpose::kCalls, Purpose::kReads}) {
    for (const auto& keys : {KeysOf(kSecret), std::shared_ptr<const Keyring>()}) {
      ServerHandshake server(keys, NonceOf(1));
      ClientHandshake client(keys.get(), kAlice, purpose, NonceOf(2));
      std::string challenge, proof, welcome, nothing;
      ASSERT_TRUE(Greet(&server, client.Hello(), &challenge).ok());
      ASSERT_TRUE(Give(&client, challenge, &proof).ok());
      EXPECT_FALSE(server.done());
      ASSERT_TRUE(Give(&server, proof, &welcome).ok());
      EXPECT_TRUE(server.done());
      EXPECT_FALSE(client.done());
      ASSERT_TRUE(Give(&client, welcome, &nothing).ok());
      EXPECT_TRUE(client.done());
      EXPECT_EQ(server.purpose(), purpose);
      EXPECT_EQ(server.peer(), kAlice);
      EXPECT_EQ(server.wants() + client.wants(), 0u);
    }
  }
}

// Each of these clients has something else than the server. None is welcome, and none gets any bytes that the secret
// has a part in.
TEST(Handshake, NobodyIsWelcomeWithoutTheSecretOfTheirIdentity) {
  const Secret cluster = SecretOfText(kSecret);
  const auto only = [](const Secret& secret) { return std::make_shared<const Keyring>(std::vector<Secret>{secret}); };
  Secret another_role = SecretOf(cluster, kAlice);
  another_role.owner->role = Role::kServer;
  Secret another_name = SecretOf(cluster, kAlice);
  another_name.owner->name = "bob";
  Secret another_id = cluster;
  another_id.id = {};
  const std::shared_ptr<const Keyring> clients[] = {nullptr, KeysOf("another"), only(another_role), only(another_name),
                                                    only(another_id)};
  for (const auto& keys : clients) {
    ServerHandshake server(KeysOf(kSecret), NonceOf(1));
    ClientHandshake client(keys.get(), kAlice, Purpose::kCalls, NonceOf(2));
    std::string challenge, proof, welcome, nothing;
    ASSERT_TRUE(Greet(&server, client.Hello(), &challenge).ok());
    ASSERT_TRUE(Give(&client, challenge, &proof).ok());
    EXPECT_EQ(Give(&server, proof, &welcome).code(), absl::StatusCode::kPermissionDenied);
    EXPECT_FALSE(server.done());
    ASSERT_EQ(welcome.size(), sizeof(WelcomeMessage));
    const auto message = Load<WelcomeMessage>(AsBytes(welcome).data());
    EXPECT_NE(message.verdict, 1u);
    EXPECT_EQ(message.proof, Key{});
    const absl::Status status = Give(&client, welcome, &nothing);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_NE(std::string(status.message()).find("--secret-file"), std::string::npos);
    EXPECT_FALSE(client.done());
  }
}

TEST(Handshake, OneWithTheSecretOfAnIdentityIsThatIdentity) {
  const Keyring alices({SecretOf(SecretOfText(kSecret), kAlice)});
  ServerHandshake server(KeysOf(kSecret), NonceOf(1));
  ClientHandshake client(&alices, {Role::kServer, "server-0"}, Purpose::kCalls, NonceOf(2));
  std::string challenge, proof, welcome;
  ASSERT_TRUE(Greet(&server, client.Hello(), &challenge).ok());
  ASSERT_TRUE(Give(&client, challenge, &proof).ok());
  ASSERT_TRUE(Give(&server, proof, &welcome).ok());
  EXPECT_EQ(server.peer(), kAlice);
}

TEST(Handshake, TheServerNeedsTheSecret) {
  // One that lets everybody in.
  ServerHandshake server(nullptr, NonceOf(1));
  ClientHandshake client(KeysOf(kSecret).get(), kAlice, Purpose::kCalls, NonceOf(2));
  std::string challenge, proof, nothing;
  ASSERT_TRUE(Greet(&server, client.Hello(), &challenge).ok());
  ASSERT_TRUE(Give(&client, challenge, &proof).ok());
  for (const Key& lie : {Key{}, Load<ProofMessage>(AsBytes(proof).data()).proof}) {  // The client's, sent back.
    ClientHandshake again = client;
    WelcomeMessage welcome{Load<HelloPrefix>(AsBytes(client.Hello()).data()).magic, 1, 0, lie};
    const std::string text(reinterpret_cast<const char*>(&welcome), sizeof(welcome));
    EXPECT_EQ(Give(&again, text, &nothing).code(), absl::StatusCode::kPermissionDenied);
    EXPECT_FALSE(again.done());
  }
}

TEST(Handshake, WhatTheConnectionHasProvenCounts) {
  ServerHandshake server = ServerHandshake::Proven(kAlice, NonceOf(1));
  ClientHandshake client(nullptr, {Role::kServer, "server-0"}, Purpose::kCalls, NonceOf(2));
  std::string challenge, proof, welcome;
  ASSERT_TRUE(Greet(&server, client.Hello(), &challenge).ok());
  ASSERT_TRUE(Give(&client, challenge, &proof).ok());
  ASSERT_TRUE(Give(&server, proof, &welcome).ok());
  EXPECT_EQ(server.peer(), kAlice);
}

TEST(Handshake, AProofIsGoodOnce) {
  // All messages of the client were overheard once.
  ClientHandshake honest(KeysOf(kSecret).get(), kAlice, Purpose::kCalls, NonceOf(2));
  ServerHandshake first(KeysOf(kSecret), NonceOf(1));
  std::string challenge, proof, welcome;
  ASSERT_TRUE(Greet(&first, honest.Hello(), &challenge).ok());
  ASSERT_TRUE(Give(&honest, challenge, &proof).ok());
  ASSERT_TRUE(Give(&first, proof, &welcome).ok());
  // They are sent again, to a server with a fresh nonce.
  ServerHandshake second(KeysOf(kSecret), NonceOf(3));
  std::string other_challenge, other_welcome;
  ASSERT_TRUE(Greet(&second, honest.Hello(), &other_challenge).ok());
  EXPECT_EQ(Give(&second, proof, &other_welcome).code(), absl::StatusCode::kPermissionDenied);
}

TEST(Handshake, EitherOfTwoSecretsIsValidDuringARotation) {
  const Secret before = SecretOfText("before"), after = SecretOfText("after");
  const auto both = std::make_shared<const Keyring>(std::vector<Secret>{after, before});
  for (const Secret& secret : {before, after, SecretOf(before, kAlice), SecretOf(after, kAlice)}) {
    ServerHandshake server(both, NonceOf(1));
    const Keyring keys({secret});
    ClientHandshake client(&keys, kAlice, Purpose::kCalls, NonceOf(2));
    std::string challenge, proof, welcome, nothing;
    ASSERT_TRUE(Greet(&server, client.Hello(), &challenge).ok());
    ASSERT_TRUE(Give(&client, challenge, &proof).ok());
    ASSERT_TRUE(Give(&server, proof, &welcome).ok());
    EXPECT_TRUE(Give(&client, welcome, &nothing).ok());
  }
}

TEST(Handshake, AnotherVersionIsToldOurs) {
  ServerHandshake server(KeysOf(kSecret), NonceOf(1));
  ClientHandshake client(KeysOf(kSecret).get(), kAlice, Purpose::kReads, NonceOf(2));
  std::string hello = client.Hello(), challenge, proof;
  hello[8] = 99;
  EXPECT_EQ(Greet(&server, hello, &challenge).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(server.wants(), 0u);
  ASSERT_GE(challenge.size(), sizeof(ChallengeMessage));
  EXPECT_EQ(Load<uint32_t>(AsBytes(challenge).data() + 8), kHandshakeVersion);
  challenge.resize(sizeof(ChallengeMessage));
  challenge[8] = 99;
  const absl::Status status = Give(&client, challenge, &proof);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("99"), std::string::npos);
}

// Clients of version 1 send a greeting of 48 bytes, and wait for 80.
TEST(Handshake, AnEarlierClientIsToldOurVersion) {
  ServerHandshake server(KeysOf(kSecret), NonceOf(1));
  std::string hello = ClientHandshake(nullptr, kAlice, Purpose::kCalls, NonceOf(2)).Hello().substr(0, 16), answer;
  hello[8] = 1;
  EXPECT_EQ(Give(&server, hello, &answer).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(answer.size(), 80u);
}

TEST(Handshake, AServerThatTalksOnlyTlsSaysSo) {
  ClientHandshake client(nullptr, kAlice, Purpose::kCalls, NonceOf(2));
  EXPECT_TRUE(BeginsHello(AsBytes(client.Hello()).first(kMagicBytes)));
  EXPECT_FALSE(BeginsHello(AsBytes(client.Hello()).first(kMagicBytes - 1)));
  EXPECT_FALSE(BeginsHello(AsBytes("\x16\x03\x01\x02____")));
  std::string nothing;
  const absl::Status status = Give(&client, NeedsTlsAnswer(), &nothing);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("TLS"), std::string::npos);
  EXPECT_TRUE(nothing.empty());
}

TEST(Handshake, AClientMustSayWhoItIs) {
  const std::string hello = ClientHandshake(nullptr, kAlice, Purpose::kCalls, NonceOf(2)).Hello();
  const size_t role = offsetof(HelloMessage, role), bytes = offsetof(HelloMessage, name_bytes),
               name = offsetof(HelloMessage, name);
  const std::pair<size_t, char> lies[] = {{role, 0},   {role, 4},   {bytes, 0}, {bytes, 65},
                                          {bytes, -1}, {name, '/'}, {name, 0}};
  for (const auto& [at, byte] : lies) {
    ServerHandshake server(nullptr, NonceOf(1));
    std::string lie = hello, answer;
    lie[at] = byte;
    EXPECT_FALSE(Greet(&server, lie, &answer).ok()) << at;
    EXPECT_TRUE(answer.empty());
  }
}

TEST(Handshake, NonsenseIsRefusedAtEveryStep) {
  Random random(4);
  const auto garbage = [&](size_t bytes) {
    std::string text;
    while (text.size() < bytes) text.push_back(static_cast<char>(random.Next()));
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    std::string answer;
    ServerHandshake server(KeysOf(kSecret), NonceOf(1));
    EXPECT_FALSE(Give(&server, garbage(sizeof(HelloPrefix)), &answer).ok());
    EXPECT_EQ(server.wants(), 0u);
    ClientHandshake client(nullptr, kAlice, Purpose::kCalls, NonceOf(2));
    EXPECT_FALSE(Give(&client, garbage(sizeof(ChallengeMessage)), &answer).ok());
    EXPECT_EQ(client.wants(), 0u);
  }
}

// Messages of any size at any step, and after the end, are refused and do no harm.
TEST(Handshake, MessagesThatAreNotExpectedAreRefused) {
  for (const size_t first : {size_t{0}, size_t{1}, sizeof(HelloMessage), sizeof(HelloMessage) + 1}) {
    for (const size_t second : {size_t{0}, sizeof(ProofMessage), size_t{65536}}) {
      ServerHandshake server(nullptr, NonceOf(1));
      ClientHandshake client(nullptr, kAlice, Purpose::kVerbs, NonceOf(2));
      std::string answer;
      EXPECT_FALSE(server.Take(AsBytes(std::string(first, 'j')), &answer).ok());
      EXPECT_EQ(server.Take(AsBytes(std::string(second, 'j')), &answer).code(), absl::StatusCode::kDataLoss);
      EXPECT_FALSE(client.Take(AsBytes(std::string(first, 'j')), &answer).ok());
      EXPECT_EQ(client.Take(AsBytes(std::string(second, 'j')), &answer).code(), absl::StatusCode::kDataLoss);
      EXPECT_TRUE(answer.empty());
      EXPECT_FALSE(server.done() || client.done());
    }
  }
}

TEST(Handshake, NoncesDiffer) { EXPECT_NE(RandomNonce(), RandomNonce()); }

// Without TLS somebody could record what a server says.
TEST(Handshake, AServersProofIsForOneGreetingAlone) {
  ServerHandshake server(KeysOf(kSecret), NonceOf(1));
  ClientHandshake client(KeysOf(kSecret).get(), kAlice, Purpose::kCalls, NonceOf(2));
  std::string challenge, proof, welcome, nothing;
  ASSERT_TRUE(Greet(&server, client.Hello(), &challenge).ok());
  ASSERT_TRUE(Give(&client, challenge, &proof).ok());
  ASSERT_TRUE(Give(&server, proof, &welcome).ok());
  ClientHandshake next(KeysOf(kSecret).get(), kAlice, Purpose::kCalls, NonceOf(3));
  (void)next.Hello();
  proof.clear();
  ASSERT_TRUE(Give(&next, challenge, &proof).ok());
  EXPECT_FALSE(Give(&next, welcome, &nothing).ok());
  EXPECT_FALSE(next.done());
}

TEST(Handshake, AProofIsForOnePurposeAlone) {
  ServerHandshake server(KeysOf(kSecret), NonceOf(1));
  ClientHandshake client(KeysOf(kSecret).get(), kAlice, Purpose::kCalls, NonceOf(2));
  std::string hello = client.Hello(), challenge, proof, welcome;
  const Purpose other = Purpose::kReads;
  std::memcpy(hello.data() + offsetof(HelloPrefix, purpose), &other, sizeof(other));
  ASSERT_TRUE(Greet(&server, hello, &challenge).ok());
  ASSERT_TRUE(Give(&client, challenge, &proof).ok());
  EXPECT_FALSE(Give(&server, proof, &welcome).ok());
  EXPECT_FALSE(server.done());
}

TEST(Handshake, WhatAServerDoesNotOfferIsRefused) {
  ServerHandshake server(KeysOf(kSecret), NonceOf(1));  // For calls and reads.
  ClientHandshake client(KeysOf(kSecret).get(), kAlice, Purpose::kVerbs, NonceOf(2));
  std::string answer;
  EXPECT_FALSE(Give(&server, client.Hello().substr(0, sizeof(HelloPrefix)), &answer).ok());
}

}  // namespace
}  // namespace cell

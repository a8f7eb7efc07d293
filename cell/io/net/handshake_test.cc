#include "cell/io/net/handshake.h"

#include <gtest/gtest.h>

#include "cell/base/random.h"

namespace cell {
namespace {

constexpr const char* kSecret = "a secret that nobody else has";

Nonce NonceOf(int seed) {
  Nonce nonce;
  nonce.fill(static_cast<std::byte>(seed));
  return nonce;
}

// Passes one message to `to` and returns the answer.
template <typename Side>
absl::Status Give(Side* to, const std::string& message, std::string* answer) {
  EXPECT_EQ(message.size(), to->wants());
  return to->Take(AsBytes(message), answer);
}

TEST(Handshake, BothSidesAreSureOfEachOther) {
  for (const Purpose purpose : {Purpose::kCalls, Purpose::kReads}) {
    for (const char* secret : {kSecret, ""}) {
      ServerHandshake server(secret, NonceOf(1));
      ClientHandshake client(secret, purpose, NonceOf(2));
      std::string challenge, proof, welcome, nothing;
      ASSERT_TRUE(Give(&server, client.Hello(), &challenge).ok());
      ASSERT_TRUE(Give(&client, challenge, &proof).ok());
      EXPECT_FALSE(server.done());
      ASSERT_TRUE(Give(&server, proof, &welcome).ok());
      EXPECT_TRUE(server.done());
      EXPECT_FALSE(client.done());
      ASSERT_TRUE(Give(&client, welcome, &nothing).ok());
      EXPECT_TRUE(client.done());
      EXPECT_EQ(server.purpose(), purpose);
      EXPECT_EQ(server.wants() + client.wants(), 0u);
    }
  }
}

TEST(Handshake, AnotherSecretIsRefusedByEitherSide) {
  ServerHandshake server("one secret", NonceOf(1));
  ClientHandshake client("another", Purpose::kCalls, NonceOf(2));
  std::string challenge, proof;
  ASSERT_TRUE(Give(&server, client.Hello(), &challenge).ok());
  EXPECT_EQ(Give(&client, challenge, &proof).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(proof.empty());  // The client reveals nothing to such a server.
  // A client that ignores this.
  std::string welcome;
  EXPECT_EQ(Give(&server, std::string(32, 'x'), &welcome).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(server.done());
  ASSERT_EQ(welcome.size(), sizeof(WelcomeMessage));
  EXPECT_NE(Load<WelcomeMessage>(AsBytes(welcome).data()).verdict, 1u);
}

TEST(Handshake, AProofIsGoodOnce) {
  // All messages of the client were overheard once.
  ClientHandshake honest(kSecret, Purpose::kCalls, NonceOf(2));
  ServerHandshake first(kSecret, NonceOf(1));
  std::string challenge, proof, welcome;
  ASSERT_TRUE(Give(&first, honest.Hello(), &challenge).ok());
  ASSERT_TRUE(Give(&honest, challenge, &proof).ok());
  ASSERT_TRUE(Give(&first, proof, &welcome).ok());
  // They are sent again, to a server with a fresh nonce.
  ServerHandshake second(kSecret, NonceOf(3));
  std::string other_challenge, other_welcome;
  ASSERT_TRUE(Give(&second, honest.Hello(), &other_challenge).ok());
  EXPECT_EQ(Give(&second, proof, &other_welcome).code(), absl::StatusCode::kPermissionDenied);
}

TEST(Handshake, AServersProofIsNoClients) {
  ServerHandshake server(kSecret, NonceOf(1));
  ClientHandshake client(kSecret, Purpose::kCalls, NonceOf(2));
  std::string challenge, welcome;
  ASSERT_TRUE(Give(&server, client.Hello(), &challenge).ok());
  const auto message = Load<ChallengeMessage>(AsBytes(challenge).data());
  const std::string reflected(AsText({message.proof.data(), message.proof.size()}));
  EXPECT_EQ(Give(&server, reflected, &welcome).code(), absl::StatusCode::kPermissionDenied);
}

TEST(Handshake, AnotherVersionIsToldOurs) {
  ServerHandshake server(kSecret, NonceOf(1));
  ClientHandshake client(kSecret, Purpose::kReads, NonceOf(2));
  std::string hello = client.Hello(), challenge, proof;
  hello[8] = 99;
  EXPECT_EQ(Give(&server, hello, &challenge).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(server.wants(), 0u);
  ASSERT_EQ(challenge.size(), sizeof(ChallengeMessage));
  EXPECT_EQ(Load<uint32_t>(AsBytes(challenge).data() + 8), kHandshakeVersion);
  challenge[8] = 99;
  const absl::Status status = Give(&client, challenge, &proof);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("99"), std::string::npos);
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
    ServerHandshake server(kSecret, NonceOf(1));
    EXPECT_FALSE(Give(&server, garbage(sizeof(HelloMessage)), &answer).ok());
    EXPECT_EQ(server.wants(), 0u);
    ClientHandshake client(kSecret, Purpose::kCalls, NonceOf(2));
    EXPECT_FALSE(Give(&client, garbage(sizeof(ChallengeMessage)), &answer).ok());
    EXPECT_EQ(client.wants(), 0u);
  }
}

// Messages of any size at any step, and after the end, are refused and do no harm.
TEST(Handshake, MessagesThatAreNotExpectedAreRefused) {
  for (const size_t first : {size_t{0}, size_t{1}, sizeof(HelloMessage), sizeof(HelloMessage) + 1}) {
    for (const size_t second : {size_t{0}, sizeof(ProofMessage), size_t{65536}}) {
      ServerHandshake server(kSecret, NonceOf(1));
      ClientHandshake client(kSecret, Purpose::kVerbs, NonceOf(2));
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

}  // namespace
}  // namespace cell

#include "cell/server/request/held_writes.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "fmt/format.h"

namespace cell {
namespace {

const Identity kAlice{Role::kClient, "alice"}, kBob{Role::kClient, "bob"};

class HeldWritesTest : public ::testing::Test {
 protected:
  void Hold(ConnectionId peer, uint32_t region, const std::string& key, int64_t now_ns = 0) {
    const std::string message = MakeKeyRequest(MessageKind::kDelete, RootOf(region), {}, key);
    IncomingCall call{};
    call.peer = peer;
    call.from = &kAlice;
    call.request = AsBytes(message);
    held_.Add(call, MessageKind::kDelete, now_ns);
  }
  // Holds a put whose value is an upload.
  void HoldPut(ConnectionId peer, uint16_t upload) {
    const std::string message = MakePutRequest(RootOf(7), {}, 0, "key", 5, upload);
    IncomingCall call{};
    call.peer = peer;
    call.from = &kAlice;
    call.request = AsBytes(message);
    held_.Add(call, MessageKind::kPut, 0);
  }
  // Retries all writes; those in `waiting` keep waiting. Returns the keys that were tried, in order.
  std::vector<std::string> Retry(const std::vector<std::string>& waiting) {
    std::vector<std::string> tried;
    held_.RetryEach([&](const HeldWrite& held) {
      EXPECT_TRUE(held.call.request.empty());
      tried.emplace_back(held.request.key);
      return std::find(waiting.begin(), waiting.end(), tried.back()) == waiting.end();
    });
    return tried;
  }

  HeldWrites held_;
};

// A held write owns the data that it refers to, because the bytes of its request are gone by then.
TEST_F(HeldWritesTest, AreTriedInOrder) {
  Hold(1, 7, "a");
  Hold(2, 7, "b");
  Hold(1, 8, "c");
  EXPECT_EQ(held_.size(), 3u);
  EXPECT_EQ(held_.size(7), 2u);
  EXPECT_EQ(held_.size(9), 0u);
  EXPECT_EQ(Retry({}), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(held_.size(), 0u);
  EXPECT_EQ(held_.ever(), 3u);
}

TEST_F(HeldWritesTest, OneThatWaitsIsNotOvertakenByThoseOfItsRegion) {
  Hold(1, 7, "a");
  Hold(2, 7, "b");
  Hold(1, 8, "c");
  EXPECT_EQ(Retry({"a"}), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(held_.size(7), 2u);
  EXPECT_EQ(held_.size(8), 0u);
  EXPECT_EQ(Retry({"b"}), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Retry({}), (std::vector<std::string>{"b"}));
}

TEST_F(HeldWritesTest, OfAPeerThatIsGoneAreRemoved) {
  Hold(1, 7, "a");
  Hold(2, 7, "b");
  held_.Remove(1);
  EXPECT_EQ(Retry({}), (std::vector<std::string>{"b"}));
}

// Another client's upload, or another upload of this client, has nothing to do with it.
TEST_F(HeldWritesTest, OnlyThoseOfTheUploadThatBeginsAgainAreWithdrawn) {
  HoldPut(1, 1);
  HoldPut(1, 2);
  HoldPut(2, 2);
  held_.Withdraw(1, 2);
  std::vector<bool> withdrawn;
  held_.RetryEach([&](const HeldWrite& held) {
    withdrawn.push_back(held.withdrawn);
    return true;
  });
  EXPECT_EQ(withdrawn, (std::vector<bool>{false, true, false}));
}

TEST_F(HeldWritesTest, TheLongestWaitIsKept) {
  held_.NoteWaited(5);
  held_.NoteWaited(3);
  EXPECT_EQ(held_.longest_ns(), 5);
}

class HeldWritesShares : public HeldWritesTest {
 protected:
  static constexpr size_t kWrites = 8;

  // Adds a write. Returns "held", "refused", or the number and the connection of the one whose place it took.
  std::string Add(ConnectionId peer, const Identity& user) {
    IncomingCall call{};
    call.peer = peer;
    call.from = &user;
    call.id = full_.ever();
    call.request = AsBytes(message_);
    std::optional<HeldWrites::Displaced> displaced;
    if (!full_.HasRoom(message_.size())) {
      displaced = full_.Displace(call);
      if (!displaced.has_value()) return "refused";
    }
    full_.Add(call, MessageKind::kDelete, 0);
    return displaced.has_value() ? fmt::format("{} of {}", displaced->call.id, displaced->call.peer) : "held";
  }

  const std::string message_ = MakeKeyRequest(MessageKind::kDelete, RootOf(7), {}, "a");
  HeldWrites full_{kWrites * (HeldWrites::kBytesPerWrite + message_.size())};
};

// Connection 1 holds all that may be held. Others of its user still get as much as it, and no write loses its place to
// an equal.
TEST_F(HeldWritesShares, AConnectionThatHoldsLessTakesThePlaceOfOneThatHoldsMore) {
  for (size_t i = 0; i < kWrites; ++i) EXPECT_EQ(Add(1, kAlice), "held");
  EXPECT_EQ(Add(1, kAlice), "refused");
  EXPECT_EQ(Add(2, kAlice), "7 of 1");  // Its last one.
  EXPECT_EQ(Add(2, kAlice), "6 of 1");
  EXPECT_EQ(Add(3, kAlice), "5 of 1");
  EXPECT_EQ(Add(1, kAlice), "refused");
  EXPECT_EQ(Add(2, kAlice), "4 of 1");
  EXPECT_EQ(Add(2, kAlice), "refused");
  EXPECT_EQ(full_.size(), kWrites);
  EXPECT_EQ(full_.displaced(), 4u);
  full_.Remove(1);
  EXPECT_EQ(full_.size(), 4u);
  EXPECT_EQ(Add(1, kAlice), "held");
}

// One user fills everything through many connections, each with little. Another one gets half of it through one.
TEST_F(HeldWritesShares, AUserGetsNotMoreByOpeningConnections) {
  for (size_t i = 0; i < kWrites; ++i) EXPECT_EQ(Add(static_cast<ConnectionId>(i), kAlice), "held");
  EXPECT_EQ(Add(20, kAlice), "refused");
  for (int i = 0; i < 3; ++i) EXPECT_NE(Add(100, kBob), "refused") << i;
  EXPECT_EQ(full_.displaced(), 3u);
  EXPECT_NE(Add(100, kBob), "refused");  // Four each.
  EXPECT_EQ(Add(100, kBob), "refused");
  EXPECT_EQ(Add(20, kAlice), "refused");
  EXPECT_EQ(full_.size(), kWrites);
}

TEST_F(HeldWritesTest, LargeWritesCountAsMuchAsTheyTake) {
  HeldWrites held(1 << 20);
  const std::string value(60'000, 'v');
  const std::string message = MakePutRequest(RootOf(7), {}, 0, "key", static_cast<uint32_t>(value.size()), 0) + value;
  size_t writes = 0;
  for (; held.HasRoom(message.size()); ++writes) {
    IncomingCall call{};
    call.from = &kAlice;
    call.request = AsBytes(message);
    held.Add(call, MessageKind::kPut, 0);
  }
  EXPECT_GE(writes, 10u);
  EXPECT_LE(writes * message.size(), size_t{1} << 20);
}

}  // namespace
}  // namespace cell

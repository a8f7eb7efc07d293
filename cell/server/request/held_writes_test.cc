#include "cell/server/request/held_writes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cell {
namespace {

class HeldWritesTest : public ::testing::Test {
 protected:
  void Hold(ConnectionId peer, uint32_t region, const std::string& key, int64_t now_ns = 0) {
    const std::string message = MakeKeyRequest(MessageKind::kDelete, RootOf(region), {}, key);
    IncomingCall call{};
    call.peer = peer;
    call.request = AsBytes(message);
    held_.Add(call, MessageKind::kDelete, now_ns);
  }
  // Holds a put whose value is an upload.
  void HoldPut(ConnectionId peer, uint16_t upload) {
    const std::string message = MakePutRequest(RootOf(7), {}, 0, "key", 5, upload);
    IncomingCall call{};
    call.peer = peer;
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

}  // namespace
}  // namespace cell

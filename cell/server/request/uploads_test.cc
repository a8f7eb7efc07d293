#include "cell/server/request/uploads.h"

#include <gtest/gtest.h>

#include "cell/layout/limits.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kPiece = 1 << 16;
constexpr int64_t kSecond = 1'000'000'000;

class UploadsTest : public ::testing::Test {
 protected:
  // Uploads a value of 1 MB in pieces. Returns the first error.
  absl::Status Whole(ConnectionId peer, uint16_t number, int64_t now_ns, std::string_view user = "") {
    const std::string its(user.empty() ? fmt::format("user{}", peer) : std::string(user));
    for (size_t at = 0; at < kValueBytesMax; at += kPiece) {
      absl::Status status =
          uploads_.Add(its, peer, number, static_cast<uint32_t>(at), std::string(kPiece, 'v'), now_ns);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  bool Has(ConnectionId peer, uint16_t number) { return uploads_.Find(peer, number, kValueBytesMax).ok(); }

  Uploads uploads_{{.bytes_max = 16 * kValueBytesMax, .idle_ns = 5 * kSecond}};
};

TEST_F(UploadsTest, APieceGoesToTheEnd) {
  EXPECT_TRUE(uploads_.Add("user1", 1, 1, 0, "abc", 0).ok());
  EXPECT_TRUE(uploads_.Add("user1", 1, 1, 3, "de", 0).ok());
  EXPECT_EQ(uploads_.Add("user1", 1, 1, 9, "f", 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*uploads_.Find(1, 1, 5), "abcde");
  EXPECT_EQ(uploads_.Find(1, 1, 6).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(uploads_.Find(1, 2, 5).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(uploads_.Find(2, 1, 5).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(uploads_.Add("user1", 1, 1, 0, "x", 0).ok());
  EXPECT_EQ(*uploads_.Find(1, 1, 1), "x");
  EXPECT_EQ(uploads_.bytes(), 1u);
  uploads_.Forget(1, 1);
  EXPECT_EQ(uploads_.bytes(), 0u);
}

TEST_F(UploadsTest, WhatDoesNotGrowExpires) {
  ASSERT_TRUE(Whole(1, 1, 0).ok());
  ASSERT_TRUE(uploads_.Add("user2", 2, 1, 0, "abc", 0).ok());
  ASSERT_TRUE(uploads_.Add("user2", 2, 1, 3, "def", 3 * kSecond).ok());
  uploads_.Expire(5 * kSecond - 1);
  EXPECT_TRUE(Has(1, 1));
  uploads_.Expire(5 * kSecond);
  EXPECT_FALSE(Has(1, 1));
  EXPECT_EQ(uploads_.bytes(), 6u);
  EXPECT_EQ(*uploads_.Find(2, 1, 6), "abcdef");
  uploads_.Expire(8 * kSecond);
  EXPECT_EQ(uploads_.bytes(), 0u);
  EXPECT_LT(uploads_.capacity(), 1000u);  // Their memory is gone, too.
  // A client that was stopped meanwhile is told to start over, and not that it is wrong.
  EXPECT_EQ(uploads_.Find(2, 1, 6).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(uploads_.Add("user2", 2, 1, 6, "ghi", 8 * kSecond).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(uploads_.Add("user2", 2, 1, 0, "abc", 8 * kSecond).ok());
  EXPECT_EQ(*uploads_.Find(2, 1, 3), "abc");
}

// Four peers fill the whole limit and never put what they sent. A fifth peer still gets its share.
TEST_F(UploadsTest, APeerThatHoldsLessThanItsShareFindsRoom) {
  for (ConnectionId peer = 1; peer <= 4; ++peer) {
    for (uint16_t number = 1; number <= kUploadsMax; ++number) ASSERT_TRUE(Whole(peer, number, peer).ok());
  }
  EXPECT_EQ(uploads_.bytes(), 16 * kValueBytesMax);
  for (uint16_t number = 1; number <= 3; ++number) {
    ASSERT_TRUE(Whole(5, number, 10).ok()) << number;
    EXPECT_LE(uploads_.bytes(), 16 * kValueBytesMax);
  }
  for (uint16_t number = 1; number <= 3; ++number) EXPECT_TRUE(Has(5, number));
  for (ConnectionId peer = 1; peer <= 4; ++peer) {  // An equal part of each peer is dropped, starting with the longest
                                                    // idle.
    for (uint16_t number = 2; number <= kUploadsMax; ++number) EXPECT_TRUE(Has(peer, number));
  }
  EXPECT_GE(uploads_.dropped(), 3u);
}

// There is exactly room for all of them: nobody replaces another's upload.
TEST_F(UploadsTest, WhoHasNoMoreThanItsShareKeepsIt) {
  for (ConnectionId peer = 1; peer <= 16; ++peer) ASSERT_TRUE(Whole(peer, 1, 0).ok());
  EXPECT_EQ(Whole(17, 1, 0).code(), absl::StatusCode::kResourceExhausted);
  for (ConnectionId peer = 1; peer <= 16; ++peer) EXPECT_TRUE(Has(peer, 1));
  uploads_.Forget(3);
  EXPECT_TRUE(Whole(17, 1, 0).ok());
}

// One user fills the limit through four connections. Another one gets half of it through one.
TEST_F(UploadsTest, AUserGetsNotMoreByOpeningConnections) {
  for (ConnectionId peer = 1; peer <= 4; ++peer) {
    for (uint16_t number = 1; number <= kUploadsMax; ++number) ASSERT_TRUE(Whole(peer, number, peer, "alice").ok());
  }
  for (uint16_t number = 1; number <= kUploadsMax; ++number) ASSERT_TRUE(Whole(5, number, 10, "bob").ok()) << number;
  for (uint16_t number = 1; number <= kUploadsMax; ++number) EXPECT_TRUE(Has(5, number));
  // Of alice's connections a new one gets a part of her share, and none of bob's.
  EXPECT_TRUE(Whole(6, 1, 11, "alice").ok());
  for (uint16_t number = 1; number <= kUploadsMax; ++number) EXPECT_TRUE(Has(5, number));
}

}  // namespace
}  // namespace cell

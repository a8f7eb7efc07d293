// Tests how values that do not fit into a message are uploaded and fetched.
#include "cell/server/request/large_values.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "cell/base/crc64.h"
#include "cell/server/request/test_request_service.h"
#include "cell/server/request/value_copies.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

using std::string_view_literals::operator""sv;

// A large value that is overwritten while it is fetched arrives whole, as it was when it was requested, and only at the
// peer that requested it.
TEST_F(RequestServiceTest, ACopyIsFetchedWholeWhateverIsWrittenMeanwhile) {
  const std::string old(3 * kInlineValueBytesMax, 'o');
  ASSERT_TRUE(Put("key", old).ok());
  const std::string reply = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "key", 2));
  const auto get = ParseGetReply(AsBytes(reply));
  ASSERT_TRUE(get.ok());
  EXPECT_EQ(get->fixed.copied, 2u);
  EXPECT_EQ(get->fixed.value_bytes, old.size());
  const auto fetch = [this](uint64_t offset, uint32_t bytes, uint16_t copy) -> std::string {
    const std::string piece = Call(MakeFetchRequest(Pointer(0, offset), bytes, copy));
    const auto got = ParseBytesReply(AsBytes(piece), MessageKind::kFetch);
    return got.ok() ? std::string(AsText(*got)) : std::string(absl::StatusCodeToString(got.status().code()));
  };
  // A piece must fit into the room that the client has left for the reply.
  const std::string piece = MakeFetchRequest(Pointer(0, 0), 2 * kReplyBytesMin, 2);
  Reply cramped;
  client_->Call(connection_, AsBytes(piece), {}, kReplyBytesMin, INT64_MAX, &cramped);
  while (!cramped.done) Turn();
  EXPECT_EQ(CodeOf(cramped.bytes), absl::StatusCode::kOutOfRange);
  std::string found;
  for (uint64_t at = 0; at < old.size(); at += kInlineValueBytesMax) {
    ASSERT_TRUE(Put("key", std::string(old.size(), static_cast<char>('a' + at / kInlineValueBytesMax))).ok());
    EXPECT_EQ(fetch(0, 8, 1), "OUT_OF_RANGE");
    EXPECT_EQ(fetch(old.size() - 8, 16, 2), "OUT_OF_RANGE");
    const ConnectionId mine = std::exchange(connection_, *ConnectTo(client_.get(), "server"));
    EXPECT_EQ(fetch(0, 8, 2), "OUT_OF_RANGE");
    connection_ = mine;
    found += fetch(at, kInlineValueBytesMax, 2);
  }
  EXPECT_EQ(found, old);
  EXPECT_EQ(Crc64(found, Crc64("key"sv)), get->fixed.crc);
  EXPECT_EQ(fetch(0, 8, 2), "OUT_OF_RANGE");  // It was dropped after its last byte.
}

TEST(ValueCopies, AreBoundedAndGoWithTheirPeer) {
  ValueCopies copies(100);
  copies.Keep(1, 1, std::string(40, 'a'));
  copies.Keep(2, 1, std::string(40, 'b'));
  copies.Keep(1, 2, std::string(40, 'c'));  // The oldest copy makes room.
  EXPECT_FALSE(copies.Find(1, 1, 0, 1).has_value());
  EXPECT_EQ(copies.Find(2, 1, 39, 1), "b");
  EXPECT_FALSE(copies.Find(2, 1, 39, 2).has_value());
  EXPECT_FALSE(copies.Find(2, 1, UINT64_MAX, 2).has_value());
  copies.Keep(2, 1, "another");
  EXPECT_EQ(copies.bytes(), 47u);
  copies.Disconnected(1);
  EXPECT_EQ(copies.bytes(), 7u);
  copies.Fetched(2, 1, 6);
  EXPECT_EQ(copies.Find(2, 1, 0, 7), "another");
  copies.Fetched(2, 1, 7);
  EXPECT_EQ(copies.bytes(), 0u);
}

// Copies take a server's memory.
TEST_F(RequestServiceTest, CopiesAndUploadsGoWithTheConnectionOfTheirPeer) {
  LargeValues values(server_.get(), &served_, &held_, "test", {});
  for (const ConnectionId peer : {1u, 2u}) {
    values.copies()->Keep(peer, 2, "copy");
    ASSERT_TRUE(values.uploads()->Add("user", peer, 2, 0, "upload", server_->NowNs()).ok());
  }
  values.Disconnected(1);
  EXPECT_FALSE(values.copies()->Find(1, 2, 0, 4).has_value());
  EXPECT_EQ(values.copies()->Find(2, 2, 0, 4), "copy");
  EXPECT_EQ(values.copies()->bytes(), 4u);
  EXPECT_EQ(values.uploads()->bytes(), 6u);
}

TEST_F(RequestServiceTest, LargeValuesAreUploadedAndFetchedInPieces) {
  std::string value(300'000, 'v');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7 / 3);
  for (size_t at = 0; at < value.size(); at += kUploadPartBytesMax) {
    const std::string part = value.substr(at, kUploadPartBytesMax);
    EXPECT_EQ(CodeOf(Call(MakeUploadRequest(2, static_cast<uint32_t>(at), static_cast<uint32_t>(part.size())), part)),
              absl::StatusCode::kOk);
  }
  const uint64_t crc = Crc64(value, Crc64(std::string_view("big")));
  EXPECT_EQ(CodeOf(Call(MakePutRequest(root_, {}, crc, "big", 300'000, 2))), absl::StatusCode::kOk);
  const std::string reply = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "big"));
  const auto get = ParseGetReply(AsBytes(reply));
  ASSERT_TRUE(get.ok());
  EXPECT_EQ(get->fixed.follows, 0);
  std::string all;
  while (all.size() < 300'003) {
    const size_t bytes = std::min<size_t>(60'000, 300'003 - all.size());
    const std::string piece = Call(MakeFetchRequest(Pointer(1, get->fixed.extent.offset() + all.size()), bytes));
    all += AsText(*ParseBytesReply(AsBytes(piece), MessageKind::kFetch));
  }
  EXPECT_EQ(all, "big" + value);
}

// cell_bench --workload raw-call sends empty pieces, which nobody should take for large values.
TEST_F(RequestServiceTest, EmptyPiecesAreCountedAsRawCalls) {
  EXPECT_EQ(CodeOf(Call(MakeUploadRequest(1, 0, 3), "abc")), absl::StatusCode::kOk);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(CodeOf(Call(MakeUploadRequest(1, 0, 0))), absl::StatusCode::kOk);
  const nlohmann::json served = nlohmann::json::parse(service_.reports().StatusJson(0, 1))["served"];
  EXPECT_EQ(served["upload"], 1);
  EXPECT_EQ(served["raw_call"], 2);
}

TEST_F(RequestServiceTest, AnUploadThatDoesNotGoOnWhereItWasIsRefused) {
  EXPECT_EQ(CodeOf(Call(MakeUploadRequest(1, 10, 3), "abc")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Call(MakeUploadRequest(1, 0, 3), "abc")), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(Call(MakePutRequest(root_, {}, 0, "k", 4, 1))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Call(MakeUploadRequest(5, 0, 3), "abc")), absl::StatusCode::kInvalidArgument);
}

// A client that gave up a put uses its upload's number again, while the put still waits here.
TEST_F(RequestServiceTest, APutThatWaitsDoesNotTakeTheNextUploadOfItsNumber) {
  const std::string old(1'000, 'o'), next(1'000, 'n');
  const auto piece = [this](uint32_t at, const std::string& bytes) {
    return CodeOf(Call(MakeUploadRequest(2, at, static_cast<uint32_t>(bytes.size())), bytes));
  };
  const auto put = [this](const std::string& key, const std::string& value) {
    return MakePutRequest(root_, {}, Crc64(value, Crc64(key)), key, static_cast<uint32_t>(value.size()), 2);
  };
  ASSERT_EQ(piece(0, old), absl::StatusCode::kOk);
  regions_.Find(1)->ChangeState(RegionState::kFrozen);
  Reply waits;
  client_->Call(connection_, AsBytes(put("old", old)), {}, kMessageBytesMax, INT64_MAX, &waits);
  for (int i = 0; i < 1000 && service_.writes()->held().size(1) == 0; ++i) Turn();
  ASSERT_EQ(service_.writes()->held().size(1), 1u);
  ASSERT_EQ(piece(0, next.substr(0, 600)), absl::StatusCode::kOk);
  regions_.Find(1)->Unfreeze();
  EXPECT_EQ(service_.writes()->RetryHeld(), 1u);
  EXPECT_EQ(piece(600, next.substr(600)), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(Call(put("next", next))), absl::StatusCode::kOk);
  while (!waits.done) Turn();
  EXPECT_EQ(CodeOf(waits.bytes), absl::StatusCode::kCancelled);
  const std::string got = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, "next"));
  EXPECT_EQ(ParseGetReply(AsBytes(got))->value, next);
}

// Uploads take a server's memory. No answered put, whatever its answer, may leave an upload behind.
TEST_F(RequestServiceTest, APutThatIsAnsweredLeavesNoUploadBehind) {
  const auto upload = [this](const std::string& value) {
    return CodeOf(Call(MakeUploadRequest(2, 0, static_cast<uint32_t>(value.size())), value));
  };
  const std::string value(60'000, 'v');
  const uint64_t crc = Crc64(value, Crc64(std::string_view("k")));
  for (const Pointer root : {root_, Pointer(9, kRegionHeaderBytes)}) {  // Here, and routed elsewhere.
    for (const uint64_t its : {crc, crc + 1}) {
      ASSERT_EQ(upload(value), absl::StatusCode::kOk);
      EXPECT_EQ(service_.uploads().bytes(), value.size());
      (void)Call(MakePutRequest(root, {}, its, "k", 60'000, 2));
      EXPECT_EQ(service_.uploads().bytes(), 0u);
    }
  }
  ASSERT_EQ(upload(value), absl::StatusCode::kOk);
  client_->Disconnect(connection_);
  for (int i = 0; i < 100; ++i) Turn();
  EXPECT_EQ(service_.uploads().bytes(), 0u);
}

TEST_F(RequestServiceTest, AnUploadThatIsLeftAloneExpires) {
  ASSERT_EQ(CodeOf(Call(MakeUploadRequest(2, 0, 3), "abc")), absl::StatusCode::kOk);
  service_.Step();
  EXPECT_EQ(service_.uploads().bytes(), 3u);
  network_.At(network_.now_ns() + 10'000'000'000, [] {});
  const int64_t until_ns = network_.now_ns() + 10'000'000'000;
  while (network_.now_ns() < until_ns) network_.Step();
  service_.Step();
  EXPECT_EQ(service_.uploads().bytes(), 0u);
  EXPECT_EQ(CodeOf(Call(MakePutRequest(root_, {}, 0, "k", 3, 2))), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cell

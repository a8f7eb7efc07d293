// Tests the messages of snapshots: their bytes, and what is refused.
#include "cell/layout/wire_snapshot.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "cell/layout/region.h"
#include "fmt/format.h"

namespace cell {
namespace {

TEST(Wire, SnapshotMessagesAreReadAsTheyWereMade) {
  const SnapshotId id{0x1122334455667788, 2};
  const std::string step = MakeSnapshotRequest(Pointer(1, 4096), SnapshotStep::kStill, id, "from", "to", 5);
  std::string hex;
  for (const unsigned char c : step) hex += fmt::format("{:02x}", c);
  EXPECT_EQ(hex,
            "1900100036000000"
            "0010000000010000"
            "8877665544332211"
            "0200000000000000"
            "0500000004000200"
            "0200000000000000"
            "66726f6d746f");
  const auto parsed = ParseSnapshotRequest(AsBytes(step));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->key, "from");
  EXPECT_EQ(parsed->value, "to");
  EXPECT_EQ(parsed->fixed.id, id);

  const std::string get = MakeGetSnapshotRequest(RootOf(1), id, "key", 3);
  const auto parsed_get = ParseGetSnapshotRequest(AsBytes(get));
  ASSERT_TRUE(parsed_get.ok()) << parsed_get.status();
  EXPECT_EQ(parsed_get->key, "key");
  EXPECT_EQ(parsed_get->fixed.id, id);
  EXPECT_EQ(parsed_get->fixed.get.copy, 3);

  const std::string scan = MakeScanSnapshotRequest(RootOf(1), id, "a", "b", {.limit = 7, .reply_bytes_max = 9});
  const auto parsed_scan = ParseScanSnapshotRequest(AsBytes(scan));
  ASSERT_TRUE(parsed_scan.ok()) << parsed_scan.status();
  EXPECT_EQ(parsed_scan->id, id);
  EXPECT_EQ(parsed_scan->scan.key, "a");
  EXPECT_EQ(parsed_scan->scan.value, "b");
  EXPECT_EQ(parsed_scan->scan.fixed.limit, 7u);

  std::string reply(100, 0);
  reply.resize(
      WriteSnapshotReply({reinterpret_cast<std::byte*>(reply.data()), reply.size()}, SnapshotState::kTaken, "z"));
  const auto parsed_reply = ParseSnapshotReply(AsBytes(reply));
  ASSERT_TRUE(parsed_reply.ok()) << parsed_reply.status();
  EXPECT_EQ(parsed_reply->fixed.state, SnapshotState::kTaken);
  EXPECT_EQ(parsed_reply->key, "z");
  for (size_t bytes = 0; bytes < 200; ++bytes) {
    if (bytes < step.size()) {
      EXPECT_FALSE(ParseSnapshotRequest(AsBytes(step).subspan(0, bytes)).ok());
    }
    if (bytes < get.size()) {
      EXPECT_FALSE(ParseGetSnapshotRequest(AsBytes(get).subspan(0, bytes)).ok());
    }
    if (bytes < scan.size()) {
      EXPECT_FALSE(ParseScanSnapshotRequest(AsBytes(scan).subspan(0, bytes)).ok());
    }
    if (bytes < reply.size()) {
      EXPECT_FALSE(ParseSnapshotReply(AsBytes(reply).subspan(0, bytes)).ok());
    }
  }
}

TEST(Wire, SnapshotMessagesThatMakeNoSenseAreRefused) {
  const auto parses = [](const std::function<void(SnapshotRequest*)>& change) {
    std::string message = MakeSnapshotRequest(RootOf(1), SnapshotStep::kLook, {1, 1}, "k", "");
    change(reinterpret_cast<SnapshotRequest*>(message.data()));
    return ParseSnapshotRequest(AsBytes(message)).ok();
  };
  EXPECT_TRUE(parses([](auto*) {}));
  EXPECT_FALSE(parses([](auto* request) { request->id.client = 0; }));
  EXPECT_FALSE(parses([](auto* request) { request->step = SnapshotStep{0}; }));
  EXPECT_FALSE(parses([](auto* request) { request->step = SnapshotStep{5}; }));
  EXPECT_FALSE(parses([](auto* request) { request->kept_ms = 3'600'001; }));
  EXPECT_FALSE(parses([](auto* request) { request->to_bytes = 1; }));
  EXPECT_FALSE(ParseGetSnapshotRequest(AsBytes(MakeGetSnapshotRequest(RootOf(1), {1, 1}, "k", kCopiesMax + 1))).ok());
  EXPECT_FALSE(ParseScanSnapshotRequest(AsBytes(MakeScanSnapshotRequest(RootOf(1), {1, 1}, "a", "b", {0, 9}))).ok());
}

}  // namespace
}  // namespace cell

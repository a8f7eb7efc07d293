#include <gtest/gtest.h>

#include <functional>

#include "cell/base/random.h"
#include "cell/layout/limits.h"
#include "cell/layout/node.h"
#include "cell/layout/pointer.h"
#include "cell/layout/region.h"
#include "cell/layout/wire.h"
#include "cell/layout/wire_function.h"

namespace cell {
namespace {

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  return hex;
}

TEST(Pointer, HoldsRegionAndOffset) {
  const Pointer pointer(0xabcdef, 0x123456789a);
  EXPECT_EQ(pointer.region(), 0xabcdefu);
  EXPECT_EQ(pointer.offset(), 0x123456789au);
  EXPECT_EQ(Pointer::FromRaw(pointer.raw()), pointer);
  EXPECT_TRUE(Pointer().null());
  EXPECT_EQ(ToString(Pointer(2, 4096)), "2:0x1000");
}

TEST(Limits, KeysOfAtLeast160BytesAt1KbNodes) {
  EXPECT_EQ(KeyBytesMax(1024), 226u);
  EXPECT_EQ(KeyBytesMax(512), 98u);
  EXPECT_EQ(KeyBytesMax(4096), 994u);
}

// Checks the inequalities in limits.h and in cell/tree/README.md for every size of key and value.
TEST(Limits, TheLargestEntriesLeaveACutForASplit) {
  const auto entry_bytes = [](size_t key_bytes, size_t payload_bytes) {
    return kKeyHeadBytes + sizeof(LeafSlot) + TailBytes({static_cast<uint16_t>(key_bytes), 0}) + payload_bytes;
  };
  for (const uint32_t node_bytes : {512u, 1024u, 2048u, 4096u}) {
    const size_t longest = KeyBytesMax(node_bytes);
    const size_t largest = entry_bytes(longest, sizeof(PairExtent));
    EXPECT_LE(2 * largest + 2 * longest, node_bytes - sizeof(NodeHeader) - kTailVersionBytes);
    for (size_t key = 1; key <= longest; ++key) {
      EXPECT_LE(entry_bytes(key, sizeof(PairExtent)), largest);
      EXPECT_LE(entry_bytes(key, InlineBytesMax(node_bytes) - key), largest);
    }
    const auto four = [&](size_t pair) { return 4 * entry_bytes(16, pair - 16) + 2 * 16; };
    EXPECT_LE(four(InlineBytesMax(node_bytes)), node_bytes - sizeof(NodeHeader) - kTailVersionBytes);
    EXPECT_GT(four(InlineBytesMax(node_bytes) + 1), node_bytes - sizeof(NodeHeader) - kTailVersionBytes);
  }
  EXPECT_EQ(InlineBytesMax(1024), 218u);
  EXPECT_EQ(InlineBytesMax(512), 90u);
  EXPECT_LE(kInlineMaxDefault, InlineBytesMax(kNodeBytesDefault));
}

TEST(Wire, GoldenRequests) {
  EXPECT_EQ(Hex(MakeKeyRequest(MessageKind::kGet, Pointer(1, 4096), Pointer(), "key")),
            "0200100023000000"
            "0010000000010000"
            "0000000000000000"
            "0300000000000000"
            "6b6579");
  EXPECT_EQ(Hex(MakeKeyRequest(MessageKind::kGet, Pointer(1, 4096), Pointer(), "key", 3)),
            "0200100023000000"
            "0010000000010000"
            "0000000000000000"
            "0300030000000000"
            "6b6579");
  EXPECT_EQ(Hex(MakeKeyRequest(MessageKind::kGet, Pointer(1, 4096), Pointer(), "key", 0, true)),
            "0200100023000000"
            "0010000000010000"
            "0000000000000000"
            "0300000001000000"
            "6b6579");
  EXPECT_EQ(Hex(MakePutRequest(Pointer(1, 4096), Pointer(1, 8192), 0x1122334455667788, "k", 5, 0, 9)),
            "0300100036000000"
            "0010000000010000"
            "0020000000010000"
            "8877665544332211"
            "0900000000000000"
            "0500000001000000"
            "6b");
  ConditionalWrite write{"k", {ConditionKind::kValue, 0, "old"}, 5, 0x1122334455667788, 9, 0};
  EXPECT_EQ(Hex(MakeWriteIfRequest(Pointer(1, 4096), Pointer(1, 8192), write)),
            "1400100049000000"
            "0010000000010000"
            "0020000000010000"
            "8877665544332211"
            "0900000000000000"
            "0000000000000000"
            "0500000003000000"
            "0100000004000000"
            "6b6f6c64");
  write = {"k", {ConditionKind::kStamp, 7}};
  EXPECT_EQ(Hex(MakeWriteIfRequest(Pointer(1, 4096), {}, write)),
            "1400100041000000"
            "0010000000010000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0700000000000000"
            "0000000000000000"
            "0100000003010000"
            "6b");
  FunctionOnKey function{"k", "add", 5, 0, 0, {0x1122334455667788, 2, 3, 4}, true};
  EXPECT_EQ(Hex(MakeFunctionRequest(MessageKind::kApply, Pointer(1, 4096), function)),
            "1500100041000000"
            "0010000000010000"
            "8877665544332211"
            "0200000000000000"
            "0300000000000000"
            "0500000004000100"
            "0000000003010000"
            "6b616464");
  function = {"k", "add", 5, 2, 0};
  EXPECT_EQ(Hex(MakeFunctionRequest(MessageKind::kApply, Pointer(1, 4096), function)),
            "150010003c000000"
            "0010000000010000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0500000000000100"
            "0200000003000000"
            "6b616464");
  function = {"k", "sum", 1, 0, 4};
  EXPECT_EQ(Hex(MakeFunctionRequest(MessageKind::kEvaluate, Pointer(1, 4096), function)),
            "160010003d000000"
            "0010000000010000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0100000000000100"
            "0000040003000000"
            "6b73756d");
  const std::string to = "z";
  EXPECT_EQ(Hex(MakeScanRequest(Pointer(1, 4096), "ab", to,
                                {.limit = 10, .reply_bytes_max = 4096, .keys_only = true, .down = true})),
            "0500100023000000"
            "0010000000010000"
            "0a00000000100000"
            "0200010001010100"
            "61627a");
  EXPECT_EQ(Hex(MakeRangeRequest(MessageKind::kCount, Pointer(1, 4096), "ab", to)),
            "0b0010001b000000"
            "0010000000010000"
            "0200010000000000"
            "61627a");
  EXPECT_EQ(Hex(MakeRangeRequest(MessageKind::kDeleteRange, Pointer(1, 4096), "a", "")),
            "0c00100019000000"
            "0010000000010000"
            "0100000000000000"
            "61");
  EXPECT_EQ(Hex(MakeFetchRequest(Pointer(1, 8192), 100)),
            "0600100018000000"
            "0020000000010000"
            "6400000000000000");
  EXPECT_EQ(Hex(MakeFetchRequest(Pointer(0, 8192), 100, 3)),
            "0600100018000000"
            "0020000000000000"
            "6400000003000000");
  EXPECT_EQ(Hex(MakeUploadRequest(2, 7, 1)),
            "0700100011000000"
            "0700000002000000");
}

template <typename T>
std::string HexOf(const T& fixed) {
  return Hex({reinterpret_cast<const char*>(&fixed), sizeof(fixed)});
}

TEST(Wire, GoldenRequestsForTheTable) {
  EXPECT_EQ(Hex(MakeTableVersionRequest(0x1122334455667788)),
            "0e00100010000000"
            "8877665544332211");
  EXPECT_EQ(Hex(MakeTablePartRequest({TablePartKind::kShard, 0x11223344, 7}, 9)),
            "0f00100020000000"
            "0200000044332211"
            "0700000000000000"
            "0900000000000000");
}

TEST(Wire, GoldenReplies) {
  const auto header = [](MessageKind kind, uint32_t bytes) { return ReplyHeader{kind, 0, bytes, {17, 34}}; };
  EXPECT_EQ(HexOf(SearchReply{header(MessageKind::kSearch, 32), Pointer(1, 8192), 1}),
            "0100000020000000"
            "1100000022000000"
            "0020000000010000"
            "0100000000000000");
  EXPECT_EQ(HexOf(PairLife{0x1122334455667788, 7}),
            "8877665544332211"
            "0700000000000000");
  EXPECT_EQ(HexOf(TimeReply{header(MessageKind::kTime, 24), 0x1122334455667788}),
            "0d00000018000000"
            "1100000022000000"
            "8877665544332211");
  EXPECT_EQ(HexOf(TableVersionReply{header(MessageKind::kTableVersion, 48), 0x1122334455667788, 7, 8, 9}),
            "0e00000030000000"
            "1100000022000000"
            "8877665544332211"
            "0700000000000000"
            "0800000000000000"
            "0900000000000000");
  EXPECT_EQ(HexOf(TablePartReply{header(MessageKind::kTablePart, 24), 0x1122334455667788}),
            "0f00000018000000"
            "1100000022000000"
            "8877665544332211");
  EXPECT_EQ(HexOf(GetReply{header(MessageKind::kGet, 48), Pointer(1, 8192), 0x1122334455667788, 9, 5, 1, 1, 0}),
            "0200000030000000"
            "1100000022000000"
            "0020000000010000"
            "8877665544332211"
            "0900000000000000"
            "0500000001010000");
  EXPECT_EQ(HexOf(WriteIfReply{header(MessageKind::kWriteIf, 32), 0x1122334455667788, 1, 0, {}}),
            "1400000020000000"
            "1100000022000000"
            "8877665544332211"
            "0100000000000000");
  EXPECT_EQ(HexOf(FunctionReply{header(MessageKind::kApply, 32), 0x1122334455667788, 5, 0, 1, kValueChanged}),
            "1500000020000000"
            "1100000022000000"
            "8877665544332211"
            "0500000000000102");
  EXPECT_EQ(HexOf(OutcomesReply{header(MessageKind::kMigration, 24), 7, 0}),
            "1100000018000000"
            "1100000022000000"
            "0700000000000000");
  EXPECT_EQ(HexOf(OutcomeHeader{0x1122334455667788, 2, 3, 4, 5, 6, 7, kOutcomeChanged, 9, {}}),
            "8877665544332211"
            "0200000000000000"
            "0300000000000000"
            "0400000000000000"
            "0500000006000000"
            "0700020900000000");
  EXPECT_EQ(HexOf(WriteReply{header(MessageKind::kPut, 24), 1}),
            "0300000018000000"
            "1100000022000000"
            "0100000000000000");
  EXPECT_EQ(HexOf(ScanReply{header(MessageKind::kScan, 32), Pointer(3, 4096), 2, 3, 0, 0}),
            "0500000020000000"
            "1100000022000000"
            "0010000000030000"
            "0200000003000000");
  EXPECT_EQ(HexOf(RangeReply{header(MessageKind::kCount, 32), 0x1122334455667788, 3, 1, {}}),
            "0b00000020000000"
            "1100000022000000"
            "8877665544332211"
            "0300010000000000");
  EXPECT_EQ(HexOf(RouteReply{header(MessageKind::kRoute, 34), Pointer(3, 4096), RouteKind::kChild, 1, 1, 0, 1, 1}),
            "2000000022000000"
            "1100000022000000"
            "0010000000030000"
            "0101010001000100");
  EXPECT_EQ(HexOf(ScanEntry{5, 3, kScanElsewhere | kScanExpires}), "0500000003000300");
  EXPECT_EQ(HexOf(ScanExtent{Pointer(1, 8192), 1}),
            "0020000000010000"
            "0100000000000000");
}

// Checks the part of a region's header that one-sided readers may read by golden bytes, and the rest by its offsets.
TEST(RegionLayout, Golden) {
  RegionHeader header{};
  header.magic = kRegionMagic;
  header.layout_version = kLayoutVersion;
  header.region = 2;
  header.node_bytes = 1024;
  header.node_count = 65536;
  header.nodes_offset = 4096;
  header.extents_offset = 0x4001000;
  header.extents_bytes = 0x10000000;
  EXPECT_EQ(Hex({reinterpret_cast<const char*>(&header), 64}),
            "434c435245474e31"
            "0500000002000000"
            "0004000000000100"
            "0010000000000000"
            "0010000400000000"
            "0000001000000000"
            "0000000000000000"
            "0000000000000000");
  EXPECT_EQ(offsetof(RegionHeader, keys), 88u);
  EXPECT_EQ(offsetof(RegionHeader, extents), 104u);
  EXPECT_EQ(sizeof(ExtentAllocatorState), 2000u);
  EXPECT_EQ(offsetof(RegionHeader, log_sequence), 2104u);
  EXPECT_EQ(offsetof(RegionHeader, last_stamp), 2112u);
  EXPECT_EQ(offsetof(RegionHeader, expiring), 2120u);
  EXPECT_EQ(offsetof(RegionHeader, stamp_bound), 2128u);
}

TEST(Wire, AConditionalWriteIsReadAsItWasMade) {
  const ConditionalWrite put{"key", {ConditionKind::kValue, 0, "old"}, 5, 7, 9, 0};
  const std::string message = MakeWriteIfRequest(RootOf(1), Pointer(1, 8192), put) + "value";
  const absl::StatusOr<ParsedWriteIf> parsed = ParseWriteIfRequest(AsBytes(message));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->key, "key");
  EXPECT_EQ(parsed->condition_value, "old");
  EXPECT_EQ(parsed->value, "value");
  EXPECT_EQ(parsed->fixed.crc, 7u);
  EXPECT_EQ(parsed->fixed.deletes, 0);
  for (size_t bytes = 0; bytes < message.size(); ++bytes) {
    EXPECT_FALSE(ParseWriteIfRequest(AsBytes(message).subspan(0, bytes)).ok()) << bytes;
  }
}

TEST(Wire, AConditionalWriteThatMakesNoSenseIsRefused) {
  const auto parses = [](const std::function<void(WriteIfRequest*)>& change, const std::string& rest) {
    WriteIfRequest fixed{};
    fixed.header = {MessageKind::kWriteIf, kWireVersion, static_cast<uint32_t>(sizeof(fixed) + rest.size())};
    fixed.key_bytes = 1;
    fixed.condition = ConditionKind::kPresent;
    fixed.deletes = 1;
    change(&fixed);
    return ParseWriteIfRequest(AsBytes(std::string(reinterpret_cast<const char*>(&fixed), sizeof(fixed)) + rest)).ok();
  };
  EXPECT_TRUE(parses([](auto*) {}, "k"));
  EXPECT_TRUE(parses([](auto* write) { write->deletes = 0; }, "k"));
  EXPECT_FALSE(parses([](auto* write) { write->condition = ConditionKind{0}; }, "k"));
  EXPECT_FALSE(parses([](auto* write) { write->condition = ConditionKind{5}; }, "k"));
  EXPECT_FALSE(parses([](auto* write) { write->deletes = 2; }, "k"));
  EXPECT_FALSE(parses([](auto* write) { write->value_bytes = 1; }, "kv"));
  EXPECT_FALSE(parses([](auto* write) { write->expires = 1; }, "k"));
  EXPECT_FALSE(parses([](auto* write) { write->upload = 1; }, "k"));
  EXPECT_FALSE(parses([](auto* write) { write->deletes = 0, write->upload = kUploadsMax + 1; }, "k"));
  EXPECT_FALSE(parses([](auto* write) { write->condition_bytes = 1; }, "kv"));  // Only values have one.
  const auto compares = [](uint32_t bytes) {
    return [bytes](WriteIfRequest* write) {
      write->condition = ConditionKind::kValue;
      write->condition_bytes = bytes;
    };
  };
  EXPECT_TRUE(parses(compares(kConditionValueBytesMax), "k" + std::string(kConditionValueBytesMax, 'v')));
  EXPECT_FALSE(parses(compares(kConditionValueBytesMax + 1), "k" + std::string(kConditionValueBytesMax + 1, 'v')));
  EXPECT_FALSE(parses(compares(UINT32_MAX), "k"));
}

TEST(Wire, AFunctionsRequestIsReadAsItWasMade) {
  const std::string message = MakeFunctionRequest(MessageKind::kApply, RootOf(1), {"key", "add", 8, 0, 0}) + "argument";
  const absl::StatusOr<ParsedFunction> parsed = ParseFunctionRequest(AsBytes(message), MessageKind::kApply);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->key, "key");
  EXPECT_EQ(parsed->name, "add");
  EXPECT_EQ(parsed->value, "argument");
  for (size_t bytes = 0; bytes < message.size(); ++bytes) {
    EXPECT_FALSE(ParseFunctionRequest(AsBytes(message).subspan(0, bytes), MessageKind::kApply).ok()) << bytes;
  }
}

TEST(Wire, AFunctionsRequestThatMakesNoSenseIsRefused) {
  const auto parses = [](MessageKind kind, const FunctionOnKey& function, const std::string& rest) {
    return ParseFunctionRequest(AsBytes(MakeFunctionRequest(kind, RootOf(1), function) + rest), kind).ok();
  };
  EXPECT_TRUE(parses(MessageKind::kApply, {"k", "f", 9, kUploadsMax, 0}, ""));
  EXPECT_FALSE(parses(MessageKind::kApply, {"k", "f", 9, kUploadsMax + 1, 0}, ""));
  EXPECT_FALSE(parses(MessageKind::kApply, {"k", "f", 0, 0, 1}, ""));  // What it returns is never copied.
  EXPECT_TRUE(parses(MessageKind::kEvaluate, {"k", "f", 0, 0, kCopiesMax}, ""));
  EXPECT_FALSE(parses(MessageKind::kEvaluate, {"k", "f", 0, 0, kCopiesMax + 1}, ""));
  EXPECT_FALSE(parses(MessageKind::kEvaluate, {"k", "f", 9, 1, 0}, ""));  // Its argument is never uploaded.
  EXPECT_FALSE(parses(MessageKind::kApply, {"k", "f", UINT32_MAX, 0, 0}, "a"));
  EXPECT_TRUE(parses(MessageKind::kApply, {"k", "f", 0, 0, 0, {1, 2, 3, kRequestSlots - 1}, true}, ""));
  EXPECT_FALSE(parses(MessageKind::kApply, {"k", "f", 0, 0, 0, {1, 2, 3, kRequestSlots}}, ""));
  EXPECT_FALSE(parses(MessageKind::kApply, {"k", "f", 0, 0, 0, {0, 2, 3, 0}}, "")) << "half an id";
  EXPECT_FALSE(parses(MessageKind::kApply, {"k", "f", 0, 0, 0, {}, true}, "")) << "again, without an id";
  EXPECT_FALSE(parses(MessageKind::kEvaluate, {"k", "f", 0, 0, 0, {1, 2, 3, 4}}, ""));
}

TEST(Wire, AFunctionsResultComesBackIfItIsInlined) {
  std::array<std::byte, 256> room;
  FunctionReply reply{};
  reply.stamp = 7;
  reply.inlined = 1;
  size_t bytes = WriteFunctionReply(absl::MakeSpan(room), MessageKind::kApply, reply, "result");
  auto parsed = ParseFunctionReply(ConstBytes(room.data(), bytes), MessageKind::kApply);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->value, "result");
  EXPECT_EQ(parsed->fixed.stamp, 7u);
  EXPECT_FALSE(ParseFunctionReply(ConstBytes(room.data(), bytes), MessageKind::kEvaluate).ok());
  EXPECT_FALSE(ParseFunctionReply(ConstBytes(room.data(), bytes - 1), MessageKind::kApply).ok());
  reply.inlined = 0;
  reply.copied = 2;
  bytes = WriteFunctionReply(absl::MakeSpan(room), MessageKind::kEvaluate, reply, std::string(5000, 'r'));
  parsed = ParseFunctionReply(ConstBytes(room.data(), bytes), MessageKind::kEvaluate);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->value, "");
  EXPECT_EQ(parsed->fixed.result_bytes, 5000u);
  // A server that lies about a size must not make a client allocate by it.
  reply.result_bytes = kValueBytesMax + 1;
  reply.header = ReplyOf<FunctionReply>(MessageKind::kEvaluate).header;
  Store(room.data(), reply);
  EXPECT_FALSE(ParseFunctionReply(ConstBytes(room.data(), sizeof(reply)), MessageKind::kEvaluate).ok());
}

TEST(Wire, RoutesComeBackWithTheirRangeIfItFits) {
  const RouteView route{RouteKind::kChild, RootOf(7), "low", "mid", true, true};
  std::array<std::byte, 256> room;
  size_t bytes = WriteRouteReply(absl::MakeSpan(room), route);
  auto parsed = ParseRouteReply(ConstBytes(room.data(), bytes));
  ASSERT_TRUE(parsed.ok() && IsRoute(ConstBytes(room.data(), bytes)));
  EXPECT_EQ(parsed->next, RootOf(7));
  EXPECT_EQ(parsed->low_key, "low");
  EXPECT_EQ(parsed->high_key, "mid");
  EXPECT_FALSE(ParseRouteReply(ConstBytes(room.data(), bytes - 1)).ok());
  bytes = WriteRouteReply(MutableBytes(room.data(), sizeof(RouteReply) + 5), route);
  parsed = ParseRouteReply(ConstBytes(room.data(), bytes));
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(parsed->has_range);
  EXPECT_EQ(parsed->next, RootOf(7));
  // The target is not a root.
  bytes = WriteRouteReply(absl::MakeSpan(room), {RouteKind::kRight, Pointer(7, 8192), {}, {}, false, false});
  EXPECT_FALSE(ParseRouteReply(ConstBytes(room.data(), bytes)).ok());
}

TEST(Wire, RequestsComeBackAsTheyWere) {
  const std::string route = MakeRouteRequest(MessageKind::kAddRoute, RootOf(1), 2, "some key", RootOf(9), 1);
  const auto parsed_route = ParseRouteRequest(AsBytes(route));
  ASSERT_TRUE(parsed_route.ok());
  EXPECT_EQ(parsed_route->key, "some key");
  EXPECT_EQ(parsed_route->fixed.child, RootOf(9));
  EXPECT_FALSE(
      ParseRouteRequest(AsBytes(MakeRouteRequest(MessageKind::kAddRoute, RootOf(1), 0, "k", RootOf(9), 1))).ok());
  EXPECT_FALSE(
      ParseRouteRequest(AsBytes(MakeRouteRequest(MessageKind::kAddRoute, RootOf(1), 2, "k", RootOf(0), 1))).ok());
  EXPECT_FALSE(
      ParseRouteRequest(AsBytes(MakeRouteRequest(MessageKind::kAddRoute, RootOf(1), 2, "k", Pointer(9, 8), 1))).ok());
  EXPECT_FALSE(
      ParseRouteRequest(AsBytes(MakeRouteRequest(MessageKind::kAddRoute, Pointer(1, 8), 2, "k", RootOf(9), 1))).ok());
  const std::string put = MakePutRequest(Pointer(1, 64), Pointer(2, 3), 9, "some key", 5, 0, 77) + "value";
  ASSERT_TRUE(ParseHeader(AsBytes(put)).ok());
  const auto parsed = ParsePutRequest(AsBytes(put));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->key, "some key");
  EXPECT_EQ(parsed->value, "value");
  EXPECT_EQ(parsed->fixed.hint, Pointer(2, 3));
  EXPECT_EQ(parsed->fixed.expires, 77u);
}

TEST(Wire, AnExpiryIsAbsoluteOrFromNowOn) {
  constexpr uint64_t kNow = 1'000'000;
  EXPECT_EQ(*ExpiryOf(kNeverExpires, kNow), kNeverExpires);
  EXPECT_EQ(*ExpiryOf(kNow + 1, kNow), kNow + 1);
  EXPECT_EQ(*ExpiryOf(kExpiryMax, kNow), kExpiryMax);
  EXPECT_EQ(*ExpiryOf(kExpiresAfter | 5, kNow), kNow + 5);
  EXPECT_EQ(*ExpiryOf(kExpiresAfter | (kExpiryMax - kNow), kNow), kExpiryMax);
  for (const uint64_t wrong :
       {kNow, kNow - 1, uint64_t{1}, kExpiresAfter, kExpiresAfter | (kExpiryMax - kNow + 1), UINT64_MAX}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ExpiryOf(wrong, kNow).status())) << wrong;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ExpiryOf(kExpiresAfter | 1, UINT64_MAX).status()));
}

TEST(Wire, AGetsReplySaysWhatFollows) {
  const NodeState leaf{6, 0x1122334455667788, Pointer(1, 8192)};
  for (const bool value : {false, true}) {
    for (const bool expiry : {false, true}) {
      for (const bool state : {false, true}) {
        auto fixed = ReplyOf<GetReply>(MessageKind::kGet);
        fixed.found = 1;
        fixed.value_bytes = 5;
        std::string rest;
        const auto add = [&](bool adds, uint8_t follows, const void* bytes, size_t size) {
          if (!adds) return;
          fixed.follows |= follows;
          rest.append(static_cast<const char*>(bytes), size);
        };
        const Expiry expires = 77;
        add(value, kFollowsValue, "value", 5);
        add(expiry, kFollowsExpiry, &expires, sizeof(expires));
        add(state, kFollowsLeaf, &leaf, sizeof(leaf));
        fixed.header.bytes += static_cast<uint32_t>(rest.size());
        const std::string reply = std::string(reinterpret_cast<const char*>(&fixed), sizeof(fixed)) + rest;
        const absl::StatusOr<GetResult> parsed = ParseGetReply(AsBytes(reply));
        ASSERT_TRUE(parsed.ok()) << parsed.status();
        EXPECT_EQ(parsed->value, value ? "value" : "");
        EXPECT_EQ(parsed->expiry, expiry ? expires : kNeverExpires);
        EXPECT_EQ(parsed->leaf, state ? std::optional(leaf) : std::nullopt);
        for (const uint8_t claimed : {kFollowsValue, kFollowsExpiry, kFollowsLeaf}) {
          fixed.follows ^= claimed;
          const std::string wrong = std::string(reinterpret_cast<const char*>(&fixed), sizeof(fixed)) + rest;
          EXPECT_FALSE(ParseGetReply(AsBytes(wrong)).ok());
          fixed.follows ^= claimed;
        }
      }
    }
  }
}

// Checks that every truncation and extension of every request is refused.
TEST(Wire, CutOrLongMessagesAreRefused) {
  const std::string to = "zz";
  const std::vector<std::string> messages = {
      MakeKeyRequest(MessageKind::kSearch, Pointer(1, 1), Pointer(), "key"),
      MakePutRequest(Pointer(1, 1), Pointer(), 1, "key", 3, 0) + "val",
      MakeScanRequest(Pointer(1, 1), "from", to, {.limit = 5, .reply_bytes_max = 100}),
      MakeFetchRequest(Pointer(1, 1), 8),
      MakeRangeRequest(MessageKind::kCount, Pointer(1, 1), "from", to),
      MakeRangeRequest(MessageKind::kDeleteRange, Pointer(1, 1), "from", ""),
  };
  const auto accepted = [&](std::string_view message) {
    const ConstBytes bytes = AsBytes(message);
    const auto header = ParseHeader(bytes);
    if (!header.ok()) return false;
    switch (header->kind) {
      case MessageKind::kSearch:
        return ParseKeyRequest(bytes).ok();
      case MessageKind::kPut:
        return ParsePutRequest(bytes).ok();
      case MessageKind::kScan:
        return ParseScanRequest(bytes).ok();
      case MessageKind::kFetch:
        return ParseFetchRequest(bytes).ok();
      case MessageKind::kCount:
      case MessageKind::kDeleteRange:
        return ParseRangeRequest(bytes).ok();
      default:
        return false;
    }
  };
  for (const std::string& message : messages) {
    ASSERT_TRUE(accepted(message));
    for (size_t bytes = 0; bytes < message.size(); ++bytes) {
      std::string cut = message.substr(0, bytes);
      EXPECT_FALSE(accepted(cut));
      if (bytes < sizeof(MessageHeader)) continue;
      const auto claimed = static_cast<uint32_t>(bytes);  // Make the header agree with the truncated size.
      std::memcpy(cut.data() + 4, &claimed, 4);
      EXPECT_FALSE(accepted(cut)) << bytes;
    }
    EXPECT_FALSE(accepted(message + "x"));
  }
  EXPECT_FALSE(accepted(MakeKeyRequest(MessageKind::kSearch, Pointer(1, 1), Pointer(), "key", kCopiesMax + 1)));
  EXPECT_FALSE(accepted(MakeFetchRequest(Pointer(1, 1), 8, kCopiesMax + 1)));
  EXPECT_FALSE(accepted(std::string(kMessageBytesMax + 1, 'x')));
}

TEST(Wire, AnotherProtocolVersionIsRefusedByName) {
  std::string message = MakeFetchRequest(Pointer(1, 1), 8);
  message[2] = 77;
  const absl::Status status = ParseHeader(AsBytes(message)).status();
  EXPECT_NE(std::string(status.message()).find("version 77"), std::string::npos) << status;
}

TEST(Wire, ErrorRepliesCarryCodeAndText) {
  std::vector<std::byte> to(64);
  const size_t bytes =
      WriteErrorReply(absl::MakeSpan(to), MessageKind::kPut, absl::ResourceExhaustedError("meganode is full"));
  const absl::Status status = ParseWriteReply(ConstBytes(to.data(), bytes), MessageKind::kPut).status();
  EXPECT_EQ(status, absl::ResourceExhaustedError("meganode is full"));
  EXPECT_EQ(ParseWriteReply(ConstBytes(to.data(), bytes), MessageKind::kDelete).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(Wire, ARangeReplySaysWhereItGoesOn) {
  std::string bytes(RangeReplyBytes(4), '\0');
  const MutableBytes to(reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
  ASSERT_EQ(WriteRangeReply(to, MessageKind::kCount, {7, false, "next"}), bytes.size());
  const absl::StatusOr<RangeResult> result = ParseRangeReply(AsBytes(bytes), MessageKind::kCount);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->pairs, 7u);
  EXPECT_FALSE(result->done);
  EXPECT_EQ(result->next_key, "next");
  const auto refused = [](std::string_view reply) {
    return absl::IsDataLoss(ParseRangeReply(AsBytes(reply), MessageKind::kCount).status());
  };
  EXPECT_TRUE(absl::IsDataLoss(ParseRangeReply(AsBytes(bytes), MessageKind::kDeleteRange).status()));
  for (size_t cut = 0; cut < bytes.size(); ++cut) EXPECT_TRUE(refused(bytes.substr(0, cut))) << cut;
  // It ends, or it goes on somewhere.
  EXPECT_TRUE(refused({bytes.data(), WriteRangeReply(to, MessageKind::kCount, {7, true, "next"})}));
  EXPECT_TRUE(refused({bytes.data(), WriteRangeReply(to, MessageKind::kCount, {7, false, ""})}));
  EXPECT_FALSE(refused({bytes.data(), WriteRangeReply(to, MessageKind::kCount, {7, true, ""})}));
}

TEST(Wire, RandomRepliesNeverReadOutOfBounds) {
  Random random(11);
  std::vector<ScanItem> items;
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::byte> bytes(random.Below(120));  // Allocate exactly this many bytes, so that the address sanitizer
                                                      // sees overruns.
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.Below(4) == 0 ? random.Next() : 0);
    if (bytes.size() >= sizeof(ReplyHeader)) {
      Store(bytes.data(), ReplyHeader{MessageKind::kScan, 0, static_cast<uint32_t>(bytes.size()), {}});
    }
    const auto result = ParseScanReply(bytes, &items);
    size_t total = 0;
    for (const ScanItem& item : items) total += item.key.size() + item.value.size();
    EXPECT_LE(total, bytes.size());
    if (result.ok()) {
      EXPECT_LE(result->next_key.size(), bytes.size());
    }
  }
}

}  // namespace
}  // namespace cell

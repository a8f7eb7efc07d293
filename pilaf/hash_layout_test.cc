// Checks the bytes that clients read. They are a protocol and must not change by accident.
#include "pilaf/hash_layout.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "cell/base/bytes.h"
#include "pilaf/bucket.h"
#include "pilaf/bucket_draft.h"

namespace cell {
namespace {

template <typename T>
std::string Hex(const T& value) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(&value), sizeof(value)});
}

TEST(HashLayout, GoldenBytes) {
  HashSlot slot{};
  slot.extent = 0x01020304;
  slot.extent_bytes = 0x15;
  slot.extent_crc = 0x1112131415161718;
  slot.version = 7;
  slot.tag = 0xabcd;
  slot.key_bytes = 5;
  slot.crc = SlotCrc(slot, 3, 9);
  EXPECT_EQ(Hex(slot),
            "04030201150000001817161514131211"
            "07000000cdab0500"
            "7be6ee30cc9b2246");
  HashHeader header{};
  header.magic = kHashMagic;
  header.region = 3;
  header.units = 100;
  header.range = {0x10, 0x20};
  header.bucket_bytes = 512;
  header.invalidated = 1;
  header.crc = HeaderCrc(header);
  EXPECT_EQ(Hex(header),
            "4c5046484153483103000000640000001000000020000000"
            "0002000001000000"
            "000000000000000000000000000000000000000000000000fcfa0b9e76ccf4dd");
  const KeyHash hash = HashKey("key");
  EXPECT_EQ(fmt::format("{:08x} {:08x} {:08x} {:08x}", hash.position, hash.probes[0], hash.probes[1], hash.probes[2]),
            "a05165e3 bbea0d63 64564cf8 a4bdf4e5");
}

TEST(HashLayout, GoldenBucket) {
  alignas(64) std::array<std::byte, 16384> bytes{};
  RegionMemory memory(bytes.data(), bytes.size());
  BucketDraft draft(3, kUnitsOffset + 512, 512);
  draft.Begin({0x10, 0x20});
  draft.Append(PairRecord({"key", "value"}));
  KeyHash hash{0x01020304, {}};
  HashSlot slot{};
  slot.extent = 0x11;
  slot.extent_bytes = 0x22;
  slot.extent_crc = 0x3132333435363738;
  slot.key_bytes = 4;
  draft.Append(ExtentRecord(hash, slot));
  draft.AddAway(0xabcd);
  draft.Publish(&memory);
  const absl::string_view found(reinterpret_cast<const char*>(memory.at(kUnitsOffset + 512)), 64 + 36);
  EXPECT_EQ(absl::BytesToHexString(found),
            "9d2801c5ca3f8e5d0100000024000200100000002000000001000000cdab0000"
            "0000000000000000000000000000000000000000000000000000000000000000"
            "030005006b657976616c75650400ffff0403020111000000220000003837363534333231");
  EXPECT_TRUE(BucketView::Parse({memory.at(kUnitsOffset + 512), 512}, 3, kUnitsOffset + 512).has_value());
  EXPECT_FALSE(BucketView::Parse({memory.at(kUnitsOffset + 512), 512}, 3, kUnitsOffset).has_value());
}

TEST(HashLayout, WhatIsNotWholeIsNoSlot) {
  HashSlot slot{};
  EXPECT_TRUE(ParseSlot(reinterpret_cast<const std::byte*>(&slot), 3, 9).has_value());  // Never written.
  slot.extent = 4;
  slot.extent_bytes = 20;
  slot.key_bytes = 5;
  slot.crc = SlotCrc(slot, 3, 9);
  auto* bytes = reinterpret_cast<std::byte*>(&slot);
  ASSERT_TRUE(ParseSlot(bytes, 3, 9).has_value());
  EXPECT_FALSE(ParseSlot(bytes, 3, 8).has_value());
  EXPECT_FALSE(ParseSlot(bytes, 4, 9).has_value());
  for (size_t bit = 0; bit < sizeof(slot) * 8; ++bit) {
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_FALSE(ParseSlot(bytes, 3, 9).has_value()) << bit;
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
  }
  HashHeader header{};
  header.magic = kHashMagic;
  header.region = 3;
  header.crc = HeaderCrc(header);
  bytes = reinterpret_cast<std::byte*>(&header);
  ASSERT_TRUE(ParseHashHeader(bytes, 3).has_value());
  EXPECT_FALSE(ParseHashHeader(bytes, 4).has_value());
  for (size_t bit = 0; bit < sizeof(header) * 8; ++bit) {
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_FALSE(ParseHashHeader(bytes, 3).has_value()) << bit;
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
  }
}

TEST(HashLayout, ExtentsAreInBounds) {
  const HashGeometry geometry = GeometryOf(1, {1024, 1 << 20, 1 << 20}, 0);
  EXPECT_EQ(geometry.units, ((1u << 20) - 4096) / 32);
  EXPECT_EQ(geometry.extents_offset, 4096u + (1 << 20));
  HashSlot slot{};
  slot.key_bytes = 8;
  slot.extent_bytes = 16;
  slot.extent = (1 << 20) / 8 - 2;
  EXPECT_TRUE(geometry.InBounds(slot));
  EXPECT_EQ(geometry.ExtentOf(slot), geometry.extents_offset + geometry.extents_bytes - 16);
  slot.extent_bytes = 17;
  EXPECT_FALSE(geometry.InBounds(slot));
  slot.extent_bytes = 7;  // Less than the key.
  EXPECT_FALSE(geometry.InBounds(slot));
  slot.extent_bytes = 16;
  slot.extent = UINT32_MAX;
  EXPECT_FALSE(geometry.InBounds(slot));
}

// Checks that keys spread over slots and tags like random numbers: chi-squared over 256 buckets, 255 degrees of
// freedom. Random numbers exceed 400 once in 10^8 cases.
TEST(HashLayout, KeysSpread) {
  for (int part = 0; part < 5; ++part) {
    std::array<int, 256> counts{};
    constexpr int kKeys = 100'000;
    for (int i = 0; i < kKeys; ++i) {
      const KeyHash hash = HashKey(fmt::format("user{:09}", i));
      ++counts[part < 3    ? SlotOf(hash.probes[static_cast<size_t>(part)], 256)
               : part == 3 ? SlotOf(hash.position, 256)
                           : hash.tag() % 256];
    }
    double chi = 0;
    for (const int count : counts) chi += (count - kKeys / 256.0) * (count - kKeys / 256.0) / (kKeys / 256.0);
    EXPECT_LT(chi, 400) << part;
  }
}

}  // namespace
}  // namespace cell

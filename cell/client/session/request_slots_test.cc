#include "cell/client/session/request_slots.h"

#include <gtest/gtest.h>

#include <set>

namespace cell {
namespace {

TEST(RequestSlots, NoTwoRequestsInFlightHaveASlot) {
  RequestSlots slots(7);
  std::set<uint16_t> taken;
  for (int i = 0; i < kRequestSlots; ++i) {
    const std::optional<RequestId> id = slots.Take();
    ASSERT_TRUE(id.has_value());
    EXPECT_EQ(id->client, 7u);
    EXPECT_EQ(id->number, 1u);
    EXPECT_LT(id->slot, kRequestSlots);
    EXPECT_TRUE(taken.insert(id->slot).second);
  }
  EXPECT_FALSE(slots.Take().has_value());
  slots.Give({7, 1, 0, 5});
  const std::optional<RequestId> id = slots.Take();
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(id->slot, 5);
  EXPECT_EQ(id->number, 2u) << "the slot's next request has another id";
}

TEST(RequestSlots, AreRenewedWhenMostAreRetired) {
  RequestSlots slots(7);
  const RequestId first = *slots.Take();
  for (int i = 0; i <= kRequestSlots / 2; ++i) {
    EXPECT_FALSE(slots.worn_out());
    slots.Retire(*slots.Take());
  }
  EXPECT_TRUE(slots.worn_out());
  slots.Renew(8);
  EXPECT_FALSE(slots.worn_out());
  std::set<uint16_t> taken;
  for (int i = 0; i < kRequestSlots; ++i) {
    const std::optional<RequestId> id = slots.Take();
    ASSERT_TRUE(id.has_value());
    EXPECT_EQ(id->client, 8u);
    EXPECT_TRUE(taken.insert(id->slot).second);
  }
  slots.Give(first);
  EXPECT_FALSE(slots.Take().has_value()) << "the slot of another client's request";
}

TEST(KnownStamp, SaysUntilWhenARequestMayBeTried) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  KnownStamp stamp;
  EXPECT_EQ(stamp.Until(5), 0u);
  stamp.Note(1'000, 0);
  EXPECT_EQ(stamp.Until(0), 1'000 + kRequestTriedNs);
  // Never later than a slow clock at the worker would have it.
  EXPECT_EQ(stamp.Until(80 * kSecondNs), 1'000 + kRequestTriedNs + uint64_t{70} * kSecondNs);
  EXPECT_EQ(stamp.Until(1'000 * kSecondNs), 0u) << "that is too long ago";
  stamp.Forget();
  EXPECT_EQ(stamp.Until(0), 0u);
}

}  // namespace
}  // namespace cell

#include "cell/region/outcomes.h"

#include <gtest/gtest.h>

#include <string>

namespace cell {
namespace {

constexpr uint32_t kRequest = 7, kUser = 1;

Outcome Of(uint64_t client, uint16_t slot, uint64_t number, uint64_t until = 100, uint32_t user = kUser) {
  return {{client, number, until, slot}, 50, kRequest, user, true, true, "result", 0};
}

TEST(Outcomes, ARequestIsKnownByItsId) {
  Outcomes outcomes;
  const RequestId id{1, 5, 100, 3};
  EXPECT_EQ(*outcomes.Find(id, kRequest), nullptr);
  outcomes.Remember(Of(1, 3, 5));
  ASSERT_NE(*outcomes.Find(id, kRequest), nullptr);
  EXPECT_EQ((*outcomes.Find(id, kRequest))->result, "result");
  // The next one of the slot, others' slots, and the same slot of another client.
  EXPECT_EQ(*outcomes.Find({1, 6, 100, 3}, kRequest), nullptr);
  EXPECT_EQ(*outcomes.Find({1, 5, 100, 4}, kRequest), nullptr);
  EXPECT_EQ(*outcomes.Find({2, 5, 100, 3}, kRequest), nullptr);
  // An earlier one of the slot, and another request under the id.
  EXPECT_EQ(outcomes.Find({1, 4, 100, 3}, kRequest).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(outcomes.Find(id, kRequest + 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(outcomes.Find({1, 5, 101, 3}, kRequest).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Outcomes, TheLastOfASlotIsKept) {
  Outcomes outcomes;
  outcomes.Remember(Of(1, 3, 5));
  outcomes.Remember(Of(1, 3, 4));
  EXPECT_NE(*outcomes.Find({1, 5, 100, 3}, kRequest), nullptr);
  Outcomes others;
  Outcome logged = Of(1, 3, 6);
  logged.sequence = 1'000'000;
  others.Remember(logged);
  others.Remember(Of(2, 0, 1));
  outcomes.Remember(others);
  EXPECT_NE(*outcomes.Find({1, 6, 100, 3}, kRequest), nullptr);
  EXPECT_EQ((*outcomes.Find({1, 6, 100, 3}, kRequest))->sequence, 0u) << "that was the other region's log";
  EXPECT_NE(*outcomes.Find({2, 1, 100, 0}, kRequest), nullptr);
  EXPECT_EQ(outcomes.size(), 2u);
}

// A region that was written by a transaction takes in another one. It is its primary, and knows who has to hear of it.
TEST(Outcomes, WhatANeighbourKnowsOfARequestReplacesNothing) {
  Outcomes outcomes, neighbours;
  Outcome primarys = Of(1, 3, 5);
  primarys.open = true;
  outcomes.Remember(primarys);
  outcomes.Remember(Of(1, 4, 5));
  neighbours.Remember(Of(1, 3, 5));
  neighbours.Remember(Of(1, 4, 6));
  neighbours.Remember(Of(1, 5, 1));
  outcomes.Remember(neighbours);
  EXPECT_TRUE(outcomes.Find({1, 5, 100, 3})->open);
  EXPECT_EQ(outcomes.open(), 1u);
  EXPECT_NE(outcomes.Find({1, 6, 100, 4}), nullptr);
  EXPECT_NE(outcomes.Find({1, 1, 100, 5}), nullptr);
  // It is not forgotten either, however late it is.
  outcomes.Forget(1'000'000);
  EXPECT_NE(outcomes.Find({1, 5, 100, 3}), nullptr);
  EXPECT_EQ(outcomes.Find({1, 6, 100, 4}), nullptr);
}

TEST(Outcomes, ThoseThatMayBeForgottenMakeRoom) {
  Outcomes outcomes(1000);
  const auto add = [&](uint64_t client, uint64_t until, uint64_t last_stamp, uint32_t user) {
    const Outcome one = Of(client, 0, 1, until, user);
    const absl::Status room = outcomes.MakeRoom(one.id, user, last_stamp);
    if (room.ok()) outcomes.Remember(one);
    return room.code();
  };
  for (uint64_t client = 1; client <= 500; ++client) {
    ASSERT_EQ(add(client, 1'000'000'000 + client, 1, kUser), absl::StatusCode::kOk) << client;
  }
  EXPECT_EQ(add(501, 1'000'000'000, 1, kUser), absl::StatusCode::kUnavailable) << "one user has half of all";
  for (uint64_t client = 1001; client <= 1500; ++client) {
    ASSERT_EQ(add(client, 1'000'000'000 + client, 1, kUser + client), absl::StatusCode::kOk) << client;
  }
  EXPECT_EQ(add(2000, 2'000'000'000, 1, 9999), absl::StatusCode::kUnavailable) << "there is no room for anybody";
  EXPECT_EQ(add(1, 1'000'000'001, 1, kUser), absl::StatusCode::kOk) << "a slot that is known needs no room";
  // Now the first ones have had their time. None is forgotten before.
  EXPECT_EQ(add(2000, 2'000'000'000, 1'000'000'101, 9999), absl::StatusCode::kOk);
  EXPECT_EQ(*outcomes.Find({100, 1, 1'000'000'100, 0}, kRequest), nullptr);
  EXPECT_NE(*outcomes.Find({101, 1, 1'000'000'101, 0}, kRequest), nullptr);
  EXPECT_EQ(outcomes.size(), 901u);
  EXPECT_EQ(add(501, 2'000'000'000, 1'000'000'101, kUser), absl::StatusCode::kOk) << "this user's, too";
}

TEST(Outcomes, AreCodedAsTheyAre) {
  Outcome outcome = Of(0x1122334455667788, kRequestSlots - 1, 5);
  outcome.changed = false;
  const std::string bytes = EncodeOutcome(outcome);
  ASSERT_EQ(OutcomeBytes(bytes), bytes.size());
  ASSERT_EQ(OutcomeBytes(bytes + "more"), bytes.size());
  const Outcome decoded = DecodeOutcome(bytes);
  EXPECT_EQ(decoded.id.client, outcome.id.client);
  EXPECT_EQ(decoded.id.number, outcome.id.number);
  EXPECT_EQ(decoded.id.until, outcome.id.until);
  EXPECT_EQ(decoded.id.slot, outcome.id.slot);
  EXPECT_EQ(decoded.stamp, outcome.stamp);
  EXPECT_EQ(decoded.fingerprint, outcome.fingerprint);
  EXPECT_EQ(decoded.user, outcome.user);
  EXPECT_TRUE(decoded.existed);
  EXPECT_FALSE(decoded.changed);
  EXPECT_EQ(decoded.result, outcome.result);
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_EQ(OutcomeBytes(bytes.substr(0, size)), std::nullopt);
  Outcome wrong = outcome;
  wrong.id.slot = kRequestSlots;
  EXPECT_EQ(OutcomeBytes(EncodeOutcome(wrong)), std::nullopt);
  wrong = outcome;
  wrong.id.client = 0;
  EXPECT_EQ(OutcomeBytes(EncodeOutcome(wrong)), std::nullopt);
  wrong = outcome;
  wrong.result = std::string(65, 'r');
  EXPECT_EQ(OutcomeBytes(EncodeOutcome(wrong)), std::nullopt);
}

// Otherwise a user who has had many would be refused for as long as others do not fill the rest.
TEST(Outcomes, AUserWithAsManyAsItMayHaveHasRoomAgainWhenTheirTimeIsOver) {
  Outcomes outcomes;
  const RequestId more{Outcomes::kMax, 1, 1'000'000'000, 0};
  for (uint64_t client = 1; client <= Outcomes::kMax / 2; ++client) {
    ASSERT_TRUE(outcomes.MakeRoom({client, 1, 100, 0}, kUser, 50).ok());
    outcomes.Remember(Of(client, 0, 1));
  }
  EXPECT_EQ(outcomes.MakeRoom(more, kUser, 60).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(outcomes.MakeRoom(more, kUser, 500'000'000).ok());
  EXPECT_EQ(outcomes.size(), 0u);
}

}  // namespace
}  // namespace cell

#include "cell/io/fabric/call_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cell/io/fabric/waiter.h"

namespace cell {
namespace {

TEST(CallTable, AReplyEndsItsCallAndNoOther) {
  Waiter first, second;
  CallTable calls;
  const uint64_t a = calls.Add(&first, 100, 256, 10);
  const uint64_t b = calls.Add(&second, 200, 256, 20);
  Completion* told = nullptr;
  EXPECT_FALSE(calls.Take(a, 257, &told));
  EXPECT_FALSE(calls.Take(a + (uint64_t{1} << 32), 0, &told));
  EXPECT_FALSE(calls.Take(77, 0, &told));
  EXPECT_TRUE(calls.Take(a, 256, &told));
  EXPECT_EQ(told, &first);
  EXPECT_FALSE(calls.Take(a, 0, &told));
  calls.Expire(200, [&](Completion* completion) { EXPECT_EQ(completion, &second); });
  EXPECT_EQ(calls.in_flight(), 1u);  // Its reply may still come...
  EXPECT_TRUE(calls.Take(b, 0, &told));
  EXPECT_EQ(told, nullptr);  // ...and belongs to nobody.
  calls.Add(&first, 100, 256, 30);
  calls.Add(&second, 100, 256, 40);
  std::vector<bool> sent;
  calls.Fail(39, [&](Completion*, bool was_sent) { sent.push_back(was_sent); });
  std::sort(sent.begin(), sent.end());
  EXPECT_EQ(sent, (std::vector<bool>{false, true}));
}

TEST(CallTable, ACallIsFoundUntilItEnds) {
  Waiter waiter;
  CallTable calls;
  const uint64_t id = calls.Add(&waiter, 100, 256, 7);
  ASSERT_NE(calls.Find(id), nullptr);
  EXPECT_EQ(calls.Find(id)->position, 7u);
  EXPECT_EQ(calls.Find(id)->reply_bytes_max, 256u);
  EXPECT_EQ(calls.Find(id + 1), nullptr);
  calls.Expire(100, [](Completion*) {});
  ASSERT_NE(calls.Find(id), nullptr);
  EXPECT_EQ(calls.Find(id)->completion, nullptr);
  Completion* told = nullptr;
  EXPECT_TRUE(calls.Take(id, 0, &told));
  EXPECT_EQ(calls.Find(id), nullptr);
  // Its entry is used again, under another id.
  const uint64_t next = calls.Add(&waiter, 100, 256, 8);
  EXPECT_NE(next, id);
  EXPECT_EQ(calls.Find(id), nullptr);
  EXPECT_NE(calls.Find(next), nullptr);
}

}  // namespace
}  // namespace cell

// Tests that coroutines have their turns in order.
#include "cell/gateway/key_turns.h"

#include <gtest/gtest.h>

#include <vector>

#include "cell/base/task.h"

namespace cell::gateway {
namespace {

Task<bool> Note(KeyTurns* turns, const std::string& key, int number, std::vector<int>* order) {
  co_await turns->Enter(key);
  order->push_back(number);
  co_return true;
}

TEST(KeyTurns, GivesTurnsInOrderKeyByKey) {
  KeyTurns turns;
  const std::string a = "a", b = "b";
  std::vector<int> order;
  std::vector<Task<bool>> tasks;
  tasks.reserve(4);
  for (int i = 0; i < 3; ++i) tasks.push_back(Note(&turns, a, i, &order));
  tasks.push_back(Note(&turns, b, 10, &order));
  for (Task<bool>& task : tasks) task.Start();
  EXPECT_EQ(order, (std::vector<int>{0, 10}));
  turns.Leave(a);
  EXPECT_EQ(order.size(), 2u) << "The next one goes on at Resume.";
  EXPECT_TRUE(turns.Resume());
  EXPECT_EQ(order, (std::vector<int>{0, 10, 1}));
  turns.Leave(a);
  turns.Leave(b);
  EXPECT_TRUE(turns.Resume());
  turns.Leave(a);
  EXPECT_FALSE(turns.Resume());
  EXPECT_EQ(order, (std::vector<int>{0, 10, 1, 2}));
  Task<bool> again = Note(&turns, a, 3, &order);
  again.Start();
  EXPECT_TRUE(again.done()) << "The key is free again.";
}

}  // namespace
}  // namespace cell::gateway

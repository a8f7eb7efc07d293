#include "cell/cluster/wake_function.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace cell {
namespace {

TEST(WakeFunction, CallsWhatWasSetLast) {
  WakeFunction wake;
  wake.Call();  // Nothing is set.
  int first = 0, second = 0;
  wake.Set([&first] { ++first; });
  wake.Call();
  wake.Set([&second] { ++second; });
  wake.Call();
  wake.Set(nullptr);
  wake.Call();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
}

// What the function refers to may be destroyed as soon as Set returns.
TEST(WakeFunction, SetWaitsForACallThatHasBegun) {
  WakeFunction wake;
  std::atomic<bool> inside = false, ended = false;
  wake.Set([&] {
    inside = true;
    inside.notify_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // Long enough for a Set that does not wait.
    ended = true;
  });
  std::thread caller([&wake] { wake.Call(); });
  inside.wait(false);
  wake.Set(nullptr);
  EXPECT_TRUE(ended);
  caller.join();
}

}  // namespace
}  // namespace cell

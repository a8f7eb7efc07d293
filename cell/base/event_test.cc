#include "cell/base/event.h"

#include <gtest/gtest.h>

#include <string>

#include "cell/base/task.h"

namespace cell {
namespace {

class Later : public Executor {
 public:
  void Schedule(std::coroutine_handle<> ready) override { ready_.push_back(ready); }
  size_t Run() {
    const auto now = std::exchange(ready_, {});
    for (const std::coroutine_handle<> ready : now) ready.resume();
    return now.size();
  }

 private:
  std::vector<std::coroutine_handle<>> ready_;
};

Task<bool> Wait(Event* event, Executor* executor, std::string* log, char name) {
  co_await event->Wait(executor);
  *log += name;
  co_return true;
}

TEST(Event, LetsAllGoOnThatWaitAndNotInsideNotify) {
  Later later;
  Event event;
  std::string log;
  event.Notify();  // Without waiters a notification has no effect.
  Task<bool> a = Wait(&event, &later, &log, 'a'), b = Wait(&event, &later, &log, 'b');
  a.Start();
  b.Start();
  EXPECT_EQ(later.Run(), 0u);
  event.Notify();
  event.Notify();
  EXPECT_EQ(log, "");
  EXPECT_EQ(later.Run(), 2u);
  EXPECT_EQ(log, "ab");
  EXPECT_TRUE(a.done() && b.done());
}

TEST(Event, LetsThemGoOnAtItsEnd) {
  Later later;
  std::string log;
  auto event = std::make_unique<Event>();
  Task<bool> a = Wait(event.get(), &later, &log, 'a');
  a.Start();
  event.reset();
  later.Run();
  EXPECT_EQ(log, "a");
}

Task<bool> Hold(Mutex* mutex, Event* until, Executor* executor, std::string* log, char name) {
  const Mutex::Guard guard = co_await mutex->Lock(executor);
  *log += name;
  co_await until->Wait(executor);
  *log += name;
  co_return true;
}

TEST(Mutex, IsHeldByOneAfterTheOtherInTheirOrder) {
  Later later;
  Mutex mutex;
  Event until;
  std::string log;
  Task<bool> tasks[] = {Hold(&mutex, &until, &later, &log, 'a'), Hold(&mutex, &until, &later, &log, 'b'),
                        Hold(&mutex, &until, &later, &log, 'c')};
  for (Task<bool>& task : tasks) task.Start();
  EXPECT_EQ(log, "a");
  EXPECT_FALSE(mutex.TryLock().has_value());
  for (const char* want : {"aab", "aabbc", "aabbcc"}) {
    until.Notify();
    while (later.Run() > 0) {
    }
    EXPECT_EQ(log, want);
  }
  {
    const std::optional<Mutex::Guard> guard = mutex.TryLock();
    EXPECT_TRUE(guard.has_value());
    EXPECT_FALSE(mutex.TryLock().has_value());
  }
  EXPECT_TRUE(mutex.TryLock().has_value());
}

}  // namespace
}  // namespace cell

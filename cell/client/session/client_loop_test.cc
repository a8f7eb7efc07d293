#include "cell/client/session/client_loop.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cell/base/task.h"
#include "cell/io/sim/sim_fabric.h"

namespace cell {
namespace {

class ClientLoopTest : public ::testing::Test {
 protected:
  Task<bool> Sleep(int64_t at_ns, std::string name) {
    co_await loop_.SleepUntil(at_ns);
    went_on_.push_back(name);
    co_return true;
  }
  Task<bool> Await(const void* event, int64_t deadline_ns, std::string name) {
    co_await loop_.WaitFor(event, deadline_ns);
    went_on_.push_back(name);
    co_return true;
  }
  void PassTo(int64_t at_ns) {
    while (loop_.now_ns() < at_ns) loop_.Wait(at_ns);
    loop_.Step();
  }

  SimNetwork network_{SimOptions{}};
  ClientLoop loop_{network_.NewEndpoint()};
  std::vector<std::string> went_on_;
};

TEST_F(ClientLoopTest, SleepersGoOnByTheirTimes) {
  Task<bool> late = Sleep(3'000, "late");
  Task<bool> early = Sleep(1'000, "early");
  late.Start();
  early.Start();
  loop_.Wait(INT64_MAX);  // Until the first time for which somebody waits.
  EXPECT_EQ(loop_.now_ns(), 1'000);
  EXPECT_EQ(loop_.Step(), 1u);
  EXPECT_EQ(went_on_, std::vector<std::string>{"early"});
  PassTo(3'000);
  EXPECT_EQ(went_on_, (std::vector<std::string>{"early", "late"}));
}

TEST_F(ClientLoopTest, AnEventWakesThoseThatWaitForItInTheirOrder) {
  const int event = 0, other = 0;
  Task<bool> first = Await(&event, INT64_MAX, "first");
  Task<bool> second = Await(&other, INT64_MAX, "other");
  Task<bool> third = Await(&event, INT64_MAX, "third");
  for (Task<bool>* task : {&first, &second, &third}) task->Start();
  loop_.Wake(&event);
  EXPECT_EQ(went_on_, (std::vector<std::string>{"first", "third"}));
  loop_.Wake(&event);
  EXPECT_EQ(went_on_.size(), 2u);
  loop_.Close();
}

TEST_F(ClientLoopTest, WhoWaitsForAnEventGoesOnAtTheDeadline) {
  const int event = 0;
  Task<bool> task = Await(&event, 2'000, "task");
  task.Start();
  PassTo(1'999);
  EXPECT_TRUE(went_on_.empty());
  PassTo(2'000);
  EXPECT_EQ(went_on_.size(), 1u);
}

TEST_F(ClientLoopTest, CloseLetsAllGoOnAndNothingWaitsAfterwards) {
  const int event = 0;
  Task<bool> asleep = Sleep(INT64_MAX, "asleep");
  Task<bool> waiting = Await(&event, INT64_MAX, "waiting");
  asleep.Start();
  waiting.Start();
  const int64_t closed_ns = loop_.NowNs();
  loop_.Close();
  EXPECT_TRUE(asleep.done() && waiting.done());
  EXPECT_TRUE(loop_.closed());
  EXPECT_EQ(loop_.fabric(), nullptr);
  EXPECT_EQ(loop_.NowNs(), closed_ns);
  Task<bool> later = Sleep(INT64_MAX, "later");
  later.Start();
  EXPECT_TRUE(later.done());
}

TEST_F(ClientLoopTest, ADetachedTaskLivesUntilItHasEnded) {
  struct Detached : DetachedTask {
    explicit Detached(bool* alive) : alive(alive) { *alive = true; }
    ~Detached() override { *alive = false; }
    bool ended() const override { return over; }
    bool* alive;
    bool over = false;
  };
  bool alive = false;
  auto owned = std::make_unique<Detached>(&alive);
  Detached* const task = owned.get();
  loop_.Keep(std::move(owned));
  loop_.DestroyEnded();
  EXPECT_TRUE(alive);
  task->over = true;
  loop_.DestroyEnded();
  EXPECT_FALSE(alive);
}

}  // namespace
}  // namespace cell

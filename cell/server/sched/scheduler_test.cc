#include "cell/server/sched/scheduler.h"

#include <gtest/gtest.h>

#include "cell/io/sim/sim_fabric.h"

namespace cell {
namespace {

class SchedulerTest : public ::testing::Test {
 protected:
  Task<bool> Count(int* started, int* ended) {
    ++*started;
    co_await scheduler_.Yield();
    ++*ended;
    co_return true;
  }
  Task<bool> SpawnAnother(int* started, int* ended) {
    scheduler_.Spawn(Count(started, ended));
    co_return true;
  }

  SimNetwork network_{{}};
  std::unique_ptr<SimFabric> fabric_ = network_.NewEndpoint();
  Scheduler scheduler_{fabric_.get()};
  int started_ = 0, ended_ = 0;
};

TEST_F(SchedulerTest, ATaskStartsInTheNextStepAndNotInsideTheCaller) {
  scheduler_.Spawn(Count(&started_, &ended_));
  EXPECT_EQ(started_, 0);
  EXPECT_FALSE(scheduler_.idle());
  EXPECT_EQ(scheduler_.NextNs(), 0);
  EXPECT_EQ(scheduler_.Step(), 1u);
  EXPECT_EQ(started_, 1);
  EXPECT_EQ(ended_, 0);
  EXPECT_EQ(scheduler_.Step(), 1u);
  EXPECT_EQ(ended_, 1);
  EXPECT_TRUE(scheduler_.idle());
  EXPECT_EQ(scheduler_.NextNs(), INT64_MAX);
}

TEST_F(SchedulerTest, ATaskThatATaskSpawnsStartsInTheStepAfter) {
  scheduler_.Spawn(SpawnAnother(&started_, &ended_));
  scheduler_.Step();
  EXPECT_EQ(started_, 0);
  EXPECT_FALSE(scheduler_.idle());
  scheduler_.Step();
  EXPECT_EQ(started_, 1);
  scheduler_.Step();
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(SchedulerTest, ATaskSpawnedWhileAllIsToStopStillEnds) {
  scheduler_.Stop();
  scheduler_.Spawn(Count(&started_, &ended_));
  while (!scheduler_.idle()) scheduler_.Step();
  EXPECT_EQ(ended_, 1);
}

TEST_F(SchedulerTest, StopLetsThoseGoOnThatItInterrupts) {
  Event event;
  bool stopped = false;
  const auto wait = [&]() -> Task<bool> {
    while (!scheduler_.stopping()) co_await event.Wait(&scheduler_);
    stopped = true;
    co_return true;
  };
  scheduler_.InterruptOnStop(&event);
  scheduler_.Spawn(wait());
  scheduler_.Step();
  event.Notify();
  EXPECT_EQ(scheduler_.NextNs(), 0);  // The worker does not sleep over it.
  scheduler_.Step();
  EXPECT_FALSE(stopped);
  scheduler_.Stop();
  scheduler_.Step();
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(scheduler_.idle());
}

}  // namespace
}  // namespace cell

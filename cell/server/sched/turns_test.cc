#include "cell/server/sched/turns.h"

#include <gtest/gtest.h>

#include "cell/io/sim/sim_fabric.h"

namespace cell {
namespace {

class TurnsTest : public ::testing::Test {
 protected:
  Task<bool> Count(int* started, int* ended) {
    ++*started;
    co_await turns_.Next();
    ++*ended;
    co_return true;
  }
  Task<bool> BeginAnother(int* started, int* ended) {
    turns_.Begin(Count(started, ended));
    co_return true;
  }

  SimNetwork network_{{}};
  std::unique_ptr<SimFabric> fabric_ = network_.NewEndpoint();
  Turns turns_{fabric_.get()};
  int started_ = 0, ended_ = 0;
};

TEST_F(TurnsTest, ATaskStartsInTheNextStepAndNotInsideTheCaller) {
  turns_.Begin(Count(&started_, &ended_));
  EXPECT_EQ(started_, 0);
  EXPECT_FALSE(turns_.idle());
  EXPECT_EQ(turns_.NextNs(), 0);
  EXPECT_EQ(turns_.Step(), 1u);
  EXPECT_EQ(started_, 1);
  EXPECT_EQ(ended_, 0);
  EXPECT_EQ(turns_.Step(), 1u);
  EXPECT_EQ(ended_, 1);
  EXPECT_TRUE(turns_.idle());
  EXPECT_EQ(turns_.NextNs(), INT64_MAX);
}

TEST_F(TurnsTest, ATaskThatATaskBeginsStartsInTheStepAfter) {
  turns_.Begin(BeginAnother(&started_, &ended_));
  turns_.Step();
  EXPECT_EQ(started_, 0);
  EXPECT_FALSE(turns_.idle());
  turns_.Step();
  EXPECT_EQ(started_, 1);
  turns_.Step();
  EXPECT_TRUE(turns_.idle());
}

TEST_F(TurnsTest, ATaskThatIsBegunWhileAllIsToStopStillEnds) {
  turns_.Stop();
  turns_.Begin(Count(&started_, &ended_));
  while (!turns_.idle()) turns_.Step();
  EXPECT_EQ(ended_, 1);
}

TEST_F(TurnsTest, StopLetsThoseGoOnThatItInterrupts) {
  Event event;
  bool stopped = false;
  const auto wait = [&]() -> Task<bool> {
    while (!turns_.stopping()) co_await event.Wait(&turns_);
    stopped = true;
    co_return true;
  };
  turns_.InterruptOnStop(&event);
  turns_.Begin(wait());
  turns_.Step();
  event.Notify();
  EXPECT_EQ(turns_.NextNs(), 0);  // The worker must not sleep now.
  turns_.Step();
  EXPECT_FALSE(stopped);
  turns_.Stop();
  turns_.Step();
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(turns_.idle());
}

}  // namespace
}  // namespace cell

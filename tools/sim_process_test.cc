#include "tools/sim_process.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

// Runs a process that does what `run` does, until it ends.
SimProcess::Outcome OutcomeOf(const std::function<std::string()>& run) {
  SimProcess process = SimProcess::Begin(run, 60);
  for (;;) {
    if (std::optional<SimProcess::Outcome> outcome = process.Hear()) return *std::move(outcome);
  }
}
SimProcess::Outcome OutcomeOfSignal(int signal) {
  return OutcomeOf([signal] {
    (void)std::raise(signal);
    return std::string("it did not end");
  });
}

TEST(SimProcess, GivesTheTextOfItsRun) {
  const SimProcess::Outcome outcome = OutcomeOf([] { return std::string("a report"); });
  EXPECT_EQ(outcome.text, "a report");
  EXPECT_FALSE(outcome.stopped);
}

TEST(SimProcess, TellsTheLimitOfTimeFromWhatElseEndsIt) {
  (void)std::signal(SIGXCPU, SIG_IGN);  // As a caller may leave it.
  const SimProcess::Outcome late = OutcomeOfSignal(SIGXCPU);
  EXPECT_NE(late.died.find("it used more CPU time than allowed"), std::string::npos) << late.died;
  EXPECT_TRUE(late.stopped);
  const SimProcess::Outcome killed = OutcomeOfSignal(SIGKILL);
  EXPECT_NE(killed.died.find("something killed it"), std::string::npos) << killed.died;
  EXPECT_TRUE(killed.stopped);
  const SimProcess::Outcome crashed = OutcomeOfSignal(SIGABRT);
  EXPECT_EQ(crashed.died, fmt::format("the process ended with signal {}", SIGABRT));
  EXPECT_FALSE(crashed.stopped);
}

}  // namespace
}  // namespace cell

#include "cell/client/session/cpu_meter.h"

#include <gtest/gtest.h>

#include "selector/selector.h"

namespace cell {
namespace {

// Begins turns at `now_ns` until one is sampled.
void BeginSampled(CpuMeter* meter, int64_t now_ns) {
  do {
    meter->BeginTurn(now_ns);
  } while (!meter->sampled());
}

TEST(CpuMeter, ChargesAllOfATurnToItsCompletions) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  CpuMeter meter;
  BeginSampled(&meter, 1'000);
  meter.Begin(&selector, CpuMeter::Work::kRead, 1'100);
  meter.Begin(nullptr, CpuMeter::Work::kRead, 1'300);
  meter.Begin(&selector, CpuMeter::Work::kCall, 1'400);
  meter.End(1'900);
  // They took 200, 100 and, as is assumed, 150. Each has a third of the other 450.
  EXPECT_EQ(common.read_cpu, 350);
  EXPECT_EQ(common.call_cpu, 300);
  meter.End(5'000);  // Nothing is left.
  EXPECT_EQ(common.call_cpu, 300);
}

TEST(CpuMeter, ATurnWithoutCompletionsChargesNobody) {
  CommonEstimates common;
  Selector selector({}, 1, &common);
  CpuMeter meter;
  BeginSampled(&meter, 1'000);
  meter.Begin(&selector, CpuMeter::Work::kCall, 1'100);
  meter.End(1'200);
  BeginSampled(&meter, 2'000);
  meter.End(9'000);
  BeginSampled(&meter, 10'000);
  meter.Begin(&selector, CpuMeter::Work::kRead, 10'100);
  meter.End(10'200);
  EXPECT_EQ(common.call_cpu, 200);
  EXPECT_EQ(common.read_cpu, 200);
}

TEST(CpuMeter, IsAsBusyAsItsTurnsHaveWorked) {
  CpuMeter meter;
  int64_t now_ns = 1'000'000;
  const auto run = [&](int64_t works_ns, int64_t waits_ns) {
    for (int i = 0; i < 10'000; ++i) {
      meter.BeginTurn(now_ns);
      meter.Worked();
      meter.BeginTurn(now_ns += works_ns);
      meter.BeginTurn(now_ns += waits_ns);
    }
    return meter.busy();
  };
  EXPECT_NEAR(run(1'000, 3'000), 0.25, 0.01);
  EXPECT_NEAR(run(2'000, 0), 1, 0.01);
  EXPECT_NEAR(run(0, 2'000), 0, 0.01) << "in virtual time nothing takes time but waiting";
}

TEST(CpuMeter, KnowsHowLongATurnWorks) {
  CpuMeter meter;
  meter.BeginTurn(1'000'000);
  for (int64_t now_ns = 1'000'000, i = 0; i < 1'000; ++i) {
    meter.Worked();
    meter.BeginTurn(now_ns += 1'000);
    meter.BeginTurn(now_ns += 50'000);
  }
  EXPECT_NEAR(meter.turn_ns(), 1'000, 1) << "turns without work do not count";
}

}  // namespace
}  // namespace cell

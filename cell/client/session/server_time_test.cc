// Tests that the bounds of a server's time hold whatever its clock does within its rate.
#include "cell/client/session/server_time.h"

#include <gtest/gtest.h>

#include "cell/base/random.h"

namespace cell {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kToday = 1'795'000'000'000'000'000;

TEST(ServerTime, KnowsNothingAtFirst) {
  ServerTime time;
  EXPECT_EQ(time.At(5, kToday), ServerTime::Life::kUndecided);
  EXPECT_EQ(time.At(5, kNeverExpires), ServerTime::Life::kAlive);
  time.Set(kToday, 0, 10);
  EXPECT_EQ(time.At(5, kToday + 1000 * kMs), ServerTime::Life::kAlive);
  time.Forget();
  EXPECT_EQ(time.At(5, kToday + 1000 * kMs), ServerTime::Life::kUndecided);
}

TEST(ServerTime, AWorkerWithoutAClockLetsNothingExpire) {
  ServerTime time;
  time.Set(0, 0, 10);
  EXPECT_EQ(time.At(1000 * kMs, 1), ServerTime::Life::kAlive);
}

TEST(ServerTime, IsWithinTheRoundTripAndTheRate) {
  using Life = ServerTime::Life;
  ServerTime time;
  time.Set(kToday, 100 * kMs, 102 * kMs);
  EXPECT_EQ(time.At(102 * kMs, kToday + 3 * kMs), Life::kAlive);
  EXPECT_EQ(time.At(102 * kMs, kToday + 1 * kMs), Life::kUndecided);
  EXPECT_EQ(time.At(102 * kMs, kToday - 1 * kMs), Life::kExpired);
  // 0.8 s later it may be off by 100 ms more.
  EXPECT_EQ(time.At(902 * kMs, kToday + 905 * kMs), Life::kAlive);
  EXPECT_EQ(time.At(902 * kMs, kToday + 901 * kMs), Life::kUndecided);
  EXPECT_EQ(time.At(902 * kMs, kToday + 701 * kMs), Life::kUndecided);
  EXPECT_EQ(time.At(902 * kMs, kToday + 698 * kMs), Life::kExpired);
  // And before the answer.
  EXPECT_EQ(time.At(92 * kMs, kToday - 6 * kMs), Life::kAlive);
  EXPECT_EQ(time.At(92 * kMs, kToday - 12 * kMs), Life::kExpired);
}

TEST(ServerTime, IsNeverWrong) {
  Random random(1);
  for (int i = 0; i < 100'000; ++i) {
    const double rate = 1 + (random.Unit() - 0.5) / 4;
    const int64_t offset = static_cast<int64_t>(random.Below(1'000'000)) * kMs;
    const auto at = [&](int64_t local) { return kToday + static_cast<uint64_t>(rate * static_cast<double>(local)); };
    const auto answered = offset + static_cast<int64_t>(random.Below(20 * kMs));
    ServerTime time;
    time.Set(at(answered), answered - static_cast<int64_t>(random.Below(5 * kMs)),
             answered + static_cast<int64_t>(random.Below(5 * kMs)));
    const auto asked = std::max<int64_t>(0, answered - 10'000 * kMs + static_cast<int64_t>(random.Below(20'000)) * kMs);
    const Expiry expiry = at(asked) - 1000 * kMs + random.Below(2000) * kMs;
    const ServerTime::Life life = time.At(asked, expiry);
    if (life == ServerTime::Life::kUndecided) continue;
    ASSERT_EQ(life == ServerTime::Life::kExpired, HasExpired(expiry, at(asked))) << i;
  }
}

}  // namespace
}  // namespace cell

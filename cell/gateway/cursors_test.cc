// Tests the cursors of SCAN.
#include "cell/gateway/cursors.h"

#include <gtest/gtest.h>

namespace cell::gateway {
namespace {

TEST(Cursors, RemembersAKeyUntilThereAreTooMany) {
  Cursors cursors;
  const uint64_t first = cursors.Add("first");
  EXPECT_NE(first, 0u);
  EXPECT_EQ(cursors.Find(first), "first");
  EXPECT_EQ(cursors.Find(first), "first");
  EXPECT_EQ(cursors.Find(first + 1), std::nullopt);
  EXPECT_EQ(cursors.Find(0), std::nullopt);
  uint64_t last = 0;
  for (int i = 0; i < 100'000; ++i) last = cursors.Add(std::to_string(i));
  EXPECT_EQ(cursors.Find(first), std::nullopt);
  EXPECT_EQ(cursors.Find(last), "99999");
  EXPECT_LT(last, uint64_t{1} << 53);
}

}  // namespace
}  // namespace cell::gateway

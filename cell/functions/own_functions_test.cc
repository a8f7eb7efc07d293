// Is linked with example_functions.cc in the place of own_functions.cc.
#include "cell/functions/own_functions.h"

#include <gtest/gtest.h>

#include "cell/functions/functions.h"

namespace cell {
namespace {

TEST(OwnFunctions, AreInTheTableBesideTheBuiltinOnes) {
  const Function* prefix = Functions().Find("prefix");
  ASSERT_NE(prefix, nullptr);
  EXPECT_EQ(cell::Run(*prefix, {"value", "xx"}).value().result, "va");
  EXPECT_EQ(cell::Run(*prefix, {std::nullopt, "xx"}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Functions().Find("add"), nullptr);
}

}  // namespace
}  // namespace cell

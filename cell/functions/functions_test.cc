#include "cell/functions/functions.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cell/functions/own_functions.h"

namespace cell {
namespace {

TEST(Functions, HasTheBuiltinOnes) {
  const std::set<std::string_view> writing = {"add", "add-checked", "add-decimal", "and", "append", "compare-and-swap",
                                              "max", "min",         "or",          "xor"};
  const std::set<std::string_view> reading = {"sum", "least", "greatest", "count", "filter"};
  for (const std::string_view name : writing) {
    ASSERT_NE(Functions().Find(name), nullptr) << name;
    EXPECT_TRUE(Functions().Find(name)->writes) << name;
  }
  for (const std::string_view name : reading) {
    ASSERT_NE(Functions().Find(name), nullptr) << name;
    EXPECT_FALSE(Functions().Find(name)->writes) << name;
  }
  FunctionTable own;
  AddOwnFunctions(&own);
  EXPECT_EQ(Functions().all().size(), writing.size() + reading.size() + own.all().size());
}

TEST(Functions, IsMadeOnce) { EXPECT_EQ(&Functions(), &Functions()); }

TEST(Functions, HaveHelpOfOneLine) {
  for (const Function* function : Functions().all()) {
    EXPECT_FALSE(function->help.empty()) << function->name;
    EXPECT_EQ(function->help.find('\n'), std::string_view::npos) << function->name;
  }
}

}  // namespace
}  // namespace cell

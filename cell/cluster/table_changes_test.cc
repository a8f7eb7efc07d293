#include "cell/cluster/table_changes.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

TEST(TableChanges, EachSeesThoseBeforeItAndOneThatFailsLeavesNoTrace) {
  const Membership::TableChange add = [](RegionTable* table) { return table->Add({"a", 0}).status(); };
  const Membership::TableChange move = [](RegionTable* table) { return table->Move(1, 1, {"b", 0}); };
  const Membership::TableChange fail = [](RegionTable* table) {
    table->regions.Clear();
    return absl::AbortedError("not now");
  };
  RegionTable table;
  const std::vector<const Membership::TableChange*> changes = {&move, &add, &fail, &move, &move};
  const std::vector<absl::Status> results = ApplyChanges(changes, &table);
  ASSERT_EQ(results.size(), changes.size());
  EXPECT_TRUE(absl::IsAborted(results[0]));  // There was no region yet.
  EXPECT_TRUE(results[1].ok());
  EXPECT_EQ(results[2].message(), "not now");
  EXPECT_TRUE(results[3].ok());
  EXPECT_TRUE(absl::IsAborted(results[4]));
  ASSERT_NE(table.Find(1), nullptr);
  EXPECT_EQ(table.Find(1)->owner.server, "b");
  EXPECT_EQ(table.Find(1)->epoch, 2u);
}

}  // namespace
}  // namespace cell

#include "cell/region/written_pages.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cell {
namespace {

constexpr uint64_t kPage = WrittenPages::kPageBytes;
using PageRun = std::pair<uint32_t, uint32_t>;

std::vector<PageRun> TakeAll(WrittenPages* pages, uint32_t pages_max) {
  std::vector<PageRun> runs;
  for (PageRun run = pages->TakeRun(pages_max); run.second > 0; run = pages->TakeRun(pages_max)) runs.push_back(run);
  return runs;
}

TEST(WrittenPages, AStoreMarksEachPageThatItTouches) {
  WrittenPages pages(200 * kPage);
  pages.Mark(kPage - 1, 2);      // Two pages.
  pages.Mark(5 * kPage, kPage);  // One page, to its last byte.
  pages.Mark(7 * kPage + 8, 8);
  EXPECT_EQ(pages.count(), 4u);
  EXPECT_TRUE(pages.Has(0));
  EXPECT_TRUE(pages.Has(2 * kPage - 1));
  EXPECT_FALSE(pages.Has(2 * kPage));
  EXPECT_FALSE(pages.Has(6 * kPage));
  EXPECT_TRUE(pages.Has(7 * kPage));
}

TEST(WrittenPages, RunsAreTakenInOrderAndOnlyOnce) {
  WrittenPages pages(200 * kPage);
  for (const uint64_t page : {2, 3, 4, 63, 64, 65, 130}) pages.Mark(page * kPage, 1);
  EXPECT_EQ(TakeAll(&pages, 100),
            (std::vector<PageRun>{{2, 3}, {63, 3}, {130, 1}}));  // Across the border of two words.
  EXPECT_EQ(pages.count(), 0u);
}

TEST(WrittenPages, ARunHasAtMostAsManyPagesAsAsked) {
  WrittenPages pages(200 * kPage);
  pages.Mark(60 * kPage, 10 * kPage);
  EXPECT_EQ(TakeAll(&pages, 4), (std::vector<PageRun>{{60, 4}, {64, 4}, {68, 2}}));
}

TEST(WrittenPages, AddUnitesAndClearForgets) {
  WrittenPages pages(200 * kPage), others(200 * kPage);
  pages.Mark(0, 1);
  others.Mark(199 * kPage, kPage);
  pages.Add(others);
  EXPECT_EQ(TakeAll(&pages, 100), (std::vector<PageRun>{{0, 1}, {199, 1}}));
  EXPECT_EQ(others.count(), 1u);
  others.Clear();
  EXPECT_EQ(others.count(), 0u);
}

}  // namespace
}  // namespace cell

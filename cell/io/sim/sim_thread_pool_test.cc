// Tests a SimThreadPool's work, at one moment or in steps with other work between them.
#include "cell/io/sim/sim_thread_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cell/io/sim/sim_files.h"

namespace cell {
namespace {

// Returns the order in which two jobs append, sync and complete.
std::string OrderOf(uint64_t seed, bool in_steps) {
  SimNetwork network({.seed = seed});
  SimThreadPool pool(&network, seed, 1'000, in_steps);
  SimDisk disk(seed);
  const std::unique_ptr<SimFiles> files = disk.NewHost();
  EXPECT_TRUE(files->MakeDirectory("log").ok());
  std::string order;
  int told = 0;
  for (const char name : {'a', 'b'}) {
    const auto work = [&order, &files, name] {
      const std::unique_ptr<File> file = *files->Create(std::string("log/") + name);
      EXPECT_TRUE(file->Append("bytes").ok());
      order += name;
      EXPECT_TRUE(file->Sync().ok());
      order += name;
    };
    pool.Run(work, [&told] { ++told; });
  }
  while (told < 2) {
    EXPECT_TRUE(network.Step());
    pool.Poll();
  }
  EXPECT_TRUE(pool.idle());
  EXPECT_EQ(files->open_files(), 0);
  return order;
}

TEST(SimThreadPool, WorkIsDoneAtOneMoment) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const std::string order = OrderOf(seed, /*in_steps=*/false);
    EXPECT_TRUE(order == "aabb" || order == "bbaa") << order;
  }
}

TEST(SimThreadPool, OtherWorkGoesOnBetweenSteps) {
  int between = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const std::string order = OrderOf(seed, /*in_steps=*/true);
    between += order != "aabb" && order != "bbaa";
    EXPECT_EQ(order, OrderOf(seed, /*in_steps=*/true));  // The same seed has the same steps.
  }
  EXPECT_GT(between, 5);
}

TEST(SimThreadPool, WorkOfACrashedProcessStopsBetweenTwoSteps) {
  SimNetwork network({.seed = 1});
  SimThreadPool pool(&network, 1, 1'000, /*in_steps=*/true);
  SimDisk disk(1);
  const std::unique_ptr<SimFiles> files = disk.NewHost();
  bool appended = false, synced = false;
  ASSERT_TRUE(files->MakeDirectory("log").ok());
  const auto work = [&] {
    const std::unique_ptr<File> file = *files->Create("log/a");
    appended = file->Append("bytes").ok();
    synced = file->Sync().ok();
  };
  pool.Run(work, [] { FAIL() << "nothing is told"; });
  while (!appended) ASSERT_TRUE(network.Step());
  pool.Crash();
  while (network.Step()) {
  }
  pool.Poll();
  EXPECT_FALSE(synced);
}

TEST(SimFiles, AFullDiskTakesNothingMoreUntilThereIsRoom) {
  SimDisk disk(1);
  const std::unique_ptr<SimFiles> files = disk.NewHost();
  ASSERT_TRUE(files->MakeDirectory("log").ok());
  const std::unique_ptr<File> file = *files->Create("log/a");
  files->set_full(true);
  EXPECT_EQ(file->Append("bytes").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(files->Create("log/b").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(files->List("log").ok());
  files->set_full(false);
  EXPECT_TRUE(file->Append("bytes").ok());
}

TEST(SimFiles, WithoutDescriptorsWhatIsOpenWorks) {
  SimDisk disk(1);
  const std::unique_ptr<SimFiles> files = disk.NewHost();
  ASSERT_TRUE(files->MakeDirectory("log").ok());
  const std::unique_ptr<File> file = *files->Create("log/a");
  EXPECT_EQ(files->open_files(), 1);
  files->set_descriptors_gone(true);
  EXPECT_TRUE(file->Append("bytes").ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_FALSE(files->Create("log/b").ok());
  EXPECT_FALSE(files->List("log").ok());
  files->set_descriptors_gone(false);
  EXPECT_TRUE(files->List("log").ok());
}

}  // namespace
}  // namespace cell

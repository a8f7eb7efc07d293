// Checks that work runs elsewhere and concurrently, and that each completion runs once, where Poll is called.
#include "cell/io/exec/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>

#include "cell/base/task.h"

namespace cell {
namespace {

TEST(OsThreadPool, DoesAllAndTellsItWhereItIsPolled) {
  std::atomic<int> wakes = 0;
  std::counting_semaphore<> woken(0);
  OsThreadPool pool(3, [&] {
    ++wakes;
    woken.release();
  });
  EXPECT_TRUE(pool.idle());
  EXPECT_EQ(pool.Poll(), 0u);
  const std::thread::id here = std::this_thread::get_id();
  constexpr int kJobs = 2'000;
  std::vector<int> done_by_work(kJobs), told(kJobs);  // Not atomic: a completion sees everything that its work did.
  size_t polled = 0;
  for (int i = 0; i < kJobs; ++i) {
    pool.Run(
        [&, i] {
          EXPECT_NE(std::this_thread::get_id(), here);
          done_by_work[static_cast<size_t>(i)] = i + 1;
        },
        [&, i] {
          EXPECT_EQ(std::this_thread::get_id(), here);
          EXPECT_EQ(done_by_work[static_cast<size_t>(i)], i + 1);
          ++told[static_cast<size_t>(i)];
        });
    if (i % 7 == 0) polled += pool.Poll();
  }
  while (!pool.idle()) {
    woken.acquire();
    polled += pool.Poll();
  }
  EXPECT_EQ(polled, static_cast<size_t>(kJobs));
  EXPECT_EQ(told, std::vector<int>(kJobs, 1));
  EXPECT_EQ(wakes, kJobs);
}

// Waiting work does not delay other work.
TEST(OsThreadPool, WorksAtTheSameTime) {
  std::counting_semaphore<> woken(0);
  OsThreadPool pool(2, [&] { woken.release(); });
  std::binary_semaphore go_on(0);
  int ended = 0;
  pool.Run([&] { go_on.acquire(); }, [&] { ended = 2; });
  pool.Run([&] { go_on.release(); }, [&] { ++ended; });
  while (!pool.idle()) {
    woken.acquire();
    pool.Poll();
  }
  EXPECT_GE(ended, 2);
}

// All work that was passed is done, though its completions do not run.
TEST(OsThreadPool, EndsWithWhatItHasToDo) {
  std::atomic<int> done = 0;
  {
    OsThreadPool pool(2, [] {});
    for (int i = 0; i < 100; ++i) pool.Run([&] { ++done; }, [] { ADD_FAILURE(); });
  }
  EXPECT_EQ(done, 100);
}

Task<int> Sum(ThreadPool* pool, int n) {
  int sum = 0;
  for (int i = 1; i <= n; ++i) {
    const RunInPool::Work add = [&sum, i]() -> absl::Status {
      sum += i;
      if (sum > 50) return absl::OutOfRangeError("enough");
      return absl::OkStatus();
    };
    const absl::Status status = co_await RunInPool(pool, add);
    if (!status.ok()) co_return -sum;
  }
  co_return sum;
}

TEST(OsThreadPool, ACoroutineAwaitsWork) {
  std::counting_semaphore<> woken(0);
  OsThreadPool pool(2, [&] { woken.release(); });
  for (const auto& [n, expected] : {std::pair(9, 45), std::pair(20, -55)}) {
    Task<int> task = Sum(&pool, n);
    task.Start();
    while (!task.done()) {
      woken.acquire();
      pool.Poll();
    }
    EXPECT_EQ(task.Take(), expected);
  }
}

}  // namespace
}  // namespace cell

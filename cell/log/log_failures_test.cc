// Checks that a log keeps all that was synced, whichever call to the file system fails and whenever the machine
// crashes. Encrypted logs keep it as others do.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "cell/log/sealed_log_store.h"
#include "cell/log/test_keys.h"
#include "cell/log/test_log.h"
#include "fmt/format.h"

namespace cell {
namespace {

class LogFailures : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<LogStore> StoreOn(SimFiles* host) const {
    auto store = std::make_unique<DirectoryLogStore>(host, "log");
    if (!GetParam()) return store;
    return std::make_unique<SealedLogStore>(std::move(store),
                                            std::make_shared<TestKeys>(std::vector<DataKey>{TestKey(1)}));
  }
};
INSTANTIATE_TEST_SUITE_P(Encrypted, LogFailures, ::testing::Bool());

// Lets each call to the file system fail once, in turn. Acknowledged writes are there after a crash, or the damage is
// reported.
TEST_P(LogFailures, EachCallFails) {
  uint64_t failed = 0;
  for (uint64_t n = 0;; ++n) {
    SimDisk disk(n + 1);
    const auto host = disk.NewHost();
    const std::unique_ptr<LogStore> store = StoreOn(host.get());
    Owner owner(store.get(), 1);
    host->FailAt(n, n % 2 == 0 ? absl::UnavailableError("EIO") : absl::ResourceExhaustedError("ENOSPC"));
    const auto run = [&]() -> absl::Status {
      RETURN_IF_ERROR(owner.Open(1));
      owner.Range({});
      RETURN_IF_ERROR(owner.Flush());
      for (int round = 0; round < 4; ++round) {
        for (int i = 0; i < 10; ++i) owner.Put(fmt::format("{}", i * round), std::string(300, 'v'));
        RETURN_IF_ERROR(owner.Flush());
        if (round % 2 == 1) RETURN_IF_ERROR(owner.Checkpoint());
      }
      return absl::OkStatus();
    };
    const absl::Status status = run();
    const uint64_t durable = owner.log() == nullptr ? 0 : owner.log()->durable();
    host->Crash();
    LogReplay replay(store.get(), kRegion);
    const absl::Status opened = replay.Open();
    if (durable >= 2) {
      ASSERT_TRUE(opened.ok()) << n << ": " << opened;
      ASSERT_GE(replay.next_sequence(), durable + 1) << n;
      const absl::StatusOr<Model> model = Replayed(replay);
      ASSERT_TRUE(model.ok()) << n << ": " << model.status();
      ASSERT_EQ(*model, owner.states().at(replay.next_sequence() - 1)) << n;
    } else {
      ASSERT_TRUE(opened.ok() || opened.code() == absl::StatusCode::kNotFound) << n << ": " << opened;
    }
    failed += !status.ok();
    if (host->calls() <= n) break;
  }
  EXPECT_GT(failed, 40u);
}

// Owners crash at arbitrary moments, one after the other. Each finds an exact prefix that includes all that was synced.
TEST_P(LogFailures, CrashAfterCrash) {
  uint64_t torn = 0, lost = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SimDisk disk(seed);
    Random random(seed);
    Model model;
    std::vector<std::unique_ptr<SimFiles>> hosts;  // Some lose power only after others have continued from what they
                                                   // wrote.
    for (uint32_t epoch = 1; epoch < 6; ++epoch) {
      SimFiles* const host = hosts.emplace_back(disk.NewHost()).get();
      const std::unique_ptr<LogStore> store = StoreOn(host);
      Owner owner(store.get(), epoch);
      *owner.model() = model;
      if (epoch == 1) {
        ASSERT_TRUE(owner.Open(1).ok());
        owner.Range({});
      } else {
        LogReplay replay(store.get(), kRegion);
        ASSERT_TRUE(replay.Open().ok());
        const bool dies = random.Below(10) == 0;
        if (dies) host->FailAt(random.Below(8), absl::UnavailableError("crashed"));
        const absl::Status status = owner.GoOn(replay);
        ASSERT_TRUE(status.ok() || dies) << status;
        if (!status.ok()) {
          host->Crash();
          continue;
        }
        for (size_t i = 0; i + 1 < hosts.size(); ++i) hosts[i]->Crash();
        host->FailAt(0, absl::OkStatus());
      }
      ASSERT_TRUE(owner.Flush().ok());
      for (uint64_t left = random.Below(60); left > 0; --left) {
        const std::string key = fmt::format("{}", random.Below(20));
        if (random.Below(4) == 0) {
          owner.Delete(key);
        } else {
          owner.Put(key, std::string(random.Below(1500), 'v'));
        }
        if (random.Below(5) == 0) {
          ASSERT_TRUE(owner.Flush().ok());
        }
        if (random.Below(30) == 0) {
          ASSERT_TRUE(owner.Checkpoint().ok());
        }
      }
      auto flush = owner.log()->BeginFlush();
      if (random.Below(2) == 0) {  // It is written but not synced.
        host->FailAt(1, absl::UnavailableError("crashed"));
        ASSERT_FALSE(flush.Write().ok());
      }
      if (random.Below(2) == 0) host->Crash();
      const auto survivor = disk.NewHost();
      const std::unique_ptr<LogStore> theirs = StoreOn(survivor.get());
      ASSERT_TRUE(theirs->Fence(kRegion, epoch + 1).ok());
      LogReplay replay(theirs.get(), kRegion);
      const absl::Status status = replay.Open();
      ASSERT_TRUE(status.ok()) << seed << ": " << status;
      ASSERT_GE(replay.next_sequence(), owner.log()->durable() + 1);
      const absl::StatusOr<Model> replayed = Replayed(replay);
      ASSERT_TRUE(replayed.ok()) << seed << ": " << replayed.status();
      ASSERT_EQ(*replayed, owner.states().at(replay.next_sequence() - 1)) << seed;
      torn += replay.torn_bytes() > 0;
      lost += replay.next_sequence() <= owner.log()->appended();
      model = *replayed;
    }
  }
  EXPECT_GT(torn, 100u);
  EXPECT_GT(lost, 100u);
}

}  // namespace
}  // namespace cell

#include "cell/log/log_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace cell {
namespace {

constexpr char kOurs[] = "0b8fd5ae-8a1c-4b23-9d0d-0f3f6a6b7c11";
constexpr char kOthers[] = "5cf0a9a1-3a52-4a44-bb60-2f6f3c9d2a22";

class LogDirectory : public ::testing::Test {
 protected:
  LogDirectory() {
    char name[] = "/tmp/cell-test-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~LogDirectory() override { std::filesystem::remove_all(directory_); }

  // Makes it look as if a region had a log there.
  void AddLog() {
    std::filesystem::create_directories(logs() + "/region-1");
    std::ofstream(logs() + "/region-1/0000000000000001.00000001.log") << "records";
  }
  std::string logs() const { return directory_ + "/log"; }

  std::string directory_;
};

TEST_F(LogDirectory, IsClaimedByTheFirstClusterAndRefusedToOthers) {
  EXPECT_TRUE(ClaimLogDirectory(logs(), kOurs).ok());
  EXPECT_TRUE(ClaimLogDirectory(logs(), kOurs).ok());
  const absl::Status refused = ClaimLogDirectory(logs(), kOthers);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find(kOurs), std::string::npos);
  EXPECT_TRUE(absl::IsFailedPrecondition(ClaimLogDirectory(logs(), "")));
}

TEST_F(LogDirectory, WithLogsAndNoClaimIsAnEarlierRelease) {
  AddLog();
  EXPECT_TRUE(absl::IsFailedPrecondition(ClaimLogDirectory(logs(), kOurs)));
  EXPECT_TRUE(ClaimLogDirectory(logs(), "").ok());
  EXPECT_FALSE(std::filesystem::exists(logs() + "/cluster"));
}

TEST_F(LogDirectory, IsClaimedByOneOfTwoClustersThatComeAtOnce) {
  for (int round = 0; round < 50; ++round) {
    std::vector<absl::Status> claims(2);
    std::thread other([&] { claims[1] = ClaimLogDirectory(logs(), kOthers); });
    claims[0] = ClaimLogDirectory(logs(), kOurs);
    other.join();
    EXPECT_EQ(claims[0].ok() + claims[1].ok(), 1) << claims[0] << " " << claims[1];
    ASSERT_TRUE(RemoveLogDirectory(logs(), claims[0].ok() ? kOurs : kOthers).ok());
  }
}

// Otherwise the directory of a cluster whose first start was interrupted could neither be used nor wiped.
TEST_F(LogDirectory, IsRemovedWithAClaimThatWasInterrupted) {
  std::filesystem::create_directory(logs());
  const auto unfinished = [this](const std::string& uuid) { return logs() + "/cluster." + uuid + ".123"; };
  std::ofstream(unfinished(kOurs)) << kOurs;
  std::ofstream(unfinished(kOthers)) << kOthers;
  EXPECT_TRUE(RemoveLogDirectory(logs(), kOurs).ok());
  EXPECT_FALSE(std::filesystem::exists(unfinished(kOurs)));
  EXPECT_TRUE(std::filesystem::exists(unfinished(kOthers)));
  EXPECT_TRUE(RemoveLogDirectory(logs(), kOthers).ok());
  EXPECT_FALSE(std::filesystem::exists(logs()));
}

TEST_F(LogDirectory, IsRemovedForItsOwnClusterAlone) {
  EXPECT_TRUE(RemoveLogDirectory(logs(), kOurs).ok());  // There is no directory.
  ASSERT_TRUE(ClaimLogDirectory(logs(), kOurs).ok());
  AddLog();
  EXPECT_TRUE(absl::IsFailedPrecondition(RemoveLogDirectory(logs(), kOthers)));
  EXPECT_TRUE(std::filesystem::exists(logs() + "/region-1"));
  std::ofstream(logs() + "/notes") << "somebody else's";
  EXPECT_TRUE(RemoveLogDirectory(logs(), kOurs).ok());
  EXPECT_FALSE(std::filesystem::exists(logs() + "/region-1"));
  EXPECT_TRUE(std::filesystem::exists(logs() + "/notes"));
  std::filesystem::remove(logs() + "/notes");
  EXPECT_TRUE(ClaimLogDirectory(logs(), kOthers).ok());
}

}  // namespace
}  // namespace cell

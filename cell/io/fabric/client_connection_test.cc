#include "cell/io/fabric/client_connection.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cell/io/fabric/waiter.h"

namespace cell {
namespace {

class ClientConnectionTest : public ::testing::Test {
 protected:
  struct Told {
    Completion* completion;
    absl::StatusCode code;
    std::string message;

    bool operator==(const Told&) const = default;
  };

  void Establish() {
    connection_.Establish(tell_);
    told_.clear();
  }
  // Breaks the connection, on which these reads are under way.
  void Break(uint64_t calls_sent_to, const std::vector<Completion*>& reads = {}) {
    connection_.Break("gone", calls_sent_to, tell_, [&](const auto& tell_lost) {
      for (Completion* read : reads) tell_lost(read);
    });
  }
  static Told Lost(Completion* completion) {
    return {completion, absl::StatusCode::kUnavailable, "connection to there: gone"};
  }

  std::vector<Told> told_;
  const std::function<void(Completion*, const absl::Status&)> tell_ = [this](Completion* completion,
                                                                             const absl::Status& status) {
    told_.push_back({completion, status.code(), std::string(status.message())});
  };
  Waiter connect_, read_, sent_, unsent_;
  ClientConnection connection_{"there", 100, &connect_};
};

TEST_F(ClientConnectionTest, ItIsUpOnceEstablishedAndTellsConnectOnce) {
  EXPECT_TRUE(connection_.connecting());
  EXPECT_EQ(connection_.connect_deadline_ns(), 100);
  connection_.Establish(tell_);
  EXPECT_EQ(told_, (std::vector<Told>{{&connect_, absl::StatusCode::kOk, ""}}));
  EXPECT_TRUE(connection_.up());
  EXPECT_FALSE(connection_.connecting() || connection_.broken());
  Break(0);
  EXPECT_EQ(told_.size(), 1u);
  EXPECT_TRUE(connection_.broken());
  EXPECT_FALSE(connection_.connecting() || connection_.up());
}

TEST_F(ClientConnectionTest, AConnectionThatBreaksBeforeItIsUpTellsConnectWhy) {
  Break(0);
  EXPECT_EQ(told_, (std::vector<Told>{Lost(&connect_)}));
  EXPECT_TRUE(connection_.broken());
  EXPECT_FALSE(connection_.connecting() || connection_.up());
}

TEST_F(ClientConnectionTest, ConnectIsToldThatThisUserMayNotConnect) {
  connection_.Break(
      "locked", 0, tell_, [](const auto&) {}, absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(told_,
            (std::vector<Told>{{&connect_, absl::StatusCode::kPermissionDenied, "connection to there: locked"}}));
  EXPECT_EQ(connection_.lost(), absl::UnavailableError("connection to there: locked"));
}

TEST_F(ClientConnectionTest, BreakTellsReadsThenCallsAndOnlyCallsThatWereSentAreUnknown) {
  Establish();
  connection_.calls().Add(&sent_, 100, 256, 10);
  connection_.calls().Add(&unsent_, 100, 256, 11);
  Break(10, {&read_});
  EXPECT_EQ(told_,
            (std::vector<Told>{
                Lost(&read_), {&sent_, absl::StatusCode::kUnknown, "connection to there: gone"}, Lost(&unsent_)}));
  EXPECT_EQ(connection_.calls().in_flight(), 0u);
}

TEST_F(ClientConnectionTest, ItIsBrokenBeforeAnyoneIsTold) {
  Establish();
  connection_.calls().Add(&sent_, 100, 256, 1);
  int told = 0;
  const auto tell = [&](Completion*, const absl::Status&) {
    ++told;
    EXPECT_TRUE(connection_.broken());
    EXPECT_EQ(connection_.lost().message(), "connection to there: gone");
  };
  connection_.Break("gone", 0, tell, [&](const auto& tell_lost) { tell_lost(&read_); });
  EXPECT_EQ(told, 2);
}

TEST_F(ClientConnectionTest, ARefusalSaysWhyTheConnectionBroke) {
  EXPECT_EQ(ClientConnection::Refusal(nullptr), absl::UnavailableError("not connected"));
  EXPECT_EQ(ClientConnection::Refusal(&connection_), absl::UnavailableError("not connected"));
  Break(0);
  EXPECT_EQ(ClientConnection::Refusal(&connection_), absl::UnavailableError("connection to there: gone"));
}

TEST_F(ClientConnectionTest, ACallIsToldOnceWhenItsDeadlineHasPassed) {
  Establish();
  connection_.calls().Add(&sent_, 10, 256, 1);
  connection_.calls().Add(&unsent_, 20, 256, 2);
  EXPECT_EQ(connection_.ExpireCalls(9, tell_), 10);
  EXPECT_TRUE(told_.empty());
  EXPECT_EQ(connection_.ExpireCalls(10, tell_), 20);
  EXPECT_EQ(told_, (std::vector<Told>{{&sent_, absl::StatusCode::kDeadlineExceeded, "no answer from there in time"}}));
  told_.clear();
  Break(2);  // The server may have served the call that is late, but its caller knows already that it is.
  EXPECT_EQ(told_, (std::vector<Told>{{&unsent_, absl::StatusCode::kUnknown, "connection to there: gone"}}));
}

TEST_F(ClientConnectionTest, ErrorsOfReadsNameTheServer) {
  EXPECT_EQ(connection_.LateRead(), absl::DeadlineExceededError("no reply to a read from there in time"));
  EXPECT_EQ(connection_.NotHeld(7), absl::OutOfRangeError("region 7 is not held by the server at there"));
  const absl::Status outside = connection_.Outside({Pointer(7, 4096), nullptr, 64});
  EXPECT_TRUE(absl::IsOutOfRange(outside));
  EXPECT_EQ(outside.message(),
            "read of 64 bytes at " + ToString(Pointer(7, 4096)) + " is outside the regions of there");
}

}  // namespace
}  // namespace cell
